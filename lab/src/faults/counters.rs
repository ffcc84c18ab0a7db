//! Increments while the leader is killed: the sum must be exact, and every call must get an answer.

use std::time::Duration;

use anyhow::ensure;
use terrane_lab::{Cluster, let_it_run};

use super::{Bench, Verdict};

pub fn run(bench: &Bench) -> anyhow::Result<Verdict> {
    let mut cluster = Cluster::start(&bench.terrane, &[])?;
    let (mut rates, mut gaps) = (Vec::new(), Vec::new());
    for run in 1..=bench.runs {
        let flags = ["bench", "incr", "--rows", "1000", "--in-flight", "64", "--seconds", "8"];
        let load = cluster.load(&[&flags[..], &["--table", "counters", "--timeout", "20s"]].concat())?;
        let_it_run(Duration::from_secs(3));
        let victim = cluster.busiest_server()?;
        cluster.servers[victim].kill();
        let (summary, well, errors) = load.finish()?;
        ensure!(
            well && summary["errors"] == 0 && summary["uncertain"] == 0 && summary["exact"] == true,
            "run {run} of {}: {summary} {errors}",
            bench.runs
        );
        rates.push(summary["rate"].as_f64().unwrap_or(0.0));
        gaps.push(summary["longest_gap_ms"].as_f64().unwrap_or(0.0));
        println!("   run {run}: {:.0} /s, longest gap {:.0} ms, exact", rates[rates.len() - 1], gaps[gaps.len() - 1]);
        cluster.servers[victim].start()?;
        cluster.wait_until_well()?;
    }
    let mean = rates.iter().sum::<f64>() / rates.len().max(1) as f64;
    let longest = gaps.iter().copied().fold(0.0, f64::max);
    Ok(Verdict::Held(format!(
        "{} of {} runs exact, no call failed or unknown; {mean:.0} increments/s with the kill, longest gap {longest:.0} ms",
        rates.len(),
        bench.runs
    )))
}
