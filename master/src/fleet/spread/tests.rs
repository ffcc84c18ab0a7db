//! Scripts over spreads, and that every plan ends, evenly, and moves nothing twice.

use std::fmt::Write as _;

use proptest::prelude::*;

use super::*;
use crate::catalog::scripts::{Line, number};

fn show(steps: &[RegionStep], out: &mut String) {
    if steps.is_empty() {
        writeln!(out, "nothing").unwrap();
    }
    steps.iter().for_each(|step| writeln!(out, "{}: {}", step.describe(), step.why).unwrap());
}

fn shares(spread: &Spread, out: &mut String) {
    let share = |(server, share): (ServerId, ServerShare)| {
        let ServerShare { regions, bytes, units, by_table } = share;
        let tables: Vec<String> = by_table.values().map(ToString::to_string).collect();
        format!("s{server} {regions} regions ({}) {} MiB {units:.0}/s", tables.join("+"), bytes >> 20)
    };
    let lines: Vec<String> = spread.shares().into_iter().map(share).collect();
    writeln!(out, "{}", lines.join(", ")).unwrap();
}

/// `servers s1,s2`, `group g1 s1`, `regions r1-r9 g1 t1 mib=10 units=100 rests pinned`.
#[test]
fn plans() {
    terrane_testscript::check_scripts(concat!(env!("CARGO_MANIFEST_DIR"), "/src/fleet/spread/testdata"), || {
        let mut spread = Spread::default();
        move |text, out| {
            let line = Line::of(text);
            match line.words[0] {
                "servers" => spread.servers = line.words[1].split(',').map(|server| ServerId(number(server))).collect(),
                "group" => {
                    let leader = ServerId(line.number(2));
                    let ready = !line.words.contains(&"busy");
                    spread.groups.insert(GroupId(line.number(1)), GroupShare { leader, ready });
                }
                "regions" => {
                    let (first, last) = line.words[1].split_once('-').unwrap_or((line.words[1], line.words[1]));
                    let table = TableId(line.number(3));
                    spread.tables.insert(table, format!("t{table}"));
                    for region in number(first)..=number(last) {
                        let share = RegionShare {
                            table,
                            epoch: RegionEpoch(1),
                            group: GroupId(line.number(2)),
                            bytes: line.argument("mib").map_or(0, number) << 20,
                            units: f64::from(u32::try_from(line.argument("units").map_or(0, number)).unwrap()),
                            pinned: line.words.contains(&"pinned"),
                            rests: line.words.contains(&"rests"),
                        };
                        spread.regions.insert(RegionId(region), share);
                    }
                }
                "moving" => drop(spread.moving.insert(ServerId(line.number(1)), 1)),
                "hold" => spread.hold = Some("server 3 is away".to_owned()),
                "plan" => {
                    let (steps, after) = plan(&spread);
                    show(&steps, out);
                    shares(&spread, out);
                    shares(&after, out);
                }
                "begin" => show(&admitted(&spread, &plan(&spread).0, 2), out),
                other => panic!("no such command: {other}"),
            }
        }
    });
}

fn any_spread() -> impl Strategy<Value = Spread> {
    let region = (0..16_u64, 1..4_u64, 0..200_u64, 0..1_000_u32, 0..10_u8);
    (1..7_u64, prop::collection::vec(region, 0..80)).prop_map(|(servers, regions)| Spread {
        servers: (1..=servers).map(ServerId).collect(),
        groups: (0..16)
            .map(|group| (GroupId(group + 1), GroupShare { leader: ServerId(group % servers + 1), ready: true }))
            .collect(),
        regions: (1..)
            .zip(regions)
            .map(|(id, (group, table, mib, units, rests))| {
                let share = RegionShare {
                    table: TableId(table),
                    epoch: RegionEpoch(1),
                    group: GroupId(group + 1),
                    bytes: mib << 20,
                    units: f64::from(units),
                    pinned: rests == 0,
                    rests: rests == 1,
                };
                (RegionId(id), share)
            })
            .collect(),
        ..Spread::default()
    })
}

proptest! {
    #[test]
    fn a_plan_ends_and_moves_no_region_twice(spread in any_spread()) {
        let (steps, after) = plan(&spread);
        prop_assert!(steps.len() < MOVES_MAX);
        let moved: BTreeSet<RegionId> = steps.iter().map(|step| step.region).collect();
        prop_assert_eq!(moved.len(), steps.len());
        prop_assert!(Planning::of(&after).total() <= Planning::of(&spread).total() + 1e-9);
        prop_assert!(plan(&after).0.is_empty(), "what has moved stays");
    }

    #[test]
    fn equal_regions_are_spread_evenly(servers in 2..10_u64, regions in 0..200_u64) {
        let share = RegionShare {
            table: TableId(1),
            epoch: RegionEpoch(1),
            group: GroupId(1),
            bytes: 100 << 20,
            units: 100.0,
            pinned: false,
            rests: false,
        };
        let groups = |server| (GroupId(server), GroupShare { leader: ServerId(server), ready: true });
        let spread = Spread {
            servers: (1..=servers).map(ServerId).collect(),
            groups: (1..=servers).map(groups).collect(),
            regions: (1..=regions).map(|region| (RegionId(region), share.clone())).collect(),
            ..Spread::default()
        };
        let counts: Vec<usize> = plan(&spread).1.shares().values().map(|share| share.regions).collect();
        let (most, fewest) = (counts.iter().max().unwrap(), counts.iter().min().unwrap());
        prop_assert!(most - fewest <= (counts.iter().sum::<usize>() / counts.len() / 10).max(1), "{:?}", counts);
    }
}
