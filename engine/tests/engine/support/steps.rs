//! Random steps on an engine and its model, and random reads compared.
//!
//! An error is the disk's, for the caller to judge; reading anything that the model does not predict is a panic.

use terrane_engine::{Error, Patience};
use terrane_types::{CellKind, FamilyRules, KeepDeleted, KeyRange, PackedCells, Projection};

use super::dice::Dice;
use super::model::ModelCell;
use super::scanning::{Scan, seen_of};
use super::skipping::check_skipping;
use super::world::{Settings, World, name, range};

const ROWS: &[&[u8]] =
    &[b"\0", b"\0\0", b"a", b"a\0", b"a\x01", b"ab", b"b", b"m", b"m\xff", b"n", b"x", b"\xff", b"\xff\xff"];
const QUALIFIERS: &[&[u8]] = &[b"", b"\0", b"q", b"q\0", b"r"];
pub const FAMILIES: &[&str] = &["one", "three", "brief", "kept"];

pub fn rules_of(family: &str) -> FamilyRules {
    let plain = FamilyRules::default();
    match family {
        "three" => FamilyRules { versions: 3, ..plain },
        "brief" => FamilyRules { versions: 4, min_versions: 1, ttl_ms: Some(25), ..plain },
        "kept" => FamilyRules { versions: 2, keep_deleted_cells: KeepDeleted::Yes, ..plain },
        _ => FamilyRules { versions: 1, ..plain },
    }
}

fn any_rules(dice: &mut Dice) -> FamilyRules {
    let versions = 1 + u32::try_from(dice.below(4)).unwrap();
    FamilyRules {
        versions,
        min_versions: u32::try_from(dice.below(3)).unwrap().min(versions),
        ttl_ms: dice.one_in(2).then(|| 5 + dice.next() % 60),
        keep_deleted_cells: dice.pick(&[
            KeepDeleted::No,
            KeepDeleted::No,
            KeepDeleted::No,
            KeepDeleted::Yes,
            KeepDeleted::Ttl,
        ]),
    }
}

fn any_cell(dice: &mut Dice, row: &[u8], stamp: u64) -> ModelCell {
    let kinds = [
        CellKind::Put,
        CellKind::Put,
        CellKind::Put,
        CellKind::Put,
        CellKind::Put,
        CellKind::Delete,
        CellKind::DeleteColumn,
        CellKind::DeleteFamily,
        CellKind::DeleteFamilyVersion,
    ];
    let kind = dice.pick(&kinds);
    let qualifier = if kind.is_family_tombstone() { &b""[..] } else { dice.pick(QUALIFIERS) };
    // Few timestamps, so that cells collide; occasionally one from the future.
    let age = i64::try_from(dice.below(12)).unwrap() - 2;
    // Occasionally a value that fills a block.
    let length = if dice.one_in(12) { 400 + dice.below(1200) } else { dice.below(40) };
    let value = if kind == CellKind::Put { vec![b'v'; length] } else { Vec::new() };
    let value = if kind == CellKind::Put { [value, dice.next().to_be_bytes().to_vec()].concat() } else { value };
    ModelCell {
        row: row.to_vec(),
        family: (dice.pick(FAMILIES)).to_owned(),
        qualifier: qualifier.to_vec(),
        timestamp: i64::try_from(stamp).unwrap() - age,
        kind,
        value,
        ttl_ms: (kind == CellKind::Put && dice.one_in(5)).then(|| dice.next() % 40),
        sequence: 0,
        position: 0,
    }
}

fn any_projection(dice: &mut Dice, stamp: u64) -> Projection {
    let mut projection = Projection::all().with_versions(1 + u32::try_from(dice.below(4)).unwrap());
    if dice.one_in(3) {
        projection = projection.with_family(name(dice.pick(FAMILIES)));
    }
    if dice.one_in(3) {
        projection = projection.with_column(name(dice.pick(FAMILIES)), dice.pick(QUALIFIERS).to_vec());
    }
    if dice.one_in(3) {
        let middle = i64::try_from(stamp).unwrap() - i64::try_from(dice.below(20)).unwrap();
        projection = if dice.one_in(2) {
            projection.with_times(0, middle)
        } else {
            projection.with_times(middle, middle + i64::try_from(dice.below(10)).unwrap())
        };
    }
    if dice.one_in(4) {
        let middle = i64::try_from(stamp).unwrap() - i64::try_from(dice.below(20)).unwrap();
        projection = projection.with_family_times(name(dice.pick(FAMILIES)), middle, middle + 6);
    }
    any_part(dice, projection)
}

