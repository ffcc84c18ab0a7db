//! Scripts over the catalog: one command line is one edit, and prints its outcome. Procedures' scripts use them too.

use std::fmt::Write as _;

use bytes::Bytes;
use terrane_types::{
    ClusterId, GroupId, KeyDeclaration, KeyRange, NamespaceName, RegionDescriptor, RegionEpoch, RegionId, ReplicaId,
    ServerId, TableId, TableSchema,
};

use super::changes::{ChangePlan, ChangeReason};
use super::checkpoint::Checkpoint;
use super::groups::GroupPlan;
use super::moves::{MoveEnd, MoveId, MovePlan, MoveReason};
use super::namespaces::Properties;
use super::page_keys::Secret;
use super::requests::RequestId;
use super::tests::{registration, schema};
use super::{Bootstrap, Catalog, CatalogEdit, NewTable, Outcome, Refusal};

/// A command line: its words, and its `name=value` arguments.
pub struct Line<'a> {
    pub words: Vec<&'a str>,
    arguments: Vec<(&'a str, &'a str)>,
}

impl<'a> Line<'a> {
    pub fn of(text: &'a str) -> Self {
        let (arguments, words): (Vec<&str>, Vec<&str>) = text.split_whitespace().partition(|word| word.contains('='));
        let arguments = arguments.into_iter().filter_map(|word| word.split_once('=')).collect();
        Self { words, arguments }
    }

    pub fn argument(&self, name: &str) -> Option<&'a str> {
        self.arguments.iter().find(|(known, _)| *known == name).map(|(_, value)| *value)
    }

    pub fn number(&self, place: usize) -> u64 {
        number(self.words[place])
    }

    fn properties(&self) -> Properties {
        let given = self.arguments.iter().filter(|(name, _)| *name != "request");
        given.map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect()
    }

    fn request(&self) -> Option<RequestId> {
        self.argument("request").map(|text| RequestId([u8::try_from(number(text)).unwrap(); 16]))
    }
}

/// A number, with the letter of its kind or without: `t1`, `g1`, `1`.
pub fn number(text: &str) -> u64 {
    let digits = text.trim_start_matches(|letter: char| letter.is_ascii_alphabetic());
    digits.parse().unwrap_or_else(|_| panic!("{text} is not a number"))
}

pub fn keys(list: Option<&str>) -> Vec<Bytes> {
    list.into_iter().flat_map(|list| list.split(',')).map(|key| Bytes::copy_from_slice(key.as_bytes())).collect()
}

fn numbers(list: &str) -> impl Iterator<Item = u64> + '_ {
    list.split(',').map(number)
}

/// A region as `r1@2[a,m)`; table 1 and group 1 unless `:t2` or `:g2` follows.
pub fn region(text: &str) -> RegionDescriptor {
    let mut parts = text.split(':');
    let (id, rest) = parts.next().and_then(|region| region.split_once('@')).expect("r1@2[a,m)");
    let (epoch, range) = rest.split_once('[').expect("r1@2[a,m)");
    let (start, end) = range.trim_end_matches(')').split_once(',').expect("r1@2[a,m)");
    let mut descriptor = RegionDescriptor {
        region: RegionId(number(id)),
        table: TableId(1),
        range: KeyRange::new(start.to_owned(), end.to_owned()).unwrap(),
        epoch: RegionEpoch(number(epoch)),
        group: GroupId(1),
        schema_version: 1,
    };
    for part in parts {
        match part.split_at(1) {
            ("t", table) => descriptor.table = TableId(number(table)),
            ("g", group) => descriptor.group = GroupId(number(group)),
            other => panic!("no part of a region: {other:?}"),
        }
    }
    descriptor
}

/// Members of a group, the leader first.
fn plan(list: &str) -> GroupPlan {
    let servers: Vec<ServerId> = numbers(list).map(ServerId).collect();
    GroupPlan { leader: servers[0], servers }
}

/// How an order ends: the second word of `step made|unanswered|dropped`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fate {
    Made,
    /// Made, but its answer is lost.
    Unanswered,
    /// It never arrives.
    Dropped,
}

impl Fate {
    pub const ALL: [Self; 3] = [Self::Made, Self::Unanswered, Self::Dropped];

    pub fn of(line: &Line<'_>) -> Self {
        match line.words.get(1) {
            Some(&"unanswered") => Self::Unanswered,
            Some(&"dropped") => Self::Dropped,
            _ => Self::Made,
        }
    }
}

