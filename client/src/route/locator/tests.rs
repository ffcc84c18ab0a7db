//! Golden scripts of the location cache. After each command that changes something, the whole state is one line.
//!
//! - `region r1@2 [a,m) g3` learns a region: id, epoch, range, group.
//! - `stale r1 BY REGION; REGION` is a server's answer to a request for `r1`; without `BY`, it names no region.
//! - `denied r1 by 3` is a server that does not know the region, and `restore` a master that does not answer either; `deniers ROW`
//!   lists what a call then tries last. Where no server is named, it is 2.
//! - `group g3 term 7 leader 2` learns a group with the members 1, 2 and 3; `leader -`: none is known.
//! - `moved s1 to elsewhere` learns the group g3 with another address of a member.
//! - `refused 2 g3 term 7 leader 1` is server 2 saying that it does not lead.
//! - `silent 2 g3` and `answered 2 g3` are a server that did not answer, and one that did.
//! - `find ROW...` and `before END...` look regions up.
//! - `candidates g3` lists the members in the order in which a call tries them; `any g3` the same for a stale read, for three
//!   random numbers.

use std::fmt::Write as _;

use terrane_testscript::check_scripts;
use terrane_types::RegionEpoch;

use super::*;

const TABLE: TableId = TableId(5);
const SERVER: ServerId = ServerId(2);

#[test]
fn scripts() {
    let directory = concat!(env!("CARGO_MANIFEST_DIR"), "/src/route/locator/testdata");
    check_scripts(directory, || {
        let mut locator = Locator::default();
        move |line, out| command(&mut locator, line, out)
    });
}

fn command(locator: &mut Locator, line: &str, out: &mut String) {
    let (name, rest) = line.split_once(' ').unwrap_or((line, ""));
    match name {
        "region" => {
            let taken = locator.learn_region(region(rest));
            write!(out, "{}", if taken { "" } else { "refused; " }).unwrap();
        }
        "stale" => {
            let (id, current) = rest.split_once(" BY ").unwrap_or((rest, ""));
            let current = current.split("; ").filter(|text| !text.is_empty()).map(region).collect();
            let known = locator.stale_epoch(SERVER, TABLE, asked(locator, id), current);
            write!(out, "{}", if known { "" } else { "unknown; " }).unwrap();
        }
        "denied" => {
            let (id, server) = rest.split_once(" by ").unwrap_or((rest, "2"));
            locator.denied(ServerId(number(server)), TABLE, asked(locator, id));
        }
        "restore" => locator.restore(TABLE),
        "deniers" => {
            let deniers = locator.deniers(TABLE, Position::Row(rest.as_bytes()));
            return writeln!(out, "{deniers:?}").unwrap();
        }
        "group" => locator.learn_group(location(rest)),
        "moved" => {
            let (server, address) = rest.split_once(" to ").expect("a server and an address");
            let mut location = location("g3 term 0 leader -");
            location.term = locator.groups.get(&GroupId(3)).map_or(0, |group| group.term);
            location.members[number(server) as usize - 1].1 = address.to_owned();
            locator.learn_group(location);
        }
        "refused" => {
            let (server, rest) = rest.split_once(' ').expect("a server and a group");
            locator.not_leader(ServerId(number(server)), location(rest));
        }
        "silent" | "answered" => {
            let (server, group) = rest.split_once(' ').expect("a server and a group");
            let (server, group) = (ServerId(number(server)), GroupId(number(group)));
            if name == "silent" { locator.silent(group, server) } else { locator.answered(group, server) }
        }
        "find" => return looked_up(rest, out, |row| locator.find(TABLE, Position::Row(row))),
        "before" => return looked_up(rest, out, |end| locator.find(TABLE, Position::Before(end))),
        "candidates" => {
            let group = GroupId(number(rest));
            return writeln!(out, "{}", in_order(group, |tried| locator.candidate(group, tried))).unwrap();
        }
        "any" => {
            let group = GroupId(number(rest));
            let orders = [0, 1, 2].map(|spread| in_order(group, |tried| locator.any_member(group, tried, spread)));
            return writeln!(out, "{}", orders.join(" | ")).unwrap();
        }
        _ => panic!("no such command: {line}"),
    }
    writeln!(out, "{}", show(locator)).unwrap();
}

/// Each row or bound in quotes, so that an empty one can be written.
fn looked_up<'a>(rows: &str, out: &mut String, find: impl Fn(&[u8]) -> Option<&'a RegionDescriptor>) {
    let found = rows.split(' ').map(|row| {
        let name = row.trim_matches('\'').as_bytes();
        find(name).map_or(format!("{row}: gap"), |region| format!("{row}: r{}", region.region))
    });
    writeln!(out, "{}", found.collect::<Vec<_>>().join(", ")).unwrap();
}

