//! Changes of the masters against a model of their group: scripts, and every failure at every step.

use std::collections::BTreeMap;
use std::fmt::Write as _;

use terrane_types::{ReplicaId, ServerId};

use super::*;
use crate::catalog::masters::{MastersEdit, MastersPlan};
use crate::catalog::scripts::{self, Fate, Line};
use crate::catalog::{Catalog, CatalogEdit, Outcome};
use crate::masters::numbers::{free_places, numbered};

/// The masters' group, the processes, and the leader that changes the set.
#[derive(Clone)]
struct World {
    catalog: Catalog,
    /// The members of the group's log: whether they vote.
    members: BTreeMap<u64, bool>,
    leader: u64,
    /// Entries of the log, for numbers.
    index: u64,
    away: BTreeSet<u64>,
    taken: BTreeSet<u64>,
    declined: BTreeSet<u64>,
    confirmed: Option<BTreeSet<u64>>,
}

impl World {
    /// Masters at the places of `a`, `b`, ..., led by the first.
    fn new(masters: u64) -> Self {
        Self {
            catalog: Catalog::default(),
            members: (1..=masters).map(|number| (number, true)).collect(),
            leader: 1,
            index: 1,
            away: BTreeSet::new(),
            taken: BTreeSet::new(),
            declined: BTreeSet::new(),
            confirmed: None,
        }
    }

    fn present(&self) -> Vec<Peer> {
        let set = self.catalog.masters();
        if !set.present.is_empty() {
            return set.present.clone();
        }
        let address = |number: u64| char::from(b'a' + u8::try_from(place_of(number)).unwrap()).to_string();
        self.members.keys().map(|number| Peer { number: *number, address: address(*number) }).collect()
    }

    fn set(&mut self, wanted: &str) -> Outcome {
        let (present, wanted): (Vec<Peer>, Vec<&str>) = (self.present(), wanted.split(',').collect());
        let has = |address: &str| present.iter().any(|peer| peer.address == address);
        let added = wanted.iter().filter(|address| !has(address));
        let peer = |(place, address): (usize, &&str)| Peer {
            number: numbered(place, self.index),
            address: (*address).to_owned(),
        };
        let add = free_places(&present).zip(added).map(peer).collect();
        let left = present.iter().map(|peer| peer.address.clone());
        let remove = left.filter(|address| !wanted.contains(&address.as_str())).collect();
        let version = self.catalog.masters().version;
        self.record(MastersEdit::Begin(MastersPlan { version, present: self.present(), add, remove }))
    }

    fn record(&mut self, edit: MastersEdit) -> Outcome {
        self.index += 1;
        // As it is read from the log.
        let edit = CatalogEdit::decode(&CatalogEdit::Masters(edit).encode()).unwrap();
        self.catalog.apply(&edit, 1)
    }

    fn members(&self) -> Vec<MemberProgress> {
        let member = |(number, voter): (&u64, &bool)| MemberProgress {
            replica: ReplicaId(*number),
            server: ServerId(*number),
            voter: *voter,
            matched: 0,
            applied: 0,
            alive: !self.away.contains(number),
            copy_bytes: 0,
            lags: false,
            copied_bytes: 0,
        };
        self.members.iter().map(member).collect()
    }

    fn next(&self) -> Option<Next> {
        let members = self.members();
        let (taken, declined) = (&self.taken, &self.declined);
        let known = Known { own: self.leader, members: &members, taken, declined, confirmed: self.confirmed.as_ref() };
        next(self.catalog.masters(), &known)
    }

    /// Another master leads, or the same one after a restart: it remembers nothing of the run.
    fn lead(&mut self, leader: u64) {
        self.leader = leader;
        self.taken.clear();
        self.declined.clear();
        self.confirmed = None;
        self.catalog = scripts::restarted(std::mem::take(&mut self.catalog));
    }

    fn carry_out(&mut self, step: &Next, fate: Fate) {
        if fate == Fate::Dropped {
            return;
        }
        match step {
            Next::Take(peer) if fate == Fate::Made => drop(self.taken.insert(peer.number)),
            Next::Learn { number } => {
                assert!(self.taken.contains(number), "an unknown process would be added");
                self.members.insert(*number, false);
            }
            Next::Transfer { to } => {
                assert!(self.members[to], "a learner cannot lead");
                self.lead(*to);
            }
            Next::Vote { voters } => {
                assert!(voters.contains(&self.leader), "a leader does not remove itself");
                assert!(voters.iter().all(|voter| self.members.contains_key(voter)), "it has no log");
                self.members.retain(|number, voter| !*voter || voters.contains(number));
                self.members.iter_mut().for_each(|(number, voter)| *voter = voters.contains(number));
                self.confirmed = (fate == Fate::Made).then(|| voters.clone());
            }
            Next::Leave { number } => {
                assert_eq!(self.members.remove(number), Some(false), "only a learner leaves by itself");
            }
            Next::End { undone } => {
                let version = self.catalog.masters().version;
                let outcome = self.record(MastersEdit::End { version, undone: *undone });
                assert_eq!(outcome, Outcome::Done);
            }
            Next::Take(_) | Next::Wait { .. } => {}
        }
    }

    fn run(&mut self) -> Vec<String> {
        let mut steps = Vec::new();
        while let Some(step) = self.next() {
            assert!(steps.len() < 30, "the change does not end: {steps:?}");
            steps.push(text(&step));
            if matches!(step, Next::Wait { .. }) {
                break;
            }
            self.carry_out(&step, Fate::Made);
        }
        steps
    }

