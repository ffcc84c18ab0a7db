//! Moves against a model of the two groups: scripts, and every failure at every step.

use std::fmt::Write as _;

use terrane_types::{KeyRange, RegionEpoch, RegionId};

use super::*;
use crate::catalog::moves::MoveId;
use crate::catalog::scripts::{self, Fate, Line};
use crate::catalog::{CatalogEdit, Outcome};

const MOVE: MoveId = MoveId(1);

/// How far the two groups are, as their logs have it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Stage {
    /// The leader has not been ordered yet.
    Before,
    Copying,
    Frozen,
    Moved,
    Undone,
}

/// Two groups, and a master that moves region 1 from the first to the second.
#[derive(Clone)]
struct World {
    catalog: Catalog,
    stage: Stage,
    /// Whether the old group still knows of the move that it made.
    noted: bool,
    /// What the master has got as an answer since it last decided.
    answer: Option<Result<MoveAnswer, Error>>,
}

fn region(epoch: u64, group: u64) -> RegionDescriptor {
    RegionDescriptor {
        region: RegionId(1),
        range: KeyRange::new("", "").expect("a range"),
        epoch: RegionEpoch(epoch),
        group: GroupId(group),
        ..crate::catalog::tests::descriptor(1, "", "", epoch)
    }
}

impl World {
    fn new() -> Self {
        let mut catalog = Catalog::default();
        let mut apply = |text: &str| scripts::must_apply(&mut catalog, text);
        apply("bootstrap replication=1");
        (1..=2).for_each(|server| apply(&format!("add-server s{server}:1")));
        apply("add-groups first=g1 s1 s2");
        apply("open-group g1");
        apply("open-group g2");
        apply("create-table t groups=g1");
        apply("enable-table t1");
        apply("begin-move r1@1 to=g2");
        Self { catalog, stage: Stage::Before, noted: true, answer: None }
    }

    fn next(&mut self) -> Option<Next> {
        let known = self.catalog.moves().get(MOVE)?;
        Some(next(known, landing(&self.catalog, known), self.answer.take()))
    }

    /// Carries out a step as the leader of the region's group does.
    fn carry_out(&mut self, step: &Next, fate: Fate) {
        match step {
            Next::Order { .. } if fate == Fate::Dropped => self.answer = Some(Err(Error::DeadlineExceeded)),
            Next::Order { cancel, .. } => {
                self.advance(*cancel);
                self.answer = Some(if fate == Fate::Made { self.reply() } else { Err(Error::DeadlineExceeded) });
            }
            Next::Wait { .. } => {}
            Next::End(_) if fate == Fate::Dropped => {}
            Next::End(end) => {
                let outcome = self.catalog.apply(&CatalogEdit::EndMove { id: MOVE, end: end.clone() }, 1);
                assert_eq!(outcome, Outcome::Done);
            }
        }
    }

    fn advance(&mut self, cancel: bool) {
        self.stage = match (self.stage, cancel) {
            (Stage::Before | Stage::Copying, true) => Stage::Undone,
            (Stage::Before, false) => Stage::Copying,
            (Stage::Copying, false) => Stage::Frozen,
            (Stage::Frozen, _) => Stage::Moved,
            (stage @ (Stage::Moved | Stage::Undone), _) => stage,
        };
    }

    fn reply(&self) -> Result<MoveAnswer, Error> {
        let under_way = |frozen, copied_bytes| {
            Ok(MoveAnswer::UnderWay(MoveProgress { frozen, detail: String::new(), copied_bytes, bytes: 100 }))
        };
        match self.stage {
            Stage::Before | Stage::Copying => under_way(false, 40),
            Stage::Frozen => under_way(true, 100),
            Stage::Moved if self.noted => Ok(MoveAnswer::Moved(region(2, 2))),
            Stage::Moved => Err(stale()),
            Stage::Undone => Ok(MoveAnswer::Undone("the leader was told so".to_owned())),
        }
    }

    /// The leaders report their regions.
    fn report(&mut self) {
        let reported = if self.stage == Stage::Moved { region(2, 2) } else { region(1, 1) };
        self.catalog.apply(&CatalogEdit::IndexRegions { regions: vec![reported] }, 1);
    }

    /// Steps until the move has ended.
    fn settle(&mut self) {
        for _ in 0..20 {
            let Some(step) = self.next() else { break };
            self.carry_out(&step, Fate::Made);
            self.report();
        }
    }

