//! Errors as HBase's clients understand them: the one place that names Java classes of exceptions.
//!
//! A client decides by the class whether it retries, where, and after which pause; by the text it learns the new place of a
//! region. It builds the exception by reflection, so every class here has a public constructor with one string.
//!
//! Invariants:
//! - `do_not_retry` is set exactly for subclasses of `DoNotRetryIOException`.
//! - A write whose outcome is unknown is retried by the client only if applying it twice does no harm.
//! - The text is bounded, so that an answer with an exception always fits a frame.

use bytes::Bytes;
use terrane_types::{Error, ServerId};

use crate::place::Place;
use crate::proto;

/// Most bytes of an exception's text: it may quote what the client sent.
pub const TEXT_BYTES_MAX: usize = 4_096;

/// Why a get of the closest row before is refused. asynchbase learns from the class that it talks to HBase 2.
pub(crate) const NO_CLOSEST_ROW: &str = "gets of the closest row before were removed in HBase 2";

/// An exception as it travels.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Exception {
    /// The Java class.
    pub class: &'static str,
    /// What happened and what to do.
    pub text: String,
    /// Whether the same request will fail again.
    pub do_not_retry: bool,
    /// Whether the client should take its longer pause.
    pub overloaded: bool,
}

macro_rules! classes {
    ($($(#[$doc:meta])* $name:ident = $class:literal, $retry:ident;)*) => {
        $($(#[$doc])* pub const $name: Class = Class { name: concat!("org.apache.hadoop.hbase.", $class), retry: Retry::$retry };)*
        /// Every class that is sent.
        pub const CLASSES: &[Class] = &[$($name),*];
    };
}

/// A Java class of exceptions, and what clients do about it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Class {
    /// The fully qualified name.
    pub name: &'static str,
    /// What clients do.
    pub retry: Retry,
}

/// What a client does about an exception.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Retry {
    /// It fails: the class extends `DoNotRetryIOException`.
    Never,
    /// It forgets where the region is, and tries again.
    Elsewhere,
    /// It tries the same server again after a pause.
    Here,
}

classes! {
    /// The request is wrong, or needs what this server does not have.
    DO_NOT_RETRY = "DoNotRetryIOException", Never;
    /// The region is not here.
    NOT_SERVING_REGION = "NotServingRegionException", Elsewhere;
    /// The region has moved to a place that the text names.
    REGION_MOVED = "exceptions.RegionMovedException", Elsewhere;
    /// The region is about to be served.
    REGION_OPENING = "exceptions.RegionOpeningException", Elsewhere;
    /// The region takes no more requests for now.
    REGION_TOO_BUSY = "RegionTooBusyException", Here;
    /// The server takes no more requests for now.
    CALL_QUEUE_TOO_BIG = "CallQueueTooBigException", Here;
    /// The rest of a batch is to be sent again at once.
    RETRY_IMMEDIATELY = "RetryImmediatelyException", Here;
    /// The server could not do it in time.
    TIMEOUT = "exceptions.TimeoutIOException", Here;
    /// The master does not lead; the client closes its connections and asks which one does.
    SERVER_NOT_RUNNING = "ipc.ServerNotRunningYetException", Elsewhere;
    /// The master cannot answer yet.
    PLEASE_HOLD = "PleaseHoldException", Here;
    /// The frame is over the limit.
    REQUEST_TOO_BIG = "exceptions.RequestTooBigException", Never;
    /// The row is outside of the region.
    WRONG_REGION = "regionserver.WrongRegionException", Elsewhere;
    /// The table has no such family.
    NO_SUCH_FAMILY = "regionserver.NoSuchColumnFamilyException", Never;
    /// The scanner is unknown or has expired; the client reopens it.
    UNKNOWN_SCANNER = "UnknownScannerException", Never;
    /// The scan cannot continue; the client reopens it.
    SCANNER_RESET = "exceptions.ScannerResetException", Never;
    /// A call of a scanner came out of order.
    OUT_OF_ORDER_SCANNER = "exceptions.OutOfOrderScannerNextException", Never;
    /// No such coprocessor, and gets of the closest row before.
    UNKNOWN_PROTOCOL = "exceptions.UnknownProtocolException", Never;
    /// A file of the region is damaged.
    CORRUPT = "io.hfile.CorruptHFileException", Never;
    /// A descriptor is refused.
    SANITY_CHECK = "exceptions.FailedSanityCheckException", Never;
    /// The table does not exist.
    TABLE_NOT_FOUND = "TableNotFoundException", Never;
    /// The table exists already.
    TABLE_EXISTS = "TableExistsException", Never;
    /// The table is disabled.
    TABLE_NOT_ENABLED = "TableNotEnabledException", Never;
    /// The table is not disabled.
    TABLE_NOT_DISABLED = "TableNotDisabledException", Never;
    /// The namespace does not exist.
    NAMESPACE_NOT_FOUND = "NamespaceNotFoundException", Never;
    /// The namespace exists already.
    NAMESPACE_EXISTS = "NamespaceExistException", Never;
    /// A family exists already, does not exist, or is the last one.
    INVALID_FAMILY = "InvalidFamilyOperationException", Never;
    /// A rule of namespaces forbids it.
    CONSTRAINT = "constraint.ConstraintException", Never;
    /// The region does not exist.
    UNKNOWN_REGION = "UnknownRegionException", Never;
    /// The regions cannot be merged.
    MERGE_REGION = "exceptions.MergeRegionException", Never;
    /// The snapshot does not exist.
    NO_SUCH_SNAPSHOT = "snapshot.SnapshotDoesNotExistException", Never;
    /// The replication peer does not exist.
    NO_SUCH_PEER = "ReplicationPeerNotFoundException", Never;
    /// The connection does not begin as one of HBase's.
    FATAL_CONNECTION = "ipc.FatalConnectionException", Never;
    /// The connection's version is unknown.
    WRONG_VERSION = "ipc.WrongVersionException", Never;
    /// The connection's authentication is unknown.
    BAD_AUTH = "ipc.BadAuthException", Never;
    /// The connection names no service.
    EMPTY_SERVICE = "ipc.EmptyServiceNameException", Never;
    /// The connection names an unknown service.
    UNKNOWN_SERVICE = "ipc.UnknownServiceException", Never;
    /// The connection's codec is unknown.
    UNSUPPORTED_CODEC = "ipc.UnsupportedCellCodecException", Never;
    /// The connection's compression is unknown.
    UNSUPPORTED_COMPRESSION = "ipc.UnsupportedCompressionCodecException", Never;
    /// The connection's encryption is not available.
    UNSUPPORTED_CRYPTO = "ipc.UnsupportedCryptoException", Never;
    /// A question about Kerberos to a server without it.
    SECURITY_NOT_ENABLED = "security.SecurityNotEnabledException", Never;
}

/// What decides how an error is said, beside the error.
pub struct Context<'a> {
    /// Whether the request may be applied twice without harm, so that a client may retry it when its outcome is unknown.
    pub repeatable: bool,
    /// Whether a master answers.
    pub master: bool,
    /// Where a server is for HBase's clients, with the number that orders the news of the region's place.
    pub place: &'a dyn Fn(ServerId) -> Option<(Place, u64)>,
}

impl Exception {
    /// An exception of a class.
    #[must_use]
    pub fn new(class: Class, text: impl Into<String>) -> Self {
        let mut text = text.into();
        if text.len() > TEXT_BYTES_MAX {
            let end = (0..=TEXT_BYTES_MAX - 3).rev().find(|&at| text.is_char_boundary(at)).unwrap_or(0);
            text.truncate(end);
            text.push_str("...");
        }
        Self {
            class: class.name,
            text,
            do_not_retry: class.retry == Retry::Never,
            overloaded: class == CALL_QUEUE_TOO_BIG,
        }
    }

    /// A request that is refused, whatever the server does.
    #[must_use]
    pub fn bad_request(what: &str) -> Self {
        Self::new(DO_NOT_RETRY, what)
    }

    /// Whether the client sends the same call to the same server again.
    #[must_use]
    pub fn is_retried_here(&self) -> bool {
        CLASSES.iter().any(|class| class.name == self.class && class.retry == Retry::Here)
    }

    /// An answer that no frame can carry.
    #[must_use]
    pub fn too_large_an_answer(bytes: usize) -> Self {
        Self::new(DO_NOT_RETRY, format!("the answer would have {bytes} bytes; ask for fewer rows or columns"))
    }

    /// A region that has moved; clients parse the text.
    #[must_use]
    pub fn region_moved(to: &Place, order: u64) -> Self {
        let Place { host, port, start_code } = to;
        let text = format!(
            "Region moved to: hostname={host} port={port} startCode={start_code}. As of locationSeqNum={order}."
        );
        Self::new(REGION_MOVED, text)
    }

    /// What a client is told about an error.
    #[must_use]
    pub fn of(error: &Error, context: &Context<'_>) -> Self {
        if let Error::NotLeader { leader: Some(leader), .. } = error
            && let Some((place, order)) = (context.place)(*leader)
        {
            return Self::region_moved(&place, order);
        }
        Self::new(class_of(error, context), error.to_string())
    }

    /// The exception in the header of an answer.
    #[must_use]
    pub fn to_response(&self) -> proto::ExceptionResponse {
        proto::ExceptionResponse {
            exception_class_name: Some(self.class.to_owned()),
            stack_trace: Some(self.stack_trace()),
            hostname: None,
            port: None,
            do_not_retry: Some(self.do_not_retry),
            server_overloaded: self.overloaded.then_some(true),
        }
    }

    /// The exception of one action or one region of a batch.
    #[must_use]
    pub fn to_pair(&self) -> proto::NameBytesPair {
        proto::NameBytesPair { name: self.class.to_owned(), value: Some(Bytes::from(self.stack_trace())) }
    }

    fn stack_trace(&self) -> String {
        format!("{}: {}", self.class, self.text)
    }
}

fn class_of(error: &Error, context: &Context<'_>) -> Class {
    match error {
        Error::StaleEpoch { .. } | Error::NotLeader { .. } => NOT_SERVING_REGION,
        Error::Moving { .. } | Error::Busy { .. } | Error::LogFull { .. } => REGION_TOO_BUSY,
        Error::Uncertain { not_tried: _ } if context.repeatable => TIMEOUT,
        Error::Uncertain { .. } | Error::AlreadyApplied => DO_NOT_RETRY,
        Error::SnapshotTooOld { .. } => SCANNER_RESET,
        Error::Corruption { .. } => CORRUPT,
        // HBase reopens the regions of an altered table.
        Error::SchemaChanged { .. } => REGION_OPENING,
        Error::NotFound { what } if what.starts_with("table ") => TABLE_NOT_FOUND,
        Error::NotFound { what } if what.starts_with("namespace ") => NAMESPACE_NOT_FOUND,
        Error::AlreadyExists { what } if what.starts_with("table ") => TABLE_EXISTS,
        Error::AlreadyExists { what } if what.starts_with("namespace ") => NAMESPACE_EXISTS,
        Error::Unavailable { .. } if context.master => PLEASE_HOLD,
        Error::Unavailable { .. } => NOT_SERVING_REGION,
        Error::DeadlineExceeded | Error::InProgress { .. } => TIMEOUT,
        Error::Disabled { .. } => TABLE_NOT_ENABLED,
        // Each of the rest fails in the same way when it is tried again.
        _ => DO_NOT_RETRY,
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use terrane_types::{GroupId, Invalid};

    use super::*;

    fn context(repeatable: bool) -> Context<'static> {
        Context {
            repeatable,
            master: false,
            place: &|server| {
                (server == ServerId(2)).then(|| (Place { host: "h2".to_owned(), port: 16_020, start_code: 77 }, 9))
            },
        }
    }

    fn not_leader(leader: u64) -> Error {
        Error::NotLeader {
            group: GroupId(1),
            term: 3,
            leader: Some(ServerId(leader)),
            address: None,
            members: Vec::new(),
        }
    }

    #[test]
    fn a_redirect_names_the_new_place_as_clients_parse_it() {
        let exception = Exception::of(&not_leader(2), &context(true));
        assert_eq!(exception.class, "org.apache.hadoop.hbase.exceptions.RegionMovedException");
        assert!(exception.text.ends_with("hostname=h2 port=16020 startCode=77. As of locationSeqNum=9."));
        assert!(!exception.do_not_retry);
        let unknown = Exception::of(&not_leader(3), &context(true));
        assert_eq!(unknown.class, "org.apache.hadoop.hbase.NotServingRegionException");
    }

    #[test]
    fn an_unknown_outcome_is_retried_only_if_the_request_can_be_repeated() {
        let error = Error::Uncertain { not_tried: false };
        assert!(!Exception::of(&error, &context(true)).do_not_retry);
        assert!(Exception::of(&error, &context(false)).do_not_retry);
    }

    #[test]
    fn refusals_that_pass_are_retried_and_others_are_not() {
        let wait = Duration::from_millis(10);
        for error in [Error::Busy { retry_after: wait }, Error::DeadlineExceeded, not_leader(1)] {
            assert!(!Exception::of(&error, &context(false)).do_not_retry, "{error}");
        }
        let invalid = Error::Invalid(Invalid::new("no"));
        for error in [Error::AlreadyApplied, invalid, Error::Internal { message: "x".to_owned() }] {
            assert!(Exception::of(&error, &context(true)).do_not_retry, "{error}");
        }
    }

    #[test]
    fn tables_and_namespaces_have_classes_of_their_own() {
        let name = |error: Error| Exception::of(&error, &context(false)).class.rsplit_once('.').unwrap().1;
        assert_eq!(name(Error::NotFound { what: "table t".to_owned() }), "TableNotFoundException");
        assert_eq!(name(Error::NotFound { what: "namespace n".to_owned() }), "NamespaceNotFoundException");
        assert_eq!(name(Error::AlreadyExists { what: "table t".to_owned() }), "TableExistsException");
        assert_eq!(name(Error::Disabled { what: "table t".to_owned() }), "TableNotEnabledException");
    }

    #[test]
    fn the_first_line_names_the_class_and_a_long_text_is_cut_between_characters() {
        let exception = Exception::bad_request(&"ä".repeat(TEXT_BYTES_MAX));
        assert!(exception.text.len() <= TEXT_BYTES_MAX && exception.text.ends_with("ä..."));
        let response = Exception::bad_request("no").to_response();
        assert_eq!(response.stack_trace.as_deref(), Some("org.apache.hadoop.hbase.DoNotRetryIOException: no"));
        assert_eq!(response.do_not_retry, Some(true));
    }
}
