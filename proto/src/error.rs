//! The only mapping between [`Error`] and the wire. `docs/errors.md` has the table.
//!
//! On streams an error travels as an [`v1::ErrorDetail`]; on unary calls as a gRPC status whose details hold the same
//! message, so that callers in other languages read one format.

use std::time::Duration;

use bytes::Bytes;
use prost::Message as _;
use terrane_types::{ClusterId, Error, GroupId, Invalid, RegionId, ServerId, TableId};
use tonic::{Code, Status};

use crate::v1;
use crate::v1::error_detail::Kind;

/// How long a caller waits when an answer says to wait but not how long.
const RETRY_AFTER_DEFAULT: Duration = Duration::from_millis(50);

/// An error as a message.
#[must_use]
pub fn detail(error: &Error) -> v1::ErrorDetail {
    v1::ErrorDetail { message: error.to_string(), kind: Some(kind(error)) }
}

fn kind(error: &Error) -> Kind {
    match error {
        Error::StaleEpoch { region, current } => Kind::StaleEpoch(v1::StaleEpoch {
            region: region.0,
            current: current.iter().map(v1::RegionDescriptor::from).collect(),
        }),
        Error::NotLeader { group, term, leader, address, members } => Kind::NotLeader(v1::NotLeader {
            group: group.0,
            term: *term,
            leader: leader.map_or(0, |server| server.0),
            address: address.clone().unwrap_or_default(),
            members: members
                .iter()
                .map(|(server, address)| v1::ServerAddress { server: server.0, address: address.clone() })
                .collect(),
        }),
        Error::Moving { region, retry_after } => {
            Kind::Moving(v1::Moving { region: region.0, retry_after_ms: millis(*retry_after) })
        }
        Error::Busy { retry_after } => Kind::Busy(v1::Busy { retry_after_ms: millis(*retry_after) }),
        Error::LogFull { held_by, retry_after } => {
            Kind::LogFull(v1::LogFull { held_by: held_by.clone(), retry_after_ms: millis(*retry_after) })
        }
        Error::Uncertain { not_tried } => Kind::Uncertain(v1::Uncertain { not_tried: *not_tried }),
        Error::AlreadyApplied => Kind::AlreadyApplied(v1::AlreadyApplied {}),
        Error::SnapshotTooOld { oldest } => Kind::SnapshotTooOld(v1::SnapshotTooOld { oldest: *oldest }),
        Error::Corruption { file, offset } => Kind::Corruption(v1::Corruption { file: file.clone(), offset: *offset }),
        Error::NotFound { what } => Kind::NotFound(v1::NotFound { what: what.clone() }),
        Error::Invalid(invalid) => Kind::Invalid(v1::Invalid { what: invalid.what.clone() }),
        Error::Unsupported { feature } => Kind::Unsupported(v1::Unsupported { feature: feature.clone() }),
        Error::WrongCluster { expected, actual, server } => Kind::WrongCluster(v1::WrongCluster {
            expected: Bytes::copy_from_slice(&expected.0),
            actual: Bytes::copy_from_slice(&actual.0),
            server: server.0,
        }),
        Error::DeadlineExceeded => Kind::DeadlineExceeded(v1::DeadlineExceeded {}),
        Error::AlreadyExists { what } => Kind::AlreadyExists(v1::AlreadyExists { what: what.clone() }),
        Error::Unavailable { retry_after, .. } => {
            Kind::Unavailable(v1::Unavailable { retry_after_ms: millis(*retry_after), in_progress: false })
        }
        Error::InProgress { retry_after, .. } => {
            Kind::Unavailable(v1::Unavailable { retry_after_ms: millis(*retry_after), in_progress: true })
        }
        Error::SchemaChanged { table, version } => {
            Kind::SchemaChanged(v1::SchemaChanged { table: table.0, version: *version })
        }
        Error::ReadOnly { what } => Kind::ReadOnly(v1::ReadOnly { what: what.clone() }),
        Error::Disabled { what } => Kind::Disabled(v1::Disabled { what: what.clone() }),
        // `Error` may gain variants before this mapping does; such an error is still an answer.
        _ => Kind::Internal(v1::Internal {}),
    }
}

