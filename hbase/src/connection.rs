//! A connection of HBase's RPC from its first byte, without I/O: received bytes go in, events come out.
//!
//! A connection opens with six bytes, the preamble, and a header that names service, user and codec; the server answers
//! neither. Then calls follow. Two other preambles are questions that are answered at once.
//!
//! ```text
//! HBas 0 80       simple authentication: header and calls follow
//! HBas 0 81 | 82  Kerberos or a token: the client is told to go on with simple authentication
//! Regist          which cluster is this? one answer, then the end
//! Securi          which principal? refused, and the preamble follows
//! ```
//!
//! Invariants:
//! - A frame is kept only as far as it has arrived; one over the limit is skipped without keeping it, and its call is
//!   refused.
//! - After [`Event::Refused`] the connection reads nothing more.

use bytes::{Buf as _, Bytes, BytesMut};
use prost::Message as _;

use crate::cell_block::Codec;
use crate::compression::Compression;
use crate::exception::{
    BAD_AUTH, Class, EMPTY_SERVICE, Exception, FATAL_CONNECTION, REQUEST_TOO_BIG, SECURITY_NOT_ENABLED,
    UNKNOWN_SERVICE, UNSUPPORTED_CODEC, UNSUPPORTED_COMPRESSION, UNSUPPORTED_CRYPTO, WRONG_VERSION,
};
use crate::frame::{Call, Malformed, NO_CALL, call_of_beginning, decode_call, encode_exception};
use crate::limits::FRAME_BYTES_MAX;
use crate::proto;

/// Most bytes of a connection's header.
pub const HEADER_BYTES_MAX: usize = 64 << 10;

/// Most bytes of a token that is skipped.
const TOKEN_BYTES_MAX: usize = 64 << 10;

/// Most bytes of a frame over the limit in which its header is looked for.
const CALL_HEADER_BYTES_MAX: usize = 16 << 10;

const PREAMBLE_BYTES: usize = 6;

/// What a client that wants Kerberos is told: it succeeded, and the next step is simple authentication (-88).
const SWITCH_TO_SIMPLE: [u8; 8] = [0, 0, 0, 0, 0xff, 0xff, 0xff, 0xa8];

/// The services of a connection's header.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Service {
    /// Gets, writes and scans.
    Client,
    /// Regions of one server.
    Admin,
    /// Tables and procedures.
    Master,
    /// How the cluster is found.
    ClientMeta,
}

impl Service {
    fn named(name: &str) -> Option<Self> {
        match name {
            "ClientService" => Some(Self::Client),
            "AdminService" => Some(Self::Admin),
            "MasterService" => Some(Self::Master),
            "ClientMetaService" => Some(Self::ClientMeta),
            _ => None,
        }
    }
}

/// What a connection's header says.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Opened {
    /// The service that its calls are for.
    pub service: Service,
    /// The user, as the client says.
    pub user: String,
    /// How cell blocks are laid out; `None`: cells travel in messages.
    pub codec: Option<Codec>,
    /// How cell blocks are compressed, in both directions.
    pub compression: Option<Compression>,
    /// The client's major and minor version, if it says so.
    pub version: Option<(u32, u32)>,
}

impl Opened {
    /// How the cells of the answer to a get are laid out. As in HBase, clients before 1.3, and those that do not say what they
    /// are, get them in the message: the older ones look nowhere else, though they have a codec.
    #[must_use]
    pub fn codec_of_gets(&self) -> Option<Codec> {
        self.codec.filter(|_| self.version.is_some_and(|version| version >= (1, 3)))
    }

    /// Whether the client knows `RetryImmediatelyException`. To one before 1.2 it is a failure for good.
    #[must_use]
    pub fn knows_immediate_retries(&self) -> bool {
        self.version.is_none_or(|version| version >= (1, 2))
    }

    /// Whether the client knows `ScannerResetException`. One that does not opens a scanner again after
    /// `UnknownScannerException`.
    #[must_use]
    pub fn knows_scanner_resets(&self) -> bool {
        self.version.is_some_and(|version| version >= (1, 4))
    }
}

