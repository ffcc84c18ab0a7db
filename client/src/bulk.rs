//! Bulk loads: sorted rows that servers build into store files and take into regions, all or none of a run.

pub(crate) mod loader;
pub(crate) mod options;
pub(crate) mod run;
