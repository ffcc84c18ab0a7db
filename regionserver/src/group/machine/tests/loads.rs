//! Files of bulk loads: taken in once, whole, and again after a crash.

use std::collections::BTreeSet;

use terrane_engine::StoreFileBuilder;
use terrane_env::fs::{self, Disk};
use terrane_env::task::run_io;
use terrane_types::ServerId;
use terrane_types::schema::FamilyStorage;

use super::*;
use crate::operation::{Load, LoadedFile, StagingId};
use crate::staging::transfer::checksum;

const STAGING: StagingId = StagingId([9; 16]);

async fn created() -> Replica {
    Replica::on(Server::new(BackendKind::Lsm)).await
}

/// Builds the file of a load of these rows, as a leader does.
async fn built(staging: &Staging, rows: &[&str]) -> Load {
    let dir = staging.create(STAGING).await.unwrap();
    let mut builder = StoreFileBuilder::create(&Disk::os(), &dir, 1, FamilyStorage::default()).await.unwrap();
    for row in rows {
        builder.add(row.as_bytes(), CellRef::put(b"f", b"q", 1_000, b"loaded")).await.unwrap();
    }
    builder.finish().await.unwrap();
    let (bytes, crc) = checksum(dir.join(StoreFileBuilder::file_name(1))).await.unwrap();
    staging.sync(STAGING).await.unwrap();
    Load {
        region: RegionId(1),
        epoch: RegionEpoch(1),
        schema_version: 1,
        client: [4; 16],
        lowest_unsettled: 0,
        operations: vec![7],
        first_try_ms: 900,
        staging: STAGING,
        source: ServerId(1),
        files: vec![LoadedFile { family: FamilyName::new("f").unwrap(), number: 1, bytes, crc }],
    }
}

async fn load(replica: &mut Replica, load: &Load) -> Reply {
    replica.apply(encoded(|out| load.encode(out))).await
}

async fn rename(from: &Path, to: &Path) {
    let (from, to) = (from.to_path_buf(), to.to_path_buf());
    run_io(async move { fs::rename(&from, &to).await }).await.unwrap();
}

fn sequence(replica: &Replica, region: u64) -> u64 {
    let hosted = replica.machine.hosted().into_iter().find(|hosted| hosted.region == RegionId(region));
    hosted.unwrap().engine.sequence()
}

#[tokio::test]
async fn a_load_takes_effect_once_however_often_it_is_in_the_log() {
    let mut replica = created().await;
    replica.put(1, 1, "a").await;
    let loaded = built(&replica.machine.staging, &["b", "m"]).await;
    assert!(!replica.machine.has_load(&loaded));
    assert!(matches!(load(&mut replica, &loaded).await, Reply::Applied { .. }));
    assert_eq!((replica.shown(), sequence(&replica, 1)), ("r1[a b m]".to_owned(), 2));
    assert!(replica.machine.has_load(&loaded));
    assert!(matches!(load(&mut replica, &loaded).await, Reply::Applied { .. }));
    assert_eq!(sequence(&replica, 1), 2, "nothing was taken in");
    let mut replica = replica.crash_and_replay().await;
    assert_eq!((replica.shown(), sequence(&replica, 1)), ("r1[a b m]".to_owned(), 2));
    assert!(matches!(load(&mut replica, &loaded).await, Reply::Applied { .. }));
    assert_eq!(sequence(&replica, 1), 2, "the window is in the record of the region");
}

#[tokio::test]
async fn a_load_that_is_given_up_keeps_the_files_that_a_replica_took_in() {
    let mut replica = created().await;
    let loaded = built(&replica.machine.staging, &["b"]).await;
    load(&mut replica, &loaded).await;
    replica.machine.staging.abandon(STAGING).await;
    let files = replica.engine.loading_root().join(STAGING.to_string());
    assert!(fs::exists(&files).await.unwrap(), "another member may have to fetch them");
    // One that no replica took in goes.
    let other = StagingId([8; 16]);
    let files = replica.machine.staging.create(other).await.unwrap();
    replica.machine.staging.abandon(other).await;
    assert!(!fs::exists(&files).await.unwrap());
}

