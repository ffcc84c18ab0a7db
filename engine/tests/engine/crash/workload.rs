//! Short workloads over a small alphabet, and the state that each of them begins from.

use std::fmt::Write as _;
use std::path::PathBuf;

use terrane_engine::{BackendKind, Error};
use terrane_env::fs::{Disk, Fault, MemoryDisk, Tear};
use terrane_types::{CellKind, FamilyRules};

use crate::support::model::ModelCell;
use crate::support::steps::{fill_gaps, neighbours, rules_of};
use crate::support::world::{Home, Known, Settings, World};

/// The backends that write files of the engine's own.
pub const BACKENDS: [BackendKind; 2] = [BackendKind::Memory, BackendKind::Lsm];

/// One operation. Each derives what to work on from the world alone, and may be tried again after an error.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Op {
    /// Two rows, at both ends.
    Write,
    /// The columns of a row that is probably in files.
    Delete,
    Alter,
    /// All regions.
    Flush,
    Split,
    /// The first two regions, if there are two.
    Merge,
    /// All regions, all of their files.
    Compact,
    /// A region, which a new one replaces.
    Drop,
    RecordGroup,
    Reopen,
}

impl Op {
    pub const ALL: [Self; 10] = [
        Self::Write,
        Self::Delete,
        Self::Alter,
        Self::Flush,
        Self::Split,
        Self::Merge,
        Self::Compact,
        Self::Drop,
        Self::RecordGroup,
        Self::Reopen,
    ];

    pub async fn run(self, world: &mut World) -> Result<(), Error> {
        match self {
            Self::Write => {
                for row in [b"c", b"w"] {
                    let cells = ["one", "three"].map(|family| cell(world, row, family, CellKind::Put));
                    let region = region_of(world, row);
                    world.write(region, cells.to_vec());
                }
            }
            Self::Delete => {
                let one = cell(world, b"c", "one", CellKind::DeleteFamily);
                let three = cell(world, b"c", "three", CellKind::DeleteColumn);
                let region = region_of(world, b"c");
                world.write(region, vec![one, three]);
            }
            Self::Alter => {
                let versions = 1 + u32::try_from(world.stamp % 3).unwrap();
                world.alter("three", Some(FamilyRules { versions, ..rules_of("three") }));
            }
            Self::Flush => flush_all(world).await?,
            Self::Split => {
                let boundaries = [b"m", b"f", b"t"];
                let found = boundaries.iter().find_map(|at| {
                    let region = region_of(world, *at);
                    world.live[&region].range().split(*at).is_ok().then_some((region, at))
                });
                if let Some((region, at)) = found {
                    world.try_split(region, *at).await?;
                }
            }
            Self::Merge => {
                let first = region_of(world, b"a");
                if let Some((left, right)) = neighbours(world, first) {
                    world.try_merge(left, right).await?;
                }
            }
            Self::Compact => compact_all(world).await?,
            Self::Drop => {
                let region = *world.live.keys().next_back().unwrap();
                world.try_drop_region(region).await?;
                fill_gaps(world);
            }
            Self::RecordGroup => world.try_record_group().await?,
            Self::Reopen => {
                world.try_reopen().await?;
                fill_gaps(world);
            }
        }
        Ok(())
    }
}

pub async fn run_all(world: &mut World, workload: &[Op]) {
    for op in workload {
        op.run(world).await.unwrap();
    }
}

async fn flush_all(world: &mut World) -> Result<(), Error> {
    for region in regions_of(world) {
        world.freeze(region);
        world.try_flush(region).await?;
    }
    Ok(())
}

async fn compact_all(world: &mut World) -> Result<(), Error> {
    for region in regions_of(world) {
        world.try_compact_all(region).await?;
    }
    Ok(())
}

fn regions_of(world: &World) -> Vec<u64> {
    world.live.keys().copied().collect()
}

fn region_of(world: &World, row: &[u8]) -> u64 {
    let mut regions = world.live.iter();
    *regions.find(|(_, region)| region.range().contains(row)).expect("there are no gaps between regions").0
}

fn cell(world: &World, row: &[u8], family: &str, kind: CellKind) -> ModelCell {
    let timestamp = i64::try_from(world.stamp).unwrap();
    let value = if kind == CellKind::Put { format!("{family} at {timestamp}").into_bytes() } else { Vec::new() };
    let qualifier = if kind.is_family_tombstone() { Vec::new() } else { b"q".to_vec() };
    let family = family.to_owned();
    ModelCell { row: row.to_vec(), family, qualifier, timestamp, kind, value, ttl_ms: None, sequence: 0, position: 0 }
}

/// What a workload begins from.
pub struct Start {
    backend: BackendKind,
    known: Known,
    disk: MemoryDisk,
}

impl Start {
    /// An empty directory.
    pub async fn empty(backend: BackendKind) -> Self {
        let disk = MemoryDisk::new();
        let world = World::empty(Home::in_memory(&disk).await, backend, SETTINGS);
        Self { backend, known: world.known, disk }
    }

    /// A region with two flushes and a write that is not flushed; everything requested of the disk is durable.
    pub async fn filled(backend: BackendKind) -> Self {
        let disk = MemoryDisk::new();
        let mut world = World::empty(Home::in_memory(&disk).await, backend, SETTINGS);
        run_all(&mut world, &[Op::Reopen, Op::Write, Op::Flush, Op::Write, Op::Flush, Op::Write]).await;
        Self { backend, known: world.known.clone(), disk }
    }

