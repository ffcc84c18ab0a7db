//! Reads a node's metrics by name, as a scrape would return them.

use std::collections::BTreeMap;

use prometheus_client::registry::Registry;

/// All values of a registry by exposed name; counters end in `_total`, and labels are part of the name.
#[must_use]
pub fn read(registry: &Registry) -> BTreeMap<String, f64> {
    let mut shown = String::new();
    prometheus_client::encoding::text::encode(&mut shown, registry).expect("writing to a string does not fail");
    shown
        .lines()
        .filter(|line| !line.starts_with('#'))
        .filter_map(|line| line.rsplit_once(' '))
        .filter_map(|(name, value)| Some((name.to_owned(), value.parse().ok()?)))
        .collect()
}

#[cfg(test)]
mod tests {
    use prometheus_client::metrics::counter::Counter;
    use prometheus_client::metrics::gauge::Gauge;

    use super::*;

    #[test]
    fn numbers_are_read_by_name() {
        let (counter, gauge) = (Counter::<u64>::default(), Gauge::<i64>::default());
        let mut registry = Registry::with_prefix("p");
        registry.register("hits", "Hits", counter.clone());
        registry.register("depth", "Depth", gauge.clone());
        counter.inc_by(3);
        gauge.set(-2);
        let numbers = read(&registry);
        assert_eq!(numbers, BTreeMap::from([("p_hits_total".to_owned(), 3.0), ("p_depth".to_owned(), -2.0)]));
    }
}
