//! Errors of the client as the console says them.

use std::time::Duration;

use terrane_client::Error;
use terrane_console::source::Failure;
use terrane_types::health::sentence;

/// What the cluster refused, or why it could not answer.
pub(super) fn refused(error: Error) -> Failure {
    let what = sentence(&error.to_string());
    match error {
        Error::Invalid(_) => Failure::bad_input(what, "Correct it and try again."),
        Error::NotFound { .. } => {
            Failure::not_found(what, "The pages of tables, regions and groups list what there is.")
        }
        _ => Failure::unavailable(what, "Try again; `terrane status` shows what is wrong with the cluster."),
    }
}

/// The cluster did not answer in time.
pub(super) fn late(waited: Duration) -> Failure {
    let what = format!("The cluster did not answer within {} s.", waited.as_secs());
    Failure::unavailable(what, "Try again; `terrane status` shows what is wrong with the cluster.")
}
