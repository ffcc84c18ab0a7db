//! The configuration of a region server. Sizes that have not had to vary yet are constants where they are used.

use std::path::PathBuf;
use std::time::Duration;

use terrane_engine::BackendKind;
use terrane_env::net::IntakeLimits;
use terrane_env::time::WallClock;
use terrane_env::trace::Tracer;
use terrane_proto::MESSAGE_BYTES_MAX;
use terrane_raft::LogConfig;
use terrane_types::Endpoint;
use terrane_types::versions::Levels;

use crate::background::shape_limits::ShapeLimits;

/// With less, a server would wait for flushes all the time; with nothing, permanently.
const MEMTABLE_BUDGET_MIN: u64 = 64 << 10;
/// What masters keep of a text that a server registers with.
const TEXT_BYTES_MAX: usize = 512;

/// The configuration of a [`crate::RegionServer`].
#[derive(Clone, Debug)]
pub struct ServerConfig {
    /// The directory for all data of this server. Created if absent, and locked while the server runs.
    pub data_dir: PathBuf,
    /// The address to listen on. Port 0 picks a free one.
    pub listen: String,
    /// The address that others use to reach this server; `None`: the listen address.
    pub advertise: Option<String>,
    /// The address of the console, which `status` shows.
    pub console: Option<String>,
    /// Where it serves clients of other protocols, which the masters tell them. The boot number becomes their start code.
    pub endpoints: Vec<Endpoint>,
    /// The zone of this server: those of one zone may fail together. `None`: no label.
    pub zone: Option<String>,
    /// The masters to register with, in the order in which they are tried.
    pub masters: Vec<String>,
    /// The storage engine.
    pub engine: BackendKind,
    /// Memory of the block cache.
    pub cache_bytes: u64,
    /// Memory for cells that are not flushed yet, over all regions.
    pub memtable_budget: u64,
    /// Bytes of the disk to keep free: below that, writes are rejected. `None`: a tenth of the disk, and at most 2 GiB.
    pub disk_reserve: Option<u64>,
    /// Size at which the shared log rejects writes.
    pub log_limit: u64,
    /// Size above which regions that hold the log back are flushed.
    pub log_purge_budget: u64,
    /// Recent log entries kept in memory.
    pub log_cache_bytes: u64,
    /// Size of a segment of the shared log.
    pub segment_bytes: u64,
    /// Limits on what the port receives and sends.
    pub intake: IntakeLimits,
    /// How long a block of a scan stream waits for its reader before the stream ends.
    pub scan_idle: Duration,
    /// How long to look for a master before giving up.
    pub register_timeout: Duration,
    /// Bytes of rows per second that bulk loads may send to this server, so that requests have room; 0: any number.
    pub bulk_rate: u64,
    /// The time in which a server compares the replicas of all regions that it leads, once; zero: it does not.
    pub compare_every: Duration,
    /// Reads are confirmed by a quorum, whatever the request and its table say.
    pub strict_reads: bool,
    /// When regions are split for their load and merged.
    pub shape: ShapeLimits,
    /// Requests that take longer are kept for `terrane admin slow`; zero: none.
    pub slow_request: Duration,
    /// Records the spans of traced requests.
    pub tracer: Tracer,
    /// The feature levels of clusters that it works in: those of the build, unless a test has it behave as an older one.
    pub levels: Levels,
    /// The wall clock: the machine's, unless a test skews it.
    pub clock: WallClock,
}

impl Default for ServerConfig {
    fn default() -> Self {
        Self {
            data_dir: PathBuf::from("terrane-server"),
            listen: "127.0.0.1:7700".to_owned(),
            advertise: None,
            console: None,
            endpoints: Vec::new(),
            zone: None,
            masters: vec!["127.0.0.1:7600".to_owned()],
            engine: BackendKind::default(),
            cache_bytes: 256 << 20,
            memtable_budget: 256 << 20,
            disk_reserve: None,
            log_limit: 8 << 30,
            log_purge_budget: 256 << 20,
            log_cache_bytes: 64 << 20,
            segment_bytes: 64 << 20,
            intake: IntakeLimits { message_bytes: MESSAGE_BYTES_MAX, ..IntakeLimits::default() },
            scan_idle: Duration::from_secs(30),
            register_timeout: Duration::from_secs(30),
            bulk_rate: 256 << 20,
            compare_every: Duration::from_secs(24 * 3_600),
            strict_reads: false,
            shape: ShapeLimits::default(),
            slow_request: Duration::from_millis(500),
            tracer: Tracer::default(),
            levels: Levels::BUILD,
            clock: WallClock::default(),
        }
    }
}

impl ServerConfig {
    /// Everything that is wrong with the settings, each as the setting's name and the predicate of a sentence about it.
    #[must_use]
    pub fn mistakes(&self) -> Vec<(&'static str, String)> {
        let mut mistakes = Vec::new();
        for (setting, bytes, least) in [
            ("log-limit", self.log_limit, LogConfig::LIMIT_BYTES_MIN),
            ("memtable-budget", self.memtable_budget, MEMTABLE_BUDGET_MIN),
        ] {
            if bytes < least {
                let why = format!("is {bytes} bytes, with which a server cannot work; the least is {}KiB", least >> 10);
                mistakes.push((setting, why));
            }
        }
        if self.zone.as_ref().is_some_and(|zone| zone.len() > TEXT_BYTES_MAX) {
            mistakes.push(("zone", format!("may have at most {TEXT_BYTES_MAX} bytes")));
        }
        mistakes
    }

    /// Rejects settings that cannot work, before a server registers with them.
    pub(crate) fn check(&self) -> Result<(), String> {
        let mistakes: Vec<String> =
            self.mistakes().into_iter().map(|(setting, why)| format!("--{setting} {why}")).collect();
        if mistakes.is_empty() { Ok(()) } else { Err(mistakes.join("; ")) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn limits_that_cannot_work_are_all_named() {
        assert_eq!(ServerConfig::default().mistakes(), []);
        let config = ServerConfig {
            log_limit: 1 << 10,
            memtable_budget: 0,
            zone: Some("z".repeat(513)),
            ..ServerConfig::default()
        };
        let found: Vec<&str> = config.mistakes().into_iter().map(|(setting, _)| setting).collect();
        assert_eq!(found, ["log-limit", "memtable-budget", "zone"]);
        let error = config.check().expect_err("refused");
        assert!(error.contains("--log-limit is 1024 bytes") && error.contains("the least is 32KiB"), "{error}");
    }
}
