//! What a region server is told when it starts. Sizes that nobody has had to change yet are constants where they act.

use std::path::PathBuf;
use std::time::Duration;

use terrane_engine::BackendKind;
use terrane_env::net::IntakeLimits;
use terrane_env::time::WallClock;
use terrane_proto::MESSAGE_BYTES_MAX;

/// How a [`crate::RegionServer`] is started.
#[derive(Clone, Debug)]
pub struct ServerConfig {
    /// Everything this server keeps; made when absent, locked while it runs.
    pub data_dir: PathBuf,
    /// Where it listens; port 0 takes a free one.
    pub listen: String,
    /// What others are told; `None`: the listen address.
    pub advertise: Option<String>,
    /// Where its console listens, told to the master for `status`.
    pub console: Option<String>,
    /// Masters to register with, in the order to try.
    pub masters: Vec<String>,
    /// What keeps the cells.
    pub engine: BackendKind,
    /// Memory for blocks read from files.
    pub cache_bytes: u64,
    /// Memory for cells not flushed yet, over all regions.
    pub memtable_budget: u64,
    /// Bytes of the disk to be left free: writes are refused below it. `None`: the lesser of a tenth of the disk and 2 GiB.
    pub disk_reserve: Option<u64>,
    /// Size at which the shared log refuses writes.
    pub log_limit: u64,
    /// Size above which regions that hold the log back are flushed.
    pub log_purge_budget: u64,
    /// Recent log entries kept in memory.
    pub log_cache_bytes: u64,
    /// Size of one segment of the shared log.
    pub segment_bytes: u64,
    /// What its port takes in at a time.
    pub intake: IntakeLimits,
    /// How long a block of a scan's stream waits for its reader before the stream ends.
    pub scan_idle: Duration,
    /// How long to look for a master before giving up.
    pub register_timeout: Duration,
    /// Its wall clock: the machine's, unless a test sets it wrong.
    pub clock: WallClock,
}

impl Default for ServerConfig {
    fn default() -> Self {
        Self {
            data_dir: PathBuf::from("terrane-server"),
            listen: "127.0.0.1:7700".to_owned(),
            advertise: None,
            console: None,
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
            clock: WallClock::default(),
        }
    }
}
