//! Scripts over the decisions of procedures: the catalog, the rollout of one table and the creation of one group.

use std::fmt::Write as _;
use std::time::Duration;

use terrane_types::{Error, GroupId, ReplicaId, TableId};

use super::group_creation::GroupCreation;
use super::rollout::Rollout;
use super::*;
use crate::catalog::CatalogEdit;
use crate::catalog::scripts::{self, Line};
use crate::orders::TableOrder;

/// A master's procedures without servers: the script answers for them.
#[derive(Default)]
struct World {
    catalog: Catalog,
    rollout: Option<Rollout>,
    creation: Option<(GroupId, GroupCreation)>,
}

impl World {
    fn command(&mut self, text: &str, out: &mut String) {
        let line = Line::of(text);
        match line.words[0] {
            "intents" => {
                let intents = intents(&self.catalog);
                let names = intents.iter().map(|subject| match subject {
                    Subject::Group(group) => format!("g{group}"),
                    Subject::Table(table) => format!("t{table}"),
                    Subject::Members(group) => format!("members-of-g{group}"),
                    Subject::Move(id) => format!("m{id}"),
                    Subject::Masters => "masters".to_owned(),
                });
                let names: Vec<_> = names.collect();
                writeln!(out, "intents: {}", if names.is_empty() { "none".into() } else { names.join(" ") }).unwrap();
            }
            "restart" => {
                (self.rollout, self.creation) = (None, None);
                self.catalog = scripts::restarted(std::mem::take(&mut self.catalog));
            }
            "show" => line.words[1..].iter().for_each(|part| scripts::show(&self.catalog, part, out)),
            "resume-table" => {
                self.rollout = Rollout::resume(&self.catalog, TableId(line.number(1)));
                self.show_rollout(out);
            }
            "resume-group" => {
                let group = GroupId(line.number(1));
                let entry = self.catalog.groups().get(group).expect("a known group");
                self.creation = GroupCreation::resume(entry).map(|creation| (group, creation));
                self.show_creation(out);
            }
            "group" => self.group_answers(&line, out),
            "replica" => self.replica_answers(&line, out),
            "lost" => self.lose_servers(&line, out),
            _ => scripts::apply(&mut self.catalog, &scripts::edit(&line), 1, out),
        }
    }

    /// `group g1 done|away|refuses`: what a group answers to its order.
    fn group_answers(&mut self, line: &Line<'_>, out: &mut String) {
        let (group, table) = (GroupId(line.number(1)), "the schema");
        let answer = match line.words[2] {
            "done" => Ok(()),
            "away" => Err(Error::Unavailable { message: "away".into(), retry_after: Duration::ZERO }),
            "refuses" => Err(Error::Unsupported { feature: table.into() }),
            other => panic!("no such answer: {other}"),
        };
        let rollout = self.rollout.as_mut().expect("a rollout");
        if !rollout.is_current(&self.catalog) {
            writeln!(out, "superseded").unwrap();
            self.rollout = None;
            return;
        }
        match rollout.answered(group, answer) {
            Ok(None) => {}
            Ok(Some(waiting)) => writeln!(out, "waits for {waiting}").unwrap(),
            Err(error) => {
                writeln!(out, "refused: {error}").unwrap();
                match rollout.undo() {
                    Some(undo) => self.record(undo, out),
                    None => writeln!(out, "retries").unwrap(),
                }
                return;
            }
        }
        self.show_rollout(out);
    }

    /// `replica 8 done|away`: what a member answers to its order.
    fn replica_answers(&mut self, line: &Line<'_>, out: &mut String) {
        let (_, creation) = self.creation.as_mut().expect("a creation");
        let replica = ReplicaId(line.number(1));
        assert!(creation.next().contains(&replica), "replica {replica} has no order now");
        match line.words[2] {
            "done" => creation.created(replica),
            "away" => {}
            other => panic!("no such answer: {other}"),
        }
        self.show_creation(out);
    }

    /// `lost 10`: the servers of these members are not live.
    fn lose_servers(&mut self, line: &Line<'_>, out: &mut String) {
        let (group, creation) = self.creation.as_mut().expect("a creation");
        let lost: Vec<ReplicaId> = (1..line.words.len()).map(|word| ReplicaId(line.number(word))).collect();
        let members = self.catalog.groups().get(*group).expect("a known group").members.keys().copied();
        creation.stand_in(members, |replica| !lost.contains(&replica));
        if creation.serves_without(|replica| !lost.contains(&replica)) {
            let edit = CatalogEdit::ServeGroup { group: *group };
            self.record(edit, out);
            return;
        }
        self.show_creation(out);
    }

    fn show_rollout(&mut self, out: &mut String) {
        let Some(rollout) = &self.rollout else {
            writeln!(out, "nothing to do").unwrap();
            return;
        };
        for (group, TableOrder { schema, create, drop }) in rollout.pending() {
            write!(out, "order g{group}").unwrap();
            schema.iter().for_each(|schema| write!(out, " schema=v{}", schema.version).unwrap());
            create.iter().for_each(|region| write!(out, " create=r{}{}", region.region, region.range).unwrap());
            drop.iter().for_each(|table| write!(out, " drop=t{table}").unwrap());
            writeln!(out).unwrap();
        }
        if let Some(edit) = rollout.completion() {
            self.record(edit, out);
        }
    }

    fn show_creation(&mut self, out: &mut String) {
        let Some((group, creation)) = &self.creation else {
            writeln!(out, "nothing to do").unwrap();
            return;
        };
        let next: Vec<String> = creation.next().iter().map(ToString::to_string).collect();
        writeln!(out, "{:?} order={}", creation.phase(), next.join(",")).unwrap();
        if creation.next().is_empty() {
            self.record(CatalogEdit::OpenGroup { group: *group }, out);
        }
    }

    /// Records what a procedure ends with.
    fn record(&mut self, edit: CatalogEdit, out: &mut String) {
        let name = format!("{edit:?}");
        write!(out, "record {}: ", name.split([' ', '{']).next().unwrap()).unwrap();
        scripts::apply(&mut self.catalog, &edit, 1, out);
        (self.rollout, self.creation) = (None, None);
    }
}

#[test]
fn decisions_of_procedures() {
    terrane_testscript::check_scripts(concat!(env!("CARGO_MANIFEST_DIR"), "/src/procedures/testdata"), || {
        let mut world = World::default();
        move |text: &str, out: &mut String| world.command(text, out)
    });
}
