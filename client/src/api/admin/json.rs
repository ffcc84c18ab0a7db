//! How `terrane --json` shows what administrators are told, where that is not how it is kept.

use std::time::Duration;

use serde::{Serialize as _, Serializer};
use terrane_types::ServerId;

/// Whole seconds.
pub(super) fn seconds<S: Serializer>(time: &Duration, to: S) -> Result<S::Ok, S::Error> {
    to.serialize_u64(time.as_secs())
}

/// Whole seconds, if a time is known.
pub(super) fn seconds_left<S: Serializer>(time: &Option<Duration>, to: S) -> Result<S::Ok, S::Error> {
    time.map(|time| time.as_secs()).serialize(to)
}

/// The addresses of members alone.
pub(super) fn addresses<S: Serializer>(members: &[(ServerId, String)], to: S) -> Result<S::Ok, S::Error> {
    to.collect_seq(members.iter().map(|(_, address)| address))
}
