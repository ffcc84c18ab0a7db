//! Entry points of the fuzz driver: the log, held files, entries and the frames between servers.
//!
//! Only built with the feature `fuzzing`.

pub(crate) mod draw;

use terrane_types::fuzzing::Format;

use crate::log::fuzzing as log;
use crate::peer::fuzzing as peer;

/// The formats of this crate.
pub const FORMATS: &[Format] = &[
    log::RECORD,
    log::RECORD_BODY,
    log::BATCH_HEADER,
    log::SEGMENT,
    log::REPLAY,
    log::HELD_FILE,
    log::HELD_RECORDS,
    log::ENTRY,
    peer::STREAM,
];
