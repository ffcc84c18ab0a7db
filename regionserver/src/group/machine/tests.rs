//! What a replica restores after a crash, from the manifest and a replay of the log.

mod compare;
mod damage;
mod loads;
mod merges;
mod moves;
mod numbers;

use terrane_engine::{BackendKind, Options, Patience};
use terrane_types::cell::{CellRef, LATEST, pack};
use terrane_types::{FamilyName, FamilySchema, KeyRange, Projection, RegionEpoch, TableId, TableName};

use super::*;
use bytes::Bytes;
use terrane_types::PackedCells;

use tokio_util::sync::CancellationToken;

use crate::group::proposal::{CheckedRow, RowRequest, Write};
use crate::operation::{ChangeTables, LoggedRow, RowResult, Split, WriteEncoder, WriteHeader};

const GROUP: GroupId = GroupId(2);

/// One replica over a directory, and its log.
struct Replica {
    server: Server,
    directory: tempfile::TempDir,
    engine: Arc<Engine>,
    machine: Arc<GroupMachine>,
    log: Vec<AppliedEntry>,
}

/// What a replica runs in, apart from its directory.
#[derive(Clone)]
struct Server {
    backend: BackendKind,
    signals: Arc<Signals>,
    stop: CancellationToken,
}

impl Server {
    fn new(backend: BackendKind) -> Self {
        Self { backend, signals: Arc::default(), stop: CancellationToken::new() }
    }

    async fn open(&self, directory: &tempfile::TempDir) -> (Arc<Engine>, Arc<GroupMachine>) {
        let dir = directory.path().join("engine");
        let engine = Engine::open(Options::new(dir, self.backend, 0)).await.unwrap();
        let machine = GroupMachine::open(
            GROUP,
            engine.clone(),
            Arc::default(),
            self.signals.clone(),
            Arc::default(),
            Staging::new(engine.clone(), self.stop.clone()),
            Tracer::default(),
        )
        .unwrap();
        (engine, machine)
    }
}

/// A write of one row as the edge proposes it.
fn proposed(region: u64, epoch: u64, number: u64, row: &str, request: Option<RowRequest>) -> Proposal {
    let checked = CheckedRow {
        operation: number,
        first_try_ms: 900,
        row: Bytes::copy_from_slice(row.as_bytes()),
        cells: PackedCells::from_cells([CellRef::put(b"f", b"q", LATEST, row.as_bytes())]).unwrap(),
        request: request.and_then(RowRequest::boxed),
    };
    Proposal::Write(Write::new(WriteHeader::plain(region, epoch, 0, [4; 16]), vec![checked]))
}

/// A row of a client without numbers, as it is logged.
fn plain<'a>(row: &'a [u8], cells: &'a [u8]) -> LoggedRow<&'a [u8]> {
    LoggedRow { operation: 0, first_try_ms: 1, row, cells, result: None, untracked: false }
}

/// The bytes of an operation.
fn encoded(encode: impl FnOnce(&mut Vec<u8>)) -> Vec<u8> {
    let mut operation = Vec::new();
    encode(&mut operation);
    operation
}

fn encoded_split(split: &Split) -> Vec<u8> {
    encoded(|out| split.encode(out).unwrap())
}

impl Replica {
    /// With region 1 of a table.
    async fn new() -> Self {
        Self::on(Server::new(BackendKind::Memory)).await
    }

    async fn on(server: Server) -> Self {
        let directory = tempfile::tempdir().unwrap();
        let (engine, machine) = server.open(&directory).await;
        let mut replica = Self { server, directory, engine, machine, log: Vec::new() };
        replica.create().await;
        replica
    }

    /// Appends an entry with one operation and applies it.
    async fn apply(&mut self, operation: Vec<u8>) -> Reply {
        let index = self.log.len() as u64 + 1;
        let entry = AppliedEntry { term: 1, index, stamp: 1000 + index, operations: vec![operation.into()] };
        let mut replies = self.machine.apply(std::slice::from_ref(&entry)).await;
        self.log.push(entry);
        replies.remove(0).remove(0)
    }

