//! When the feature level of the cluster rises: once every process that belongs to it can work at the next one.
//!
//! The level rises by one at a time and never falls. A server that is away counts with what it last said to this leader, and
//! holds the level back if it said nothing; once it is lost it does not count, since its replicas are replaced. Masters that do
//! not answer hold the level back: they would start again with an older build on a log that it cannot read.
//!
//! Invariant: in a cluster of a level, every registered server that is not lost and every master can work at that level.

use terrane_proto::{v1, versions};
use terrane_types::ServerId;
use terrane_types::versions::Levels;

use super::world::{Condition, condition};
use crate::catalog::{Catalog, CatalogEdit};
use crate::context::MasterContext;
use crate::masters_view;
use crate::servers::observed::now;

/// Why the level of a process is not known.
const SILENT_SERVER: &str = "has not reported to the leading master";
const SILENT_MASTER: &str = "does not answer";

/// A process of the cluster.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Process {
    /// What people call it.
    pub name: String,
    /// The levels that it can work at, as it said; otherwise what is wrong with it.
    pub levels: Result<Levels, &'static str>,
    /// Whether it is lost: it holds back nothing.
    pub is_lost: bool,
}

/// Whether servers run other builds than this master: a new one is being rolled out. One that does not say its build runs another.
pub fn has_mixed_builds(context: &MasterContext) -> bool {
    let own = context.versions.said().build;
    let servers: Vec<ServerId> =
        context.journal.read(|catalog| catalog.servers().iter().map(|(server, _)| server).collect());
    servers.into_iter().any(|server| context.versions.of(server).is_none_or(|said| said.build != own))
}

/// The next level of a cluster.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Next {
    /// The level.
    pub level: u32,
    /// Why it cannot rise yet, a clause for each process that holds it back.
    pub waits_for: Vec<String>,
}

/// The next level of a cluster; `None` if none of its processes could work at a higher one.
pub fn next(cluster: u32, processes: &[Process]) -> Option<Next> {
    let present = || processes.iter().filter(|process| !process.is_lost);
    let level = cluster + 1;
    let reaches = |process: &Process| process.levels.is_ok_and(|levels| levels.newest >= level);
    if !present().any(reaches) {
        return None;
    }
    let holds_back = |process: &Process| match process.levels {
        Ok(levels) if levels.newest >= level => None,
        Ok(levels) => Some(format!("{} has a build of level {}", process.name, levels.newest)),
        Err(_) if terrane_env::planted!("the level rises while a process is away") => None,
        Err(silent) => Some(format!("{} {silent}", process.name)),
    };
    Some(Next { level, waits_for: present().filter_map(holds_back).collect() })
}

/// The processes of the cluster, with its masters as they answered.
pub fn processes(context: &MasterContext, masters: &[v1::MasterInfo]) -> Vec<Process> {
    let master = |info: &v1::MasterInfo| Process {
        name: format!("the master at {}", info.address),
        levels: levels_of_master(info),
        is_lost: false,
    };
    let servers: Vec<Process> = context.journal.read(|catalog| {
        let replace_after = context.fleet.replace_after(catalog);
        context.observed.with(|observed| {
            let server = |server: ServerId| Process {
                name: format!("server {server} ({})", catalog.servers().address(server)),
                levels: context.versions.of(server).as_ref().map(versions::levels).ok_or(SILENT_SERVER),
                is_lost: condition(catalog, &observed.liveness, server, now(), replace_after) == Condition::Lost,
            };
            catalog.servers().iter().map(|(id, _)| server(id)).collect()
        })
    });
    masters.iter().map(master).chain(servers).collect()
}

fn levels_of_master(info: &v1::MasterInfo) -> Result<Levels, &'static str> {
    match &info.versions {
        Some(said) => Ok(versions::levels(said)),
        None => Err(SILENT_MASTER),
    }
}

/// Raises the level as far as every process can. Only the leader can.
pub async fn raise(context: &MasterContext) {
    while context.journal.read(Catalog::level) < context.versions.own().newest {
        let _turn = context.versions.turn().await;
        // In the turn: masters are added in one, too.
        let masters = masters_view::look(context).await.masters;
        let cluster = context.journal.read(Catalog::level);
        let Some(Next { level, waits_for }) = next(cluster, &processes(context, &masters)) else { return };
        if !waits_for.is_empty() {
            tracing::debug!(level, waits_for = waits_for.join("; "), "the feature level does not rise yet");
            return;
        }
        terrane_env::buggify_pause!("the feature level rises late").await;
        match context.journal.record(&CatalogEdit::RaiseLevel { level }).await {
            Ok(_) => tracing::info!(level, "the cluster has a new feature level"),
            Err(error) => {
                tracing::info!(level, %error, "the feature level was not raised; it is tried again");
                return;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::fmt::Write as _;

    use super::*;

    #[test]
    fn the_level_rises_once_every_process_can() {
        terrane_testscript::check_scripts(concat!(env!("CARGO_MANIFEST_DIR"), "/src/fleet/levels/testdata"), || {
            let (mut cluster, mut processes) = (3, Vec::<Process>::new());
            move |text, out| command(&mut cluster, &mut processes, text, out)
        });
    }

    /// `NAME LEVEL`, `NAME silent`, `NAME lost`, `NAME gone`, or `look`, which raises the level if it can.
    fn command(cluster: &mut u32, processes: &mut Vec<Process>, text: &str, out: &mut String) {
        if text == "look" {
            match next(*cluster, processes) {
                None => writeln!(out, "level {cluster}, no newer build runs").unwrap(),
                Some(Next { level, waits_for }) if waits_for.is_empty() => {
                    *cluster = level;
                    writeln!(out, "level {cluster}").unwrap();
                }
                Some(Next { level, waits_for }) => {
                    writeln!(out, "level {cluster}; {level} waits: {}", waits_for.join("; ")).unwrap();
                }
            }
            return;
        }
        let (name, what) = text.split_once(' ').expect("NAME STATE");
        let known = processes.iter().position(|process| process.name == name);
        let place = known.unwrap_or_else(|| {
            processes.push(Process { name: name.to_owned(), levels: Err(SILENT_SERVER), is_lost: false });
            processes.len() - 1
        });
        match what {
            "silent" => processes[place].levels = Err(SILENT_SERVER),
            "lost" => processes[place].is_lost = true,
            "gone" => drop(processes.remove(place)),
            level => {
                let newest = level.parse().unwrap();
                processes[place].levels = Ok(Levels { oldest: newest - 1, newest });
                processes[place].is_lost = false;
            }
        }
    }
}