/// The edit that a line names.
pub fn edit(line: &Line<'_>) -> CatalogEdit {
    let table = || TableId(line.number(1));
    let edit = match line.words[0] {
        "bootstrap" => CatalogEdit::Bootstrap(Bootstrap {
            cluster: ClusterId([u8::try_from(line.argument("cluster").map_or(7, number)).unwrap(); 16]),
            peers: line.argument("peers").map_or_else(Vec::new, |peers| peers.split(',').map(str::to_owned).collect()),
            replication: line.argument("replication").map_or(1, |text| text.parse().unwrap()),
        }),
        "add-server" => CatalogEdit::AddServer(registration(line.words[1])),
        "remove-group" => CatalogEdit::RemoveGroup { group: GroupId(line.number(1)) },
        "update-server" => {
            CatalogEdit::UpdateServer { server: ServerId(line.number(1)), registration: registration(line.words[2]) }
        }
        "take-region-ids" => CatalogEdit::TakeRegionIds { count: line.words[1].parse().unwrap() },
        "add-groups" => CatalogEdit::AddGroups {
            expected: GroupId(number(line.argument("first").expect("first=GROUP"))),
            groups: line.words[1..].iter().map(|members| plan(members)).collect(),
        },
        "open-group" => CatalogEdit::OpenGroup { group: GroupId(line.number(1)) },
        "serve-group" => CatalogEdit::ServeGroup { group: GroupId(line.number(1)) },
        "abandon-group" => CatalogEdit::AbandonGroup { group: GroupId(line.number(1)) },
        "begin-move" | "cancel-move" | "end-move" => move_edit(line),
        "begin-members" | "promote-member" | "undo-members" | "recover-members" | "end-members" => members_edit(line),
        "drain" => CatalogEdit::DrainServer { server: ServerId(line.number(1)), drain: true },
        "undrain" => CatalogEdit::DrainServer { server: ServerId(line.number(1)), drain: false },
        "remove-server" => CatalogEdit::RemoveServer { server: ServerId(line.number(1)) },
        "set-replication" => CatalogEdit::SetReplication { replication: u32::try_from(line.number(1)).unwrap() },
        "raise-level" => CatalogEdit::RaiseLevel { level: u32::try_from(line.number(1)).unwrap() },
        "set-balancing" => CatalogEdit::SetBalancing { on: line.words[1] == "on" },
        "set-replace-after" => CatalogEdit::SetReplaceAfter { after_ms: line.number(1) },
        "create-table" => {
            let split_at = keys(line.argument("split"));
            let groups = line
                .argument("groups")
                .map_or_else(|| vec![GroupId(1); split_at.len() + 1], |groups| numbers(groups).map(GroupId).collect());
            let mut schema = schema(line.words[1]);
            schema.key = line.argument("key").map(|key| KeyDeclaration::parse(key).unwrap());
            CatalogEdit::CreateTable(NewTable { schema, split_at, groups })
        }
        "truncate-table" => {
            let split_at = keys(line.argument("split"));
            let groups = vec![GroupId(1); split_at.len() + 1];
            CatalogEdit::TruncateTable { table: table(), split_at, groups }
        }
        "enable-table" => CatalogEdit::EnableTable { table: table() },
        "alter-table" => {
            let version = line.argument("version").map(number).expect("version=VERSION");
            let schema = schema(line.argument("name").unwrap_or("t"));
            CatalogEdit::AlterTable { schema: TableSchema { table: table(), version, region_size: 1 << 20, ..schema } }
        }
        "finish-alter" => {
            let version = line.argument("version").map(number).expect("version=VERSION");
            CatalogEdit::FinishAlter { table: table(), version }
        }
        "drop-table" => CatalogEdit::DropTable { table: table() },
        "remove-table" => CatalogEdit::RemoveTable { table: table() },
        "report" => CatalogEdit::IndexRegions { regions: line.words[1..].iter().map(|text| region(text)).collect() },
        "create-namespace" => {
            CatalogEdit::CreateNamespace { name: namespace(line.words[1]), properties: line.properties() }
        }
        "set-properties" => {
            CatalogEdit::SetProperties { name: namespace(line.words[1]), properties: line.properties() }
        }
        "drop-namespace" => CatalogEdit::DropNamespace { name: namespace(line.words[1]) },
        "add-page-key" => {
            let id = u32::try_from(line.number(1)).unwrap();
            CatalogEdit::AddPageKey { id, secret: Secret([u8::try_from(id).unwrap(); 32]) }
        }
        other => panic!("no such command: {other}"),
    };
    match line.request() {
        Some(id) => CatalogEdit::Requested { id, edit: Box::new(edit) },
        None => edit,
    }
}

