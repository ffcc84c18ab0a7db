//! The procedures that have ended: what they were, why they ran, how they ended and when. Without I/O or a clock of its own.
//!
//! A procedure is an intent in the catalog and is gone from it once it has ended. So [`ProcedureHistory::look`] compares the
//! intents with those of the last look, after every change of the catalog: an intent that is no longer there has ended, and the
//! catalog tells whether it reached its aim. A group or table can have another intent at once, which counts as another procedure
//! because its aim differs.
//!
//! Invariants: the newest [`ENDED_MAX`] are kept, in memory only. A master that begins to lead begins without any; procedures
//! that it takes over end here.

use std::collections::{BTreeMap, VecDeque};

use terrane_proto::v1;
use terrane_types::admin::procedures::{EndedProcedure, ProcedureKind};
use terrane_types::{Place, ReplicaId, ServerId};

use crate::catalog::Catalog;
use crate::catalog::groups::GroupState;
use crate::catalog::moves::MoveEnd;
use crate::catalog::tables::TableState;
use crate::procedures::subject::Subject;

/// The most ended procedures that are kept.
pub const ENDED_MAX: usize = 500;

/// What a procedure works on; a drain is one, too.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Work {
    /// An intent of the catalog.
    Intent(Subject),
    /// A server that is drained and has replicas.
    Drain(ServerId),
}

/// What a procedure is to bring about.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Aim {
    Group,
    Create,
    /// To this version of the schema.
    Alter(u64),
    Drop,
    Members {
        add: Option<ReplicaId>,
        remove: Option<ReplicaId>,
        since_ms: u64,
    },
    Move,
    /// The addresses of the masters afterwards.
    Masters(Vec<String>),
    Drain,
}

/// A procedure under way.
#[derive(Clone, Debug)]
struct Begun {
    aim: Aim,
    info: v1::ProcedureInfo,
    places: Vec<Place>,
    started_ms: u64,
}

/// How a procedure ended.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Outcome {
    failed: bool,
    text: String,
}

/// The procedures that a leading master has seen end.
#[derive(Debug, Default)]
pub struct ProcedureHistory {
    under_way: BTreeMap<Work, Begun>,
    ended: VecDeque<EndedProcedure>,
}

impl ProcedureHistory {
    /// Compares the catalog, which has these intents, with the last look. `describe` tells about a procedure that has begun.
    pub fn look(
        &mut self,
        catalog: &Catalog,
        intents: Vec<Subject>,
        wall_ms: u64,
        describe: impl Fn(Work) -> Option<v1::ProcedureInfo>,
    ) {
        let mut present = BTreeMap::new();
        let drains = catalog.servers().drains().map(|(server, _)| Work::Drain(server));
        for work in intents.into_iter().map(Work::Intent).chain(drains) {
            present.extend(aim(catalog, work).map(|aim| (work, aim)));
        }
        let is_over = |work: &Work, begun: &Begun| present.get(work) != Some(&begun.aim);
        let over: Vec<Work> =
            self.under_way.iter().filter(|(work, begun)| is_over(work, begun)).map(|(work, _)| *work).collect();
        for work in over {
            if let Some(begun) = self.under_way.remove(&work) {
                let outcome = outcome(catalog, work, &begun.aim);
                self.end(begun, outcome, wall_ms);
            }
        }
        for (work, aim) in present {
            if self.under_way.contains_key(&work) {
                continue;
            }
            if let Some(info) = describe(work) {
                let started_ms = wall_ms.saturating_sub(info.since_ms);
                self.under_way.insert(work, Begun { aim, info, places: places(catalog, work), started_ms });
            }
        }
    }

    fn end(&mut self, begun: Begun, outcome: Outcome, wall_ms: u64) {
        let Begun { info, places, started_ms, .. } = begun;
        let v1::ProcedureInfo { id, kind, subject, owner, reason, .. } = info;
        let Outcome { failed, text: outcome } = outcome;
        let (kind, ended_ms) = (ProcedureKind::named(&kind), wall_ms);
        let ended = EndedProcedure { id, kind, subject, owner, reason, failed, outcome, started_ms, ended_ms, places };
        self.ended.push_back(ended);
        while self.ended.len() > ENDED_MAX {
            self.ended.pop_front();
        }
    }

    /// Those that have ended, newest first.
    pub fn newest(&self) -> impl Iterator<Item = &EndedProcedure> {
        self.ended.iter().rev()
    }
}

/// What a piece of work is to bring about; `None`: it is done, or there is none.
fn aim(catalog: &Catalog, work: Work) -> Option<Aim> {
    match work {
        Work::Intent(Subject::Group(_)) => Some(Aim::Group),
        Work::Intent(Subject::Table(table)) => {
            let entry = catalog.tables().get(table)?;
            match entry.state {
                TableState::Creating => Some(Aim::Create),
                TableState::Altering => Some(Aim::Alter(entry.schema.version)),
                TableState::Dropping => Some(Aim::Drop),
                TableState::Enabled => None,
            }
        }
        Work::Intent(Subject::Members(group)) => {
            let change = catalog.groups().get(group)?.change?;
            Some(Aim::Members {
                add: change.add.map(|(replica, _)| replica),
                remove: change.remove,
                since_ms: change.since_ms,
            })
        }
        Work::Intent(Subject::Move(_)) => Some(Aim::Move),
        Work::Intent(Subject::Masters) => {
            let after = catalog.masters().after();
            Some(Aim::Masters(after.into_iter().map(|peer| peer.address).collect()))
        }
        Work::Drain(server) => (catalog.groups().replicas_on(server) > 0).then_some(Aim::Drain),
    }
}

