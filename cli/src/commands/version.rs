//! `version`: what this build is, which clusters it works in, and what it reads and writes.

use std::collections::BTreeMap;
use std::ops::RangeInclusive;

use serde::Serialize;
use terrane_client::{BUILD, PROTOCOL_VERSIONS, ProcessVersions};
use terrane_types::versions::Levels;

use crate::args::Version;
use crate::failure::Failure;
use crate::output::Output;

/// The versions of a process as JSON.
#[derive(Serialize)]
pub struct VersionsLine {
    build: String,
    level: u32,
    oldest_level: u32,
    protocol: String,
    formats: BTreeMap<String, String>,
}

impl From<&ProcessVersions> for VersionsLine {
    fn from(said: &ProcessVersions) -> VersionsLine {
        VersionsLine {
            build: said.build.clone(),
            level: said.level,
            oldest_level: said.oldest_level,
            protocol: range(&said.protocol),
            formats: said.formats.iter().map(|(name, versions)| (name.clone(), range(versions))).collect(),
        }
    }
}

/// Versions as `3` or `1-3`.
pub fn range(versions: &RangeInclusive<u32>) -> String {
    match (versions.start(), versions.end()) {
        (oldest, newest) if oldest == newest => newest.to_string(),
        (oldest, newest) => format!("{oldest}-{newest}"),
    }
}

pub fn run(args: &Version) -> Result<(), Failure> {
    let said = ours();
    let mut output = Output::new(args.json);
    if output.is_json() {
        output.object(&VersionsLine::from(&said))?;
    } else {
        output.line(&format!("terrane {}", said.build))?;
        let (oldest, level) = (said.oldest_level, said.level);
        output.line(&format!("feature level {level}; works in clusters of levels {oldest} and {level}"))?;
        output.line(&format!("protocol {}", range(&said.protocol)))?;
        output.line("")?;
        let formats = VersionsLine::from(&said).formats;
        let rows = formats.into_iter().map(|(name, versions)| vec![name, versions]);
        output.table(&["format", "versions"], rows.collect())?;
    }
    output.flush()
}

/// What a process of this build says.
fn ours() -> ProcessVersions {
    let all = terrane_master::formats().chain(terrane_regionserver::formats());
    let formats: BTreeMap<&str, RangeInclusive<u32>> =
        all.map(|format| (format.name, format.oldest..=format.newest)).collect();
    ProcessVersions {
        build: BUILD.to_owned(),
        level: Levels::BUILD.newest,
        oldest_level: Levels::BUILD.oldest,
        protocol: PROTOCOL_VERSIONS,
        formats: formats.into_iter().map(|(name, versions)| (name.to_owned(), versions)).collect(),
    }
}