fn in_order<'a>(group: GroupId, next: impl Fn(&[Member]) -> Option<(ServerId, &'a str)>) -> String {
    let mut tried: Vec<Member> = Vec::new();
    let mut order = Vec::new();
    while let Some((server, address)) = next(&tried) {
        tried.push((group, server));
        order.push(if address == format!("s{server}:7700") {
            server.to_string()
        } else {
            format!("{server} at {address}")
        });
    }
    if order.is_empty() { "none".to_owned() } else { order.join(", ") }
}

fn show(locator: &Locator) -> String {
    let regions: Vec<&Known> = locator.tables.get(&TABLE).into_iter().flat_map(BTreeMap::values).collect();
    assert_eq!(locator.regions, regions.len(), "the number of regions is kept");
    let regions = regions.iter().map(|Known { region: r, is_denied, .. }| {
        let denied = if *is_denied { " denied" } else { "" };
        format!("r{}@{} {} g{}{denied}", r.region, r.epoch, r.range, r.group)
    });
    let groups = locator.groups.iter().map(|(id, group)| {
        let leader = group.leader.map_or("-".to_owned(), |leader| leader.to_string());
        let silent = group.silent.map_or(String::new(), |server| format!(" silent {server}"));
        format!("g{id} term {} leader {leader}{silent}", group.term)
    });
    let shown: Vec<String> = regions.chain(groups).collect();
    if shown.is_empty() { "nothing".to_owned() } else { shown.join("; ") }
}

/// The number in `r1`, `g3`, `s2` or `2`.
fn number(text: &str) -> u64 {
    text.trim_start_matches(char::is_alphabetic).parse().unwrap_or_else(|_| panic!("{text} has a number"))
}

/// `r1@2 [a,m) g3`
fn region(text: &str) -> RegionDescriptor {
    let (id, rest) = text.split_once('@').expect("region@epoch");
    let (epoch, rest) = rest.split_once(" [").expect("a range");
    let (range, group) = rest.split_once(") ").expect("a group");
    let (start, end) = range.split_once(',').expect("two bounds");
    RegionDescriptor {
        region: RegionId(number(id)),
        table: TABLE,
        range: KeyRange::new(start.to_owned(), end.to_owned()).expect("ordered"),
        epoch: RegionEpoch(number(epoch)),
        group: GroupId(number(group)),
        schema_version: 1,
    }
}

/// `g3 term 7 leader 2`
fn location(text: &str) -> GroupLocation {
    let words: Vec<&str> = text.split(' ').collect();
    let [group, "term", term, "leader", leader] = words[..] else { panic!("not a group: {text}") };
    let members = (1..=3).map(|server| (ServerId(server), format!("s{server}:7700"))).collect();
    GroupLocation {
        group: GroupId(number(group)),
        leader: (leader != "-").then(|| ServerId(number(leader))),
        term: number(term),
        members,
    }
}

/// A request at the epoch that is known.
fn asked(locator: &Locator, id: &str) -> (RegionId, RegionEpoch) {
    let id = RegionId(number(id));
    let known = locator.tables.values().flat_map(BTreeMap::values).find(|known| known.region.region == id);
    (id, known.map_or(RegionEpoch(0), |known| known.region.epoch))
}

#[test]
fn what_a_request_knew_is_no_news() {
    let mut locator = Locator::default();
    let moved = region("r1@2 [,) g2");
    locator.learn_region(moved.clone());
    // Sent before that was known: it stays.
    assert!(locator.stale_epoch(SERVER, TABLE, (RegionId(1), RegionEpoch(1)), vec![moved.clone()]));
    assert_eq!(locator.find(TABLE, Position::Row(b"a")), Some(&moved));
    assert!(!locator.stale_epoch(SERVER, TABLE, (RegionId(1), RegionEpoch(1)), Vec::new()));
    locator.denied(SERVER, TABLE, (RegionId(1), RegionEpoch(1)));
    assert_eq!(locator.find(TABLE, Position::Row(b"a")), Some(&moved));
    // Sent to a server that has left the group, which repeats it: a master is asked.
    assert!(!locator.stale_epoch(SERVER, TABLE, (RegionId(1), RegionEpoch(2)), vec![moved]));
    assert_eq!(locator.find(TABLE, Position::Row(b"a")), None);
}

#[test]
fn a_region_of_another_table_is_not_taken() {
    let mut locator = Locator::default();
    locator.learn_region(region("r1@1 [,) g1"));
    let other = RegionDescriptor { table: TableId(77), ..region("r8@9 [,) g1") };
    assert!(!locator.stale_epoch(SERVER, TABLE, (RegionId(1), RegionEpoch(1)), vec![other]));
    assert_eq!(locator.find(TableId(77), Position::Row(b"a")), None);
    assert_eq!(locator.find(TABLE, Position::Row(b"a")), None, "and the refused one is forgotten");
}