/// How the text of an internal error begins.
const INTERNAL: &str = "internal error: ";

/// The error in a message.
#[must_use]
pub fn from_detail(detail: v1::ErrorDetail) -> Error {
    let v1::ErrorDetail { message, kind } = detail;
    match kind {
        Some(Kind::StaleEpoch(e)) => Error::StaleEpoch {
            region: RegionId(e.region),
            current: e.current.into_iter().filter_map(|descriptor| descriptor.try_into().ok()).collect(),
        },
        Some(Kind::NotLeader(e)) => Error::NotLeader {
            group: GroupId(e.group),
            term: e.term,
            leader: (e.leader != 0).then_some(ServerId(e.leader)),
            address: (!e.address.is_empty()).then_some(e.address),
            members: e.members.into_iter().map(|m| (ServerId(m.server), m.address)).collect(),
        },
        Some(Kind::Moving(e)) => Error::Moving { region: RegionId(e.region), retry_after: wait(e.retry_after_ms) },
        Some(Kind::Busy(e)) => Error::Busy { retry_after: wait(e.retry_after_ms) },
        Some(Kind::LogFull(e)) => Error::LogFull { held_by: e.held_by, retry_after: wait(e.retry_after_ms) },
        Some(Kind::Uncertain(uncertain)) => Error::Uncertain { not_tried: uncertain.not_tried },
        Some(Kind::AlreadyApplied(_)) => Error::AlreadyApplied,
        Some(Kind::SnapshotTooOld(e)) => Error::SnapshotTooOld { oldest: e.oldest },
        Some(Kind::Corruption(e)) => Error::Corruption { file: e.file, offset: e.offset },
        Some(Kind::NotFound(e)) => Error::NotFound { what: e.what },
        Some(Kind::Invalid(e)) => Error::Invalid(Invalid { what: e.what }),
        Some(Kind::Unsupported(e)) => Error::Unsupported { feature: e.feature },
        Some(Kind::WrongCluster(e)) => Error::WrongCluster {
            expected: cluster(&e.expected),
            actual: cluster(&e.actual),
            server: ServerId(e.server),
        },
        Some(Kind::DeadlineExceeded(_)) => Error::DeadlineExceeded,
        Some(Kind::AlreadyExists(e)) => Error::AlreadyExists { what: e.what },
        Some(Kind::Unavailable(e)) if e.in_progress => {
            Error::InProgress { message, retry_after: wait(e.retry_after_ms) }
        }
        Some(Kind::Unavailable(e)) => Error::Unavailable { message, retry_after: wait(e.retry_after_ms) },
        Some(Kind::SchemaChanged(e)) => Error::SchemaChanged { table: TableId(e.table), version: e.version },
        Some(Kind::ReadOnly(e)) => Error::ReadOnly { what: e.what },
        Some(Kind::Disabled(e)) => Error::Disabled { what: e.what },
        Some(Kind::Internal(_)) | None => {
            // The message is the whole sentence, to which the error adds its beginning again when it is passed on.
            let message = message.strip_prefix(INTERNAL).map(str::to_owned).unwrap_or(message);
            Error::Internal { message }
        }
    }
}

/// The size of an error in a message, in bytes.
#[must_use]
pub fn detail_bytes(detail: &v1::ErrorDetail) -> usize {
    detail.encoded_len()
}

/// The most bytes of details in a status. They travel in trailers, in Base64 and beside the message, and clients accept
/// 8 or 16 KiB of these by default. A client that receives more takes the call for a broken connection, and repeats it.
const STATUS_DETAIL_BYTES_MAX: usize = 3 << 10;
/// The most bytes of a text in details that would be larger.
const TEXT_BYTES_MAX: usize = 512;

