//! The stores that are measured from here. RocksDB joins from `benches/rocksdb`, which takes minutes to compile.

#[cfg(feature = "sled")]
mod sled;
mod terrane;

use crate::Contender;

/// Everything that is built in here: our engine first.
#[must_use]
pub fn contenders() -> Vec<Contender> {
    vec![
        terrane::CONTENDER,
        #[cfg(feature = "sled")]
        sled::CONTENDER,
    ]
}

#[cfg(test)]
mod tests;
