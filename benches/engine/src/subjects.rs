//! The stores built into this crate. `benches/rocksdb` adds RocksDB, which takes minutes to compile.

#[cfg(feature = "sled")]
mod sled;
mod terrane;

use crate::Contender;

/// All built-in stores, our engine first.
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
