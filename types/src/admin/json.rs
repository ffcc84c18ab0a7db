//! How `terrane --json` shows what administrators are told, where that is not how it is kept.

use std::collections::BTreeMap;
use std::ops::RangeInclusive;
use std::time::Duration;

use serde::{Serialize as _, Serializer};

use crate::ServerId;
use crate::versions::range_text;

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

/// Versions as `3` or `1-3`.
pub(super) fn versions<S: Serializer>(versions: &RangeInclusive<u32>, to: S) -> Result<S::Ok, S::Error> {
    to.serialize_str(&range_text(versions))
}

/// The versions of each format, likewise.
pub(super) fn formats<S: Serializer>(
    formats: &BTreeMap<String, RangeInclusive<u32>>,
    to: S,
) -> Result<S::Ok, S::Error> {
    to.collect_map(formats.iter().map(|(name, versions)| (name, range_text(versions))))
}
