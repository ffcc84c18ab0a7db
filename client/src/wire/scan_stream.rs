//! A stream of scan blocks: from a region server, over the connection of its session, or from a master.

use terrane_proto::{error, v1};
use terrane_types::Error as Wire;
use tokio::time::{Instant, timeout_at};

use crate::wire::failure::Failure;
use crate::wire::masters::never_connected;
use crate::wire::message::Header;
use crate::wire::scan::{RegionScan, ScanBlock, read_block};
use crate::wire::session::Session;

/// A stream of blocks that is open.
pub(crate) struct ScanStream(pub(super) tonic::Streaming<v1::ScanBlock>);

impl ScanStream {
    /// Opens a stream to the server of `session`, which must answer before `until`.
    pub(crate) async fn open(
        session: &Session,
        header: Header,
        scan: RegionScan,
        until: Instant,
    ) -> Result<Self, Failure> {
        let call = v1::ScanCall {
            hello: Some(session.peer().hello()),
            header: Some(header.into_wire()),
            body: Some(scan.into_wire()),
        };
        let mut client = session.data_client();
        let opened = while_alive(Some(session), until, "the scan was not opened in time", client.scan(call)).await?;
        opened.map(|blocks| Self(blocks.into_inner())).map_err(|status| failure_of(&status))
    }

    /// The next block, which must come before `until`. `session` is that with the server it comes from; `None` for a master.
    pub(crate) async fn next_block(&mut self, session: Option<&Session>, until: Instant) -> Result<ScanBlock, Failure> {
        match while_alive(session, until, "no block came in time", self.0.message()).await? {
            Ok(Some(block)) => read_block(block),
            Ok(None) => Err(Failure::Lost("the stream ended before the scan of its region did".to_owned())),
            Err(status) => Err(failure_of(&status)),
        }
    }
}

/// Waits for an answer while the server is alive. The session knows that: it pings the server when it is silent.
async fn while_alive<T>(
    session: Option<&Session>,
    until: Instant,
    late: &str,
    answer: impl Future<Output = T>,
) -> Result<T, Failure> {
    let Some(session) = session else {
        return timeout_at(until, answer).await.map_err(|_| Failure::Lost(late.to_owned()));
    };
    let _awaiting = session.awaits();
    tokio::select! {
        // What has arrived counts, whatever has happened to the server since.
        biased;
        answer = timeout_at(until, answer) => {
            let answer = answer.map_err(|_| Failure::Lost(late.to_owned()))?;
            session.record_message();
            Ok(answer)
        }
        () = session.ended() => {
            Err(Failure::Lost(format!("the session with server {} ended during a scan", session.peer().server)))
        }
    }
}

fn failure_of(status: &tonic::Status) -> Failure {
    if status.details().is_empty() && never_connected(status) {
        return Failure::NotSent(status.message().to_owned());
    }
    match error::from_status(status) {
        // Without details this is the transport's error: the server may be gone.
        Wire::Unavailable { message, .. } if status.details().is_empty() => Failure::Lost(message),
        // The connection was made again, and leads to another server of our cluster: the region is elsewhere.
        Wire::WrongCluster { expected, actual, server } if expected == actual => {
            Failure::NotSent(format!("server {server} answers in place of the one that was called"))
        }
        error => Failure::Refused(error),
    }
}

#[cfg(test)]
mod tests {
    use terrane_types::{ClusterId, ServerId};

    use super::*;

    #[test]
    fn a_scan_that_meets_another_server_at_the_address_looks_for_its_region() {
        let refusal = |actual| {
            let refused = Wire::WrongCluster { expected: ClusterId([1; 16]), actual, server: ServerId(4) };
            failure_of(&error::status(&refused))
        };
        assert!(matches!(refusal(ClusterId([1; 16])), Failure::NotSent(_)));
        assert!(matches!(refusal(ClusterId([2; 16])), Failure::Refused(_)));
    }
}
