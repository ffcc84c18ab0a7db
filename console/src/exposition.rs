//! The formats of `/metrics`: the text format 0.0.4, which every scraper and `promtool` read, and OpenMetrics 1.0 for a
//! scraper that prefers it.
//!
//! The registry writes OpenMetrics. In the older format a counter's name has its `_total` also in the lines about it, and
//! there are no lines about units; everything else is the same.

use axum::http::{HeaderMap, StatusCode, header};
use axum::response::{IntoResponse, Response};
use prometheus_client::encoding::text::{encode_eof, encode_registry};
use prometheus_client::registry::Registry;

use crate::process;

const OPEN_METRICS: &str = "application/openmetrics-text; version=1.0.0; charset=utf-8";
const TEXT: &str = "text/plain; version=0.0.4; charset=utf-8";

/// The metrics of a registry and of this process, in the format that the headers ask for.
pub async fn respond(registry: &Registry, headers: &HeaderMap) -> Response {
    let mut own = Registry::default();
    process::register(&mut own).await;
    let mut text = String::new();
    let encoded = encode_registry(&mut text, registry)
        .and_then(|()| encode_registry(&mut text, &own))
        .and_then(|()| encode_eof(&mut text));
    if let Err(error) = encoded {
        return (StatusCode::INTERNAL_SERVER_ERROR, format!("cannot encode the metrics: {error}\n")).into_response();
    }
    let accepted = headers.get_all(header::ACCEPT).iter().filter_map(|value| value.to_str().ok());
    match prefers_open_metrics(accepted) {
        true => ([(header::CONTENT_TYPE, OPEN_METRICS)], text).into_response(),
        false => ([(header::CONTENT_TYPE, TEXT)], classic(&text)).into_response(),
    }
}

/// Whether the scraper prefers OpenMetrics to plain text. Of equal weight, the one named first counts.
fn prefers_open_metrics<'a>(accepted: impl Iterator<Item = &'a str>) -> bool {
    let mut best: Option<(f32, bool)> = None;
    for range in accepted.flat_map(|value| value.split(',')) {
        let mut parts = range.split(';').map(str::trim);
        let is_open = match parts.next() {
            Some("application/openmetrics-text") => true,
            Some("text/plain" | "text/*" | "*/*") => false,
            _ => continue,
        };
        let weight = parts.find_map(|part| part.strip_prefix("q=")?.trim().parse().ok()).unwrap_or(1.0_f32);
        if best.is_none_or(|(before, _)| weight > before) {
            best = Some((weight, is_open));
        }
    }
    best.is_some_and(|(weight, is_open)| is_open && weight > 0.0)
}

/// OpenMetrics as the text format 0.0.4.
fn classic(open_metrics: &str) -> String {
    let mut text = String::with_capacity(open_metrics.len() + (open_metrics.len() >> 3));
    // The line with the help comes first and needs the type, which follows.
    let mut help: Option<(&str, &str)> = None;
    for line in open_metrics.lines() {
        if let Some(about) = line.strip_prefix("# HELP ") {
            help = about.split_once(' ');
        } else if let Some(about) = line.strip_prefix("# TYPE ") {
            let (name, kind) = about.split_once(' ').unwrap_or((about, "untyped"));
            let suffix = if kind == "counter" { "_total" } else { "" };
            if let Some((_, words)) = help.take() {
                text.extend(["# HELP ", name, suffix, " ", words, "\n"]);
            }
            text.extend(["# TYPE ", name, suffix, " ", kind, "\n"]);
        } else if !line.starts_with('#') {
            text.extend([line, "\n"]);
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_scraper_chooses_the_format() {
        let prefers = |accept: &str| prefers_open_metrics([accept].into_iter());
        let prometheus = "application/openmetrics-text;version=1.0.0;q=0.5,application/openmetrics-text;version=0.0.1;\
                          q=0.4,text/plain;version=0.0.4;q=0.3,*/*;q=0.2";
        assert!(prefers(prometheus));
        assert!(prefers("application/openmetrics-text"));
        for plain in ["", "*/*", "text/plain", "text/html,*/*;q=0.1", "text/plain, application/openmetrics-text;q=0.1"]
        {
            assert!(!prefers(plain), "{plain}");
        }
        assert!(!prefers("application/openmetrics-text;q=0"));
        assert!(!prefers_open_metrics(std::iter::empty()));
    }

    #[test]
    fn the_older_format_names_counters_in_full_and_knows_no_units() {
        let open = "# HELP a_seconds Time.\n# TYPE a_seconds counter\n# UNIT a_seconds seconds\na_seconds_total{x=\"# y\"} 1\n\
                    # HELP b Level.\n# TYPE b gauge\nb 2\n# EOF\n";
        let expected = "# HELP a_seconds_total Time.\n# TYPE a_seconds_total counter\na_seconds_total{x=\"# y\"} 1\n\
                        # HELP b Level.\n# TYPE b gauge\nb 2\n";
        assert_eq!(classic(open), expected);
    }
}
