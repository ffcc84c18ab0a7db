//! The digest of a region at a leader's request, read slowly: one region at a time, for at most a fifth of the time, and at most
//! [`BYTES_PER_SECOND`].
//!
//! The scan holds files and memtables for a short while only: it begins again at the next row after [`REOPEN_BYTES`].

use std::sync::Arc;
use std::time::Duration;

use terrane_env::task::{run_read, spawn_named};
use terrane_env::time::now_ns;
use terrane_types::{GroupId, RegionId};
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use crate::group::machine::GroupMachine;
use crate::group::machine::compare::scan_pinned;
use crate::metrics::Metrics;
use crate::operation::ComparisonId;
use crate::region::cell_digest::{CellDigest, Place};
use crate::region::comparison::{Digested, Pin};
use crate::replicas::Replicas;
use crate::replicas::hosted::HostedRegion;

/// Bytes that are read at a time.
const STEP_BYTES: usize = 256 << 10;
/// Each step is followed by a pause of so many times its length.
const PAUSE_PER_STEP: u32 = 4;
/// Bytes of visible cells that are read per second at most.
const BYTES_PER_SECOND: u64 = 16 << 20;
/// Bytes after which a scan begins again, so that files that were compacted meanwhile can go.
const REOPEN_BYTES: u64 = 64 << 20;

/// Reads what regions of this server hold, one at a time.
pub struct Digesting {
    replicas: Arc<Replicas>,
    metrics: Arc<Metrics>,
    turn: tokio::sync::Mutex<()>,
    stop: CancellationToken,
}

impl Digesting {
    pub fn new(replicas: Arc<Replicas>, metrics: Arc<Metrics>, stop: CancellationToken) -> Self {
        Self { replicas, metrics, turn: tokio::sync::Mutex::default(), stop }
    }

    /// What this server's replica says of its part of a comparison. The first question begins to read.
    pub fn ask(self: &Arc<Self>, group: GroupId, region: RegionId, id: ComparisonId) -> Digested {
        let Some(machine) = self.replicas.machine(group) else { return Digested::Unknown };
        let Some(hosted) = machine.hosted_region(region) else { return Digested::Unknown };
        let (known, pin) = hosted.comparison.ask(id, now_ns());
        if let Some(pin) = pin {
            let digesting = self.clone();
            spawn_named("digest", async move {
                let read = digesting.read(&machine, &hosted, pin, id);
                if let Some(digested) = digesting.stop.run_until_cancelled(read).await {
                    hosted.comparison.end(id, digested, now_ns());
                }
            });
        }
        known
    }

    async fn read(&self, machine: &GroupMachine, hosted: &Arc<HostedRegion>, pin: Pin, id: ComparisonId) -> Digested {
        let _turn = self.turn.lock().await;
        let gone = || Digested::Impossible("its snapshot is gone".to_owned());
        let Some(mut scanner) = scan_pinned(hosted, &pin, None) else { return gone() };
        let (mut digest, mut opened_at) = (CellDigest::default(), 0);
        loop {
            let (began, before) = (Instant::now(), digest.digest().bytes);
            let place;
            (digest, scanner, place) = run_read(move || {
                let place = digest.read(&mut scanner, STEP_BYTES);
                (digest, scanner, place)
            })
            .await;
            let place = match place {
                Ok(place) => place,
                Err(error) => {
                    hosted.note_damage(&error);
                    return Digested::Impossible(error.to_string());
                }
            };
            if let Some(why) = machine.outdated(hosted, &pin) {
                return Digested::Impossible(why.to_owned());
            }
            let read = digest.digest();
            self.metrics.compared_bytes.inc_by(read.bytes - before);
            match place {
                Place::End => return Digested::Ready(read),
                Place::AfterRow if read.bytes - opened_at >= REOPEN_BYTES => {
                    opened_at = read.bytes;
                    let Some(next) = scan_pinned(hosted, &pin, Some(scanner.row())) else { return gone() };
                    scanner = next;
                }
                Place::AfterRow | Place::WithinRow => {}
            }
            if !hosted.comparison.is_wanted(id) {
                return Digested::Impossible("its leader no longer asks for it".to_owned());
            }
            tokio::time::sleep(pause(began.elapsed(), read.bytes - before)).await;
        }
    }
}

/// The pause after a step that took this time and read so many bytes.
fn pause(took: Duration, bytes: u64) -> Duration {
    let of_rate = Duration::from_nanos(bytes.saturating_mul(1_000_000_000) / BYTES_PER_SECOND);
    (took * PAUSE_PER_STEP).max(of_rate.saturating_sub(took))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reading_takes_a_fifth_of_the_time_and_its_rate_at_most() {
        let (ms, mib) = (Duration::from_millis, 1 << 20);
        assert_eq!(pause(ms(10), 0), ms(40), "a slow disk");
        assert_eq!(pause(ms(1), 16 * mib), ms(999), "a fast one");
    }
}
