//! The identity of a traced request, in the form of the W3C's Trace Context.
//!
//! A request carries a [`TraceContext`] only if its trace is sampled, so its presence is the decision to record.

use std::fmt;

/// Bytes of a context on the wire and in the log: the trace's, then the span's.
pub const TRACE_CONTEXT_BYTES: usize = 24;
/// The flag of a `traceparent` that says that the trace is recorded.
const SAMPLED: u8 = 1;
/// The version of `traceparent` that this build writes.
const VERSION: &str = "00";

/// The identity of a trace: 16 bytes, not all zero.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct TraceId(u128);

/// The identity of a span within its trace: 8 bytes, not all zero.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct SpanId(u64);

/// A sampled trace, and the span in it that is the parent of what follows.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct TraceContext {
    /// The trace.
    pub trace: TraceId,
    /// The parent of what follows.
    pub span: SpanId,
}

/// Why bytes or text are no trace context.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct BadTrace(String);

impl TraceId {
    /// The identity with these bytes, read as a big-endian number; `None` for 0, which stands for none.
    #[must_use]
    pub const fn new(id: u128) -> Option<Self> {
        if id == 0 { None } else { Some(Self(id)) }
    }

    /// The number.
    #[must_use]
    pub const fn get(self) -> u128 {
        self.0
    }
}

impl SpanId {
    /// The identity with these bytes, read as a big-endian number; `None` for 0, which stands for none.
    #[must_use]
    pub const fn new(id: u64) -> Option<Self> {
        if id == 0 { None } else { Some(Self(id)) }
    }

    /// The number.
    #[must_use]
    pub const fn get(self) -> u64 {
        self.0
    }
}

impl TraceContext {
    /// Reads the value of a `traceparent` header, `00-TRACE-SPAN-FLAGS` in hexadecimal digits. `None` if the trace is not
    /// sampled.
    ///
    /// # Errors
    /// [`BadTrace`] for anything else.
    ///
    /// ```
    /// use terrane_env::trace::TraceContext;
    ///
    /// let text = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01";
    /// assert_eq!(TraceContext::from_traceparent(text)?.unwrap().to_string(), text);
    /// # Ok::<(), terrane_env::trace::BadTrace>(())
    /// ```
    pub fn from_traceparent(text: &str) -> Result<Option<Self>, BadTrace> {
        let bad = |why: &str| {
            BadTrace(format!(
                "`{}` is no traceparent: {why}; it looks like 00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01",
                text.escape_default()
            ))
        };
        let mut fields = text.split('-');
        let mut field = |digits: usize, name: &str| {
            let field = fields.next().unwrap_or_default();
            let is_hexadecimal = field.bytes().all(|byte| byte.is_ascii_digit() || (b'a'..=b'f').contains(&byte));
            if field.len() != digits || !is_hexadecimal {
                return Err(bad(&format!("its {name} is not {digits} lower-case hexadecimal digits")));
            }
            u128::from_str_radix(field, 16).map_err(|_| bad(&format!("its {name} is no number")))
        };
        let version = field(2, "version")?;
        let (trace, span, flags) = (field(32, "trace")?, field(16, "span")?, field(2, "flags")?);
        // Later versions may append fields, and nothing else may.
        if version == 0xFF || (version == 0 && fields.next().is_some()) {
            return Err(bad("its version is unknown, or it is too long"));
        }
        let span = u64::try_from(span).expect("16 hexadecimal digits are 64 bits");
        let (Some(trace), Some(span)) = (TraceId::new(trace), SpanId::new(span)) else {
            return Err(bad("a trace and a span are not zero"));
        };
        Ok((flags & u128::from(SAMPLED) != 0).then_some(Self { trace, span }))
    }

    /// The bytes of the context.
    #[must_use]
    pub fn to_bytes(self) -> [u8; TRACE_CONTEXT_BYTES] {
        let mut bytes = [0; TRACE_CONTEXT_BYTES];
        bytes[..16].copy_from_slice(&self.trace.0.to_be_bytes());
        bytes[16..].copy_from_slice(&self.span.0.to_be_bytes());
        bytes
    }

    /// Reads the bytes of a context; none at all mean that there is no trace.
    ///
    /// # Errors
    /// [`BadTrace`] for another number of bytes, and for a trace or a span of zero.
    pub fn from_bytes(bytes: &[u8]) -> Result<Option<Self>, BadTrace> {
        if bytes.is_empty() {
            return Ok(None);
        }
        let parts = bytes.split_first_chunk::<16>().and_then(|(trace, span)| Some((trace, span.try_into().ok()?)));
        let Some((trace, span)) = parts else {
            return Err(BadTrace(format!("a trace context has {TRACE_CONTEXT_BYTES} bytes, this one {}", bytes.len())));
        };
        match (TraceId::new(u128::from_be_bytes(*trace)), SpanId::new(u64::from_be_bytes(span))) {
            (Some(trace), Some(span)) => Ok(Some(Self { trace, span })),
            _ => Err(BadTrace("a trace context names a trace and a span that are not zero".to_owned())),
        }
    }
}

impl fmt::Display for TraceId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:032x}", self.0)
    }
}

impl fmt::Display for SpanId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:016x}", self.0)
    }
}

impl fmt::Debug for TraceId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

impl fmt::Debug for SpanId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

/// As the value of a `traceparent` header.
impl fmt::Display for TraceContext {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{VERSION}-{}-{}-{SAMPLED:02x}", self.trace, self.span)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn contexts_round_trip_as_text_and_bytes(trace in 1u128.., span in 1u64..) {
            let context = TraceContext { trace: TraceId::new(trace).unwrap(), span: SpanId::new(span).unwrap() };
            prop_assert_eq!(TraceContext::from_traceparent(&context.to_string()), Ok(Some(context)));
            prop_assert_eq!(TraceContext::from_bytes(&context.to_bytes()), Ok(Some(context)));
        }

        #[test]
        fn random_text_and_bytes_never_panic(text in ".{0,80}", bytes in proptest::collection::vec(any::<u8>(), 0..40)) {
            TraceContext::from_traceparent(&text).ok();
            TraceContext::from_bytes(&bytes).ok();
        }
    }

    #[test]
    fn only_sampled_traces_are_contexts() {
        let trace = "4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7";
        assert_eq!(TraceContext::from_traceparent(&format!("00-{trace}-00")), Ok(None));
        assert!(
            TraceContext::from_traceparent(&format!("00-{trace}-03")).unwrap().is_some(),
            "unknown flags do not count"
        );
        assert!(TraceContext::from_traceparent(&format!("cc-{trace}-01-later")).unwrap().is_some(), "a later version");
    }

    #[test]
    fn what_is_no_context_is_refused_with_its_reason() {
        let reason = |text: &str| TraceContext::from_traceparent(text).unwrap_err().to_string();
        assert!(reason("").contains("its version is not 2"));
        assert!(
            reason("00-4BF92F3577B34DA6A3CE929D0E0E4736-00f067aa0ba902b7-01")
                .contains("its trace is not 32 lower-case")
        );
        assert!(reason("00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7").contains("its flags"));
        assert!(reason("00-00000000000000000000000000000000-00f067aa0ba902b7-01").contains("not zero"));
        assert!(reason("ff-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01").contains("version"));
        assert!(reason("00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01-00").contains("too long"));
        assert!(TraceContext::from_bytes(&[1; 23]).unwrap_err().to_string().contains("24 bytes, this one 23"));
        assert!(TraceContext::from_bytes(&[0; 24]).is_err());
    }
}
