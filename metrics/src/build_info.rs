//! Which build exposes the metrics.

use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::registry::Registry;

use crate::list::process;

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct Labels {
    version: String,
    level: String,
}

/// Exposes the build by its version and feature level.
pub fn register_build(registry: &mut Registry, version: &str, level: u32) {
    let info: Family<Labels, Gauge> = Family::default();
    info.get_or_create(&Labels { version: version.to_owned(), level: level.to_string() }).set(1);
    process::BUILD.register(registry, info);
}
