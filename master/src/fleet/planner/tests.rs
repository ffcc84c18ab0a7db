//! Scripts over worlds, and that every plan ends in an even world.

use std::fmt::Write as _;

use proptest::prelude::*;
use terrane_types::ReplicaId;

use super::*;
use crate::catalog::scripts::{Line, number};
use crate::fleet::world::ServerView;

fn servers(list: &str) -> impl Iterator<Item = ServerId> + '_ {
    list.split(',').filter(|server| !server.is_empty()).map(|server| ServerId(number(server)))
}

fn server(line: &Line<'_>) -> ServerView {
    let has = |what: &str| line.words.contains(&what);
    ServerView {
        zone: line.argument("zone").unwrap_or_default().to_owned(),
        condition: match (has("lost"), line.argument("away")) {
            (true, _) => Condition::Lost,
            (_, Some(seconds)) => Condition::Away(std::time::Duration::from_secs(number(seconds))),
            _ => Condition::Live,
        },
        draining: has("draining"),
        settled: !has("fresh"),
    }
}

/// A group whose members are ready if their servers are live, unless `ready=` names them.
fn group(world: &World, line: &Line<'_>) -> GroupView {
    let members = || servers(line.argument("members").expect("members=SERVERS"));
    let is_live = |server: &ServerId| world.is(*server, |view| view.condition == Condition::Live);
    let first = members().next().expect("a member");
    GroupView {
        members: members().map(|server| (server, Some(ReplicaId(server.0)))).collect(),
        ready: line
            .argument("ready")
            .map_or_else(|| members().filter(is_live).collect(), |ready| servers(ready).collect()),
        unfit: ["damaged", "elsewhere"]
            .into_iter()
            .zip([Unfit::Discardable, Unfit::Elsewhere])
            .flat_map(|(name, unfit)| {
                line.argument(name).into_iter().flat_map(servers).map(move |server| (server, unfit))
            })
            .collect(),
        busy: line.argument("busy").into_iter().flat_map(servers).collect(),
        leader: match line.argument("leader") {
            Some("none") => None,
            Some(leader) => Some(ServerId(number(leader))),
            None => members().find(is_live),
        },
        planned_leader: line.argument("planned").map_or(first, |planned| ServerId(number(planned))),
        version: 0,
        bytes: line.argument("bytes").map_or(0, number),
    }
}

fn shares(world: &World, out: &mut String) {
    let (leaders, replicas) = (world.leaders(), world.replicas());
    let share = |server: &ServerId| format!("s{server} {}/{}", leaders[server], replicas[server]);
    writeln!(out, "leaders/replicas: {}", world.servers.keys().map(share).collect::<Vec<_>>().join("  ")).unwrap();
}

fn show(steps: &[Step], out: &mut String) {
    if steps.is_empty() {
        writeln!(out, "nothing").unwrap();
    }
    for step in steps {
        writeln!(out, "{}: {}", step.describe(), step.why).unwrap();
    }
}

#[test]
fn plans() {
    terrane_testscript::check_scripts(concat!(env!("CARGO_MANIFEST_DIR"), "/src/fleet/planner/testdata"), || {
        let mut world = World { replication: 3, ..World::default() };
        move |text, out| {
            let line = Line::of(text);
            let balance = line.words.contains(&"balance");
            match line.words[0] {
                "server" => drop(world.servers.insert(ServerId(line.number(1)), server(&line))),
                "group" => drop(world.groups.insert(GroupId(line.number(1)), group(&world, &line))),
                "replication" => world.replication = line.words[1].parse().unwrap(),
                "plan" => {
                    let (steps, after) = plan(&world, balance);
                    show(&steps, out);
                    shares(&world, out);
                    shares(&after, out);
                }
                "begin" => show(&admitted(&world, &plan(&world, balance).0, 2), out),
                "transfer" => show(&transfers(&world, balance, 4), out),
                "obstacles" => obstacles(&world).iter().for_each(|what| writeln!(out, "{what}").unwrap()),
                other => panic!("no such command: {other}"),
            }
        }
    });
}

/// Servers, and groups on the first of them: all groups could be on three of nine servers.
fn any_world() -> impl Strategy<Value = World> {
    let server = (prop::sample::select(vec!["", "a", "b", "c"]), 0..10_u8).prop_map(|(zone, condition)| ServerView {
        zone: zone.to_owned(),
        condition: if condition == 0 { Condition::Lost } else { Condition::Live },
        draining: condition == 1,
        settled: true,
    });
    (prop::collection::vec(server, 1..10), prop::sample::select(vec![1_usize, 3, 5])).prop_flat_map(
        |(servers, replication)| {
            let count = servers.len();
            let members = prop::collection::btree_set(0..count, 1..=count.min(5));
            let groups = prop::collection::vec((members, any::<prop::sample::Index>()), 0..40);
            groups.prop_map(move |groups| world_of(&servers, replication, &groups))
        },
    )
}

fn world_of(servers: &[ServerView], replication: usize, groups: &[(BTreeSet<usize>, prop::sample::Index)]) -> World {
    let id = |index: usize| ServerId(index as u64 + 1);
    let is_live = |index: &usize| servers[*index].condition == Condition::Live;
    let view = |(members, leader): &(BTreeSet<usize>, prop::sample::Index)| {
        let ready: BTreeSet<ServerId> = members.iter().filter(|index| is_live(index)).map(|index| id(*index)).collect();
        let leader = (!ready.is_empty()).then(|| *leader.get(&ready.iter().copied().collect::<Vec<_>>()));
        GroupView {
            members: members.iter().map(|index| (id(*index), Some(ReplicaId(1)))).collect(),
            leader: leader.filter(|_| ready.len() > members.len() / 2),
            ready,
            unfit: BTreeMap::new(),
            busy: BTreeSet::new(),
            planned_leader: id(*members.first().unwrap()),
            version: 0,
            bytes: 0,
        }
    };
    World {
        servers: (0..servers.len()).map(|index| (id(index), servers[index].clone())).collect(),
        groups: (1..).map(GroupId).zip(groups.iter().map(view)).collect(),
        replication,
    }
}

proptest! {
    #[test]
    fn every_plan_ends_and_leaves_nothing_that_it_could_mend(world in any_world()) {
        let (steps, after) = plan(&world, true);
        prop_assert!(steps.len() < STEPS_MAX, "the plan does not end");
        let eligible = after.eligible();
        for (id, group) in after.groups.iter().filter(|(_, group)| group.leader.is_some() && group.has_majority()) {
            let unwanted = group.members.keys().filter(|server| !eligible.contains(server)).count();
            if eligible.len() >= after.replication {
                prop_assert_eq!((group.members.len(), unwanted), (after.replication, 0), "group {}", id);
            }
        }
        prop_assert!(next(&after, true).is_none());
    }

    #[test]
    fn without_balancing_only_unwanted_replicas_and_leaders_move(world in any_world()) {
        for step in plan(&world, false).0 {
            let unwanted = |server: ServerId| world.is(server, |view| !view.is_eligible());
            match step.action {
                Action::Transfer { from, .. } => prop_assert!(unwanted(from)),
                Action::Members { add: Some(_), remove: Some(from), .. } => prop_assert!(unwanted(from)),
                Action::Members { reason, .. } => prop_assert_eq!(reason, ChangeReason::Replication),
            }
        }
    }
}