/// `begin-members g1 add=s4 remove=8 reason=lost`, `end-members g1 members=9,10`; the version is 0 unless `version=` says
/// another.
fn members_edit(line: &Line<'_>) -> CatalogEdit {
    let (group, version) = (GroupId(line.number(1)), line.argument("version").map_or(0, number));
    match line.words[0] {
        "begin-members" => CatalogEdit::BeginMembers(ChangePlan {
            group,
            version,
            add: line.argument("add").map(|server| ServerId(number(server))),
            remove: line.argument("remove").map(|replica| ReplicaId(number(replica))),
            reason: match line.argument("reason") {
                Some("lost") | None => ChangeReason::Lost,
                Some("drain") => ChangeReason::Drain,
                Some("balance") => ChangeReason::Balance,
                Some("damaged") => ChangeReason::Damaged,
                Some(other) => panic!("no such reason: {other}"),
            },
        }),
        "promote-member" => CatalogEdit::PromoteMember { group, version },
        "undo-members" => CatalogEdit::UndoMembers { group, version },
        "recover-members" => {
            let survivor = ReplicaId(line.argument("survivor").map(number).expect("survivor=REPLICA"));
            CatalogEdit::RecoverMembers { group, version, survivor }
        }
        _ => {
            let members = line.argument("members").expect("members=REPLICAS");
            let members =
                members.split(',').filter(|replica| !replica.is_empty()).map(|replica| ReplicaId(number(replica)));
            CatalogEdit::EndMembers { group, version, members: members.collect() }
        }
    }
}

/// `begin-move r1@1 to=g2 lead=s3 reason=merge`, `cancel-move m1`, `end-move m1 moved=r1@2[a,m):g2`, `end-move m1 undone`.
fn move_edit(line: &Line<'_>) -> CatalogEdit {
    match line.words[0] {
        "begin-move" => {
            let (id, epoch) = line.words[1].split_once('@').expect("r1@2");
            CatalogEdit::BeginMove(MovePlan {
                region: RegionId(number(id)),
                epoch: RegionEpoch(number(epoch)),
                to: GroupId(number(line.argument("to").expect("to=GROUP"))),
                lead: line.argument("lead").map(|server| ServerId(number(server))),
                reason: match line.argument("reason") {
                    Some("balance") => MoveReason::Balance,
                    Some("merge") => MoveReason::Merge,
                    _ => MoveReason::Operator,
                },
                why: "the script asks for it".to_owned(),
                merge_with: line.argument("with").map(|region| RegionId(number(region))),
            })
        }
        "cancel-move" => CatalogEdit::CancelMove { id: MoveId(line.number(1)), why: "cancelled".to_owned() },
        _ => {
            let end = line.argument("moved").map(region).map(MoveEnd::Moved);
            let end = end.unwrap_or_else(|| MoveEnd::Undone("no quorum".to_owned()));
            CatalogEdit::EndMove { id: MoveId(line.number(1)), end }
        }
    }
}

fn namespace(name: &str) -> NamespaceName {
    name.parse().unwrap()
}

/// Applies the edit that a line names, which must not be refused.
pub fn must_apply(catalog: &mut Catalog, text: &str) {
    let outcome = catalog.apply(&edit(&Line::of(text)), 1);
    assert!(!matches!(outcome, Outcome::Refused(_)), "{text}: {outcome:?}");
}

/// Applies an edit and prints its outcome. A refused edit must change nothing.
pub fn apply(catalog: &mut Catalog, edit: &CatalogEdit, stamp: u64, out: &mut String) {
    let before = catalog.clone();
    let outcome = catalog.apply(edit, stamp);
    if matches!(outcome, Outcome::Refused(_)) {
        assert_eq!(*catalog, before, "a refused edit changes nothing");
    }
    let text = match outcome {
        Outcome::Done => "done".to_owned(),
        Outcome::Server(server) => format!("server s{server}"),
        Outcome::RegionIds(first) => format!("region ids from r{first}"),
        Outcome::Table(table) => format!("table t{table}"),
        Outcome::Move(id) => format!("move m{id}"),
        Outcome::Refused(Refusal::AlreadyExists(what)) => format!("already exists: {what}"),
        Outcome::Refused(Refusal::NotFound(what)) => format!("not found: {what}"),
        Outcome::Refused(Refusal::Changed(what)) => format!("changed: {what}"),
        Outcome::Refused(Refusal::Invalid(what)) => format!("invalid: {what}"),
    };
    writeln!(out, "{text}").unwrap();
}

