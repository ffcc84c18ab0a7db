//! All formats: those that crates list, and those whose readers are public.

mod filter;
mod keys;
mod schema;

use terrane_types::fuzzing::Format;

/// All formats, cheap ones first.
#[must_use]
pub fn all() -> Vec<&'static Format> {
    let lists = [
        schema::FORMATS,
        keys::FORMATS,
        filter::FORMATS,
        terrane_proto::fuzzing::FORMATS,
        terrane_raft::fuzzing::FORMATS,
        terrane_regionserver::fuzzing::FORMATS,
        terrane_master::fuzzing::FORMATS,
        terrane_hbase::fuzzing::FORMATS,
        terrane_engine::fuzzing::FORMATS,
    ];
    lists.into_iter().flatten().collect()
}
