//! What a process says of its versions.

use terrane_types::versions::{FormatVersions, Levels};

use crate::{PROTOCOL_VERSIONS, v1};

/// The version of this build.
pub const BUILD: &str = env!("CARGO_PKG_VERSION");

/// The formats of the wire.
pub const FORMATS: &[FormatVersions] =
    &[FormatVersions { name: "packed rows", oldest: crate::PACKED_FORMAT, newest: crate::PACKED_FORMAT }];

/// What a process of this build says that works at these levels and has these formats.
#[must_use]
pub fn ours(levels: Levels, formats: impl IntoIterator<Item = FormatVersions>) -> v1::Versions {
    let format = |FormatVersions { name, oldest, newest }| v1::FormatVersion { name: name.to_owned(), oldest, newest };
    v1::Versions {
        build: BUILD.to_owned(),
        level: levels.newest,
        oldest_level: levels.oldest,
        protocol_min: *PROTOCOL_VERSIONS.start(),
        protocol_max: *PROTOCOL_VERSIONS.end(),
        formats: formats.into_iter().map(format).collect(),
    }
}

/// What a caller says. A build from before this message was added says its level and protocol in the hello.
#[must_use]
pub fn theirs(hello: Option<&v1::Hello>, versions: Option<v1::Versions>) -> v1::Versions {
    versions.unwrap_or_else(|| {
        let hello = hello.cloned().unwrap_or_default();
        v1::Versions {
            level: hello.feature_level,
            oldest_level: hello.feature_level.saturating_sub(1),
            protocol_min: hello.version_min,
            protocol_max: hello.version_max,
            ..v1::Versions::default()
        }
    })
}

/// The levels of a cluster that a process can work in, as it says.
#[must_use]
pub const fn levels(versions: &v1::Versions) -> Levels {
    Levels { oldest: versions.oldest_level, newest: versions.level }
}

/// A process's hello, of a build of this level.
#[must_use]
pub fn at_level(hello: v1::Hello, levels: Levels) -> v1::Hello {
    v1::Hello { feature_level: levels.newest, ..hello }
}
