//! Skipping, examining, walking and seeking rows finds the same rows as a plain scan.

use terrane_engine::{Error, Patience, Region, RowScanner, ScanSpec, Snapshot, Step};
use terrane_types::Onward;

use super::dice::Dice;
use super::model::Seen;
use super::scanning::{Scan, SeenRows};

/// Checks a scan whose rows are `expected` in every other way of moving over them. `dice` belongs to this check alone,
/// so that the steps of a seed do not change.
pub fn check_skipping(
    dice: &mut Dice,
    scan: &Scan,
    region: &Region,
    snapshot: &Snapshot,
    expected: &SeenRows,
) -> Result<(), Error> {
    let begin = || {
        let spec = ScanSpec { fills_cache: snapshot.sequence().is_multiple_of(2), ..scan.spec() };
        region.scan(region.snapshot_at(snapshot.sequence()).unwrap(), spec)
    };
    let (mut left, mut scanner) = (u64::MAX, begin());
    while patient(|patience| scanner.pass(&mut left, patience))? != Step::End {}
    assert_eq!(u64::MAX - left, expected.len() as u64, "rows counted in {:?} reverse {}", scan.range, scan.reverse);
    assert_eq!(look_at_all(&mut begin())?, *expected, "rows looked at in {:?} reverse {}", scan.range, scan.reverse);

    for salt in [0, dice.next()] {
        let expected: SeenRows =
            expected.iter().map(|(row, cells)| (row.clone(), Judge::new(salt).judge(cells))).collect();
        assert_eq!(
            walk_all(&mut begin(), salt)?,
            expected,
            "rows walked with {salt} in {:?} reverse {}",
            scan.range,
            scan.reverse
        );
    }

    // Some are skipped, then the rest is read.
    let skipped = dice.below(expected.len() + 2);
    let (mut left, mut scanner) = (skipped as u64, begin());
    while patient(|patience| scanner.pass(&mut left, patience)).map(is_hidden)? {}
    if let Some(last) = skipped.checked_sub(1).and_then(|last| expected.get(last)) {
        assert_eq!(scanner.row(), last.0, "the last row passed");
    }
    assert_eq!(look_at_all(&mut scanner)?, expected[skipped.min(expected.len())..], "behind {skipped} rows");

    // After a row that exists or not, with and without rows read before.
    let mut scanner = begin();
    let mut from = 0;
    for _ in 0..3 {
        let Some((row, _)) = expected.get(from + dice.below(3)) else { break };
        let beyond = if dice.one_in(2) { row.clone() } else { [row.as_slice(), b"\0"].concat() };
        patient(|patience| scanner.seek_beyond(&beyond, patience))?;
        let is_behind = |row: &[u8]| if scan.reverse { row < beyond.as_slice() } else { row >= beyond.as_slice() };
        from = expected.iter().position(|(row, _)| is_behind(row)).unwrap_or(expected.len()).max(from);
        let mut seen = Vec::new();
        while patient(|patience| scanner.look(patience, |row, _| seen = row.to_vec())).map(is_hidden)? {}
        assert_eq!(Some(&seen), expected.get(from).map(|(row, _)| row).or(Some(&Vec::new())), "behind {beyond:?}");
        from += 1;
    }
    Ok(())
}

/// As a server does it: what is not in memory is read in a second attempt.
fn patient<T>(mut step: impl FnMut(Patience) -> Result<T, Error>) -> Result<T, Error> {
    match step(Patience::MemoryOnly) {
        Err(Error::NeedsDisk) => step(Patience::MayBlock),
        done => done,
    }
}

fn look_at_all(scanner: &mut RowScanner) -> Result<SeenRows, Error> {
    let mut rows = SeenRows::new();
    loop {
        let (mut row, mut cells) = (Vec::new(), Vec::new());
        let step = patient(|patience| {
            cells.clear();
            scanner.look(patience, |of, cell| {
                row = of.to_vec();
                let family = String::from_utf8(cell.family.to_vec()).unwrap();
                cells.push((family, cell.qualifier.to_vec(), cell.timestamp, cell.value.to_vec()));
            })
        })?;
        match step {
            Step::Row => {
                assert_eq!(scanner.row(), row);
                rows.push((row, cells));
            }
            Step::Hidden | Step::HiddenPart => {}
            Step::Part { .. } => unreachable!("rows that are looked at are whole"),
            Step::End => return Ok(rows),
        }
    }
}

fn is_hidden(step: Step) -> bool {
    matches!(step, Step::Hidden | Step::HiddenPart)
}

/// Says where to continue after each cell, by a hash of the cell, and takes the cells that it did not ask to pass over. Salt 0 takes
/// everything.
struct Judge {
    salt: u64,
    last: Option<(Seen, Onward)>,
    taken: Vec<Seen>,
}

impl Judge {
    fn new(salt: u64) -> Self {
        Self { salt, last: None, taken: Vec::new() }
    }

    fn cell(&mut self, cell: Seen) -> Onward {
        if let Some((last, onward)) = &self.last {
            let is_passed = match onward {
                Onward::Cell => false,
                Onward::Column => (&last.0, &last.1) == (&cell.0, &cell.1),
                Onward::From(qualifier) => last.0 == cell.0 && cell.1 < *qualifier,
                Onward::Family => last.0 == cell.0,
                Onward::Row => true,
            };
            if is_passed {
                return onward.clone();
            }
        }
        let hash = cell.1.iter().fold(self.salt ^ cell.2 as u64, |hash, byte| hash.wrapping_mul(31) ^ u64::from(*byte));
        let onward = match Dice::new(hash).below(10) {
            _ if self.salt == 0 => Onward::Cell,
            0..=4 => Onward::Cell,
            5 => Onward::Column,
            6 => Onward::From([&cell.1[..], b"0"].concat().into()),
            7 => Onward::From(b"q\0".to_vec().into()),
            8 => Onward::Family,
            _ => Onward::Row,
        };
        self.taken.push(cell.clone());
        self.last = Some((cell, onward.clone()));
        onward
    }

    fn judge(mut self, cells: &[Seen]) -> Vec<Seen> {
        cells.iter().for_each(|cell| drop(self.cell(cell.clone())));
        self.taken
    }
}

fn walk_all(scanner: &mut RowScanner, salt: u64) -> Result<SeenRows, Error> {
    let mut rows = SeenRows::new();
    let (mut row, mut judge) = (Vec::new(), Judge::new(salt));
    loop {
        let step = patient(|patience| {
            scanner.walk(patience, |of, cell| {
                row = of.to_vec();
                let family = String::from_utf8(cell.family.to_vec()).unwrap();
                judge.cell((family, cell.qualifier.to_vec(), cell.timestamp, cell.value.to_vec()))
            })
        })?;
        match step {
            Step::Row => {
                let taken = std::mem::replace(&mut judge, Judge::new(salt)).taken;
                if !taken.is_empty() {
                    assert_eq!(scanner.row(), row);
                    rows.push((row.clone(), taken));
                }
            }
            Step::Hidden | Step::HiddenPart => {}
            Step::Part { .. } => unreachable!("rows are not packed"),
            Step::End => return Ok(rows),
        }
    }
}