    /// What must hold when a move has ended.
    fn check(&mut self, what: &str) {
        assert_eq!(self.catalog.moves().iter().len(), 0, "{what}: the move has not ended");
        self.report();
        let known = self.catalog.regions().get(RegionId(1)).expect("the region").descriptor.clone();
        let is_there = (known.group, known.epoch) == (GroupId(2), RegionEpoch(2));
        let ended = self.catalog.moves().end_of(MOVE).expect("it is remembered").end.clone();
        assert_eq!(self.stage == Stage::Moved, is_there, "{what}: the map has {known:?}");
        assert_eq!(matches!(ended, MoveEnd::Moved(_)), is_there, "{what}: {ended:?}");
        assert_ne!(self.stage, Stage::Frozen, "{what}: the region is frozen for good");
    }
}

fn stale() -> Error {
    Error::StaleEpoch { region: RegionId(1), current: Vec::new() }
}

fn text(step: &Next) -> String {
    match step {
        Next::Order { cancel: false, .. } => "order".to_owned(),
        Next::Order { cancel: true, .. } => "order to undo".to_owned(),
        Next::Wait { what } => format!("wait for {what}"),
        Next::End(MoveEnd::Moved(region)) => format!("end: moved to g{} at epoch {}", region.group, region.epoch),
        Next::End(MoveEnd::Undone(why)) => format!("end: undone: {why}"),
    }
}

fn command(world: &mut World, text_of: &str, out: &mut String) {
    let line = Line::of(text_of);
    match line.words[0] {
        "new" => *world = World::new(),
        "step" => {
            let step = world.next();
            step.iter().for_each(|step| world.carry_out(step, Fate::of(&line)));
            writeln!(out, "{}", step.as_ref().map_or_else(|| "nothing to do".to_owned(), text)).unwrap();
        }
        // What the leader of the region's group answers instead of what the model does.
        "answer" => {
            world.answer = Some(match line.words[1] {
                "stale" => Err(stale()),
                "unsupported" => Err(Error::Unsupported { feature: "moves of regions".into() }),
                "no-leader" => Err(Error::NotLeader {
                    group: GroupId(1),
                    term: 1,
                    leader: None,
                    address: None,
                    members: Vec::new(),
                }),
                "undone" => Ok(MoveAnswer::Undone("group 2 has no quorum".to_owned())),
                "waits" => Ok(MoveAnswer::UnderWay(MoveProgress {
                    detail: "a flush".to_owned(),
                    copied_bytes: 10,
                    bytes: 40,
                    ..MoveProgress::default()
                })),
                other => panic!("no such answer: {other}"),
            });
        }
        "report" if line.words.len() == 1 => world.report(),
        "forget" => world.noted = false,
        "restart" => {
            world.answer = None;
            world.catalog = scripts::restarted(std::mem::take(&mut world.catalog));
        }
        "show" => line.words[1..].iter().for_each(|part| scripts::show(&world.catalog, part, out)),
        _ => scripts::apply(&mut world.catalog, &scripts::edit(&line), 1, out),
    }
}

#[test]
fn moves_of_regions() {
    let scripts = concat!(env!("CARGO_MANIFEST_DIR"), "/src/procedures/region_move/testdata");
    terrane_testscript::check_scripts(scripts, || {
        let mut world = World::new();
        move |text: &str, out: &mut String| command(&mut world, text, out)
    });
}

/// A failure that happens before a step.
#[derive(Clone, Copy, Debug)]
enum Failure {
    None,
    /// Another master takes over.
    Restart,
    Cancelled,
    /// The old group forgets what it moved: its note expired.
    Forgotten,
    /// The new group's leader reports before the old one answers.
    Reported,
}

/// Every step, with every fate of its order, and every failure before it: whatever happens, the move ends as the groups have
/// it, and the map agrees.
#[test]
fn every_failure_at_every_step() {
    let failures = [Failure::None, Failure::Restart, Failure::Cancelled, Failure::Forgotten, Failure::Reported];
    for failing_step in 0..8 {
        for fate in Fate::ALL {
            for failure in failures {
                let what = format!("{failure:?} before step {failing_step}, whose order is {fate:?}");
                let mut world = World::new();
                for step in 0..=failing_step {
                    if step == failing_step {
                        match failure {
                            Failure::None => {}
                            Failure::Restart => {
                                world.answer = None;
                                world.catalog = scripts::restarted(std::mem::take(&mut world.catalog));
                            }
                            Failure::Cancelled => {
                                let cancel = CatalogEdit::CancelMove { id: MOVE, why: "cancelled".to_owned() };
                                world.catalog.apply(&cancel, 1);
                            }
                            Failure::Forgotten => world.noted = false,
                            Failure::Reported => world.report(),
                        }
                    }
                    let Some(next) = world.next() else { break };
                    world.carry_out(&next, if step == failing_step { fate } else { Fate::Made });
                }
                world.settle();
                world.check(&what);
            }
        }
    }
}
