//! Entry points of the fuzz driver: the manifest, store files and their blocks, files of cells, and sled's cells.
//!
//! Only built with the feature `fuzzing`.

pub(crate) mod draw;

use terrane_types::fuzzing::Format;

use crate::backend::memory::fuzzing as memory;
#[cfg(feature = "sled")]
use crate::backend::sled::fuzzing as sled;
use crate::manifest::fuzzing as manifest;
use crate::store_file::fuzzing as store_file;

/// The formats of this crate.
pub const FORMATS: &[Format] = &[
    manifest::RECORD,
    manifest::FILE,
    manifest::REPLAY,
    store_file::BLOCK,
    store_file::COMPRESSED,
    store_file::DATA,
    store_file::INDEX,
    store_file::FILTER,
    store_file::PROPERTIES,
    store_file::FOOTER,
    store_file::FILE,
    store_file::FORGED,
    memory::FILE,
    memory::FRAMES,
    #[cfg(feature = "sled")]
    sled::CELL,
];
