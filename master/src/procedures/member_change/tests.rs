//! Changes of members against a model of a group: scripts, and every failure at every step.

use std::collections::BTreeMap;
use std::fmt::Write as _;

use super::*;
use crate::catalog::changes::ChangePlan;
use crate::catalog::scripts::{self, Fate, Line, number};
use crate::catalog::{Catalog, CatalogEdit, Outcome};

const GROUP: GroupId = GroupId(1);

/// A group as its servers have it, and a master that changes its members.
#[derive(Clone)]
struct World {
    catalog: Catalog,
    /// Replicas on servers: replica id by server.
    replicas: BTreeMap<ServerId, ReplicaId>,
    /// The members of the group's log: whether they vote.
    members: BTreeMap<ReplicaId, (ServerId, bool)>,
    caught_up: BTreeSet<ReplicaId>,
    live: BTreeSet<ServerId>,
    leader: Option<ServerId>,
    /// How long the target has been away.
    away: Duration,
    /// How long the new replica has got no further.
    stuck: Duration,
    /// Members whose server is live, but that do not answer.
    silent: BTreeSet<ReplicaId>,
    /// Servers whose replicas are damaged.
    damaged: BTreeSet<ServerId>,
    declined: BTreeSet<ReplicaId>,
    named: Option<Vec<ReplicaId>>,
}

impl World {
    /// Group 1 on servers 1, 2, ... with a server more, led by server 1.
    fn new(replication: u64) -> Self {
        let mut catalog = Catalog::default();
        let mut apply = |text: &str| scripts::must_apply(&mut catalog, text);
        apply(&format!("bootstrap replication={replication}"));
        (1..=replication + 2).for_each(|server| apply(&format!("add-server s{server}:1")));
        let members: Vec<String> = (1..=replication).map(|server| format!("s{server}")).collect();
        apply(&format!("add-groups first=g1 {}", members.join(",")));
        apply("open-group g1");
        let entry = catalog.groups().get(GROUP).expect("a group").clone();
        Self {
            replicas: entry.members.iter().map(|(replica, server)| (*server, *replica)).collect(),
            members: entry.members.iter().map(|(replica, server)| (*replica, (*server, true))).collect(),
            caught_up: entry.members.keys().copied().collect(),
            live: catalog.servers().iter().map(|(server, _)| server).collect(),
            leader: Some(ServerId(1)),
            away: Duration::ZERO,
            stuck: Duration::ZERO,
            silent: BTreeSet::new(),
            damaged: BTreeSet::new(),
            declined: BTreeSet::new(),
            named: None,
            catalog,
        }
    }

    fn entry(&self) -> &GroupEntry {
        self.catalog.groups().get(GROUP).expect("a group")
    }

    fn view(&self) -> GroupView {
        let member = |(replica, (server, voter)): (&ReplicaId, &(ServerId, bool))| MemberSeen {
            voter: *voter,
            matched: if self.caught_up.contains(replica) { 1_000 } else { 100 },
            alive: self.live.contains(server) && !self.silent.contains(replica),
            ..MemberSeen::voting(replica.0, server.0, 1_000)
        };
        let mut view = GroupView::default();
        view.members = self.members.iter().map(member).collect();
        view
    }

    fn next(&self) -> Option<Next> {
        let view = self.view();
        let target = self.entry().change.and_then(|change| change.add);
        let known = Known {
            leader: self.leader,
            view: Some(&view),
            live: &self.live,
            joined: target.is_some_and(|(replica, server)| self.replicas.get(&server) == Some(&replica)),
            present: target.and_then(|(_, server)| self.replicas.get(&server).copied()),
            damaged: &self.damaged,
            target_quiet_for: target.map_or(Duration::ZERO, |(_, server)| {
                if self.live.contains(&server) { Duration::ZERO } else { self.away }
            }),
            stuck_for: self.stuck,
            declined: &self.declined,
            named: self.named.as_deref(),
        };
        next(GROUP, self.entry(), &known)
    }

