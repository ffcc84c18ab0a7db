//! `docs/metrics.md`, rendered from the list.

use std::fmt::Write;

use terrane_types::IssueKind;

use crate::list::{self, parts};
use crate::{Kind, OTHER_TABLES, TABLES_MAX};

/// The page.
#[must_use]
pub fn render() -> String {
    let mut page = format!(
        "# Metrics

For operators: every metric of `/metrics`, and what to do when it moves. `cargo xtask fix` writes this page from `metrics/src/list.rs`.

The console of each master and region server answers `GET /metrics` in the text format of Prometheus (0.0.4), or in OpenMetrics
1.0 to a scraper that accepts it. Counters end in `_total` and start at 0 with the process. Histograms are latencies in seconds, with
`_bucket`, `_sum` and `_count`. Dashboard, alert rules and an example of Prometheus' configuration are in `deploy/`.

The number of series is bounded. Nothing is counted by region, row or client. Of the tables on a server, the first {TABLES_MAX} have series of
their own; the others are added up under the table `{OTHER_TABLES}`.

A write passes the stages edge, queue, log sync (on a quorum of servers) and apply; a read passes edge, read point and read.
"
    );
    for part in parts() {
        write!(page, "\n## {}\n\n{}\n\n", part.title, part.about).expect(INFALLIBLE);
        page.push_str("| metric | type | unit | labels | meaning | when it moves |\n|---|---|---|---|---|---|\n");
        for metric in part.metrics {
            let name =
                if metric.kind == Kind::Counter { format!("{}_total", metric.name) } else { metric.name.to_owned() };
            let labels: Vec<String> = metric.labels.iter().map(|label| format!("`{label}`")).collect();
            let (kind, unit, labels) = (metric.kind.name(), metric.unit.name(), labels.join(", "));
            writeln!(page, "| `{name}` | {kind} | {unit} | {labels} | {} | {} |", metric.help, metric.action)
                .expect(INFALLIBLE);
        }
    }
    health_issues(&mut page);
    page
}

/// What is not healthy, and where it shows.
fn health_issues(page: &mut String) {
    page.push_str(
        "
## Health issues

Whatever is not healthy is a health issue of one of these kinds. `terrane status` lists the issues and the console's overview shows them as
problems; both show every kind. The metrics count them, and an alert rule of `deploy/prometheus/alerts.yml` fires for each. The column *check*
names the finding of `terrane admin check` that says the same. Its other findings become the issue `check` once they have stood for two minutes.

Some alerts are no health issues, because they judge rates over time, which only Prometheus keeps: `TerraneProcessDown`, `TerraneRequestsSlow`,
`TerraneLogSyncSlow`, `TerraneCompactionsLag`, `TerraneFilesNearLimit`, `TerraneRestartsRepeatedly`, `TerraneMessagesDamaged` and
`TerraneMixedBuilds`. `terrane admin slow` and the versions in `terrane status` show the present state of two of them.

| kind | severity | meaning | metrics | alert | check | what to do |
|---|---|---|---|---|---|---|
",
    );
    for kind in IssueKind::ALL {
        let about = kind.about();
        let metrics: Vec<String> =
            about.metrics.iter().filter_map(|name| Some(format!("`{}`", list::named(name)?.samples()[0]))).collect();
        let check = if about.finding.is_empty() { "" } else { about.finding };
        writeln!(
            page,
            "| `{}` | {} | {} | {} | `{}` | {check} | {} |",
            about.name,
            about.severity.label(),
            about.help,
            metrics.join(", "),
            about.alert,
            about.action
        )
        .expect(INFALLIBLE);
    }
}

const INFALLIBLE: &str = "writing to a string does not fail";

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_metric_has_a_row() {
        let page = render();
        for metric in crate::list::all() {
            assert!(page.contains(&format!("| `{}", metric.name)), "{}", metric.name);
        }
        assert!(page.contains("| `process_cpu_seconds_total` | counter | seconds |"), "{page}");
    }
}
