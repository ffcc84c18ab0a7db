//! The group's decisions, as scripts over table 5 (`t`) and its regions.
//!
//! ```text
//! create v1 r1[,m) r2[m,)                creates regions under version 1 of the schema; prints what changed
//! alter v2 [families=f,g] [read-only] [key=DECLARATION atomic=N]
//! drop
//! split r1@1 m r2 r3                     splits r1 at epoch 1 at row m into r2 and r3
//! merge r1@1 r2@1 r3                     merges r1 and r2 at their epochs into r3; a replay that finds neither notes it
//! write r1@1 [schema=1] [exact] [families=f,g]    a write of an epoch, checked under a version of the schema
//! freeze r1@1 m7 to g3                   freezes r1 for move 7 to group 3
//! unfreeze r1 m7                         undoes it
//! depart r1@2[,m) m7                     r1 is in its new group, as described
//! adopt r9@2[x,)s1 m7                    takes a region in that comes under a version of the schema
//! refuse m7                              refuses a move to this group
//! later m8 to m1031                      refuses these moves
//! replay create v1 r1[,m)                an entry that the recorded state of the group covers
//! where r1                               the regions that r1 was split or merged into
//! planned                                every region with the range that no automatic merge leaves
//! on-disk r2@2[,m)s1                     a region that the engine brings back
//! restart                                encodes and decodes everything
//! forget-regions                         decodes the group's part alone
//! regions                                every region: id, epoch, range, version of the schema
//! ```

use std::fmt::Write as _;

use terrane_testscript::check_scripts;
use terrane_types::cell::{CellRef, pack};
use terrane_types::escape::{escape, unescape};
use terrane_types::{FamilyName, FamilySchema, KeyRange, MoveId, ServerId, TableName};

use super::*;
use crate::operation::{Depart, Destination, Freeze, Unfreeze};

const TABLE: TableId = TableId(5);

fn schema(version: u64, families: &str) -> TableSchema {
    let mut schema = TableSchema::new(TableName::new("t").unwrap());
    (schema.table, schema.version) = (TABLE, version);
    for family in families.split(',') {
        schema.add_family(FamilySchema::new(FamilyName::new(family).unwrap())).unwrap();
    }
    schema
}

fn row(text: &str) -> Bytes {
    unescape(text).expect("a row").into()
}

fn number(text: &str) -> u64 {
    text.parse().unwrap_or_else(|_| panic!("{text} is no number"))
}

fn region_id(text: &str) -> RegionId {
    RegionId(number(text.strip_prefix('r').expect("a region: r1")))
}

/// `r1@2[a,m)s3`, of which epoch and schema may be left out.
fn descriptor(text: &str) -> RegionDescriptor {
    let (id, rest) = text.split_once('[').expect("a range");
    let (range, version) = rest.split_once(')').expect("a range");
    let (start, end) = range.split_once(',').expect("a range");
    let (id, epoch) = id.split_once('@').unwrap_or((id, "1"));
    RegionDescriptor {
        region: region_id(id),
        table: TABLE,
        range: KeyRange::new(row(start), row(end)).unwrap(),
        epoch: RegionEpoch(number(epoch)),
        group: GroupId(2),
        schema_version: version.strip_prefix('s').map_or(1, number),
    }
}

fn shown(region: &RegionDescriptor) -> String {
    let (start, end) = (escape(&region.range.start), escape(&region.range.end));
    format!("r{}@{}[{start},{end})s{}", region.region, region.epoch, region.schema_version)
}

fn all<'r>(regions: impl IntoIterator<Item = &'r RegionDescriptor>) -> String {
    let shown: Vec<String> = regions.into_iter().map(shown).collect();
    if shown.is_empty() { "none".to_owned() } else { shown.join(" ") }
}

fn refusal(reply: &Reply) -> String {
    match reply {
        Reply::Stale { region, current } => format!("stale r{region}: {}", all(current)),
        Reply::ReadOnly { what } => format!("{what} is read-only"),
        Reply::Disabled { what } => format!("{what} is disabled"),
        Reply::SchemaChanged { version, .. } => format!("the schema is at version {version}"),
        Reply::Invalid { what } => what.clone(),
        Reply::Moving { region } => format!("r{region} moves"),
        other => format!("{other:?}"),
    }
}