    /// Carries out a step as the servers do. Returns whether its answer arrived.
    fn carry_out(&mut self, step: &Next, fate: Fate) -> bool {
        if fate == Fate::Dropped {
            return false;
        }
        let version = self.entry().version;
        let made = match step {
            Next::Join { replica, server, .. } => {
                let is_live = self.live.contains(server);
                if is_live {
                    let former = self.replicas.insert(*server, *replica);
                    // What the server discarded does not answer any more.
                    self.silent.extend(former.filter(|former| former != replica));
                    self.damaged.remove(server);
                }
                is_live
            }
            Next::Learn { replica, server } => {
                self.members.entry(*replica).or_insert((*server, false));
                true
            }
            Next::Vote { promote, remove } => self.vote(*promote, *remove),
            Next::Transfer { to } => {
                self.leader = Some(self.members[to].0);
                true
            }
            Next::Recover { replica, server } => {
                let is_live = self.live.contains(server);
                if is_live {
                    self.members = BTreeMap::from([(*replica, (*server, true))]);
                    self.leader = Some(*server);
                }
                is_live
            }
            Next::Promote => self.record(&CatalogEdit::PromoteMember { group: GROUP, version }),
            Next::Undo { .. } => self.record(&CatalogEdit::UndoMembers { group: GROUP, version }),
            Next::End { members } => {
                self.record(&CatalogEdit::EndMembers { group: GROUP, version, members: members.clone() })
            }
            Next::Wait { .. } => true,
        };
        if made && fate == Fate::Made && matches!(step, Next::Vote { .. }) {
            self.named = Some(self.members.keys().copied().collect());
        }
        made && fate == Fate::Made
    }

    fn record(&mut self, edit: &CatalogEdit) -> bool {
        let outcome = self.catalog.apply(edit, 1);
        assert_eq!(outcome, Outcome::Done, "{edit:?}");
        true
    }

    /// One joint change, refused as the region server refuses it.
    fn vote(&mut self, promote: Option<ReplicaId>, remove: Option<ReplicaId>) -> bool {
        let mut after = self.members.clone();
        if let Some(promote) = promote {
            if !self.caught_up.contains(&promote) {
                return false;
            }
            after.get_mut(&promote).expect("a learner").1 = true;
        }
        if let Some(remove) = remove {
            after.remove(&remove);
        }
        let voters = || after.values().filter(|(_, voter)| *voter);
        let ready = voters().filter(|(server, _)| self.live.contains(server)).count();
        assert!(ready > voters().count() / 2, "the change leaves no live majority: {after:?}");
        self.members = after;
        let leader_left = self.leader.is_some_and(|leader| !self.members.values().any(|(server, _)| *server == leader));
        assert!(!leader_left, "the leader was removed");
        true
    }

    /// What strays do: a server removes a replica that no catalog and no leader names.
    fn remove_strays(&mut self) {
        let entry = self.entry().clone();
        self.replicas.retain(|server, replica| entry.server_of(*replica) == Some(*server));
        let kept = entry.change.is_some();
        self.members.retain(|replica, (_, voter)| kept || *voter || entry.members.contains_key(replica));
    }

    /// Steps until the change has ended, or waits for something that does not come. Returns what was done.
    fn run(&mut self) -> Vec<String> {
        let mut done = Vec::new();
        for _ in 0..50 {
            let Some(step) = self.next() else { break };
            if matches!(step, Next::Wait { .. }) {
                break;
            }
            self.carry_out(&step, Fate::Made);
            done.push(text(&step));
        }
        done
    }

    /// Makes everything well: the target and all voters but the lost are live, caught up, and one of them leads.
    fn settle(&mut self, lost: Option<ServerId>) {
        for _ in 0..4 {
            self.caught_up
                .extend(self.members.iter().filter(|(_, (server, _))| self.live.contains(server)).map(|(r, _)| *r));
            let leads = |server: &ServerId| self.live.contains(server) && Some(*server) != lost;
            if !self.leader.is_some_and(|leader| leads(&leader)) {
                let voters = self.members.values().filter(|(_, voter)| *voter).map(|(server, _)| *server);
                self.leader = voters.filter(leads).min();
            }
            self.away += TARGET_PATIENCE;
            self.run();
            self.remove_strays();
        }
    }

    /// What must hold when a change has ended.
    fn check(&self, what: &str, replication: usize) {
        let entry = self.entry();
        assert_eq!(entry.change, None, "{what}: the change has not ended: {:?}", self.next());
        let members: BTreeMap<ReplicaId, ServerId> = entry.members.clone();
        let voters: BTreeMap<ReplicaId, ServerId> = self
            .members
            .iter()
            .filter(|(_, (_, voter))| *voter)
            .map(|(replica, (server, _))| (*replica, *server))
            .collect();
        assert_eq!(members, voters, "{what}: the catalog and the group differ");
        assert_eq!(members.len(), replication, "{what}: replicas");
        assert!(self.members.values().all(|(_, voter)| *voter), "{what}: a learner stays");
    }
}

