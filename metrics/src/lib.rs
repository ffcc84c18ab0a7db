//! The one list of every metric that Terrane exposes, and the latency histogram.
//!
//! A metric is described once, in [`list`]: its name, type, unit, labels, what it means, and what to do when it moves.
//! Registration takes a [`Description`], so a metric without one cannot be exposed, and `docs/metrics.md` is generated
//! from the same list ([`page::render`]). The dashboard and the alert rules under `deploy/` are tested against it. So are the kinds of
//! health issues ([`terrane_types::IssueKind`]).
//!
//! Invariants: names are complete here (no prefix is added elsewhere), and labels have few values: a kind of operation, a
//! resource, or a table, of which at most [`TABLES_MAX`] are named.

mod build_info;
mod description;
mod histogram;
mod issue_counts;
pub mod list;
pub mod page;
mod resource_watch;
mod resources;

pub use build_info::register_build;
pub use description::{Description, Kind, Unit};
pub use histogram::{Histogram, Histograms};
pub use issue_counts::IssueCounts;
pub use resource_watch::ResourceWatch;
pub use resources::{ResourceUse, Resources};

/// Tables with series of their own in the metrics of one process; all others are counted as [`OTHER_TABLES`]. Each table
/// has about ten series, so the bound keeps a scrape below a few thousand lines however many tables there are.
pub const TABLES_MAX: usize = 100;

/// The label of the tables beyond [`TABLES_MAX`]. A table of this name is counted with them.
pub const OTHER_TABLES: &str = "other";