fn changes(changes: &TableChanges) -> String {
    let created: Vec<_> = changes.created.iter().map(|region| &region.descriptor).collect();
    let altered = changes.altered.iter().map(|(region, before)| format!("r{region} from v{}", before.version));
    let dropped = changes.dropped.iter().map(|region| format!("r{region}"));
    let parts = [
        ("created", created.into_iter().map(shown).collect::<Vec<_>>()),
        ("altered", altered.collect()),
        ("dropped", dropped.collect()),
    ];
    let parts = parts.iter().filter(|(_, regions)| !regions.is_empty());
    let parts: Vec<String> = parts.map(|(what, regions)| format!("{what} {}", regions.join(" "))).collect();
    if parts.is_empty() { "nothing changes".to_owned() } else { parts.join("; ") }
}

fn option<'l>(words: &[&'l str], name: &str) -> Option<&'l str> {
    words.iter().find_map(|word| word.strip_prefix(name)?.strip_prefix('='))
}

fn put_schema(words: &[&str]) -> TableSchema {
    let version = number(words[1].strip_prefix('v').expect("a version: v1"));
    let mut schema = schema(version, option(words, "families").unwrap_or("f"));
    schema.read_only = words.contains(&"read-only");
    schema.key = option(words, "key").map(|key| key.parse().expect("a key declaration"));
    schema.atomic = option(words, "atomic").map_or(0, |parts| u32::try_from(number(parts)).unwrap());
    schema
}

fn check_write(state: &GroupState, words: &[&str]) -> Result<(), Reply> {
    let (region, epoch) = words[1].split_once('@').expect("a region and its epoch");
    let families = option(words, "families");
    let schema_version = option(words, "schema").map_or(0, number);
    let plain = WriteHeader::plain(region_id(region).0, number(epoch), schema_version, [0; 16]);
    let header = WriteHeader { exact_schema: words.contains(&"exact"), ..plain };
    let mut cells = Vec::new();
    for family in families.into_iter().flat_map(|families| families.split(',')) {
        pack(&mut cells, CellRef::put(family.as_bytes(), b"q", 1, b"v"));
    }
    state.check_write(&header)?.check_families(&header, [&cells[..]])
}

fn restart(state: &GroupState) -> GroupState {
    let mut restarted = GroupState::decode(state.group, state.encode()).expect("a state decodes");
    for region in state.regions() {
        restarted.restore(RegionState::decode(region.encode()).expect("a region decodes"));
    }
    restarted
}

fn move_id(text: &str) -> MoveId {
    MoveId(number(text.strip_prefix('m').expect("a move: m7")))
}

/// A region that comes from group 3.
fn adopt(state: &mut GroupState, descriptor: RegionDescriptor, id: MoveId) -> String {
    let schema = Arc::new(schema(descriptor.schema_version, "f"));
    let servers = vec![ServerId(1)];
    let moving = Some(Destination { id, group: GroupId(2), servers });
    let descriptor = RegionDescriptor { group: GroupId(3), ..descriptor };
    let incoming = RegionState { planned: descriptor.range.clone(), descriptor, schema, moving };
    match state.arriving(id, &incoming) {
        Arriving::Comes(region) => {
            let adopted = shown(&region.descriptor);
            assert!(region.moving.is_none() && region.descriptor.group == GroupId(2));
            let altered = state.adopt(id, 40, *region);
            format!("adopted {adopted}; {}", changes(&altered))
        }
        Arriving::IsHere => "it came before".to_owned(),
        Arriving::Refused(why) => why,
        Arriving::Forgotten => "what became of the move is forgotten".to_owned(),
    }
}