fn text(step: &Next) -> String {
    match step {
        Next::Join { replica, server, discard } => {
            let discard = discard.map_or_else(String::new, |old| format!(" discard={old}"));
            format!("join {replica}@s{server}{discard}")
        }
        Next::Learn { replica, server } => format!("learn {replica}@s{server}"),
        Next::Vote { promote, remove } => {
            let part = |name: &str, id: &Option<ReplicaId>| id.map_or_else(String::new, |id| format!(" {name}={id}"));
            format!("vote{}{}", part("promote", promote), part("remove", remove))
        }
        Next::Transfer { to } => format!("transfer to {to}"),
        Next::Recover { replica, server } => format!("recover {replica}@s{server}"),
        Next::Promote => "record promote".to_owned(),
        Next::Undo { why } => format!("record undo: {why}"),
        Next::End { members } => {
            let members: Vec<String> = members.iter().map(ToString::to_string).collect();
            format!("record end {}", members.join(","))
        }
        Next::Wait { what } => format!("wait for {what}"),
    }
}

/// `step made|unanswered|dropped` carries out the next step; `run` all steps until one waits.
fn command(world: &mut World, text_of: &str, out: &mut String) {
    let line = Line::of(text_of);
    let server = || ServerId(number(line.words[1]));
    let replica = || ReplicaId(number(line.words[1]));
    match line.words[0] {
        "group-of" => *world = World::new(line.number(1)),
        "die" => world.live.retain(|live| *live != server()),
        "return" => world.live.extend([server()]),
        "away" => world.away = Duration::from_secs(line.number(1)),
        "stuck" => world.stuck = Duration::from_secs(line.number(1)),
        "damage" => world.damaged.extend([server()]),
        "forget-damage" => world.damaged.clear(),
        "silent" => world.silent.extend([replica()]),
        "declines" => world.declined.extend([replica()]),
        "lead" => world.leader = Some(server()),
        "no-leader" => world.leader = None,
        "catch-up" => world.caught_up.extend([replica()]),
        "fall-behind" => world.caught_up.retain(|other| *other != replica()),
        "restart" => {
            world.named = None;
            world.catalog = scripts::restarted(std::mem::take(&mut world.catalog));
        }
        "strays" => world.remove_strays(),
        "step" => {
            let step = world.next().map(|step| (world.carry_out(&step, Fate::of(&line)), text(&step)));
            writeln!(out, "{}", step.map_or_else(|| "nothing to do".to_owned(), |(_, text)| text)).unwrap();
        }
        "run" => {
            world.run().iter().for_each(|step| writeln!(out, "{step}").unwrap());
            let rest = world.next().map_or_else(|| "ended".to_owned(), |step| text(&step));
            writeln!(out, "{rest}").unwrap();
        }
        "show" => {
            scripts::show(&world.catalog, "groups", out);
            let member = |(replica, (server, voter)): (&ReplicaId, &(ServerId, bool))| {
                format!("{replica}@s{server}{}", if *voter { "" } else { " (learner)" })
            };
            let members: Vec<String> = world.members.iter().map(member).collect();
            writeln!(out, "members={}", members.join(",")).unwrap();
        }
        _ => scripts::apply(&mut world.catalog, &scripts::edit(&line), 1, out),
    }
}

#[test]
fn a_copy_that_begins_again_is_no_advance() {
    let mut advance = Advance::default();
    let mut look = |at: u64, entries: Option<u64>, bytes: u64| {
        let member = entries.map(|matched| MemberSeen {
            voter: false,
            copy_bytes: 100,
            copied_bytes: bytes,
            ..MemberSeen::voting(1, 1, matched)
        });
        advance.look(member.as_ref(), Moment(at * 1_000)).as_secs()
    };
    assert_eq!(look(10, None, 0), 0);
    assert_eq!(look(20, None, 0), 10);
    assert_eq!(look(30, Some(0), 0), 0, "it has joined");
    assert_eq!(look(40, Some(0), 60), 0);
    assert_eq!(look(50, Some(0), 60), 10);
    assert_eq!(look(60, Some(0), 0), 20, "the copy begins again");
    assert_eq!(look(70, Some(0), 60), 30);
    assert_eq!(look(80, Some(0), 61), 0);
    assert_eq!(look(90, Some(7), 0), 0, "it has installed the copy");
}

#[test]
fn changes_of_members() {
    let scripts = concat!(env!("CARGO_MANIFEST_DIR"), "/src/procedures/member_change/testdata");
    terrane_testscript::check_scripts(scripts, || {
        let mut world = World::new(3);
        move |text: &str, out: &mut String| command(&mut world, text, out)
    });
}

/// A failure that happens before a step.
#[derive(Clone, Copy, Debug)]
enum Failure {
    None,
    Restart,
    TargetDies,
    LeaderDies,
    OldReturns,
    Cancelled,
}