/// The details for a status: without regions, which a client then looks up at the master, and with shorter texts, if they
/// would be too large.
fn status_detail(error: &Error) -> v1::ErrorDetail {
    let mut detail = detail(error);
    if detail_bytes(&detail) > STATUS_DETAIL_BYTES_MAX
        && let Some(Kind::StaleEpoch(stale)) = &mut detail.kind
    {
        stale.current.clear();
    }
    if detail_bytes(&detail) > STATUS_DETAIL_BYTES_MAX {
        shorten(&mut detail.message);
        match &mut detail.kind {
            Some(Kind::NotLeader(redirect)) => redirect.members.clear(),
            Some(Kind::LogFull(full)) => shorten(&mut full.held_by),
            Some(Kind::Corruption(damage)) => shorten(&mut damage.file),
            Some(Kind::NotFound(missing)) => shorten(&mut missing.what),
            Some(Kind::Invalid(invalid)) => shorten(&mut invalid.what),
            Some(Kind::Unsupported(unsupported)) => shorten(&mut unsupported.feature),
            Some(Kind::AlreadyExists(exists)) => shorten(&mut exists.what),
            Some(Kind::ReadOnly(read_only)) => shorten(&mut read_only.what),
            Some(Kind::Disabled(disabled)) => shorten(&mut disabled.what),
            _ => {}
        }
    }
    detail
}

fn shorten(text: &mut String) {
    if text.len() > TEXT_BYTES_MAX {
        let end = (0..=TEXT_BYTES_MAX).rev().find(|at| text.is_char_boundary(*at)).unwrap_or(0);
        text.truncate(end);
        text.push_str("...");
    }
}

/// An error as the status of a unary call; the details carry the whole message, unless it is very long.
#[must_use]
pub fn status(error: &Error) -> Status {
    let detail = status_detail(error);
    let code = match error {
        Error::StaleEpoch { .. }
        | Error::NotLeader { .. }
        | Error::ReadOnly { .. }
        | Error::Disabled { .. }
        | Error::SchemaChanged { .. } => Code::FailedPrecondition,
        Error::Moving { .. } | Error::Unavailable { .. } | Error::InProgress { .. } => Code::Unavailable,
        Error::Busy { .. } | Error::LogFull { .. } => Code::ResourceExhausted,
        Error::Uncertain { .. } => Code::Unknown,
        Error::AlreadyApplied | Error::AlreadyExists { .. } => Code::AlreadyExists,
        Error::SnapshotTooOld { .. } => Code::OutOfRange,
        Error::Corruption { .. } => Code::DataLoss,
        Error::NotFound { .. } => Code::NotFound,
        Error::Invalid(_) => Code::InvalidArgument,
        Error::Unsupported { .. } => Code::Unimplemented,
        Error::WrongCluster { .. } => Code::PermissionDenied,
        Error::DeadlineExceeded => Code::DeadlineExceeded,
        _ => Code::Internal,
    };
    Status::with_details(code, detail.message.clone(), detail.encode_to_vec().into())
}

/// The error in a gRPC status, whether a server or the transport produced it.
///
/// A status without our details comes from the transport: the call may or may not have reached the server. For a write,
/// [`Error::Unavailable`] from this function therefore means that the outcome is unknown.
#[must_use]
pub fn from_status(status: &Status) -> Error {
    if !status.details().is_empty()
        && let Ok(detail) = v1::ErrorDetail::decode(status.details())
    {
        return from_detail(detail);
    }
    match status.code() {
        Code::DeadlineExceeded => Error::DeadlineExceeded,
        Code::Unimplemented => Error::Unsupported { feature: status.message().to_owned() },
        Code::InvalidArgument | Code::OutOfRange => Error::Invalid(Invalid { what: status.message().to_owned() }),
        Code::ResourceExhausted => Error::Busy { retry_after: RETRY_AFTER_DEFAULT },
        _ => Error::Unavailable { message: status.message().to_owned(), retry_after: RETRY_AFTER_DEFAULT },
    }
}