    /// Drops everything in memory and applies the log again from where this replica's files end.
    async fn crash_and_replay(self) -> Self {
        let durable = self.machine.durable().index;
        let Self { server, directory, engine, machine, log } = self;
        drop((engine, machine));
        let (engine, machine) = server.open(&directory).await;
        for entry in log.iter().filter(|entry| entry.index > durable) {
            machine.apply(std::slice::from_ref(entry)).await;
        }
        Self { server, directory, engine, machine, log }
    }

    async fn put(&mut self, region: u64, epoch: u64, row: &str) -> Reply {
        self.put_at(region, epoch, row, 7).await
    }

    async fn put_at(&mut self, region: u64, epoch: u64, row: &str, timestamp: i64) -> Reply {
        let (mut cells, mut operation) = (Vec::new(), Vec::new());
        pack(&mut cells, CellRef::put(b"f", b"q", LATEST, row.as_bytes()));
        let mut encoder = WriteEncoder::new(&mut operation, &WriteHeader::plain(region, epoch, 0, [0; 16]), timestamp);
        encoder.push(&plain(row.as_bytes(), &cells));
        encoder.finish();
        self.apply(operation).await
    }

    /// Prepares a write of one row alone, as the leader would, and applies the result.
    async fn mutate(&mut self, region: u64, epoch: u64, number: u64, row: &str, request: Option<RowRequest>) -> Reply {
        let proposal = proposed(region, epoch, number, row, request);
        let ordinal = self.log.len() as u64 + 1;
        let packing = Packing { term: 1, ordinal, stamp: 1000 + ordinal, landed: ordinal - 1, alone: true };
        let mut entry = Vec::new();
        let Prepared::Packed = self.machine.prepare(&packing, &proposal, &mut entry) else { panic!("not packed") };
        self.apply(entry).await
    }

    /// The windows of the regions, as they would be recorded.
    fn windows(&self) -> Vec<(RegionId, Bytes)> {
        let inner = self.machine.inner.lock();
        inner.windows.iter().map(|(region, window)| (*region, window.encode())).collect()
    }

    async fn alter(&mut self, schema: TableSchema) -> Reply {
        let change = ChangeTables { schema: Some(schema), create: Vec::new(), drop: None };
        self.apply(encoded(|out| change.encode(out))).await
    }

    async fn create(&mut self) -> Reply {
        let descriptor = RegionDescriptor {
            region: RegionId(1),
            table: TableId(5),
            range: KeyRange::all(),
            epoch: RegionEpoch(1),
            group: GROUP,
            schema_version: 1,
        };
        let change = ChangeTables { schema: Some(schema(1)), create: vec![descriptor], drop: None };
        self.apply(encoded(|out| change.encode(out))).await
    }

    async fn split(&mut self, region: u64, epoch: u64, at: &'static str, left: u64, right: u64) -> Reply {
        let [region, left, right] = [region, left, right].map(RegionId);
        self.apply(encoded_split(&Split { region, epoch: RegionEpoch(epoch), left, right, at: at.into() })).await
    }

    /// `r2[a b] r3[m]`: the regions with their rows.
    fn shown(&self) -> String {
        let shown = self.machine.hosted().into_iter().map(|hosted| {
            let mut rows = Vec::new();
            for row in ["a", "b", "m", "z"] {
                let (snapshot, mut out) = (hosted.engine.snapshot(), Vec::new());
                hosted
                    .engine
                    .get(&snapshot, row.as_bytes(), &Projection::all(), 2000, Patience::MayBlock, &mut out)
                    .unwrap();
                rows.extend((!out.is_empty()).then_some(row));
            }
            format!("r{}[{}]", hosted.region, rows.join(" "))
        });
        shown.collect::<Vec<_>>().join(" ")
    }
}

