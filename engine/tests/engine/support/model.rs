//! The model: all cells ever applied to a region, and a reader that replays them in write order for every query.

use std::collections::{BTreeMap, BTreeSet};

use terrane_types::{CellKind, FamilyRules, KeepDeleted, KeyRange, Projection};

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ModelCell {
    pub row: Vec<u8>,
    pub family: String,
    pub qualifier: Vec<u8>,
    pub timestamp: i64,
    pub kind: CellKind,
    pub value: Vec<u8>,
    /// Of a put: how long it lives.
    pub ttl_ms: Option<u64>,
    pub sequence: u64,
    pub position: usize,
}

#[derive(Clone, Copy, Debug)]
pub struct Change {
    pub sequence: u64,
    pub stamp: i64,
    pub rules: FamilyRules,
}

/// What a reader sees of a cell: family, qualifier, timestamp, value.
pub type Seen = (String, Vec<u8>, i64, Vec<u8>);

/// The changes of rules of each family.
pub type Histories = BTreeMap<String, Vec<Change>>;

#[derive(Clone, Debug, Default)]
pub struct RegionModel {
    pub cells: Vec<ModelCell>,
    pub families: Histories,
    /// What the families are from a row on, by row, where regions were merged.
    pub beyond: Vec<(Vec<u8>, Histories)>,
}

#[derive(Clone)]
struct Live<'a> {
    cell: &'a ModelCell,
    protected: bool,
}

impl ModelCell {
    fn expires(&self) -> i64 {
        self.ttl_ms.map_or(i64::MAX, |ttl| self.timestamp + i64::try_from(ttl).unwrap())
    }

    fn place(&self) -> (i64, u64, usize) {
        (self.timestamp, self.sequence, self.position)
    }

    /// Whether it hides another put of its column for as long as that lives.
    fn covers(&self, lower: &Self) -> bool {
        self.place() > lower.place() && self.expires() >= lower.expires()
    }
}

