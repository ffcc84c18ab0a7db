//! The answer to the hello that opens a session: whether the right server has answered.

use terrane_proto::v1;
use terrane_proto::v1::session_reply;
use terrane_proto::{error, hello};
use terrane_types::{Error as Wire, ServerId};

use crate::wire::failure::Failure;
use crate::wire::peer::Peer;

/// The server's hello in the first message of a session. The server checks ours; this checks the server's.
pub(crate) fn accepted(first: Option<v1::SessionReply>, address: &str, peer: Peer) -> Result<v1::HelloReply, Failure> {
    match first.and_then(|reply| reply.body) {
        Some(session_reply::Body::Hello(reply)) => check(&reply, address, peer).map(|()| reply),
        Some(session_reply::Body::Refused(detail)) => Err(judged(error::from_detail(detail), address)),
        Some(session_reply::Body::Batch(_)) => {
            Err(Failure::NotSent(format!("{address} answered the hello with another message")))
        }
        None => Err(Failure::NotSent(format!("{address} closed the session immediately"))),
    }
}

/// A session that could not be opened.
pub(crate) fn refused(status: &tonic::Status, address: &str) -> Failure {
    judged(error::from_status(status), address)
}

fn check(reply: &v1::HelloReply, address: &str, peer: Peer) -> Result<(), Failure> {
    let actual = hello::cluster_of(&reply.cluster_id).map_err(|error| judged(error, address))?.unwrap_or_default();
    if actual != peer.cluster {
        // From the server's point of view: it expects its own cluster, and the actual one is ours.
        let (expected, actual) = (actual, peer.cluster);
        return Err(Failure::Refused(Wire::WrongCluster { expected, actual, server: ServerId(reply.server) }));
    }
    if reply.server != peer.server.0 {
        return Err(another_server(address, ServerId(reply.server)));
    }
    Ok(())
}

/// A refusal of the whole session, before any request was sent.
fn judged(error: Wire, address: &str) -> Failure {
    match error {
        // Another server of our cluster has taken over the address: the right one is elsewhere.
        Wire::WrongCluster { expected, actual, server } if expected == actual => another_server(address, server),
        error @ (Wire::WrongCluster { .. } | Wire::Unsupported { .. } | Wire::Invalid(_)) => Failure::Refused(error),
        error => Failure::NotSent(format!("{address}: {error}")),
    }
}

fn another_server(address: &str, server: ServerId) -> Failure {
    Failure::NotSent(format!("server {server} answers at {address} now"))
}