fn schema(version: u64) -> TableSchema {
    let mut schema = TableSchema::new(TableName::new("t").unwrap());
    (schema.table, schema.version) = (TableId(5), version);
    schema.add_family(FamilySchema::new(FamilyName::new("f").unwrap())).unwrap();
    schema
}

#[tokio::test]
async fn a_crash_after_the_group_was_recorded_and_before_the_split_was_loses_nothing() {
    let mut replica = Replica::new().await;
    replica.put(1, 1, "a").await;
    replica.put(1, 1, "m").await;
    replica.split(1, 1, "c", 2, 3).await;
    replica.put(2, 2, "b").await;
    replica.machine.record().await.unwrap();
    let replica = replica.crash_and_replay().await;
    assert_eq!(replica.shown(), "r2[a b] r3[m]");
}

#[tokio::test]
async fn nothing_is_applied_once_the_server_has_stopped_applying() {
    let mut replica = Replica::new().await;
    replica.machine.stop_applying().await;
    assert_eq!(replica.put(1, 1, "a").await, Reply::Unknown);
    assert_eq!(replica.shown(), "r1[]");
}

#[tokio::test]
async fn a_group_that_is_removed_has_nothing_more_to_record() {
    let replica = Replica::new().await;
    assert!(replica.machine.is_dirty(), "a table was created");
    replica.machine.remove().await.unwrap();
    assert!(!replica.machine.is_dirty(), "what is asked for again and again must come to an end");
    replica.machine.record().await.unwrap();
}

#[tokio::test]
async fn writes_from_before_a_table_became_read_only_are_replayed() {
    let mut replica = Replica::new().await;
    replica.put(1, 1, "a").await;
    replica.alter(TableSchema { read_only: true, ..schema(2) }).await;
    assert!(matches!(replica.put(1, 1, "b").await, Reply::ReadOnly { .. }));
    replica.machine.record().await.unwrap();
    let replica = replica.crash_and_replay().await;
    assert_eq!(replica.shown(), "r1[a]");
}

#[tokio::test]
async fn a_region_split_while_the_group_is_recorded_is_on_disk_with_its_daughters() {
    let mut replica = Replica::new().await;
    replica.put(1, 1, "a").await;
    let parent = replica.machine.hosted()[0].region;
    replica.split(1, 1, "c", 2, 3).await;
    replica.machine.put_on_disk(parent).await.unwrap();
    let dir = replica.directory.path().join("engine");
    let recorded = Engine::open(Options::new(dir, BackendKind::Memory, 0));
    let regions = recorded.await.unwrap().regions();
    assert_eq!(regions.iter().map(|region| region.id().0).collect::<Vec<_>>(), [2, 3]);
    assert_eq!(replica.engine.regions().len(), 2);
}

#[tokio::test]
async fn a_split_that_is_replayed_over_its_daughters_still_forwards_to_them() {
    let mut replica = Replica::new().await;
    replica.put(1, 1, "a").await;
    replica.machine.record().await.unwrap();
    replica.split(1, 1, "c", 2, 3).await;
    for hosted in replica.machine.hosted() {
        replica.machine.flush(hosted.region).await.unwrap();
    }
    let replica = replica.crash_and_replay().await;
    assert_eq!(replica.machine.successors(RegionId(1)).len(), 2);
    assert_eq!(replica.shown(), "r2[a] r3[]");
}

#[tokio::test]
async fn a_boundary_too_long_for_a_manifest_is_refused_at_its_entry_and_the_region_continues() {
    let mut replica = Replica::new().await;
    replica.put(1, 1, "a").await;
    let at = Bytes::from(vec![b'k'; 40_000]);
    let split = Split { region: RegionId(1), epoch: RegionEpoch(1), left: RegionId(2), right: RegionId(3), at };
    let refused = replica.apply(encoded_split(&split)).await;
    assert!(matches!(&refused, Reply::Invalid { what } if what.contains("32767")), "{refused:?}");
    replica.machine.flush(RegionId(1)).await.unwrap();
    replica.put(1, 1, "m").await;
    let replica = replica.crash_and_replay().await;
    assert_eq!(replica.shown(), "r1[a m]");
}