#[tokio::test]
async fn the_halves_of_a_split_know_a_load_of_the_whole() {
    let mut replica = created().await;
    let loaded = built(&replica.machine.staging, &["b", "m"]).await;
    load(&mut replica, &loaded).await;
    replica.split(1, 1, "c", 2, 3).await;
    let stale = load(&mut replica, &loaded).await;
    assert!(matches!(&stale, Reply::Stale { current, .. } if current.len() == 2), "{stale:?}");
    // The run was cut, and each piece has a number of its own after that of the whole.
    let piece = Load { region: RegionId(2), epoch: RegionEpoch(2), operations: vec![7, 8], ..loaded.clone() };
    let before = sequence(&replica, 2);
    assert!(matches!(load(&mut replica, &piece).await, Reply::Applied { .. }));
    assert_eq!((replica.shown(), sequence(&replica, 2)), ("r2[b] r3[m]".to_owned(), before));
    // One that was not loaded before is.
    let other = Load { operations: vec![9], ..piece };
    let refused = load(&mut replica, &other).await;
    assert!(matches!(&refused, Reply::Invalid { what } if what.contains("outside of the region")), "{refused:?}");
}

#[tokio::test]
async fn a_replica_without_the_files_applies_nothing_until_it_has_them() {
    let replica = created().await;
    let loaded = built(&replica.machine.staging, &["b"]).await;
    let Replica { server, directory, engine, machine, log } = replica;
    let dir = engine.loading_root();
    let aside = directory.path().join("aside");
    rename(&dir, &aside).await;
    drop((engine, machine));
    let stop = CancellationToken::new();
    // The server stops while it looks for them.
    stop.cancel();
    let stopping = Server { stop, ..server.clone() };
    let (engine, machine) = stopping.open(&directory).await;
    machine.apply(&log).await;
    let mut replica = Replica { server, directory, engine, machine, log };
    load(&mut replica, &loaded).await;
    replica.put(1, 1, "m").await;
    assert_eq!(replica.shown(), "r1[]", "what comes after the load waits, too");
    let fetched = dir.clone();
    run_io(async move { fs::remove_dir_all(&fetched).await }).await.unwrap();
    rename(&aside, &dir).await;
    let replica = replica.crash_and_replay().await;
    assert_eq!(replica.shown(), "r1[b m]");
}

/// A replica without the files of a load, which waits for them in the entry after its log.
async fn waiting() -> (Replica, AppliedEntry, tokio::task::JoinHandle<Vec<Vec<Reply>>>) {
    let mut replica = created().await;
    replica.put(1, 1, "a").await;
    let loaded = built(&replica.machine.staging, &["b"]).await;
    replica.machine.staging.discard(STAGING).await;
    let index = replica.log.len() as u64 + 1;
    let operations = vec![encoded(|out| loaded.encode(out)).into()];
    let entry = AppliedEntry { term: 1, index, stamp: 1000 + index, operations };
    let (machine, applied) = (replica.machine.clone(), entry.clone());
    let applying = tokio::spawn(async move { machine.apply(std::slice::from_ref(&applied)).await });
    while replica.machine.progress().lacks.is_none() {
        tokio::task::yield_now().await;
    }
    let (lacks, why) = replica.machine.progress().lacks.unwrap();
    assert!(lacks == index && why.contains("files of a load of region 1"), "{lacks}: {why}");
    (replica, entry, applying)
}

#[tokio::test]
async fn flushes_and_the_removal_of_a_replica_do_not_wait_for_the_files_of_a_load() {
    let (replica, entry, applying) = waiting().await;
    let machine = replica.machine.clone();
    assert!(machine.flush_needs()[0].memtable_bytes > 0);
    machine.flush(RegionId(1)).await.unwrap();
    assert_eq!(machine.flush_needs()[0].memtable_bytes, 0);
    machine.record().await.unwrap();
    assert_eq!(machine.progress().applied, entry.index - 1);
    machine.remove().await.unwrap();
    // The others apply the entry; what they answer is not known here.
    assert_eq!(applying.await.unwrap(), [[Reply::Unknown]]);
    assert!(machine.hosted().is_empty());
}

