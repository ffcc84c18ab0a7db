//! Entry points of the fuzz driver: operations, durable state, tokens, the text files of a data directory, and requests.
//!
//! Only built with the feature `fuzzing`.

mod files;
mod operations;
mod state;
mod tokens;

use terrane_types::fuzzing::Format;

use crate::edge::page_token::fuzzing as page_token;
use crate::service::fuzzing as service;

/// The formats of this crate.
pub const FORMATS: &[Format] = &[
    operations::OPERATION,
    operations::RESULT,
    state::WINDOW,
    state::REGION,
    state::GROUP,
    tokens::RESUME,
    page_token::TOKEN,
    page_token::POSITIONS,
    files::SERVER,
    files::ADDRESSES,
    service::REQUEST,
];