#[tokio::test]
async fn the_longest_boundary_is_split_at_and_read_again() {
    let mut replica = Replica::new().await;
    replica.put(1, 1, "a").await;
    let at = Bytes::from(vec![b'c'; terrane_types::limits::ROW_BYTES_MAX]);
    let split = Split { region: RegionId(1), epoch: RegionEpoch(1), left: RegionId(2), right: RegionId(3), at };
    assert!(matches!(replica.apply(encoded_split(&split)).await, Reply::Split { .. }));
    for region in [2, 3] {
        replica.machine.flush(RegionId(region)).await.unwrap();
    }
    replica.put(3, 2, "m").await;
    let replica = replica.crash_and_replay().await;
    assert_eq!(replica.shown(), "r2[a] r3[m]");
}

#[tokio::test]
async fn a_write_to_a_family_dropped_since_the_edge_checked_it_is_refused_as_a_whole() {
    let mut replica = Replica::new().await;
    let mut both = schema(2);
    both.add_family(FamilySchema::new(FamilyName::new("g").unwrap())).unwrap();
    replica.alter(both).await;
    let write = |families: &[&[u8]]| {
        let row = |(family, row): (&&[u8], &'static str)| CheckedRow {
            operation: 0,
            first_try_ms: 1,
            row: row.into(),
            cells: PackedCells::from_cells([CellRef::put(family, b"q", 5, b"v")]).unwrap(),
            request: None,
        };
        Write::new(WriteHeader::plain(1, 1, 2, [0; 16]), families.iter().zip(["a", "b"]).map(row).collect())
    };
    let logged = |families: &[&[u8]]| {
        let (write, mut operation) = (write(families), Vec::new());
        let mut encoder = WriteEncoder::new(&mut operation, &write.header, 1);
        for row in write.rows() {
            encoder.push(&plain(&row.row, row.cells.as_bytes()));
        }
        encoder.finish();
        operation
    };
    assert!(matches!(replica.apply(logged(&[b"g"])).await, Reply::Applied { .. }));
    // The edge accepted them while g existed, and the drop came first in the log.
    replica.alter(schema(3)).await;
    let refused = Reply::SchemaChanged { table: TableId(5), version: 3 };
    let packing = Packing { term: 1, ordinal: 9, stamp: 2_000, landed: 8, alone: true };
    let prepared = replica.machine.prepare(&packing, &Proposal::Write(write(&[b"f", b"g"])), &mut Vec::new());
    assert!(matches!(&prepared, Prepared::Refused(reply) if *reply == refused));
    assert_eq!(replica.apply(logged(&[b"f", b"g"])).await, refused);
    assert_eq!(replica.shown(), "r1[]", "nothing of it is applied");
    assert!(matches!(replica.apply(logged(&[b"f"])).await, Reply::Applied { .. }), "f is still there");
    let before = replica.shown();
    let replica = replica.crash_and_replay().await;
    assert_eq!((replica.shown(), before), ("r1[a]".to_owned(), "r1[a]".to_owned()));
}

#[tokio::test]
async fn changes_of_regions_are_packed_alone_and_a_write_to_a_missing_region_is_refused() {
    let mut replica = Replica::new().await;
    let split =
        Split { region: RegionId(1), epoch: RegionEpoch(1), left: RegionId(2), right: RegionId(3), at: "c".into() };
    let packing = Packing { term: 1, ordinal: 2, stamp: 1002, landed: 0, alone: false };
    let split = Proposal::Split(split);
    let prepared = replica.machine.prepare(&packing, &split, &mut Vec::new());
    assert!(matches!(prepared, Prepared::WhenLanded));
    let mut entry = Vec::new();
    let prepared = replica.machine.prepare(&Packing { alone: true, ..packing }, &split, &mut entry);
    assert!(matches!(prepared, Prepared::PackedAlone));
    replica.apply(entry).await;
    let write = proposed(1, 1, 1, "a", None);
    let packing = Packing { ordinal: 3, landed: 2, alone: true, ..packing };
    let Prepared::Refused(reply) = replica.machine.prepare(&packing, &write, &mut Vec::new()) else {
        panic!("the parent is gone")
    };
    assert!(matches!(reply, Reply::Stale { current, .. } if current.len() == 2));
}

