//! The dashboard and the alert rules of `deploy/` name only metrics that exist, and a real Prometheus runs their queries.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use anyhow::{Context, Result, ensure};
use serde_json::Value;
use terrane_metrics::list;
use terrane_tests::cluster::Settings;
use terrane_tests::eventually::eventually;

use crate::{SOON, Watched, get_from, has};

/// How often the Prometheus of the test scrapes.
const SCRAPE_EVERY: &str = "200ms";

fn deploy(file: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../deploy").join(file)
}

/// Every query of the dashboard, with its variables replaced as Grafana would.
fn dashboard_queries() -> Result<Vec<String>> {
    let dashboard: Value = serde_json::from_slice(&std::fs::read(deploy("grafana/terrane.json"))?)?;
    let panels = dashboard["panels"].as_array().context("the dashboard has panels")?;
    let targets = panels.iter().filter_map(|panel| panel["targets"].as_array()).flatten();
    let queries = targets.map(|target| {
        let query = target["expr"].as_str().with_context(|| format!("a target without a query: {target}"))?;
        let query = query.replace("$__rate_interval", "1m").replace("$instance", ".*");
        ensure!(!query.contains('$'), "an unknown variable in {query}");
        Ok(query)
    });
    queries.collect()
}

/// Every query of the alert rules: each rule has its query on one line.
fn alert_queries() -> Result<Vec<String>> {
    let rules = std::fs::read_to_string(deploy("prometheus/alerts.yml"))?;
    let queries: Vec<String> =
        rules.lines().filter_map(|line| Some(line.trim().strip_prefix("expr: ")?.to_owned())).collect();
    let alerts = rules.lines().filter(|line| line.trim().starts_with("- alert: ")).count();
    ensure!(queries.len() == alerts && alerts > 0, "{alerts} alerts have {} queries on one line", queries.len());
    Ok(queries)
}

/// The names in a query that look like metrics of ours.
fn metrics_in(query: &str) -> impl Iterator<Item = &str> {
    let words = query.split(|c: char| !c.is_ascii_alphanumeric() && c != '_');
    words.filter(|word| word.starts_with("terrane_") || word.starts_with("process_"))
}

#[test]
fn dashboard_and_alerts_name_only_metrics_that_exist() -> Result<()> {
    let listed: BTreeSet<String> = list::all().flat_map(terrane_metrics::Description::samples).collect();
    let mut named = 0;
    for query in dashboard_queries()?.iter().chain(&alert_queries()?) {
        for metric in metrics_in(query) {
            ensure!(listed.contains(metric), "{metric} does not exist: {query}");
            named += 1;
        }
    }
    ensure!(named > 50, "only {named} metrics are named: is the dashboard empty?");
    Ok(())
}

#[test]
fn the_description_of_each_alert_says_what_to_do() -> Result<()> {
    let rules = std::fs::read_to_string(deploy("prometheus/alerts.yml"))?;
    for rule in rules.split("- alert: ").skip(1) {
        let name = rule.lines().next().unwrap_or_default();
        for part in ["severity: ", "summary: ", "description: "] {
            ensure!(rule.contains(part), "{name} has no {part}");
        }
    }
    Ok(())
}

#[test]
fn promtool_accepts_rules_and_configuration() -> Result<()> {
    if has("promtool") {
        for (what, file) in [("rules", "prometheus/alerts.yml"), ("config", "prometheus/prometheus.yml")] {
            let done = Command::new("promtool").args(["check", what]).arg(deploy(file)).output()?;
            let said = String::from_utf8_lossy(&[done.stdout, done.stderr].concat()).into_owned();
            ensure!(done.status.success(), "{file}: {said}");
        }
    }
    Ok(())
}

/// A Prometheus that scrapes consoles; killed when dropped.
struct Prometheus {
    process: Child,
    address: String,
    _directory: tempfile::TempDir,
}