/// Changes of every kind: the server that gets a replica, the replica that leaves, and whether its server is dead.
fn changes() -> Vec<(u64, Option<u64>, Option<u64>, bool)> {
    vec![
        (3, Some(4), Some(10), true),
        (3, Some(4), Some(10), false),
        // The leader's own replica.
        (3, Some(4), Some(8), false),
        (1, Some(2), Some(8), false),
        (5, Some(6), Some(9), true),
        (3, Some(4), None, false),
        (1, Some(2), None, false),
        (3, None, Some(8), false),
        (3, None, Some(10), true),
        // In place, also that of the leader.
        (3, Some(3), Some(10), false),
        (3, Some(1), Some(8), false),
    ]
}

/// Every step, with every fate of its order, and every failure before it: whatever happens, the change ends, as made or as
/// undone, the catalog has the members that the group has, and no step takes a group's majority.
#[test]
fn every_failure_at_every_step() {
    for (replication, add, remove, old_is_dead) in changes() {
        let mut baseline = World::new(replication);
        let old = remove.map(|replica| baseline.entry().members[&ReplicaId(replica)]);
        let dead = old.filter(|_| old_is_dead);
        baseline.live.retain(|server| Some(*server) != dead);
        let plan = ChangePlan {
            group: GROUP,
            version: 0,
            add: add.map(ServerId),
            remove: remove.map(ReplicaId),
            reason: match old_is_dead {
                true => ChangeReason::Lost,
                false if old.is_some() && old == add.map(ServerId) => ChangeReason::Damaged,
                false => ChangeReason::Drain,
            },
        };
        baseline.damaged.extend(old.filter(|_| plan.reason == ChangeReason::Damaged));
        assert_eq!(baseline.catalog.apply(&CatalogEdit::BeginMembers(plan), 1), Outcome::Done);
        for failing_step in 0..9 {
            for fate in Fate::ALL {
                for failure in failures() {
                    let what = format!("{plan:?}, {failure:?} before step {failing_step}, whose order is {fate:?}");
                    let mut world = baseline.clone();
                    for step in 0..=failing_step {
                        world.caught_up.extend(world.members.keys().copied());
                        if step == failing_step {
                            strike(&mut world, failure, &plan, dead);
                        }
                        let Some(next) = world.next() else { break };
                        world.carry_out(&next, if step == failing_step { fate } else { Fate::Made });
                    }
                    let lost = if matches!(failure, Failure::OldReturns) { None } else { dead };
                    world.settle(lost);
                    let size = world.entry().members.len();
                    let as_made = usize::try_from(replication).unwrap() + usize::from(add.is_some())
                        - usize::from(remove.is_some());
                    let is_either = size == as_made || size == usize::try_from(replication).unwrap();
                    assert!(is_either, "{what}: {size} members");
                    world.check(&what, size);
                }
            }
        }
    }
}

fn failures() -> [Failure; 6] {
    [Failure::None, Failure::Restart, Failure::TargetDies, Failure::LeaderDies, Failure::OldReturns, Failure::Cancelled]
}

fn strike(world: &mut World, failure: Failure, plan: &ChangePlan, dead: Option<ServerId>) {
    match failure {
        Failure::None => {}
        Failure::Restart => {
            world.named = None;
            world.catalog = scripts::restarted(std::mem::take(&mut world.catalog));
        }
        // It returns after the master has given it up, or it is a voter that the group can spare.
        Failure::TargetDies => {
            if let Some(server) = plan.add
                && world.entry().change.is_some_and(|change| change.state != ChangeState::Undoing)
                && world.members.len() > 3
                && dead.is_none()
            {
                world.live.remove(&server);
                world.away = TARGET_PATIENCE;
                let give_up = world.next();
                give_up.iter().for_each(|step| assert!(world.carry_out(step, Fate::Made)));
                world.live.insert(server);
            }
        }
        Failure::LeaderDies => {
            // Another voter leads; the old leader is back at once, as a follower.
            let answers =
                |(replica, (_, voter)): &(&ReplicaId, &(ServerId, bool))| *voter && !world.silent.contains(replica);
            let others = world.members.iter().filter(answers).map(|(_, (server, _))| *server);
            let next = others.filter(|server| world.live.contains(server) && Some(*server) != world.leader).max();
            world.leader = next.or(world.leader);
        }
        Failure::OldReturns => world.live.extend(dead),
        Failure::Cancelled => {
            let version = world.entry().version;
            world.catalog.apply(&CatalogEdit::UndoMembers { group: GROUP, version }, 1);
        }
    }
}