/// Whether the catalog shows what a procedure was to bring about.
fn outcome(catalog: &Catalog, work: Work, aim: &Aim) -> Outcome {
    let done = || Outcome { failed: false, text: "done".to_owned() };
    let failed = |text: &str| Outcome { failed: true, text: text.to_owned() };
    match (work, aim) {
        (Work::Intent(Subject::Group(group)), _) => match catalog.groups().get(group) {
            Some(entry) if entry.state == GroupState::Open => done(),
            _ => failed("abandoned: a server that was to have a replica cannot"),
        },
        (Work::Intent(Subject::Table(table)), aim) => match (aim, catalog.tables().get(table).map(|entry| entry.state))
        {
            (Aim::Drop, None) => done(),
            (Aim::Create | Aim::Alter(_), Some(TableState::Enabled | TableState::Altering)) => done(),
            (Aim::Create, _) => failed("undone: the table could not be created, or was dropped meanwhile"),
            _ => failed("the table was dropped meanwhile"),
        },
        (Work::Intent(Subject::Members(group)), Aim::Members { add, remove, .. }) => {
            let Some(entry) = catalog.groups().get(group) else { return failed("the group is gone") };
            let has = |replica: &Option<ReplicaId>| replica.is_some_and(|replica| entry.members.contains_key(&replica));
            if (add.is_none() || has(add)) && !has(remove) { done() } else { failed("undone") }
        }
        (Work::Intent(Subject::Move(id)), _) => match catalog.moves().end_of(id).map(|ended| &ended.end) {
            Some(MoveEnd::Undone(why)) => failed(&format!("undone: {why}")),
            Some(MoveEnd::Moved(_)) | None => done(),
        },
        (Work::Intent(Subject::Masters), Aim::Masters(after)) => {
            let now: Vec<&str> = catalog.masters().present.iter().map(|peer| peer.address.as_str()).collect();
            if now == *after { done() } else { failed("undone") }
        }
        (Work::Drain(server), _) => match catalog.servers().drain(server) {
            None if catalog.servers().get(server).is_some() => failed("ended by an administrator"),
            _ => done(),
        },
        (Work::Intent(_), _) => done(),
    }
}

fn places(catalog: &Catalog, work: Work) -> Vec<Place> {
    match work {
        Work::Intent(Subject::Group(group) | Subject::Members(group)) => vec![Place::Group(group)],
        Work::Intent(Subject::Table(table)) => {
            let entry = catalog.tables().get(table).into_iter();
            entry.map(|entry| Place::Table(entry.schema.name.to_string())).collect()
        }
        Work::Intent(Subject::Move(id)) => {
            let known = catalog.moves().get(id).into_iter();
            known.flat_map(|known| [Place::Region(known.region.region), Place::Group(known.to)]).collect()
        }
        Work::Intent(Subject::Masters) => Vec::new(),
        Work::Drain(server) => vec![Place::Server(server)],
    }
}

#[cfg(test)]
mod tests {
    use std::fmt::Write as _;

    use super::*;
    use crate::catalog::Outcome as Applied;
    use crate::catalog::scripts::{self, Line};

    /// Each edit of the catalog is followed by a look, a second later, which prints what has ended.
    #[test]
    fn ended_procedures_are_those_that_the_catalog_lost() {
        terrane_testscript::check_scripts(
            concat!(env!("CARGO_MANIFEST_DIR"), "/src/history/procedure_history/testdata"),
            || {
                let (mut catalog, mut history, mut stamp) = (Catalog::default(), ProcedureHistory::default(), 0);
                move |text: &str, out: &mut String| {
                    stamp += 1;
                    let edit = scripts::edit(&Line::of(text));
                    let applied = catalog.apply(&edit, stamp);
                    assert!(!matches!(applied, Applied::Refused(_)), "{text}: {applied:?}");
                    let describe = |work: Work| {
                        let subject = format!("{work:?}");
                        Some(v1::ProcedureInfo { subject, ..v1::ProcedureInfo::default() })
                    };
                    history.look(&catalog, crate::procedures::intents(&catalog), stamp * 1_000, describe);
                    for ended in history.ended.drain(..) {
                        let EndedProcedure { subject, failed, outcome, started_ms, ended_ms, places, .. } = ended;
                        let how = if failed { "failed" } else { "ended" };
                        let took = (ended_ms - started_ms) / 1_000;
                        writeln!(out, "{subject} {how} after {took} s: {outcome} {places:?}")
                            .expect("writing to a string");
                    }
                }
            },
        );
    }

    #[test]
    fn the_oldest_ended_procedures_are_forgotten() {
        let mut history = ProcedureHistory::default();
        for number in 0..ENDED_MAX + 3 {
            let info = v1::ProcedureInfo { id: number.to_string(), ..v1::ProcedureInfo::default() };
            let begun = Begun { aim: Aim::Move, info, places: Vec::new(), started_ms: 0 };
            history.end(begun, Outcome { failed: false, text: "done".to_owned() }, 1);
        }
        let kept: Vec<&str> = history.newest().map(|ended| ended.id.as_str()).collect();
        assert_eq!((kept.len(), kept[0], kept[ENDED_MAX - 1]), (ENDED_MAX, "502", "3"));
    }
}