/// What the received bytes amount to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Event {
    /// The client asks for the cluster: answer it, then close.
    Registry,
    /// Send these bytes and go on.
    Send(Bytes),
    /// The header has come.
    Opened(Opened),
    /// A call.
    Call(Call),
    /// A call that is refused here: answer it and go on.
    Malformed(Malformed),
    /// Send these bytes, then close.
    Refused(Bytes),
}

/// A connection.
#[derive(Debug)]
pub struct Connection {
    state: State,
    frame_bytes_max: usize,
}

#[derive(Debug)]
enum State {
    Preamble,
    /// The client sends a token before it sees that none is wanted.
    Token,
    Header,
    Calls,
    /// So many bytes of a frame over the limit are still to come.
    Skipping(usize),
    Ended,
}

impl Default for Connection {
    fn default() -> Self {
        Self::new(FRAME_BYTES_MAX)
    }
}

impl Connection {
    /// A connection whose calls have at most so many bytes.
    #[must_use]
    pub const fn new(frame_bytes_max: usize) -> Self {
        Self { state: State::Preamble, frame_bytes_max }
    }

    /// The next event in the received bytes, whose beginning it consumes; `None` if more bytes are needed.
    pub fn receive(&mut self, received: &mut BytesMut) -> Option<Event> {
        loop {
            match self.state {
                State::Preamble => return self.preamble(received),
                State::Token => match take_frame(received, TOKEN_BYTES_MAX)? {
                    Ok(_) => self.state = State::Header,
                    Err(length) => return Some(self.refuse(FATAL_CONNECTION, over_limit("token", length))),
                },
                State::Header => {
                    return match take_frame(received, HEADER_BYTES_MAX)? {
                        Ok(header) => Some(self.header(header)),
                        Err(length) => Some(self.refuse(FATAL_CONNECTION, over_limit("connection header", length))),
                    };
                }
                State::Calls => {
                    return match take_frame(received, self.frame_bytes_max)? {
                        Ok(frame) => Some(decode_call(frame.freeze()).map_or_else(Event::Malformed, Event::Call)),
                        Err(length) => self.over_limit_call(length, received),
                    };
                }
                State::Skipping(left) => {
                    let skipped = left.min(received.len());
                    received.advance(skipped);
                    if skipped < left {
                        self.state = State::Skipping(left - skipped);
                        return None;
                    }
                    self.state = State::Calls;
                }
                State::Ended => return None,
            }
        }
    }

    /// Whether its header has come, so that calls may.
    #[must_use]
    pub fn is_open(&self) -> bool {
        matches!(self.state, State::Calls | State::Skipping(_))
    }

    fn preamble(&mut self, received: &mut BytesMut) -> Option<Event> {
        if received.len() < PREAMBLE_BYTES {
            return None;
        }
        let preamble = received.split_to(PREAMBLE_BYTES);
        match &preamble[..] {
            b"Regist" => {
                self.state = State::Ended;
                Some(Event::Registry)
            }
            b"Securi" => {
                let exception = Exception::new(SECURITY_NOT_ENABLED, "this cluster has no Kerberos principals");
                Some(Event::Send(encode_exception(NO_CALL, &exception)))
            }
            [b'H', b'B', b'a', b's', 0, 80] => {
                self.state = State::Header;
                self.receive(received)
            }
            [b'H', b'B', b'a', b's', 0, 81 | 82] => {
                self.state = State::Token;
                Some(Event::Send(Bytes::from_static(&SWITCH_TO_SIMPLE)))
            }
            [b'H', b'B', b'a', b's', 0, auth] => {
                Some(self.refuse(BAD_AUTH, format!("authentication {auth} is unknown; 80 is simple authentication")))
            }
            [b'H', b'B', b'a', b's', version, _] => {
                Some(self.refuse(WRONG_VERSION, format!("version {version} of the protocol is unknown; 0 is known")))
            }
            // Clients test the beginning of this sentence.
            other => Some(self.refuse(
                FATAL_CONNECTION,
                format!("Expected HEADER=HBas but received HEADER={}", terrane_types::escape(&other[..4])),
            )),
        }
    }