    fn show(&self) -> String {
        let set = self.catalog.masters();
        let peers: Vec<String> = set.present.iter().map(|peer| format!("{}@{}", peer.number, peer.address)).collect();
        let member = |(number, voter): (&u64, &bool)| format!("{number}{}", if *voter { "" } else { " (learner)" });
        let members: Vec<String> = self.members.iter().map(member).collect();
        format!(
            "version={} masters={} members={} leader={}{}",
            set.version,
            peers.join(","),
            members.join(","),
            self.leader,
            if set.change.is_some() { " changing" } else { "" }
        )
    }

    /// What holds after the end of a change.
    fn check(&self) {
        let set = self.catalog.masters();
        assert!(set.change.is_none());
        let places: BTreeSet<usize> = set.present.iter().map(Peer::place).collect();
        let voting: BTreeSet<usize> = self.members.keys().map(|number| place_of(*number)).collect();
        assert!(self.members.values().all(|voter| *voter), "a learner is left: {}", self.show());
        assert_eq!(places, voting, "{}", self.show());
        assert!(self.members.contains_key(&self.leader));
    }
}

fn text(step: &Next) -> String {
    let list = |voters: &BTreeSet<u64>| voters.iter().map(u64::to_string).collect::<Vec<_>>().join(",");
    match step {
        Next::Take(peer) => format!("take {}@{}", peer.number, peer.address),
        Next::Learn { number } => format!("learn {number}"),
        Next::Transfer { to } => format!("transfer {to}"),
        Next::Vote { voters } => format!("vote {}", list(voters)),
        Next::Leave { number } => format!("leave {number}"),
        Next::End { undone } => format!("end{}", if *undone { " undone" } else { "" }),
        Next::Wait { what } => format!("wait for {what}"),
    }
}

fn command(world: &mut World, text_of: &str, out: &mut String) {
    let line = Line::of(text_of);
    match line.words[0] {
        "masters" => *world = World::new(line.number(1)),
        "lead" => world.lead(line.number(1)),
        "away" => drop(world.away.insert(line.number(1))),
        "declines" => drop(world.declined.insert(line.number(1))),
        // It lost its directory and has taken its place as another replica.
        "replaced" => {
            world.members.remove(&line.number(1));
            world.members.insert(line.number(2), true);
        }
        "lost" => drop(world.members.insert(line.number(1), false)),
        "set" => match world.set(line.words[1]) {
            Outcome::Done => {}
            refused => writeln!(out, "{refused:?}").unwrap(),
        },
        "undo" => {
            let version = world.catalog.masters().version;
            world.record(MastersEdit::Undo { version });
        }
        "step" => {
            let step = world.next();
            writeln!(out, "{}", step.as_ref().map_or_else(|| "ended".to_owned(), text)).unwrap();
            step.into_iter().for_each(|step| world.carry_out(&step, Fate::of(&line)));
        }
        "run" => world.run().iter().for_each(|step| writeln!(out, "{step}").unwrap()),
        "show" => writeln!(out, "{}", world.show()).unwrap(),
        other => panic!("no such command: {other}"),
    }
}

#[test]
fn changes_of_masters() {
    let scripts = concat!(env!("CARGO_MANIFEST_DIR"), "/src/procedures/masters_change/testdata");
    terrane_testscript::check_scripts(scripts, || {
        let mut world = World::new(3);
        move |text: &str, out: &mut String| command(&mut world, text, out)
    });
}

/// Every change, with every failure before every step: it ends, with the wanted masters or with those before.
#[test]
fn every_failure_at_every_step() {
    let changes = [
        (1, "a,b,c"),
        (3, "a,b,c,d,e"),
        (5, "a,b,c"),
        (5, "c,d,e"),
        (3, "a"),
        (3, "c"),
        (3, "a,b,d"),
        (3, "b,c,d"),
        (3, "d,e,f"),
        (1, "b"),
    ];
    for (masters, wanted) in changes {
        for undo in [false, true] {
            for at in 0..12 {
                for fate in Fate::ALL {
                    fail_at(masters, wanted, undo, at, fate);
                }
            }
        }
    }
}

fn fail_at(masters: u64, wanted: &str, undo: bool, at: usize, fate: Fate) {
    let mut world = World::new(masters);
    assert_eq!(world.set(wanted), Outcome::Done);
    for _ in 0..at {
        let Some(step) = world.next() else { break };
        world.carry_out(&step, Fate::Made);
    }
    if let Some(step) = world.next() {
        world.carry_out(&step, fate);
    }
    let is_undone = undo && !is_made(world.catalog.masters(), &world.members());
    if undo && world.catalog.masters().change.is_some() {
        let version = world.catalog.masters().version;
        world.record(MastersEdit::Undo { version });
    }
    // The leader crashes. Any voter may lead next.
    let voters: Vec<u64> = world.members.iter().filter(|(_, voter)| **voter).map(|(number, _)| *number).collect();
    for leader in voters {
        let mut next = world.clone();
        next.lead(leader);
        next.run();
        next.check();
        let addresses: Vec<&str> = next.catalog.masters().present.iter().map(|peer| peer.address.as_str()).collect();
        let before: Vec<String> = world.present().into_iter().map(|peer| peer.address).collect();
        let has_ended = world.catalog.masters().change.is_none();
        match is_undone && !has_ended {
            true => assert_eq!(addresses, before, "what `admin cancel` accepts is undone"),
            false => assert_eq!(addresses.join(","), wanted),
        }
    }
}