fn versions_of(replica: &Replica, row: &str) -> Vec<i64> {
    let hosted =
        replica.machine.hosted().into_iter().find(|hosted| hosted.state().descriptor.range.contains(row.as_bytes()));
    let (engine, mut out) = (hosted.unwrap().engine.clone(), Vec::new());
    let all = Projection { versions: 9, ..Projection::all() };
    engine.get(&engine.snapshot(), row.as_bytes(), &all, 2000, Patience::MayBlock, &mut out).unwrap();
    PackedCells::validate(out.into()).unwrap().iter().map(|cell| cell.timestamp).collect()
}

fn with_versions(version: u64, versions: u32) -> TableSchema {
    let mut schema = schema(version);
    schema.families[0].rules.versions = versions;
    schema
}

#[tokio::test]
async fn versions_hidden_by_a_lower_limit_stay_hidden_even_if_nothing_was_written_under_it() {
    for flushes in [false, true] {
        let mut replica = Replica::new().await;
        replica.alter(with_versions(2, 3)).await;
        for timestamp in [1, 2, 3] {
            replica.put_at(1, 1, "a", timestamp).await;
        }
        assert_eq!(versions_of(&replica, "a"), [3, 2, 1]);
        if flushes {
            replica.machine.flush(RegionId(1)).await.unwrap();
        }
        replica.alter(with_versions(3, 1)).await;
        assert_eq!(versions_of(&replica, "a"), [3], "an alter holds at once, without a write after it");
        replica.split(1, 1, "c", 2, 3).await;
        replica.alter(with_versions(4, 3)).await;
        assert_eq!(versions_of(&replica, "a"), [3], "what the old limit hid stays hidden");
        replica.put_at(2, 2, "a", 9).await;
        assert_eq!(versions_of(&replica, "a"), [9, 3]);
        let sequences =
            |replica: &Replica| replica.machine.hosted().iter().map(|h| h.engine.sequence()).collect::<Vec<_>>();
        let before = sequences(&replica);
        let replica = replica.crash_and_replay().await;
        assert_eq!(versions_of(&replica, "a"), [9, 3], "after a restart, flushed before: {flushes}");
        assert_eq!(sequences(&replica), before, "replicas count alike, whenever they were restarted");
    }
}

#[tokio::test]
async fn an_alter_that_changes_no_view_takes_no_sequence_number() {
    let mut replica = Replica::new().await;
    replica.put(1, 1, "a").await;
    let sequence = replica.machine.hosted()[0].engine.sequence();
    let mut stored = schema(2);
    stored.families[0].storage.in_memory = true;
    stored.region_size = 1 << 20;
    replica.alter(stored).await;
    assert_eq!(replica.machine.hosted()[0].engine.sequence(), sequence);
    assert_eq!(replica.machine.hosted()[0].schema_version(), 2);
}

#[tokio::test]
async fn a_family_that_is_created_again_begins_empty() {
    let mut without = schema(2);
    without.families[0].name = FamilyName::new("g").unwrap();
    // The cells are in a frozen memtable, in a file, or in the memory of both daughters of a split.
    for when in 0..3 {
        let mut replica = Replica::new().await;
        replica.put(1, 1, "a").await;
        if when == 1 {
            replica.machine.flush(RegionId(1)).await.unwrap();
        }
        if when == 2 {
            replica.split(1, 1, "c", 2, 3).await;
        }
        replica.alter(without.clone()).await;
        assert_eq!(versions_of(&replica, "a"), [0i64; 0]);
        replica.alter(schema(3)).await;
        assert_eq!(versions_of(&replica, "a"), [0i64; 0], "{when}");
        let (region, epoch) = if when == 2 { (2, 2) } else { (1, 1) };
        replica.machine.flush(RegionId(region)).await.unwrap();
        assert_eq!(versions_of(&replica, "a"), [0i64; 0], "{when}: flushed");
        replica.put_at(region, epoch, "a", 5).await;
        let mut replica = replica.crash_and_replay().await;
        assert_eq!(versions_of(&replica, "a"), [5], "{when}: after a restart");
        if when != 2 {
            replica.split(1, 1, "c", 2, 3).await;
            assert_eq!(versions_of(&replica, "a"), [5], "{when}: after a split");
        }
    }
}