    fn header(&mut self, header: BytesMut) -> Event {
        match open(header) {
            Ok(opened) => {
                self.state = State::Calls;
                Event::Opened(opened)
            }
            Err((class, why)) => self.refuse(class, why),
        }
    }

    /// The header of the call is waited for, so that the client learns which call is refused.
    fn over_limit_call(&mut self, length: i32, received: &mut BytesMut) -> Option<Event> {
        let Ok(bytes) = usize::try_from(length) else {
            return Some(self.refuse(FATAL_CONNECTION, format!("a frame announces {length} bytes")));
        };
        let content = &received[4..];
        let call = call_of_beginning(&content[..content.len().min(CALL_HEADER_BYTES_MAX)]);
        if call.is_none() && content.len() < CALL_HEADER_BYTES_MAX.min(bytes) {
            return None;
        }
        received.advance(4);
        self.state = State::Skipping(bytes);
        let text = format!("the request has {bytes} bytes; the limit is {}; send fewer rows", self.frame_bytes_max);
        let exception = Exception::new(REQUEST_TOO_BIG, text);
        Some(Event::Malformed(Malformed { call: call.unwrap_or(NO_CALL), exception }))
    }

    fn refuse(&mut self, class: Class, why: String) -> Event {
        self.state = State::Ended;
        Event::Refused(encode_exception(NO_CALL, &Exception::new(class, why)))
    }
}

/// Takes a frame behind its length; `Err` with a length that is negative or over the limit, which stays in place.
fn take_frame(received: &mut BytesMut, bytes_max: usize) -> Option<Result<BytesMut, i32>> {
    let length = i32::from_be_bytes(*received.first_chunk()?);
    match usize::try_from(length) {
        Ok(bytes) if bytes <= bytes_max => {
            if received.len() - 4 < bytes {
                return None;
            }
            received.advance(4);
            Some(Ok(received.split_to(bytes)))
        }
        _ => Some(Err(length)),
    }
}

fn over_limit(what: &str, length: i32) -> String {
    format!("the {what} announces {length} bytes; the limit is {HEADER_BYTES_MAX}")
}

fn open(header: BytesMut) -> Result<Opened, (Class, String)> {
    let header = proto::ConnectionHeader::decode(header)
        .map_err(|error| (FATAL_CONNECTION, format!("the connection header cannot be read: {error}")))?;
    let name = header.service_name.unwrap_or_default();
    if name.is_empty() {
        return Err((EMPTY_SERVICE, "the connection header names no service".to_owned()));
    }
    let service = Service::named(&name).ok_or_else(|| (UNKNOWN_SERVICE, format!("the service {name:?} is unknown")))?;
    let codec = match header.cell_block_codec_class.as_deref() {
        None | Some("") => None,
        Some(class) => {
            let refusal = || (UNSUPPORTED_CODEC, format!("the codec {class:?} is unknown; use KeyValueCodec"));
            Some(Codec::of_class(class).ok_or_else(refusal)?)
        }
    };
    let compression = match header.cell_block_compressor_class.as_deref() {
        None | Some("") => None,
        // Without a codec there are no cell blocks, and HBase does not look at the class.
        Some(_) if codec.is_none() => None,
        Some(class) => {
            let refusal = || {
                let known = "SnappyCodec, Lz4Codec, ZStandardCodec, GzipCodec and DefaultCodec";
                (UNSUPPORTED_COMPRESSION, format!("the compression {class:?} is unknown; {known} are known"))
            };
            Some(Compression::of_class(class).ok_or_else(refusal)?)
        }
    };
    if let Some(cipher) = header.rpc_crypto_cipher_transformation.filter(|cipher| !cipher.is_empty()) {
        let why =
            format!("connections are not encrypted with {cipher:?}; leave hbase.rpc.crypto.encryption.aes.enabled out");
        return Err((UNSUPPORTED_CRYPTO, why));
    }
    let version = header.version_info.and_then(|version| version.version_major.zip(version.version_minor));
    let user = header.user_info.map(|user| user.effective_user).unwrap_or_default();
    Ok(Opened { service, user, codec, compression, version })
}

#[cfg(test)]
mod tests;