/// Prints a part of the catalog, one dense line per entry.
pub fn show(catalog: &Catalog, part: &str, out: &mut String) {
    match part {
        "servers" => {
            for (server, known) in catalog.servers().iter() {
                write!(out, "s{server} {} {}", known.address, known.engine).unwrap();
                if let Some(drain) = catalog.servers().drain(server) {
                    write!(out, " draining since={} replicas={}", drain.since_ms, drain.replicas).unwrap();
                }
                writeln!(out).unwrap();
            }
        }
        "groups" => {
            for (group, entry) in catalog.groups().iter() {
                let members: Vec<_> =
                    entry.members.iter().map(|(replica, server)| format!("{replica}@s{server}")).collect();
                let (state, leader) = (entry.state.name(), entry.planned_leader);
                write!(out, "g{group} {state} leader=s{leader} replicas={}", members.join(",")).unwrap();
                if entry.version > 0 {
                    write!(out, " version={}", entry.version).unwrap();
                }
                if let Some(change) = &entry.change {
                    let (state, reason) = (change.state.name(), change.reason.name());
                    write!(out, " {state} ({reason})").unwrap();
                    change.add.iter().for_each(|(replica, server)| write!(out, " add={replica}@s{server}").unwrap());
                    change.remove.iter().for_each(|replica| write!(out, " remove={replica}").unwrap());
                }
                writeln!(out).unwrap();
            }
        }
        "replace-after" => writeln!(out, "{:?}", catalog.replace_after()).unwrap(),
        "tables" => {
            for entry in catalog.tables().iter() {
                let (table, version) = (entry.schema.table, entry.schema.version);
                writeln!(out, "t{table} {} v{version} {}", entry.schema.name, entry.state.name()).unwrap();
            }
        }
        "map" => {
            for known in catalog.regions().iter().map(|entry| &entry.descriptor) {
                let RegionDescriptor { region, table, range, epoch, group, schema_version } = known;
                writeln!(out, "t{table} r{region}@{epoch}{range} g{group} v{schema_version}").unwrap();
            }
        }
        "moves" => {
            for (id, known) in catalog.moves().iter() {
                let (region, to, reason) = (&known.region, known.to, known.reason.name());
                write!(out, "m{id} r{}@{} from=g{} to=g{to} ({reason})", region.region, region.epoch, region.group)
                    .unwrap();
                known.lead.iter().for_each(|server| write!(out, " lead=s{server}").unwrap());
                known.cancelled.iter().for_each(|why| write!(out, " undoing: {why}").unwrap());
                writeln!(out).unwrap();
            }
            for ended in catalog.moves().ended() {
                let how = match &ended.end {
                    MoveEnd::Moved(region) => format!("moved to g{}", region.group),
                    MoveEnd::Undone(why) => format!("undone: {why}"),
                };
                writeln!(out, "m{} r{} {how}", ended.id, ended.region).unwrap();
            }
        }
        "namespaces" => {
            let known = catalog.namespaces();
            let shown = |name: NamespaceName| match known.properties().get(&name) {
                Some(properties) => format!("{name}{properties:?}"),
                None => name.to_string(),
            };
            writeln!(out, "{}", known.list().into_iter().map(shown).collect::<Vec<_>>().join(" ")).unwrap();
        }
        "page-keys" => {
            let keys: Vec<_> = catalog.page_keys().iter().map(|key| format!("{}@{}", key.id, key.since_ms)).collect();
            writeln!(out, "next={} valid={}", catalog.page_keys().next_id(), keys.join(",")).unwrap();
        }
        other => panic!("no such part of the catalog: {other}"),
    }
}

/// The catalog as a restarted master finds it.
pub fn restarted(catalog: Catalog) -> Catalog {
    let checkpoint = Checkpoint { applied: 1, stamp: 1, catalog };
    let read = Checkpoint::decode(&checkpoint.encode()).expect("a checkpoint can be read");
    assert_eq!(read, checkpoint, "a checkpoint keeps everything");
    read.catalog
}

#[test]
fn edits_of_the_catalog() {
    terrane_testscript::check_scripts(concat!(env!("CARGO_MANIFEST_DIR"), "/src/catalog/testdata"), || {
        let mut catalog = Catalog::default();
        let mut stamp = 0;
        move |text, out| {
            let line = Line::of(text);
            stamp += 1;
            match line.words[0] {
                "show" => line.words[1..].iter().for_each(|part| show(&catalog, part, out)),
                "restart" => catalog = restarted(std::mem::take(&mut catalog)),
                _ => apply(&mut catalog, &edit(&line), stamp, out),
            }
        }
    });
}