fn millis(duration: Duration) -> u32 {
    u32::try_from(duration.as_millis()).unwrap_or(u32::MAX)
}

fn wait(ms: u32) -> Duration {
    if ms == 0 { RETRY_AFTER_DEFAULT } else { Duration::from_millis(u64::from(ms)) }
}

/// An id in an error is only informative, so a malformed one reads as zero instead of hiding the error.
fn cluster(bytes: &[u8]) -> ClusterId {
    ClusterId(<[u8; 16]>::try_from(bytes).unwrap_or_default())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn samples() -> Vec<Error> {
        let wait = Duration::from_millis(70);
        vec![
            Error::StaleEpoch { region: RegionId(4), current: Vec::new() },
            Error::NotLeader {
                group: GroupId(2),
                term: 9,
                leader: Some(ServerId(1)),
                address: Some("127.0.0.1:7700".into()),
                members: vec![(ServerId(1), "127.0.0.1:7700".into())],
            },
            Error::Moving { region: RegionId(1), retry_after: wait },
            Error::Busy { retry_after: wait },
            Error::LogFull { held_by: "server 3".into(), retry_after: wait },
            Error::Unavailable { message: "no quorum".into(), retry_after: wait },
            Error::InProgress { message: "table t is still altering".into(), retry_after: wait },
            Error::Uncertain { not_tried: true },
            Error::AlreadyApplied,
            Error::SnapshotTooOld { oldest: 5 },
            Error::Corruption { file: "a".into(), offset: 7 },
            Error::NotFound { what: "table t".into() },
            Error::Invalid(Invalid { what: "row".into() }),
            Error::Unsupported { feature: "9".into() },
            Error::WrongCluster { expected: ClusterId([1; 16]), actual: ClusterId([2; 16]), server: ServerId(3) },
            Error::DeadlineExceeded,
            Error::AlreadyExists { what: "table t".into() },
            Error::ReadOnly { what: "table t".into() },
            Error::Disabled { what: "table t".into() },
            Error::Internal { message: "a defect".into() },
        ]
    }

    #[test]
    fn every_error_crosses_the_wire_unchanged() {
        for error in samples() {
            assert_eq!(format!("{:?}", from_detail(detail(&error))), format!("{error:?}"));
            assert_eq!(format!("{:?}", from_status(&status(&error))), format!("{error:?}"));
        }
    }

    #[test]
    fn details_of_a_status_fit_the_trailers_that_clients_accept() {
        let key = vec![b'k'; terrane_types::limits::ROW_BYTES_MAX];
        let descriptor = terrane_types::RegionDescriptor {
            region: RegionId(7),
            table: TableId(1),
            range: terrane_types::KeyRange::new(key, Vec::new()).unwrap(),
            epoch: terrane_types::RegionEpoch(2),
            group: GroupId(3),
            schema_version: 4,
        };
        let stale = Error::StaleEpoch { region: RegionId(5), current: vec![descriptor] };
        let long = Error::Invalid(Invalid { what: "\u{e4}".repeat(5_000) });
        for error in [&stale, &long] {
            let status = status(error);
            let bytes = status.details().len() + 3 * status.message().len();
            assert!(bytes <= STATUS_DETAIL_BYTES_MAX + 3 * (TEXT_BYTES_MAX + 30), "{bytes} bytes");
        }
        let Error::StaleEpoch { region, current } = from_status(&status(&stale)) else { panic!("another error") };
        assert_eq!((region, current.len()), (RegionId(5), 0), "the client looks the regions up");
    }

    #[test]
    fn a_status_of_the_transport_is_an_unknown_outcome() {
        let error = from_status(&Status::unavailable("connection reset"));
        assert!(matches!(error, Error::Unavailable { .. }), "{error:?}");
    }
}