/// Occasionally ranges of columns, some of the cells, or cells without values.
fn any_part(dice: &mut Dice, mut projection: Projection) -> Projection {
    if dice.one_in(6) {
        let (a, b) = (dice.pick(QUALIFIERS), dice.pick(QUALIFIERS));
        projection = projection.with_qualifier_range(name(dice.pick(FAMILIES)), a.min(b).to_vec(), a.max(b).to_vec());
    }
    if dice.one_in(6) {
        projection =
            projection.with_cells(u32::try_from(dice.below(3)).unwrap(), u32::try_from(dice.below(4)).unwrap());
    }
    if dice.one_in(8) {
        projection = projection.with_keys_only();
    }
    if dice.one_in(8) {
        projection = projection.with_first_cell_only();
    }
    projection
}

fn any_region(dice: &mut Dice, world: &World) -> u64 {
    dice.pick(&world.live.keys().copied().collect::<Vec<_>>())
}

/// A row within the region, if it has any: no row is empty, so a region up to the first one has none.
fn any_row_of(dice: &mut Dice, world: &World, region: u64) -> Option<Vec<u8>> {
    let range = world.live[&region].range();
    let inside: Vec<_> = ROWS.iter().filter(|row| range.contains(row)).collect();
    let row = if inside.is_empty() { range.start.to_vec() } else { dice.pick(&inside).to_vec() };
    (!row.is_empty()).then_some(row)
}

/// The settings of engines, in all combinations.
pub fn any_settings(dice: &mut Dice) -> Settings {
    Settings {
        varied_storage: dice.one_in(2),
        sizes: dice.one_in(2).then_some((1 << 14, 1 << 10)),
        cramped: dice.one_in(3),
        history: if dice.one_in(3) { 1 + dice.next() % 80 } else { 0 },
    }
}

pub async fn step(dice: &mut Dice, world: &mut World) -> Result<(), Error> {
    let kind = dice.below(STEPS);
    step_of(kind, dice, world).await
}

/// A compaction and another step at the same time. Threads decide the order, so a seed determines less here.
pub async fn two_at_once(dice: &mut Dice, world: &mut World) -> Result<(), Error> {
    let engine = world.engine().clone();
    let region = any_region(dice, world);
    if dice.one_in(3) {
        engine.request_compaction(&world.live[&region]);
    }
    let Some(compaction) = engine.next_compaction() else { return step(dice, world).await };
    let kind = loop {
        let kind = dice.below(STEPS);
        // Not beside a second engine on the same directory.
        if !REOPENS.contains(&kind) {
            break kind;
        }
    };
    let beside = async {
        for _ in 0..dice.below(40) {
            tokio::task::yield_now().await;
        }
        step_of(kind, dice, world).await?;
        check(dice, world)
    };
    let (compacted, stepped) = tokio::join!(engine.compact(compaction), beside);
    compacted.and(stepped)
}

const STEPS: usize = 49;
const REOPENS: std::ops::Range<usize> = 31..33;

async fn step_of(kind: usize, dice: &mut Dice, world: &mut World) -> Result<(), Error> {
    let region = any_region(dice, world);
    match kind {
        0..18 => {
            let Some(row) = any_row_of(dice, world, region) else { return Ok(()) };
            let cells = (0..=dice.below(4)).map(|_| any_cell(dice, &row, world.stamp)).collect();
            world.write(region, cells);
        }
        18..20 => {
            let family = dice.pick(FAMILIES);
            world.alter(family, Some(any_rules(dice)));
        }
        20 => {
            let family = dice.pick(FAMILIES);
            world.alter(family, None);
            if dice.one_in(2) {
                world.alter(family, Some(rules_of(family)));
            }
        }
        21..25 => {
            world.freeze(region);
            world.try_flush(region).await?;
        }
        25..27 => world.freeze(region),
        27 if dice.one_in(2) => world.try_record_empty().await?,
        27 => world.try_flush(region).await?,
        28..30 => split(dice, world, region).await?,
        30 => world.try_finish_split(region).await?,
        31..33 => world.try_reopen().await?,
        33..36 => {
            let (oldest, newest) = world.live[&region].readable();
            if dice.one_in(2) {
                world.hold(region);
            } else {
                world.hold_at(region, oldest + dice.next() % (newest - oldest + 1));
            }
        }
        36..38 => {
            if !world.held.is_empty() {
                let at = dice.below(world.held.len());
                world.held.swap_remove(at);
            }
        }
        38 => world.stamp += dice.next() % 10,
        39 => {
            if dice.one_in(4) {
                world.try_drop_region(region).await?;
                fill_gaps(world);
            }
        }
        40 => world.try_record_group().await?,
        41..44 => {
            world.try_compact_one().await?;
        }
        44..46 => world.try_compact_all(region).await?,
        _ => {
            if let Some((left, right)) = neighbours(world, region) {
                world.try_merge(left, right).await?;
            }
        }
    }
    Ok(())
}

