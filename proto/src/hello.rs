//! The hello: the first message of every stream, and part of every unary call.
//!
//! It rejects callers that are in the wrong place: a client that remembers an earlier cluster on the same port, a peer
//! whose directory was copied, a build that speaks another protocol. The refusal states the reason, and the rest of the
//! stream is not read.

use bytes::Bytes;
use terrane_types::versions::FEATURE_LEVEL;
use terrane_types::{ClusterId, Error, ServerId};

use crate::PROTOCOL_VERSIONS;
use crate::v1;

/// The process that answers a hello.
#[derive(Clone, Copy, Debug)]
pub struct Identity {
    /// The cluster this process belongs to.
    pub cluster: ClusterId,
    /// Its server id; 0 for a master.
    pub server: ServerId,
    /// How many times it has started on its directory.
    pub boot: u64,
}

/// This build's hello.
#[must_use]
pub fn ours(cluster: Option<ClusterId>, expected: ServerId, own: ServerId, boot: u64) -> v1::Hello {
    v1::Hello {
        cluster_id: cluster.map_or_else(Bytes::new, |id| Bytes::copy_from_slice(&id.0)),
        expected_server: expected.0,
        own_server: own.0,
        boot,
        version_min: *PROTOCOL_VERSIONS.start(),
        version_max: *PROTOCOL_VERSIONS.end(),
        feature_level: FEATURE_LEVEL,
    }
}

/// The cluster id of a hello or of its answer; `None` if the sender does not know it yet.
///
/// # Errors
/// [`Error::Invalid`] for an id of any length but 0 and 16.
pub fn cluster_of(bytes: &[u8]) -> Result<Option<ClusterId>, Error> {
    if bytes.is_empty() {
        return Ok(None);
    }
    let id = <[u8; 16]>::try_from(bytes)
        .map_err(|_| crate::convert::invalid(format!("a cluster id has 16 bytes, this one {}", bytes.len())))?;
    Ok(Some(ClusterId(id)))
}

/// Checks the hello of a stream and answers it.
///
/// # Errors
/// [`Error::WrongCluster`] for another cluster or server, [`Error::Unsupported`] when no protocol version is shared.
pub fn check(hello: &v1::Hello, here: Identity, cluster_time_ms: u64) -> Result<v1::HelloReply, Error> {
    check_called(Some(hello), here)?;
    let (low, high) =
        (hello.version_min.max(*PROTOCOL_VERSIONS.start()), hello.version_max.min(*PROTOCOL_VERSIONS.end()));
    if low > high {
        return Err(Error::Unsupported {
            feature: format!(
                "protocol versions {} to {} (this server speaks {} to {})",
                hello.version_min,
                hello.version_max,
                PROTOCOL_VERSIONS.start(),
                PROTOCOL_VERSIONS.end()
            ),
        });
    }
    Ok(v1::HelloReply {
        cluster_id: Bytes::copy_from_slice(&here.cluster.0),
        server: here.server.0,
        boot: here.boot,
        version: high,
        feature_level: FEATURE_LEVEL,
        cluster_time_ms,
    })
}

/// Checks that a unary call is meant for this server: an address can lead to another one than its caller believes.
///
/// # Errors
/// [`Error::WrongCluster`] for another cluster or server, or [`Error::Invalid`] when the id is missing or malformed.
pub fn check_called(hello: Option<&v1::Hello>, here: Identity) -> Result<(), Error> {
    check_cluster(hello, here, false)?;
    let expected = hello.map_or(0, |hello| hello.expected_server);
    if expected != 0 && expected != here.server.0 {
        return Err(Error::WrongCluster { expected: here.cluster, actual: here.cluster, server: here.server });
    }
    Ok(())
}

/// Checks only the cluster id, which is all that calls of clients carry. `may_be_new` also accepts a caller that names no
/// cluster, which is right only for the first call to a master.
///
/// # Errors
/// [`Error::WrongCluster`], or [`Error::Invalid`] when the id is missing or malformed.
pub fn check_cluster(hello: Option<&v1::Hello>, here: Identity, may_be_new: bool) -> Result<(), Error> {
    let named = hello.map(|hello| cluster_of(&hello.cluster_id)).transpose()?.flatten();
    match named {
        Some(id) if id == here.cluster => Ok(()),
        Some(id) => Err(Error::WrongCluster { expected: here.cluster, actual: id, server: here.server }),
        None if may_be_new => Ok(()),
        None => {
            Err(crate::convert::invalid("the call names no cluster: its hello must carry the cluster id".to_owned()))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const HERE: Identity = Identity { cluster: ClusterId([7; 16]), server: ServerId(3), boot: 2 };

    #[test]
    fn a_hello_of_this_cluster_is_answered() {
        let reply = check(&ours(Some(HERE.cluster), ServerId(3), ServerId(1), 1), HERE, 99).unwrap();
        assert_eq!((reply.server, reply.boot, reply.version, reply.cluster_time_ms), (3, 2, 1, 99));
    }

    #[test]
    fn another_cluster_is_refused() {
        let refused = check(&ours(Some(ClusterId([8; 16])), ServerId(3), ServerId(1), 1), HERE, 0);
        assert!(matches!(refused, Err(Error::WrongCluster { actual: ClusterId(a), .. }) if a == [8; 16]));
    }

    #[test]
    fn another_server_behind_the_address_is_refused() {
        let refused = check(&ours(Some(HERE.cluster), ServerId(4), ServerId(1), 1), HERE, 0);
        assert!(matches!(refused, Err(Error::WrongCluster { server: ServerId(3), .. })));
    }

    #[test]
    fn a_unary_call_for_another_server_is_refused() {
        let named = |server| check_called(Some(&ours(Some(HERE.cluster), ServerId(server), ServerId(0), 1)), HERE);
        assert_eq!((named(3), named(0)), (Ok(()), Ok(())));
        assert!(matches!(named(4), Err(Error::WrongCluster { server: ServerId(3), .. })));
    }

    #[test]
    fn a_hello_without_a_cluster_is_refused_on_streams() {
        assert!(matches!(check(&ours(None, ServerId(3), ServerId(0), 1), HERE, 0), Err(Error::Invalid(_))));
    }

    #[test]
    fn clients_of_any_feature_level_are_answered() {
        for feature_level in [0, 1, FEATURE_LEVEL - 1, FEATURE_LEVEL + 1] {
            let hello = v1::Hello { feature_level, ..ours(Some(HERE.cluster), ServerId(3), ServerId(0), 1) };
            assert_eq!(check(&hello, HERE, 0).map(|reply| reply.feature_level), Ok(FEATURE_LEVEL));
        }
    }

    #[test]
    fn protocol_versions_that_do_not_meet_are_refused_by_number() {
        let mut hello = ours(Some(HERE.cluster), ServerId(3), ServerId(1), 1);
        (hello.version_min, hello.version_max) = (2, 4);
        let refused = check(&hello, HERE, 0).unwrap_err();
        assert!(refused.to_string().contains("2 to 4"), "{refused}");
    }
}
