//! Metrics of a process as the operating system sees it, under the names that Prometheus' own libraries use.

use super::descriptions;
use crate::Description;
use crate::Kind::{Counter, Gauge};
use crate::Unit::{Bytes, None, Seconds};

descriptions! {
    CPU = Description::new(Counter, "process_cpu_seconds", Seconds,
        "Processor time used by all threads, in user and kernel mode",
        "Near one second per second and core: the machine is full. Add servers, or look for what runs with the metrics of requests, flushes and compactions.");
    RESIDENT = Description::new(Gauge, "process_resident_memory_bytes", Bytes,
        "Memory that the process occupies",
        "It is about `--cache-size` and `--memtable-budget` plus a few hundred MiB under load. If it grows beyond that and stays, compare `terrane_server_resource_used` of each resource.");
    VIRTUAL = Description::new(Gauge, "process_virtual_memory_bytes", Bytes,
        "Address space that the process has reserved",
        "Nothing by itself: the allocator reserves more than it uses.");
    FDS = Description::new(Gauge, "process_open_fds", None,
        "Open files and connections",
        "Near `process_max_fds` connections are refused and files cannot be opened: raise `LimitNOFILE` of the unit, or find the client that opens connections without end.");
    FDS_MAX = Description::new(Gauge, "process_max_fds", None,
        "Limit of open files and connections",
        "Below 65536 on a server with many tables, raise it.");
    THREADS = Description::new(Gauge, "process_threads", None,
        "Threads of the process",
        "More than a few hundred: many reads wait for a slow disk.");
    STARTED = Description::new(Gauge, "process_start_time_seconds", Seconds,
        "When the process started, in seconds since 1970",
        "A change is a restart. If no person restarted it, the log of the time before says why it ended.");
    BUILD = Description::new(Gauge, "terrane_build_info", None,
        "Always 1; the labels name the build",
        "More than one version for long: an upgrade was begun and not finished.").labels(&["version", "level"]);
}
