//! `version`: what this build is, which clusters it works in, and what it reads and writes.

use terrane_client::{BUILD, PROTOCOL_VERSIONS, ProcessVersions};
use terrane_types::versions::{Levels, range_text};

use crate::args::Version;
use crate::failure::Failure;
use crate::output::Output;

pub fn run(args: &Version) -> Result<(), Failure> {
    let said = ours();
    let mut output = Output::new(args.json);
    if output.is_json() {
        output.object(&said)?;
    } else {
        output.line(&format!("terrane {}", said.build))?;
        let (oldest, level) = (said.oldest_level, said.level);
        output.line(&format!("feature level {level}; works in clusters of levels {oldest} and {level}"))?;
        output.line(&format!("protocol {}", range_text(&said.protocol)))?;
        output.line("")?;
        let rows = said.formats.iter().map(|(name, versions)| vec![name.clone(), range_text(versions)]);
        output.table(&["format", "versions"], rows.collect())?;
    }
    output.flush()
}

/// What a process of this build says.
fn ours() -> ProcessVersions {
    let all = terrane_master::formats().chain(terrane_regionserver::formats());
    ProcessVersions {
        build: BUILD.to_owned(),
        level: Levels::BUILD.newest,
        oldest_level: Levels::BUILD.oldest,
        protocol: PROTOCOL_VERSIONS,
        formats: all.map(|format| (format.name.to_owned(), format.oldest..=format.newest)).collect(),
    }
}