/// The timestamps above a cell that have one that covers it.
fn covering(live: &[Live<'_>], lower: &ModelCell) -> usize {
    let above = live.iter().filter(|upper| upper.cell.covers(lower) && upper.cell.timestamp > lower.timestamp);
    above.map(|upper| upper.cell.timestamp).collect::<BTreeSet<_>>().len()
}

impl RegionModel {
    pub fn set_rules(&mut self, family: &str, change: Change) {
        for families in std::iter::once(&mut self.families).chain(self.beyond.iter_mut().map(|(_, of)| of)) {
            match families.get_mut(family) {
                Some(changes) => {
                    let last = changes[changes.len() - 1];
                    if last.rules == change.rules {
                        continue;
                    }
                    // Rules under which nothing was written never held.
                    if last.sequence == change.sequence {
                        changes.pop();
                    }
                    changes.push(change);
                }
                None => {
                    families.insert(family.to_owned(), vec![Change { sequence: 0, ..change }]);
                }
            }
        }
    }

    /// This region and its neighbour from `row` on as one.
    pub fn joined(&self, row: &[u8], neighbour: &Self) -> Self {
        let mut joined = self.clone();
        joined.cells.extend(neighbour.cells.iter().cloned());
        joined.beyond.push((row.to_vec(), neighbour.families.clone()));
        joined.beyond.extend(neighbour.beyond.iter().cloned());
        joined
    }

    /// The families and their present rules.
    pub fn schema(&self) -> Vec<(&String, FamilyRules)> {
        self.families.iter().map(|(name, changes)| (name, changes[changes.len() - 1].rules)).collect()
    }

    fn families_of(&self, row: &[u8]) -> &Histories {
        let beyond = self.beyond.iter().rev().find(|(from, _)| from.as_slice() <= row);
        beyond.map_or(&self.families, |(_, families)| families)
    }

    pub fn remove_family(&mut self, family: &str) {
        self.families.remove(family);
        self.beyond.iter_mut().for_each(|(_, families)| drop(families.remove(family)));
        self.cells.retain(|cell| cell.family != family);
    }

    pub fn part(&self, range: &KeyRange) -> Self {
        let cells = self.cells.iter().filter(|cell| range.contains(&cell.row)).cloned().collect();
        let inside = |row: &[u8]| range.contains(row) && *row != range.start[..];
        let beyond = self.beyond.iter().filter(|(row, _)| inside(row)).cloned().collect();
        Self { cells, families: self.families_of(&range.start).clone(), beyond }
    }

    pub fn rows(&self, range: &KeyRange) -> BTreeSet<Vec<u8>> {
        self.cells.iter().map(|cell| cell.row.clone()).filter(|row| range.contains(row)).collect()
    }

    pub fn read(&self, row: &[u8], projection: &Projection, sequence: u64, now: i64) -> Vec<Seen> {
        let mut seen = Vec::new();
        for (family, changes) in self.families_of(row) {
            let of_family: Vec<&ModelCell> = self
                .cells
                .iter()
                .filter(|cell| cell.row == row && cell.family == *family && cell.sequence <= sequence)
                .collect();
            let qualifiers: BTreeSet<&Vec<u8>> = of_family.iter().map(|cell| &cell.qualifier).collect();
            for qualifier in qualifiers.into_iter().filter(|name| projection.selects(family.as_bytes(), name)) {
                let (time_min, time_max) = projection.times(family.as_bytes());
                let projection = Projection { time_min, time_max, ..projection.clone() };
                seen.extend(read_column(&of_family, changes, qualifier, &projection, sequence, now));
            }
        }
        let (offset, limit) = projection.cell_window();
        let shown = seen.into_iter().skip(offset).take(limit);
        let value = |value: Vec<u8>| if projection.keys_only { Vec::new() } else { value };
        shown.map(|(family, qualifier, time, of)| (family, qualifier, time, value(of))).collect()
    }
}

fn read_column(
    of_family: &[&ModelCell],
    changes: &[Change],
    qualifier: &[u8],
    projection: &Projection,
    sequence: u64,
    now: i64,
) -> Vec<Seen> {
    let changes: Vec<&Change> = changes.iter().filter(|change| change.sequence <= sequence).collect();
    let happened = |cell: &ModelCell| {
        let last = changes[changes.len() - 1];
        let earlier = changes.iter().rev().skip(1).filter(|change| change.sequence <= sequence);
        let held = earlier.take_while(|change| change.rules.keep_deleted_cells == KeepDeleted::Yes);
        let since = held.last().map_or(last.sequence, |change| change.sequence);
        let is_kept = match last.rules.keep_deleted_cells {
            KeepDeleted::No => false,
            KeepDeleted::Yes => true,
            KeepDeleted::Ttl => !expired(&last.rules, cell.timestamp, now),
        };
        let kept = is_kept && cell.sequence >= since;
        !(cell.kind != CellKind::Put && kept && projection.time_max <= cell.timestamp)
    };
    let mut events: Vec<&ModelCell> = of_family
        .iter()
        .copied()
        .filter(|cell| cell.qualifier == qualifier || cell.kind.is_family_tombstone())
        .filter(|cell| happened(cell))
        .collect();
    events.sort_by_key(|cell| (cell.sequence, cell.position));

    let mut live: Vec<Live<'_>> = Vec::new();
    let mut rules = changes[0].rules;
    let mut waiting = changes[1..].iter().peekable();
    for event in events {
        while let Some(change) = waiting.next_if(|change| change.sequence <= event.sequence) {
            change_rules(&mut live, &rules, change);
            rules = change.rules;
        }
        apply(&mut live, event, &rules);
    }
    for change in waiting {
        change_rules(&mut live, &rules, change);
        rules = change.rules;
    }
    live.retain(|live| live.cell.expires() >= now);
    live.sort_by_key(|live| std::cmp::Reverse(live.cell.place()));
    live.dedup_by_key(|live| live.cell.timestamp);
    live.truncate(rules.versions as usize);
    let protected = live.iter_mut().filter(|live| live.protected);
    protected.skip(rules.min_versions as usize).for_each(|live| live.protected = false);
    live.iter()
        .filter(|live| live.protected || !expired(&rules, live.cell.timestamp, now))
        .filter(|live| (projection.time_min..projection.time_max).contains(&live.cell.timestamp))
        .take(projection.versions as usize)
        .map(|live| {
            let cell = live.cell;
            (cell.family.clone(), cell.qualifier.clone(), cell.timestamp, cell.value.clone())
        })
        .collect()
}

fn expired(rules: &FamilyRules, timestamp: i64, now: i64) -> bool {
    rules.ttl_ms.is_some_and(|ttl| now - timestamp > i64::try_from(ttl).unwrap())
}

fn apply<'a>(live: &mut Vec<Live<'a>>, event: &'a ModelCell, rules: &FamilyRules) {
    match event.kind {
        CellKind::Put => {
            live.retain(|live| live.cell.timestamp != event.timestamp || !event.covers(live.cell));
            live.push(Live { cell: event, protected: true });
            protect(live, rules);
            push_out(live, rules);
        }
        CellKind::Delete | CellKind::DeleteFamilyVersion => {
            live.retain(|live| live.cell.timestamp != event.timestamp);
        }
        CellKind::DeleteColumn | CellKind::DeleteFamily => live.retain(|live| live.cell.timestamp > event.timestamp),
    }
}

fn change_rules(live: &mut Vec<Live<'_>>, old: &FamilyRules, change: &Change) {
    live.retain(|live| live.protected || !expired(old, live.cell.timestamp, change.stamp));
    push_out(live, &change.rules);
    live.iter_mut().for_each(|live| live.protected = true);
    protect(live, &change.rules);
}

fn push_out(live: &mut Vec<Live<'_>>, rules: &FamilyRules) {
    let all = live.clone();
    live.retain(|live| covering(&all, live.cell) < rules.versions as usize);
}

fn protect(live: &mut [Live<'_>], rules: &FamilyRules) {
    let all: Vec<Live<'_>> = live.iter().filter(|live| live.protected).cloned().collect();
    for live in live {
        live.protected &= covering(&all, live.cell) < rules.min_versions as usize;
    }
}
