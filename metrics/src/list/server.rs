//! Metrics of a region server.

use super::descriptions;
use crate::Description;
use crate::Kind::{Counter, Gauge, Histogram};
use crate::Unit::{Bytes, None, Ratio, Seconds};

descriptions! {
    REQUESTS = Description::new(Histogram, "terrane_server_request_seconds", Seconds,
        "Time from the arrival of a request to its answer, by operation: get, scan (one block), write or bulk",
        "The stages below say where the time goes; `terrane admin slow` names single requests.").labels(&["operation"]);
    EDGE = Description::new(Histogram, "terrane_server_edge_seconds", Seconds,
        "Time of a request at the edge before its work begins: limits per client, write pressure, its turn in a batch (stage edge)",
        "Writes wait here while the server holds them back: see `terrane_server_write_pressure_ratio`. Reads wait while their client has too many answers outstanding.").labels(&["operation"]);
    READ_POINT = Description::new(Histogram, "terrane_server_read_point_seconds", Seconds,
        "Time to establish what a batch of reads must see",
        "Microseconds under a lease. A network round trip means the leader has no lease: it is new, or clocks or the network are in trouble (`terrane status`).");
    READ = Description::new(Histogram, "terrane_server_read_seconds", Seconds,
        "Time of a get or of one block of a scan in the engine (stage read)",
        "Compare cache misses and bloom filter false positives of the tables, then the disk.").labels(&["operation"]);
    SLOW = Description::new(Counter, "terrane_server_slow_requests", None,
        "Requests that took longer than the setting `slow-request`",
        "`terrane admin slow` lists the latest of them with table, key range and stages.");
    ROWS_WRITTEN = Description::new(Counter, "terrane_server_rows_written", None,
        "Row mutations that this server acknowledged as a leader", "The load; compare servers to see how even it is.");
    ROWS_GOT = Description::new(Counter, "terrane_server_rows_got", None,
        "Rows requested by gets", "The load; compare servers to see how even it is.");
    ROWS_SCANNED = Description::new(Counter, "terrane_server_rows_scanned", None,
        "Rows returned or counted by scans", "The load. Scans of whole tables show as steps: run them at quiet times.");
    REQUEST_ERRORS = Description::new(Counter, "terrane_server_request_errors", None,
        "Requests answered with an error",
        "A few after each split, move or election are normal, and clients retry them. A steady rate: look at `terrane_server_resource_rejections_total` and at the client's errors.");
    FLUSHES = Description::new(Counter, "terrane_server_flushes", None,
        "Flushes of regions that ended", "Many small ones: the memtable budget is small for the number of regions written to.");
    SPLITS = Description::new(Counter, "terrane_server_splits", None,
        "Splits of regions applied", "Many per minute on a steady load: keys grow at one end; see schema design.");
    MERGES = Description::new(Counter, "terrane_server_merges", None,
        "Merges of neighbouring regions applied", "Merges and splits in turn: the load moves through the table.");
    REGIONS_ADOPTED = Description::new(Counter, "terrane_server_regions_adopted", None,
        "Regions taken in from other groups", "It rises while the cluster evens out after servers join or load shifts.");
    LOADS = Description::new(Counter, "terrane_server_loads", None,
        "Files of bulk loads taken into regions, counted by load", "It follows bulk loads.");
    LOAD_BYTES = Description::new(Counter, "terrane_server_load_bytes", Bytes,
        "Bytes of the files that bulk loads took into regions", "It follows bulk loads.");
    LOAD_ROWS = Description::new(Counter, "terrane_server_load_rows", None,
        "Rows that this server built files of as a leader, for bulk loads", "It follows bulk loads.");
    DAMAGED_REPLICAS = Description::new(Counter, "terrane_server_damaged_replicas", None,
        "Replicas with damaged files, or with a damaged log, or that differed from the others, that left this server",
        "Any increase: disk or memory returned wrong bytes. The replica is replaced; check both, and replace the server if it repeats.");
    COMPARISONS = Description::new(Counter, "terrane_server_comparisons", None,
        "Regions whose replicas this server compared as a leader",
        "It rises by the regions that the server leads per `compare-every`. Standing still: a member is away, or the setting is 0.");
    COMPARISONS_DIFFERING = Description::new(Counter, "terrane_server_comparisons_differing", None,
        "Comparisons that found a replica different from the others, twice in a row",
        "Any increase: memory or a disk has changed data without a checksum noticing, or there is a bug. `terrane status` says what was done.");
    REGIONS_COMPARED = Description::new(Gauge, "terrane_server_regions_compared", None,
        "Regions that this server leads whose replicas were compared and found equal",
        "Below the number of regions that it leads for more than `compare-every`: a member is away. It begins again with a region that splits or moves.");
    COMPARISON_AGE = Description::new(Gauge, "terrane_server_comparison_age_seconds", Seconds,
        "Time since the longest ago of these comparisons", "More than twice `compare-every`: comparisons do not keep up, or a member is away.");
    COMPARED_BYTES = Description::new(Counter, "terrane_server_compared_bytes", Bytes,
        "Bytes of cells that this server read to compare replicas", "At most 16 MiB per second.");
    REGIONS = Description::new(Gauge, "terrane_server_regions", None,
        "Regions with a replica on this server", "Compare servers; far more than a few thousand cost memory and start time.");
    GROUPS_LED = Description::new(Gauge, "terrane_server_groups_led", None,
        "Log groups that this server leads",
        "Uneven for minutes, or 0: the server abstains (slow disk, wrong clock, full disk); `terrane status` says why.");
    KEPT_VIEWS = Description::new(Gauge, "terrane_server_kept_views", None,
        "Regions of which this server, a follower, keeps replaced versions for scans at their leader",
        "It follows long scans. With memtables growing on followers only: scans stay open over rows that are overwritten often.");
    MEMTABLE_BYTES = Description::new(Gauge, "terrane_server_memtable_bytes", Bytes,
        "Bytes of cells in memory that are not flushed yet",
        "Near `--memtable-budget`: flushes are slower than writes, and writes are held back.");
    LOG_BYTES = Description::new(Gauge, "terrane_server_log_bytes", Bytes,
        "Bytes of the shared log on disk",
        "Near `--log-limit` writes are rejected: an absent member or an unflushed region holds the log back, and `terrane status` names it.");
    LOG_SYNCS = Description::new(Counter, "terrane_server_log_syncs", None,
        "Syncs of the shared log", "Writes per sync show how well writes are batched.");
    WRITES_IN_FLIGHT = Description::new(Gauge, "terrane_server_writes_in_flight", None,
        "Writes proposed and not yet answered", "It grows with latency: look at the log syncs.");
    WRITE_PRESSURE = Description::new(Gauge, "terrane_server_write_pressure_ratio", Ratio,
        "How hard writes are held back: 0 is not at all, at 1 they are rejected",
        "Above 0 for minutes: flushes or compactions lag behind the writes. More cores, disks or servers, or fewer writes, are the cure.");
    COMPACTIONS = Description::new(Counter, "terrane_server_compactions", None,
        "Compactions that ended", "It follows the writes.");
    COMPACTION_READ = Description::new(Counter, "terrane_server_compaction_read_bytes", Bytes,
        "Bytes read by compactions", "Compare the disk's limit.");
    COMPACTION_WRITTEN = Description::new(Counter, "terrane_server_compaction_written_bytes", Bytes,
        "Bytes written by compactions", "Divided by the bytes of writes it is the write amplification.");
    COMPACTION_PENDING = Description::new(Gauge, "terrane_server_compaction_pending_bytes", Bytes,
        "Bytes waiting to be compacted",
        "Steady growth: compactions lag, reads become slower, and writes will be held back.");
    BLOCK_CACHE_BYTES = Description::new(Gauge, "terrane_server_block_cache_bytes", Bytes,
        "Bytes of blocks in the block cache", "It fills up to `--cache-size` and stays there.");
    FEATURE_LEVEL = Description::new(Gauge, "terrane_server_feature_level", None,
        "Feature level of the cluster, as this server knows it", "It rises when an upgrade is completed.");
    CACHE_HITS = Description::new(Counter, "terrane_server_block_cache_hits", None,
        "Blocks that reads found in the block cache", "Compare with the misses.").labels(&["table", "family"]);
    CACHE_MISSES = Description::new(Counter, "terrane_server_block_cache_misses", None,
        "Blocks that reads fetched from disk",
        "More misses than hits on a table whose reads must be quick: its working set does not fit `--cache-size`.").labels(&["table", "family"]);
    BLOCK_READ_BYTES = Description::new(Counter, "terrane_server_block_read_bytes", Bytes,
        "Bytes of the blocks that reads fetched from disk", "Compare the disk's limit.").labels(&["table", "family"]);
    BLOOM_NEGATIVES = Description::new(Counter, "terrane_server_bloom_negatives", None,
        "Store files that bloom filters let reads skip", "Compare with the false positives.").labels(&["table", "family"]);
    BLOOM_FALSE_POSITIVES = Description::new(Counter, "terrane_server_bloom_false_positives", None,
        "Store files that reads searched because of a bloom filter, and that did not hold the row",
        "More than a few percent of the negatives: the filter does not match the reads; see `bloom` and `bloom_prefix` in [attributes.md](attributes.md).").labels(&["table", "family"]);
    TABLE_ROWS_READ = Description::new(Counter, "terrane_server_table_rows_read", None,
        "Rows of a table that were read here",
        "The load by table. Copied from the regions twice per second; the last moment of a region that splits, merges or moves is not counted.").labels(&["table"]);
    TABLE_ROWS_WRITTEN = Description::new(Counter, "terrane_server_table_rows_written", None,
        "Rows of a table that were written here", "As for rows read.").labels(&["table"]);
    TABLE_BYTES = Description::new(Counter, "terrane_server_table_traffic_bytes", Bytes,
        "Bytes of a table's rows that were read and written here", "As for rows read.").labels(&["table"]);
    TABLE_REGIONS = Description::new(Gauge, "terrane_server_table_regions", None,
        "Regions of a table with a replica here", "Compare servers to see how a table is spread.").labels(&["table"]);
    TABLE_SIZE = Description::new(Gauge, "terrane_server_table_size_bytes", Bytes,
        "Bytes of a table's files and memtables here", "The size of the table, replicas counted on each server.").labels(&["table"]);
    RESOURCE_USED = Description::new(Gauge, "terrane_server_resource_used", None,
        "Present usage of a limited resource, in bytes or units",
        "Near its limit for long: [design/bounds.md](design/bounds.md) says what the resource is and what happens at the limit.").labels(&["resource"]);
    RESOURCE_PEAK = Description::new(Gauge, "terrane_server_resource_peak", None,
        "Highest usage of a limited resource since the start", "As for the present usage.").labels(&["resource"]);
    RESOURCE_LIMIT = Description::new(Gauge, "terrane_server_resource_limit", None,
        "Limit of a resource", "It changes with settings only.").labels(&["resource"]);
    RESOURCE_REJECTIONS = Description::new(Counter, "terrane_server_resource_rejections", None,
        "Requests rejected because a resource was at its limit",
        "Clients retry them. A steady rate: the server is overloaded in this resource.").labels(&["resource"]);
    HEALTH_ISSUES = Description::new(Gauge, "terrane_server_health_issues", None,
        "Health issues that this server reports, by kind",
        "Above 0: `terrane status` says what it is. [Health issues](#health-issues) lists the kinds.").labels(&["kind"]);
    DISK_FREE = Description::new(Gauge, "terrane_server_disk_free_bytes", Bytes,
        "Free bytes of the disk of the data directory",
        "Writes are rejected before it reaches 0: by default below a tenth of the disk, or 2 GiB. Free space, or add servers.");
    DISK_SIZE = Description::new(Gauge, "terrane_server_disk_size_bytes", Bytes,
        "Size of the disk of the data directory", "Nothing; it is what the free bytes are compared with.");
}