/// Creates a region for every range without one: at the beginning, and after a drop.
pub fn fill_gaps(world: &mut World) {
    let mut covered: Vec<KeyRange> = world.live.values().map(|region| region.range().clone()).collect();
    covered.sort_by(|a, b| a.start.cmp(&b.start));
    let mut gaps = Vec::new();
    // Where the next region must begin; `None` after the last one.
    let mut next = Some(Vec::new());
    for region in covered {
        if let Some(start) = next.filter(|start| *start < region.start) {
            gaps.push(range(&start, &region.start));
        }
        next = (!region.end.is_empty()).then(|| region.end.to_vec());
    }
    gaps.extend(next.map(|start| range(&start, b"")));
    let families: Vec<_> = FAMILIES.iter().map(|family| (*family, rules_of(family))).collect();
    for gap in gaps {
        world.create(gap, &families);
    }
}

/// The region and the one after it, if they can be merged.
pub fn neighbours(world: &World, left: u64) -> Option<(u64, u64)> {
    let end = &world.live[&left].range().end;
    let next = world.live.iter().find(|(_, region)| !end.is_empty() && region.range().start == *end);
    let right = *next?.0;
    // Regions of one table have the same schema, but here one that was made after a drop begins with another.
    (world.models[&left].schema() == world.models[&right].schema()).then_some((left, right))
}

async fn split(dice: &mut Dice, world: &mut World, region: u64) -> Result<(), Error> {
    if world.live.len() >= 5 {
        return Ok(());
    }
    let parent = world.live[&region].clone();
    let at =
        if dice.one_in(2) { parent.split_point(&|row| Some(row.to_vec())) } else { any_row_of(dice, world, region) };
    if let Some(at) = at.filter(|at| parent.range().split(at).is_ok()) {
        world.try_split(region, &at).await?;
    }
    Ok(())
}

pub fn check(dice: &mut Dice, world: &World) -> Result<(), Error> {
    check_points(world);
    let region = any_region(dice, world);
    let handle = &world.live[&region];
    check_reads(dice, world, region, handle, &handle.snapshot())?;
    for (region, handle, snapshot) in &world.held {
        check_reads(dice, world, *region, handle, snapshot)?;
    }
    Ok(())
}

fn check_reads(
    dice: &mut Dice,
    world: &World,
    id: u64,
    region: &terrane_engine::Region,
    snapshot: &terrane_engine::Snapshot,
) -> Result<(), Error> {
    let model = &world.models[&id];
    let projection = any_projection(dice, world.stamp);
    let now = i64::try_from(world.stamp + dice.next() % 30).unwrap();
    let row = dice.pick(ROWS);
    if region.range().contains(row) {
        let mut out = Vec::new();
        region.get(snapshot, row, &projection, now, Patience::MayBlock, &mut out)?;
        let seen = seen_of(&PackedCells::validate(out.into()).unwrap());
        let expected = model.read(row, &projection, snapshot.sequence(), now);
        assert_eq!(seen, expected, "get {row:?} of region {id} at {} with {projection:?}", snapshot.sequence());
    }
    let range = match dice.below(4) {
        0 => {
            let (one, other) = (dice.pick(ROWS), dice.pick(ROWS));
            range(one.min(other), one.max(other))
        }
        1 => range(dice.pick(ROWS), b""),
        _ => KeyRange::all(),
    };
    let empty = !range.end.is_empty() && range.start == range.end;
    let scan = Scan { range, reverse: dice.one_in(2), projection, now };
    let bytes_max = if dice.one_in(2) { 1 + dice.below(80) } else { usize::MAX };
    let expected = if empty { Vec::new() } else { scan.expected(model, region, snapshot.sequence()) };
    assert_eq!(
        scan.try_run(region, snapshot, bytes_max)?,
        expected,
        "scan of region {id} at {}: {:?} reverse {} {:?} in parts of {bytes_max}",
        snapshot.sequence(),
        scan.range,
        scan.reverse,
        scan.projection
    );
    let mut own = Dice::new(snapshot.sequence() << 16 ^ id << 8 ^ world.stamp);
    if !empty {
        check_skipping(&mut own, &scan, region, snapshot, &expected)?;
    }
    Ok(())
}

fn check_points(world: &World) {
    for (id, region) in &world.live {
        if let Some(recorded) = world.recorded.get(id)
            && region.unflushed_from().is_none()
        {
            assert_eq!(region.point(), *recorded, "region {id}");
        }
        let last = world.models[id].cells.iter().map(|cell| cell.sequence).max().unwrap_or(0);
        assert!(region.sequence() >= last, "region {id} goes on counting where it was");
    }
}
