//! One server's clock is a day ahead: it must not lead, rows with a time to live must stay, and timestamps must stay near the other clocks.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use anyhow::{Context, ensure};
use terrane_lab::{Cluster, eventually};

use super::{Bench, Verdict};

/// Read by the module `time` of `terrane-env`.
const SKEW_VARIABLE: &str = "TERRANE_TEST_CLOCK_SKEW_MS";
const DAY_MS: u64 = 24 * 3_600 * 1000;
const ROWS: usize = 60;

pub fn run(bench: &Bench) -> anyhow::Result<Verdict> {
    let mut cluster = Cluster::start(&bench.terrane, &[])?;
    let splits: Vec<String> = (1..12).map(|region| format!("{:03}", region * 5)).collect();
    let mut create = vec!["table", "create", "t", "--family", "f:ttl=3600"];
    for split in &splits {
        create.extend(["--split-at", split]);
    }
    cluster.succeed(&create)?;
    put_rows(&cluster, "before")?;
    cluster.servers[0].kill();
    cluster.servers[0].set_environment(SKEW_VARIABLE, &DAY_MS.to_string());
    cluster.servers[0].start()?;
    let wrong = cluster.addresses[0].clone();
    // The two other servers lead everything, and status shows why.
    let told = eventually("the server with the wrong clock leads nothing", || {
        let servers = cluster.json_lines(&["admin", "servers"])?;
        let of = |address: &str| servers.iter().find(|server| server["address"] == address);
        ensure!(of(&wrong).context("the server is listed")?["leaders"] == 0, "{servers:?}");
        let status = cluster.json(&["status"])?;
        ensure!(status["groups_without_leader"] == 0, "{status}");
        cluster.issue("clock_wrong")
    })?;
    // Writes, a flush and a compaction while it follows: its replica must not expire what the other replicas keep.
    put_rows(&cluster, "meanwhile")?;
    cluster.succeed(&["admin", "flush", "t"])?;
    cluster.succeed(&["admin", "compact", "t"])?;
    check_rows(&cluster, "while the clock is wrong")?;
    cluster.servers[0].kill();
    cluster.servers[0].set_environment(SKEW_VARIABLE, "0");
    cluster.servers[0].start()?;
    cluster.wait_until_well()?;
    // The content of a replica is visible only when it leads, so stop the other servers one by one.
    for gone in [1, 2] {
        cluster.servers[gone].kill();
        eventually("the rows are read without one server", || check_rows(&cluster, "with the clock right again"))?;
        cluster.servers[gone].start()?;
        cluster.wait_until_well()?;
    }
    put_rows(&cluster, "after")?;
    let now = SystemTime::now().duration_since(UNIX_EPOCH).context("a clock after 1970")?.as_millis();
    for row in cluster.json_lines(&["scan", "t"])? {
        let stamp = row["cells"][0]["timestamp"].as_u64().context("a timestamp")?;
        ensure!(u128::from(stamp) < now + 1_000, "a cell is stamped {} ms ahead", u128::from(stamp) - now);
    }
    Ok(Verdict::Held(format!("{ROWS} of {ROWS} rows stay on every replica; status: {told}")))
}

fn put_rows(cluster: &Cluster, value: &str) -> anyhow::Result<()> {
    let file = cluster.data.path().join("rows.tsv");
    let stamp = SystemTime::now().duration_since(UNIX_EPOCH).context("a clock after 1970")? - Duration::from_millis(1);
    let line = |row: usize| format!("{row:03}\tf:q\t{}\t{value}\n", stamp.as_millis());
    std::fs::write(&file, (0..ROWS).map(line).collect::<String>()).context("writing rows")?;
    let imported = cluster.json(&["import", "t", "--format", "tsv", &file.display().to_string()])?;
    ensure!(imported["imported"] == ROWS, "{imported}");
    // One row with the server's own timestamp in each region as well.
    for region in 0..12 {
        cluster.succeed(&["put", "t", &format!("{:03}", region * 5), "f:q", value])?;
    }
    Ok(())
}

fn check_rows(cluster: &Cluster, when: &str) -> anyhow::Result<()> {
    let count = cluster.json(&["count", "t", "--timeout", "10s"])?["count"].clone();
    ensure!(count == ROWS, "{count} of {ROWS} rows are there {when}");
    Ok(())
}