#[tokio::test]
async fn a_copy_that_covers_an_entry_ends_the_wait_for_its_files() {
    let (mut replica, entry, applying) = waiting().await;
    // Another member has the files, and has applied more.
    let mut other = created().await;
    other.put(1, 1, "a").await;
    let loaded = built(&other.machine.staging, &["b"]).await;
    load(&mut other, &loaded).await;
    other.put(1, 1, "m").await;
    other.machine.flush(RegionId(1)).await.unwrap();
    other.machine.record().await.unwrap();
    let as_of = other.machine.durable().index;
    assert_eq!(as_of, entry.index + 1);
    install(&other, &replica, as_of).await;
    applying.await.unwrap();
    assert_eq!(replica.shown(), "r1[a b m]");
    assert_eq!(replica.machine.progress(), terrane_raft::Progress { applied: as_of, ..replica.machine.progress() });
    assert_eq!(replica.machine.progress().lacks, None);
    // What the copy has is not applied again, and what follows it is.
    replica.log.push(entry);
    replica.put(1, 1, "m").await;
    replica.put(1, 1, "z").await;
    other.put(1, 1, "z").await;
    assert_eq!(replica.shown(), "r1[a b m z]");
    let (one, two) = (replica.machine.digest().await.unwrap(), other.machine.digest().await.unwrap());
    assert!(one.is_some() && one == two, "{one:?} and {two:?}");
    // A copy that comes late does not bring the state of before back.
    install(&other, &replica, as_of).await;
    assert_eq!(replica.shown(), "r1[a b m z]");
}

/// Sends a copy of one replica to another, as of an index.
async fn install(from: &Replica, to: &Replica, as_of: u64) {
    let copy = from.machine.copy().await.unwrap();
    let dir = to.machine.incoming(1 << 20).await.unwrap().join("1");
    for file in copy.files() {
        let bytes = copy.read(file.id, 0, usize::try_from(file.size).unwrap()).await.unwrap();
        let path = dir.join(terrane_raft::CopiedFile::name(file.id));
        let dir = dir.clone();
        run_io(async move {
            fs::create_dir_durable(dir.parent().unwrap()).await?;
            fs::create_dir_durable(&dir).await?;
            fs::File::create_new(&path).await?.write_all_at(&bytes, 0).await
        })
        .await
        .unwrap();
    }
    to.machine.stage(&dir, as_of).await.unwrap().install(as_of).await.unwrap();
    run_io(async move { fs::remove_dir_all(&dir).await }).await.unwrap();
}

#[tokio::test]
async fn a_table_that_takes_no_writes_takes_no_load() {
    let mut replica = created().await;
    let loaded = built(&replica.machine.staging, &["b"]).await;
    replica.alter(TableSchema { read_only: true, ..schema(2) }).await;
    assert!(matches!(load(&mut replica, &loaded).await, Reply::ReadOnly { .. }));
    replica.alter(TableSchema { disabled: true, ..schema(3) }).await;
    assert!(matches!(load(&mut replica, &loaded).await, Reply::Disabled { .. }));
    let mut other = TableSchema { families: Vec::new(), ..schema(4) };
    other.add_family(FamilySchema::new(FamilyName::new("g").unwrap())).unwrap();
    replica.alter(other).await;
    let changed = load(&mut replica, &loaded).await;
    assert_eq!(changed, Reply::SchemaChanged { table: TableId(5), version: 4 }, "the family is gone");
    assert_eq!(replica.shown(), "r1[]");
}

#[tokio::test]
async fn files_stay_while_the_log_has_their_entry_and_go_with_it() {
    use crate::staging::retention::{Claim, LogRange};

    let mut replica = created().await;
    let loaded = built(&replica.machine.staging, &["b"]).await;
    load(&mut replica, &loaded).await;
    let index = replica.log.last().unwrap().index;
    let staging = &replica.machine.staging;
    let names = async || {
        let root = replica.engine.loading_root();
        let listed = run_io(async move { fs::list(&root).await }).await.unwrap();
        listed.into_iter().collect::<BTreeSet<_>>()
    };
    let kept = BTreeSet::from([STAGING.to_string(), format!("{STAGING}.{GROUP}.{index}")]);
    let log = |first| [(GROUP, LogRange { first, last: index + 5, applied: index + 5 })].into();
    staging.sweep(&log(index), |_| Claim::Unknown).await;
    assert_eq!(names().await, kept, "another member may fetch them");
    staging.sweep(&log(index + 1), |_| Claim::Unknown).await;
    assert!(names().await.is_empty());
    assert_eq!(replica.shown(), "r1[b]", "the region has names of its own for them");
}