#[tokio::test]
async fn a_set_on_a_version_of_the_same_millisecond_waits_for_the_next() {
    let mut replica = Replica::new().await;
    replica.mutate(1, 1, 1, "a", None).await;
    let ordinal = replica.log.len() as u64;
    let version = 1000 + ordinal;
    let test = terrane_types::Test::Version(version.cast_signed());
    let test = terrane_types::ColumnTest::new(FamilyName::new("f").unwrap(), "q", test);
    let request = RowRequest { condition: Some(terrane_types::Condition::Column(test)), ..RowRequest::default() };
    let proposal = proposed(1, 1, 2, "a", Some(request));
    let prepared = |stamp| {
        let packing = Packing { term: 1, ordinal: ordinal + 1, stamp, landed: ordinal, alone: true };
        replica.machine.prepare(&packing, &proposal, &mut Vec::new())
    };
    assert!(matches!(prepared(version), Prepared::Later), "it would make the version that it replaces");
    assert!(matches!(prepared(version + 1), Prepared::Packed));
}

#[tokio::test]
async fn an_entry_waits_for_the_memtables_until_a_flush_frees_them() {
    let signals = Arc::new(Signals::new(1000));
    let server = Server { signals: signals.clone(), ..Server::new(BackendKind::Memory) };
    let mut replica = Replica::on(server).await;
    replica.put(1, 1, "a").await;
    signals.set_memtable_bytes(2000);
    let machine = replica.machine.clone();
    {
        let put = replica.put(1, 1, "b");
        tokio::pin!(put);
        assert!(futures::poll!(&mut put).is_pending());
        machine.flush(RegionId(1)).await.expect("a flush does not wait for what waits for it");
        assert!(futures::poll!(&mut put).is_pending());
        signals.set_memtable_bytes(0);
        put.await;
    }
    assert_eq!(machine.log_time(), replica.log.last().unwrap().stamp);
}

#[tokio::test]
async fn replicas_at_one_index_have_one_digest_whatever_they_flushed() {
    let (mut one, mut other) = (Replica::new().await, Replica::new().await);
    for replica in [&mut one, &mut other] {
        replica.put(1, 1, "a").await;
        replica.put(1, 1, "m").await;
        replica.split(1, 1, "c", 2, 3).await;
        replica.put(3, 2, "z").await;
    }
    one.machine.flush(RegionId(3)).await.unwrap();
    one.machine.record().await.unwrap();
    let digest = one.machine.digest().await.unwrap().unwrap();
    assert_eq!((digest.applied, digest.regions, digest.rows), (5, 2, 3));
    assert_eq!(other.machine.digest().await.unwrap(), Some(digest));
    let mut one = one.crash_and_replay().await;
    // A region that was flushed may be ahead of the group until the next entry.
    one.put(2, 2, "q").await;
    other.put(2, 2, "q").await;
    let (again, expected) = (one.machine.digest().await.unwrap(), other.machine.digest().await.unwrap());
    assert!(again.is_some() && again == expected, "{again:?} and {expected:?}");
    one.put(2, 2, "b").await;
    other.put(2, 2, "a").await;
    let (one, other) = (one.machine.digest().await.unwrap().unwrap(), other.machine.digest().await.unwrap().unwrap());
    assert_eq!(one.applied, other.applied);
    assert_ne!(one.digest, other.digest);
}