impl Drop for Prometheus {
    fn drop(&mut self) {
        // It may have ended by itself.
        self.process.kill().ok();
        self.process.wait().ok();
    }
}

impl Prometheus {
    fn start(watched: &Watched) -> Result<Self> {
        let directory = tempfile::tempdir()?;
        let addresses: Vec<String> = watched.consoles.iter().map(|console| console.address().to_string()).collect();
        let (master, servers) = addresses.split_first().context("a cluster has a master")?;
        let config = format!(
            "global:\n  scrape_interval: {SCRAPE_EVERY}\n  evaluation_interval: {SCRAPE_EVERY}\nrule_files: [{:?}]\n\
             scrape_configs:\n- job_name: terrane-master\n  static_configs: [targets: [{master:?}]]\n\
             - job_name: terrane-server\n  static_configs: [targets: {servers:?}]\n",
            std::fs::canonicalize(deploy("prometheus/alerts.yml"))?,
        );
        let file = directory.path().join("prometheus.yml");
        std::fs::write(&file, config)?;
        // Prometheus does not say which port it has chosen, so the test chooses a free one.
        let address = std::net::TcpListener::bind("127.0.0.1:0")?.local_addr()?.to_string();
        let process = Command::new("prometheus")
            .arg(format!("--config.file={}", file.display()))
            .arg(format!("--storage.tsdb.path={}", directory.path().join("data").display()))
            .arg(format!("--web.listen-address={address}"))
            .stdout(Stdio::null())
            .stderr(std::fs::File::create(directory.path().join("log"))?)
            .spawn()?;
        Ok(Self { process, address, _directory: directory })
    }

    /// The series that a query selects now.
    async fn query(&self, query: &str) -> Result<Vec<Value>> {
        let encoded: String = query.bytes().map(|byte| format!("%{byte:02X}")).collect();
        let (_, body) = get_from(&self.address, &format!("/api/v1/query?query={encoded}"), "*/*").await?;
        let answer: Value = serde_json::from_str(&body).with_context(|| format!("not JSON: {body}"))?;
        ensure!(answer["status"] == "success", "{query}: {answer}");
        answer["data"]["result"].as_array().cloned().context("a result")
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_real_prometheus_scrapes_the_cluster_and_runs_every_query() -> Result<()> {
    if !has("prometheus") {
        return Ok(());
    }
    let watched = Watched::start(Settings::default()).await?;
    watched.use_it().await?;
    let prometheus = Prometheus::start(&watched)?;
    eventually("Prometheus has scraped every process three times", SOON, async || {
        let scraped = prometheus.query("count_over_time(terrane_build_info[1m]) >= 3").await?;
        ensure!(scraped.len() == watched.consoles.len(), "{scraped:?}");
        Ok(())
    })
    .await?;
    ensure!(prometheus.query("up == 0").await?.is_empty(), "a scrape has failed");
    for query in dashboard_queries()? {
        let series = prometheus.query(&query).await?;
        // A healthy cluster that rests has none of these.
        let may_be_empty = query.contains("> 0");
        ensure!(may_be_empty || !series.is_empty(), "a panel shows nothing: {query}");
    }
    for query in alert_queries()? {
        let firing = prometheus.query(&query).await?;
        ensure!(firing.is_empty(), "an alert fires on a healthy cluster: {query}: {firing:?}");
    }
    // The rules were read, and none of them fails.
    let (_, rules) = get_from(&prometheus.address, "/api/v1/rules", "*/*").await?;
    let rules: Value = serde_json::from_str(&rules)?;
    let rules = rules["data"]["groups"][0]["rules"].as_array().context("the rules are loaded")?;
    ensure!(rules.len() == alert_queries()?.len(), "{} rules are loaded", rules.len());
    for rule in rules {
        ensure!(rule["health"] != "err", "{rule}");
    }
    drop(prometheus);
    watched.stop().await;
    Ok(())
}
