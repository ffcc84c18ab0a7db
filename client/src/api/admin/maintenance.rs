//! Flushes and compactions of a table, on all servers that have replicas of it.
//!
//! The masters list the servers; each server is called separately and streams its progress. A server that does not answer
//! is one failure among the results: the others complete their work.

use futures::StreamExt;
use futures::stream::FuturesUnordered;
use terrane_types::states::ServerState;
use tokio::sync::mpsc;

use super::Admin;
use crate::error::Error;
use crate::wire::maintenance::{ServerProgress, Work, maintain};

/// Progress messages of all servers that may wait to be summed up.
const MESSAGES_MAX: usize = 64;

/// The progress of a flush or compaction of a table, on all servers together.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Maintained {
    /// Servers that take part.
    pub servers: u32,
    /// Replicas of the table's regions on them.
    pub replicas: u32,
    /// Replicas that are done.
    pub replicas_done: u32,
    /// Bytes of the replicas' memtables, for a flush, or of their files, for a compaction.
    pub bytes: u64,
    /// Bytes that are done.
    pub bytes_done: u64,
    /// What failed, one sentence for each replica or server.
    pub failures: Vec<String>,
}

impl Admin {
    /// Writes the memtables of all replicas of a table to files. Calls `progress` several times a second with how far they
    /// are. The timeout of this handle is how long a server may be silent.
    ///
    /// # Errors
    /// [`Error::NotFound`] when there is no such table. Failures on single servers are in the result.
    pub async fn flush_table(&self, name: &str, progress: impl FnMut(&Maintained) + Send) -> Result<Maintained, Error> {
        self.maintain(name, Work::Flush, progress).await
    }

    /// Writes the memtables of all replicas of a table to files, then rewrites all their files into as few as possible,
    /// without the cells that no reader can see any more. See [`Admin::flush_table`].
    ///
    /// # Errors
    /// [`Error::NotFound`] when there is no such table. Failures on single servers are in the result.
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
        let table = self.describe_table(name).await?.schema.table;
        let members: Vec<String> =
            self.regions(Some(name)).await?.into_iter().flat_map(|region| region.servers).collect();
        let (live, away): (Vec<_>, Vec<_>) =
            self.servers().await?.into_iter().partition(|server| server.state == ServerState::Live);
        let failures = away.iter().filter(|server| members.contains(&server.address)).map(|server| {
            format!("server {} at {} is {}: its replicas are skipped", server.server, server.address, server.state)
        });
        let mut failures: Vec<String> = failures.collect();
        let (sender, mut messages) = mpsc::channel(MESSAGES_MAX);
        let mut calls: FuturesUnordered<_> = (0..)
            .zip(&live)
            .map(|(index, server)| {
                let sender = sender.clone();
                let report = move |progress: ServerProgress| {
                    let sender = sender.clone();
                    // The receiver is gone only when the caller has dropped the call.
                    async move { drop(sender.send((index, progress)).await) }
                };
                maintain(&self.core.router.masters, &server.address, table, work, self.timeout, report)
            })
            .collect();
        drop(sender);
        let mut state: Vec<ServerProgress> = vec![ServerProgress::default(); live.len()];
        loop {
            tokio::select! {
                // Messages first: the last message of a server counts before its end does.
                biased;
                Some((index, message)) = messages.recv() => {
                    let index: usize = index;
                    state[index] = message;
                }
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

fn sum(state: &[ServerProgress], failures: &[String]) -> Maintained {
    let mut all = Maintained { failures: failures.to_vec(), ..Maintained::default() };
    for server in state.iter().filter(|server| server.replicas > 0) {
        all.servers += 1;
        all.replicas += server.replicas;
        all.replicas_done += server.replicas_done;
        all.bytes += server.bytes;
        all.bytes_done += server.bytes_done;
        all.failures.extend(server.failures.iter().cloned());
    }
    all
}
