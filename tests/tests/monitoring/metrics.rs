//! Every metric of the list is exposed, no other one is, and Prometheus' own checker finds nothing wrong with them.

use std::collections::{BTreeMap, BTreeSet};
use std::io::Write;
use std::process::{Command, Stdio};

use anyhow::{Context, Result, ensure};
use terrane_client::TableSpec;
use terrane_metrics::list;
use terrane_tests::cluster::Settings;
use terrane_tests::eventually::eventually;

use crate::{SOON, Watched, fetch, has};

/// The types of the metrics that a text declares, by name.
fn declared(text: &str) -> BTreeMap<String, String> {
    let types = text.lines().filter_map(|line| line.strip_prefix("# TYPE ")?.split_once(' '));
    types.map(|(name, kind)| (name.to_owned(), kind.to_owned())).collect()
}

/// The names of the labels of each sample, by the name of the sample.
fn labels(text: &str) -> BTreeMap<String, BTreeSet<String>> {
    let mut found = BTreeMap::<String, BTreeSet<String>>::new();
    for line in text.lines().filter(|line| !line.starts_with('#')) {
        let (name, labels) = line.split_once('{').unwrap_or((line.split(' ').next().unwrap_or(line), ""));
        let labels = labels.split_once('}').map_or("", |(labels, _)| labels);
        let names = labels.split(',').filter_map(|label| Some(label.split_once('=')?.0.to_owned()));
        found.entry(name.to_owned()).or_default().extend(names.filter(|name| name != "le"));
    }
    found
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_exposed_metrics_are_those_of_the_list() -> Result<()> {
    let watched = Watched::start(Settings::default()).await?;
    watched.use_it().await?;
    eventually("every metric of the list is exposed as described", SOON, async || {
        let mut text = String::new();
        for console in &watched.consoles {
            text += &fetch(console, "/metrics", "text/plain").await?.1;
        }
        let (types, labels) = (declared(&text), labels(&text));
        for metric in list::all() {
            let samples = metric.samples();
            let family = if samples.len() == 1 { samples[0].as_str() } else { metric.name };
            ensure!(types.get(family).map(String::as_str) == Some(metric.kind.name()), "{family} is not exposed");
            let expected: BTreeSet<String> = metric.labels.iter().map(|&label| label.to_owned()).collect();
            for sample in samples {
                ensure!(labels.get(&sample) == Some(&expected), "{sample} has the labels {:?}", labels.get(&sample));
            }
        }
        let listed: BTreeSet<String> = list::all().flat_map(terrane_metrics::Description::samples).collect();
        for sample in labels.keys() {
            ensure!(listed.contains(sample), "{sample} is exposed and not in the list");
        }
        Ok(())
    })
    .await?;
    watched.stop().await;
    Ok(())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn requests_and_their_stages_are_counted() -> Result<()> {
    let watched = Watched::start(Settings { servers: 1, replication: 1, ..Settings::default() }).await?;
    watched.use_it().await?;
    let server = &watched.consoles[1];
    eventually("the counts of requests and stages", SOON, async || {
        let text = fetch(server, "/metrics", "").await?.1;
        let number = |name: &str| -> Result<f64> {
            let line = text.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(' '));
            Ok(line.with_context(|| format!("{name} is not exposed"))?.parse()?)
        };
        for (name, least) in [
            (r#"terrane_server_request_seconds_count{operation="write"}"#, 50.0),
            (r#"terrane_server_edge_seconds_count{operation="write"}"#, 50.0),
            (r#"terrane_server_request_seconds_count{operation="get"}"#, 1.0),
            (r#"terrane_server_read_seconds_count{operation="get"}"#, 1.0),
            (r#"terrane_server_read_seconds_count{operation="scan"}"#, 1.0),
            ("terrane_server_read_point_seconds_count", 2.0),
            ("terrane_raft_queue_seconds_count", 50.0),
            ("terrane_raft_commit_seconds_count", 1.0),
            ("terrane_raft_log_sync_seconds_count", 1.0),
            ("terrane_raft_apply_seconds_count", 1.0),
            ("terrane_raft_leaderships_total", 1.0),
            ("terrane_raft_log_written_bytes_total", 1.0),
            (r#"terrane_server_table_rows_written_total{table="t"}"#, 50.0),
            (r#"terrane_server_table_rows_read_total{table="t"}"#, 51.0),
            (r#"terrane_server_table_regions{table="t"}"#, 1.0),
            ("process_cpu_seconds_total", 0.0),
        ] {
            let shown = number(name)?;
            ensure!(shown >= least, "{name} is {shown}, not {least} or more");
        }
        Ok(())
    })
    .await?;
    watched.stop().await;
    Ok(())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn promtool_finds_nothing_wrong_and_scrapers_choose_the_format() -> Result<()> {
    let watched = Watched::start(Settings { servers: 1, replication: 1, ..Settings::default() }).await?;
    watched.use_it().await?;
    for console in &watched.consoles {
        let (head, text) = fetch(console, "/metrics", "*/*").await?;
        ensure!(head.contains("text/plain; version=0.0.4"), "{head}");
        let (head, open) = fetch(console, "/metrics", "application/openmetrics-text;version=1.0.0").await?;
        ensure!(head.contains("application/openmetrics-text"), "{head}");
        ensure!(open.ends_with("# EOF\n") && !text.contains("# EOF"), "only OpenMetrics has an end");
        if has("promtool") {
            let mut check = Command::new("promtool");
            check.args(["check", "metrics"]).stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
            let mut check = check.spawn()?;
            check.stdin.take().context("a pipe")?.write_all(text.as_bytes())?;
            let done = check.wait_with_output()?;
            let said = [done.stdout, done.stderr].concat();
            ensure!(done.status.success() && said.is_empty(), "{}", String::from_utf8_lossy(&said));
        }
    }
    watched.stop().await;
    Ok(())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_scrape_is_no_longer_with_a_thousand_regions_than_with_one() -> Result<()> {
    let watched = Watched::start(Settings { servers: 1, replication: 1, ..Settings::default() }).await?;
    watched.use_it().await?;
    let server = &watched.consoles[1];
    let regions_shown = async |least: f64| {
        eventually("the regions are in the metrics", SOON, async || {
            let text = fetch(server, "/metrics", "").await?.1;
            let shown = text.lines().find_map(|line| line.strip_prefix("terrane_server_regions ")?.parse::<f64>().ok());
            ensure!(shown >= Some(least), "{shown:?} regions of {least}");
            Ok(text)
        })
        .await
    };
    let lines = |text: &str| text.lines().count();
    let few = lines(&regions_shown(1.0).await?);
    let spec = TableSpec::new("wide")?.family("f", &[])?;
    let spec = (1..1_000).fold(spec, |spec, n| spec.split_at(format!("{n:04}").as_bytes()));
    let admin = watched.cluster.client().await?.admin().with_timeout(SOON);
    admin.create_table(spec).await?;
    let many = lines(&regions_shown(1_001.0).await?);
    // What the second table adds, and some resource that was not used before.
    ensure!(many < few + 40, "{many} lines for 1,001 regions, {few} for one");
    let began = std::time::Instant::now();
    for _ in 0..10 {
        fetch(server, "/metrics", "").await?;
    }
    eprintln!("a scrape of 1,001 regions takes {:?} in this build", began.elapsed() / 10);
    watched.stop().await;
    Ok(())
}
