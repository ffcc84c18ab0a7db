//! Reads a node's metrics by name, as a scrape would return them.

use std::collections::BTreeMap;

use prometheus_client::registry::Registry;

/// The values of a registry by exposed name; counters end in `_total`, and labels are part of the name. The buckets of histograms
/// are left out: they are most of what a scrape returns, and nothing here looks at them.
#[must_use]
pub fn read(registry: &Registry) -> BTreeMap<String, f64> {
    let mut shown = String::new();
    prometheus_client::encoding::text::encode(&mut shown, registry).expect("writing to a string does not fail");
    shown
        .lines()
        .filter(|line| !line.starts_with('#') && !line.contains("_bucket{"))
        .filter_map(|line| line.rsplit_once(' '))
        .filter_map(|(name, value)| Some((name.to_owned(), value.parse().ok()?)))
        .collect()
}

#[cfg(test)]
mod tests {
    use prometheus_client::metrics::counter::Counter;
    use prometheus_client::metrics::gauge::Gauge;
    use prometheus_client::metrics::histogram::Histogram;

    use super::*;

    #[test]
    fn numbers_are_read_by_name() {
        let (counter, gauge) = (Counter::<u64>::default(), Gauge::<i64>::default());
        let mut registry = Registry::with_prefix("p");
        registry.register("hits", "Hits", counter.clone());
        registry.register("depth", "Depth", gauge.clone());
        let times = Histogram::new([1.0, 2.0]);
        registry.register("times", "Times", times.clone());
        counter.inc_by(3);
        gauge.set(-2);
        times.observe(1.5);
        let numbers = read(&registry);
        let expected = [("p_hits_total", 3.0), ("p_depth", -2.0), ("p_times_sum", 1.5), ("p_times_count", 1.0)];
        assert_eq!(numbers, expected.into_iter().map(|(name, value)| (name.to_owned(), value)).collect());
    }
}