    /// A world in this state, on a disk of its own. It is not open yet.
    pub fn world(&self) -> World {
        self.world_on(&self.known, self.disk.crash(Tear::Kept))
    }

    pub fn world_on(&self, known: &Known, disk: MemoryDisk) -> World {
        World::of(known.clone(), Home::Memory(disk, PathBuf::from("/data")), self.backend, SETTINGS)
    }
}

const SETTINGS: Settings =
    Settings { varied_storage: true, sizes: Some((1 << 14, 1 << 10)), cramped: false, history: 0 };

/// All workloads of this length, by last operation: the disk operations of a workload are those of its beginning, which
/// is a workload itself, and those of its last operation.
pub fn workloads(length: usize, last: &[Op]) -> Vec<Vec<Op>> {
    let mut all: Vec<Vec<Op>> = vec![Vec::new()];
    for at in 0..length {
        let next = if at + 1 == length { last } else { &Op::ALL };
        all = all.iter().flat_map(|begun| next.iter().map(|op| [begun.as_slice(), &[*op]].concat())).collect();
    }
    all
}

/// The disk operations of a world's last step.
pub struct Stretch {
    pub first: u64,
    lines: Vec<String>,
}

impl Stretch {
    /// Runs a step that does not fail, and records its disk operations.
    pub async fn of(world: &mut World, last: Op) -> Self {
        let first = world.dir.memory().operations();
        last.run(world).await.unwrap();
        Self::since(first, world)
    }

    /// The same for a step that is not one of these operations.
    pub async fn of_entry(world: &World, step: impl AsyncFnOnce()) -> Self {
        let first = world.dir.memory().operations();
        step().await;
        Self::since(first, world)
    }

    fn since(first: u64, world: &World) -> Self {
        let trace = world.dir.memory().trace();
        Self { first, lines: trace[usize::try_from(first).unwrap()..].to_vec() }
    }

    /// The numbers of the operations, with their verbs.
    fn operations(&self) -> impl Iterator<Item = (u64, &str)> {
        (self.first..).zip(self.lines.iter().map(|line| line.split(' ').nth(1).unwrap_or_default()))
    }

    /// Where a crash may leave something different from a crash one operation later.
    pub fn changes(&self) -> Vec<u64> {
        self.operations().filter(|(_, verb)| changes(verb)).map(|(number, _)| number).collect()
    }

    /// Every operation, with every way in which it can fail.
    pub fn faults(&self) -> Vec<(u64, Fault)> {
        let mut faults = Vec::new();
        for (number, verb) in self.operations() {
            faults.push((number, Fault::Error));
            if verb == "write" {
                faults.push((number, Fault::ShortWrite));
            }
            if changes(verb) {
                faults.push((number, Fault::NoSpace));
            }
        }
        faults
    }
}

fn changes(verb: &str) -> bool {
    !["read", "len", "open", "exists", "list", "file_len", "free_space"].contains(&verb)
}

/// Everything that a crash left, and what was acknowledged before: of two equal states only one must be checked.
pub async fn state_of(world: &World) -> String {
    let disk = Disk::from(world.dir.memory());
    let mut state = world.known.promises();
    let mut directories = vec![world.dir.path().to_owned()];
    while let Some(directory) = directories.pop() {
        for name in disk.list(&directory).await.unwrap() {
            let path = directory.join(name);
            match disk.read(&path).await {
                Ok(bytes) => write!(state, "{} {bytes:?}", path.display()).unwrap(),
                Err(_directory) => directories.push(path),
            }
        }
    }
    state
}

/// Opens what a crash left and compares it with the model; then once more after everything was rewritten.
pub async fn verify(world: &mut World) {
    Op::Reopen.run(world).await.unwrap();
    world.check_all();
    verify_open(world).await;
}

pub async fn verify_open(world: &mut World) {
    flush_all(world).await.unwrap();
    world.check_all();
    compact_all(world).await.unwrap();
    world.check_all();
    // What was only waiting for a reader goes with the next clean-up.
    world.try_drop_nothing().await.unwrap();
    let files = files_of(world).await;
    Op::Reopen.run(world).await.unwrap();
    world.check_all();
    assert_eq!(files, files_of(world).await, "nothing waits for a start to be removed");
}

/// The names of the files of cells.
pub async fn files_of(world: &World) -> Vec<String> {
    let directory = if world.backend == BackendKind::Lsm { "tables" } else { "cells" };
    Disk::from(world.dir.memory()).list(&world.dir.path().join(directory)).await.unwrap()
}

/// Reports what was going on when a test unwinds.
pub struct Scene<'a> {
    pub text: String,
    pub disk: &'a MemoryDisk,
}

impl Drop for Scene<'_> {
    fn drop(&mut self) {
        if std::thread::panicking() {
            eprintln!("{}", self.text);
            let trace = self.disk.trace();
            trace[trace.len().saturating_sub(TRACE_LINES)..].iter().for_each(|line| eprintln!("    {line}"));
        }
    }
}

const TRACE_LINES: usize = 60;
