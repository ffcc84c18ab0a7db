//! Flushes and compactions of a table on one server, which streams its progress.

use std::time::Duration;

use terrane_proto::v1::region_server_client::RegionServerClient;
use terrane_proto::{error, v1};
use terrane_types::TableId;
use tokio::time::timeout;

use crate::wire::masters::Masters;

/// What a server is to do with its replicas of a table.
#[derive(Clone, Copy)]
pub(crate) enum Work {
    Flush,
    Compact,
}

/// How far a server is.
#[derive(Clone, Debug, Default)]
pub(crate) struct ServerProgress {
    /// Replicas of the table's regions.
    pub(crate) replicas: u32,
    pub(crate) replicas_done: u32,
    pub(crate) bytes: u64,
    pub(crate) bytes_done: u64,
    pub(crate) failures: Vec<String>,
}

/// Flushes or compacts a table on the server at `address`. Passes each progress message to `report`, and returns when the
/// server is done. `patience`: how long the server may be silent.
///
/// # Errors
/// What failed, as a sentence that names the server.
pub(crate) async fn maintain<R: Future<Output = ()>>(
    masters: &Masters,
    address: &str,
    table: TableId,
    work: Work,
    patience: Duration,
    report: impl Fn(ServerProgress) -> R,
) -> Result<(), String> {
    let failed = |what: String| format!("server at {address}: {what}");
    let channel = terrane_env::net::channel(address).map_err(|invalid| failed(invalid.to_string()))?;
    let mut client = RegionServerClient::new(channel);
    let request = v1::MaintainTableRequest { hello: masters.hello(), table: table.0 };
    let call = async {
        match work {
            Work::Flush => client.flush_table(request).await,
            Work::Compact => client.compact_table(request).await,
        }
    };
    let silent = || failed(format!("it sent nothing for {} ms", patience.as_millis()));
    let refused = |status: tonic::Status| failed(error::from_status(&status).to_string());
    let mut stream = timeout(patience, call).await.map_err(|_| silent())?.map_err(refused)?.into_inner();
    loop {
        let message = timeout(patience, stream.message()).await.map_err(|_| silent())?.map_err(refused)?;
        let Some(message) = message else { return Err(failed("its stream ended before it was done".to_owned())) };
        let done = message.done;
        report(ServerProgress {
            replicas: message.regions,
            replicas_done: message.regions_done,
            bytes: message.bytes,
            bytes_done: message.bytes_done,
            failures: message.failures,
        })
        .await;
        if done {
            return Ok(());
        }
    }
}