fn command(state: &mut GroupState, line: &str) -> Option<String> {
    let words: Vec<&str> = line.split(' ').collect();
    Some(match words[0] {
        "create" => {
            let create = words[2..].iter().map(|region| descriptor(region)).collect();
            changes(&state.change_tables(&ChangeTables { schema: Some(put_schema(&words)), create, drop: None }, false))
        }
        "alter" => {
            let alter = ChangeTables { schema: Some(put_schema(&words)), create: Vec::new(), drop: None };
            changes(&state.change_tables(&alter, false))
        }
        "freeze" => {
            let (region, epoch) = words[1].split_once('@').expect("a region and its epoch");
            let group = GroupId(number(words[4].strip_prefix('g').expect("a group: g3")));
            let to = Destination { id: move_id(words[2]), group, servers: vec![ServerId(1), ServerId(2)] };
            match state.freeze(&Freeze { region: region_id(region), epoch: RegionEpoch(number(epoch)), to }) {
                Ok(frozen) => format!("{} is frozen", shown(&frozen.descriptor)),
                Err(reply) => refusal(&reply),
            }
        }
        "unfreeze" => match state.unfreeze(&Unfreeze { region: region_id(words[1]), id: move_id(words[2]) }) {
            Some(region) => format!("{} is not frozen", shown(&region.descriptor)),
            None => "nothing changes".to_owned(),
        },
        "depart" => {
            let adopted = RegionDescriptor { group: GroupId(3), ..descriptor(words[1]) };
            match state.depart(&Depart { id: move_id(words[2]), adopted }) {
                Ok(true) => "it left".to_owned(),
                Ok(false) => "it is not here".to_owned(),
                Err(reply) => refusal(&reply),
            }
        }
        "adopt" => adopt(state, descriptor(words[1]), move_id(words[2])),
        "refuse" => match state.refuse(move_id(words[1])) {
            Some(arrival) => format!("{arrival:?}"),
            None => "what became of the move is forgotten".to_owned(),
        },
        "later" => {
            let (from, to) = (move_id(words[1]), move_id(words[3]));
            (from.0..=to.0).for_each(|id| _ = state.refuse(MoveId(id)));
            format!("{} moves were refused", to.0 - from.0 + 1)
        }
        "replay" => {
            let create = words[3..].iter().map(|region| descriptor(region)).collect();
            let change = ChangeTables { schema: Some(put_schema(&words[1..])), create, drop: None };
            changes(&state.change_tables(&change, true))
        }
        "drop" => {
            changes(&state.change_tables(&ChangeTables { schema: None, create: Vec::new(), drop: Some(TABLE) }, false))
        }
        "split" => {
            let (region, epoch) = words[1].split_once('@').expect("a region and its epoch");
            let [region, left, right] = [region, words[3], words[4]].map(region_id);
            let split = Split { region, epoch: RegionEpoch(number(epoch)), left, right, at: row(words[2]) };
            match state.split(&split) {
                Ok((left, right)) => all([&left.descriptor, &right.descriptor]),
                Err(reply) => refusal(&reply),
            }
        }
        "merge" => {
            let parents = [words[1], words[2]].map(|word| word.split_once('@').expect("a region and its epoch"));
            let [(left, left_epoch), (right, right_epoch)] =
                parents.map(|(region, epoch)| (region_id(region), RegionEpoch(number(epoch))));
            let merge = Merge { left, left_epoch, right, right_epoch, into: region_id(words[3]) };
            if state.region(left).is_none() && state.region(right).is_none() && state.note_merge(&merge) {
                return Some("noted".to_owned());
            }
            match state.merge(&merge) {
                Ok(merged) => shown(&merged.descriptor),
                Err(reply) => refusal(&reply),
            }
        }
        "planned" => {
            let planned = |region: &RegionState| {
                let (start, end) = (escape(&region.planned.start), escape(&region.planned.end));
                format!("r{} of [{start},{end})", region.descriptor.region)
            };
            state.regions().map(planned).collect::<Vec<_>>().join("; ")
        }
        "write" => check_write(state, &words).map_or_else(|reply| refusal(&reply), |()| "ok".to_owned()),
        "where" => all(&state.successors(region_id(words[1]))),
        "on-disk" => {
            let descriptor = descriptor(words[1]);
            let schema = Arc::new(schema(descriptor.schema_version, "f"));
            state.restore(RegionState { planned: descriptor.range.clone(), descriptor, schema, moving: None });
            return None;
        }
        "restart" => {
            *state = restart(state);
            return None;
        }
        "forget-regions" => {
            *state = GroupState::decode(state.group, state.encode()).expect("a state decodes");
            return None;
        }
        "regions" => all(state.regions().map(|region| &region.descriptor)),
        _ => panic!("no such command: {line}"),
    })
}

#[test]
fn groups_behave_as_recorded() {
    check_scripts(concat!(env!("CARGO_MANIFEST_DIR"), "/src/group/state/testdata"), || {
        let mut state = GroupState::new(GroupId(2));
        move |line: &str, out: &mut String| {
            if let Some(printed) = command(&mut state, line) {
                writeln!(out, "{printed}").expect("writing to a string");
            }
        }
    });
}

#[test]
fn forwarding_of_split_regions_is_bounded() {
    let mut state = GroupState::new(GroupId(2));
    for region in 0..2 * RETIRED_MAX as u64 {
        let daughters = [RegionId(region + 10_000), RegionId(region + 20_000)];
        state.retire(RegionId(region), Successors::Daughters(daughters));
    }
    assert_eq!((state.retired.len(), state.retired_order.len()), (RETIRED_MAX, RETIRED_MAX));
}
