//! Flushes and compactions of a table, done by all servers that have replicas of it.
//!
//! The masters say which servers there are; each is asked by itself and tells how far it is. A server that does not
//! answer is a failure among the others' results: what can be done is done.

use std::time::Duration;

use futures::StreamExt;
use futures::stream::FuturesUnordered;
use terrane_proto::v1::region_server_client::RegionServerClient;
use terrane_proto::{error, v1};
use tokio::sync::mpsc;
use tokio::time::timeout;

use crate::api::admin::Admin;
use crate::error::Error;

/// Messages of all servers that may wait to be looked at.
const NEWS_MAX: usize = 64;

/// How far a flush or compaction of a table is, on all servers together.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Maintained {
    /// Servers that do it.
    pub servers: u32,
    /// Replicas of the table's regions on them.
    pub replicas: u32,
    /// Those of them that are done with.
    pub replicas_done: u32,
    /// Bytes of the replicas' memtables, for a flush, or of their files, for a compaction.
    pub bytes: u64,
    /// Those of them that are done with.
    pub bytes_done: u64,
    /// What went wrong, a sentence for each replica or server.
    pub failures: Vec<String>,
}

#[derive(Clone, Copy)]
enum Work {
    Flush,
    Compact,
}

impl Admin {
    /// Has all replicas of a table write out what they have in memory. `progress` hears several times a second how far
    /// they are. The timeout of this handle is how long a server may be silent.
    ///
    /// # Errors
    /// [`Error::NotFound`] when there is no such table. What went wrong on single servers is in the result.
    pub async fn flush_table(&self, name: &str, progress: impl FnMut(&Maintained) + Send) -> Result<Maintained, Error> {
        self.maintain(name, Work::Flush, progress).await
    }

    /// Has all replicas of a table write out what they have in memory, and then rewrite all their files into as few as
    /// can be, without what nobody can see any more. See [`Admin::flush_table`].
    ///
    /// # Errors
    /// [`Error::NotFound`] when there is no such table. What went wrong on single servers is in the result.
    pub async fn compact_table(
        &self,
        name: &str,
        progress: impl FnMut(&Maintained) + Send,
    ) -> Result<Maintained, Error> {
        self.maintain(name, Work::Compact, progress).await
    }

    async fn maintain(
        &self,
        name: &str,
        work: Work,
        mut progress: impl FnMut(&Maintained) + Send,
    ) -> Result<Maintained, Error> {
        let request =
            v1::MaintainTableRequest { hello: self.hello(), table: self.describe_table(name).await?.schema.table.0 };
        let members: Vec<String> =
            self.regions(Some(name)).await?.into_iter().flat_map(|region| region.servers).collect();
        let (live, away): (Vec<_>, Vec<_>) =
            self.servers().await?.into_iter().partition(|server| server.state == "live");
        let failures = away.iter().filter(|server| members.contains(&server.address)).map(|server| {
            format!("server {} at {} is {}: its replicas wait", server.server, server.address, server.state)
        });
        let mut failures: Vec<String> = failures.collect();
        let (told, mut news) = mpsc::channel(NEWS_MAX);
        let mut calls: FuturesUnordered<_> = (0..)
            .zip(&live)
            .map(|(index, server)| follow(index, &server.address, request.clone(), work, self.timeout(), told.clone()))
            .collect();
        drop(told);
        let mut state = vec![v1::MaintainTableProgress::default(); live.len()];
        loop {
            tokio::select! {
                // News first: a server's last message counts before its end does.
                biased;
                Some((index, told)) = news.recv() => state[index] = told,
                Some(ended) = calls.next() => {
                    if let Err(failure) = ended {
                        failures.push(failure);
                    }
                }
                else => break,
            }
            progress(&sum(&state, &failures));
        }
        Ok(sum(&state, &failures))
    }
}

/// Has one server do it, and passes on what it tells.
async fn follow(
    index: usize,
    address: &str,
    request: v1::MaintainTableRequest,
    work: Work,
    patience: Duration,
    told: mpsc::Sender<(usize, v1::MaintainTableProgress)>,
) -> Result<(), String> {
    let failed = |what: String| format!("server at {address}: {what}");
    let channel = terrane_env::net::channel(address).map_err(|invalid| failed(invalid.to_string()))?;
    let mut client = RegionServerClient::new(channel);
    let call = async {
        match work {
            Work::Flush => client.flush_table(request).await,
            Work::Compact => client.compact_table(request).await,
        }
    };
    let silent = || failed(format!("nothing was heard for {} ms", patience.as_millis()));
    let refused = |status: tonic::Status| failed(error::from_status(&status).to_string());
    let mut stream = timeout(patience, call).await.map_err(|_| silent())?.map_err(refused)?.into_inner();
    loop {
        let message = timeout(patience, stream.message()).await.map_err(|_| silent())?.map_err(refused)?;
        let Some(message) = message else { return Err(failed("it stopped before it was done".to_owned())) };
        let done = message.done;
        // Whoever asked may have gone away, and this future with it: then nobody is left to be told.
        told.send((index, message)).await.ok();
        if done {
            return Ok(());
        }
    }
}

fn sum(state: &[v1::MaintainTableProgress], failures: &[String]) -> Maintained {
    let mut all = Maintained { failures: failures.to_vec(), ..Maintained::default() };
    for one in state.iter().filter(|one| one.regions > 0) {
        all.servers += 1;
        all.replicas += one.regions;
        all.replicas_done += one.regions_done;
        all.bytes += one.bytes;
        all.bytes_done += one.bytes_done;
        all.failures.extend(one.failures.iter().cloned());
    }
    all
}
