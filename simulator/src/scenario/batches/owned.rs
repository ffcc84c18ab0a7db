//! Rows with several versions of their cells and one writer each. Reads of some versions and times are compared with a model
//! ([`versions`](terrane_oracle::versions)).

use terrane_client::{Delete, Error, Get, KeyRange, Put, RowData, RowMutation, Scan, Table};
use terrane_oracle::Fate;
use terrane_oracle::versions::{self, Change, Selected, Shown};

use super::Shared;
use crate::scenario::places::Row;
use crate::scenario::play::{below, passes};
use crate::trace::{self, chain};

/// Places of rows; each belongs to one writer.
pub const PLACES: usize = 8;
/// Versions that the family keeps.
pub const VERSIONS: usize = 3;
/// The numbers that the rows' keys start with are above those of groups.
const FIRST: usize = 1_000_000;
const ROWS_PER_PLACE: usize = 10_000;

const FAMILY: &str = "v";
const QUALIFIERS: [&str; 3] = ["x", "y", "z"];
/// Timestamps lie below.
const TIMES: usize = 12;
/// Most changes of one mutation.
const CHANGES_MAX: usize = 4;

/// The key of a row.
pub fn key(place: usize, earlier: usize) -> Vec<u8> {
    let number = u32::try_from(FIRST + place * ROWS_PER_PLACE + earlier).expect("few rows");
    [&number.to_be_bytes()[..], b"versions"].concat()
}

/// Writes the rows at some places, one mutation after another.
pub struct Writer {
    pub reader: Reader,
    pub places: Vec<usize>,
    pub pause_ms: u64,
}

impl Writer {
    /// Writes until the faults are over.
    pub async fn run(self) -> Result<(), Error> {
        let act = async || {
            let row = self.reader.row_at(self.places[below(self.places.len())]);
            self.write(row).await?;
            if below(2) == 0 { self.reader.read(row).await } else { Ok(()) }
        };
        self.reader.shared.until_over(self.pause_ms, act).await
    }

    async fn write(&self, row: Row) -> Result<(), Error> {
        let Reader { who, table, shared, .. } = &self.reader;
        let changes = some_changes();
        let key = shared.book.borrow().owned.key(row).to_vec();
        shared.book.borrow_mut().row(row).call(&changes);
        trace::note(format_args!("{who} writes {}: {changes:?}", key.escape_ascii()));
        let outcome = table.mutate(mutation(&key, &changes)).await;
        let mut book = shared.book.borrow_mut();
        book.owned.count(row, outcome.as_ref().is_err_and(Error::is_uncertain));
        let fate = match outcome {
            Ok(_) => {
                shared.context.state.acknowledge();
                Fate::Applied
            }
            Err(error) if passes(&error) => {
                trace::note(format_args!("{who} did not write {}: {}", key.escape_ascii(), chain(&error)));
                if error.is_uncertain() { Fate::Unknown } else { Fate::Refused }
            }
            Err(error) => return Err(error),
        };
        if let Err(what) = book.row(row).end(fate) {
            shared.fail(who, &key, &what);
        }
        Ok(())
    }
}

/// Reads rows and has every result checked.
#[derive(Clone)]
pub struct Reader {
    pub who: String,
    pub table: Table,
    pub shared: Shared,
    pub pause_ms: u64,
}

impl Reader {
    /// Reads until the faults are over.
    pub async fn run(self) -> Result<(), Error> {
        self.shared.until_over(self.pause_ms, async || self.read(self.row_at(below(PLACES))).await).await
    }

    fn row_at(&self, place: usize) -> Row {
        self.shared.book.borrow().owned.row_at(place)
    }

    /// Reads some versions of a row, by a get or a scan.
    pub async fn read(&self, row: Row) -> Result<(), Error> {
        let min = below(TIMES / 2);
        let max = if below(2) == 0 { i64::MAX } else { time(min + 1 + below(TIMES)) };
        let selected = Selected { versions: 1 + below(VERSIONS + 1), min: time(min), max };
        match self.read_selected(row, selected).await {
            Err(error) if !passes(&error) => Err(error),
            Ok(()) | Err(_) => Ok(()),
        }
    }

    /// Reads what is selected of a row.
    pub async fn read_selected(&self, row: Row, selected: Selected) -> Result<(), Error> {
        let reading = self.shared.book.borrow_mut().row(row).begin_read();
        let key = self.shared.book.borrow().owned.key(row).to_vec();
        let versions = u32::try_from(selected.versions).expect("few versions");
        let found = if below(4) == 0 {
            let scan = Scan::range(KeyRange::prefix(&key)).family(FAMILY).versions(versions);
            self.table.scan(scan.time_range(selected.min, selected.max)).await?.next().await.transpose()?
        } else {
            let get = Get::new(&key).family(FAMILY).versions(versions);
            self.table.get(get.time_range(selected.min, selected.max)).await?
        };
        let shown = found.as_ref().map(shown).unwrap_or_default();
        trace::note(format_args!("{} read {} {selected:?}: {shown:?}", self.who, key.escape_ascii()));
        self.shared.judge(&self.who, &key, self.shared.book.borrow_mut().row(row).end_read(reading, selected, &shown));
        Ok(())
    }

    /// Reads everything of a row.
    pub async fn read_all(&self, row: Row) -> Result<(), Error> {
        self.read_selected(row, Selected { versions: VERSIONS, min: 0, max: i64::MAX }).await
    }
}

/// A row that was not written yet.
pub fn new_row() -> versions::Row {
    versions::Row::new(VERSIONS)
}

fn shown(row: &RowData) -> Vec<Shown> {
    let column = |qualifier: &[u8]| QUALIFIERS.iter().position(|known| known.as_bytes() == qualifier);
    row.cells()
        .map(|cell| {
            let column = column(cell.qualifier).and_then(|column| u8::try_from(column).ok());
            (column.unwrap_or(u8::MAX), cell.timestamp, cell.value.to_vec())
        })
        .collect()
}

fn time(number: usize) -> i64 {
    i64::try_from(number).expect("small")
}

fn some_changes() -> Vec<Change> {
    let some_change = || {
        let column = u8::try_from(below(QUALIFIERS.len())).expect("few columns");
        let timestamp = time(1 + below(TIMES));
        match below(20) {
            0 => Change::DeleteVersion { column, timestamp },
            1 => Change::DeleteColumnUntil { column, timestamp },
            2 => Change::DeleteColumnUntil { column, timestamp: i64::MAX },
            3 => Change::DeleteFamilyUntil { timestamp },
            4 => Change::DeleteFamilyVersion { timestamp },
            _ => Change::Put { column, timestamp, value: fresh() },
        }
    };
    // A whole row is deleted before the other changes of a mutation take effect.
    let deleted = (below(15) == 0).then_some(Change::DeleteRow);
    deleted.into_iter().chain((0..=below(CHANGES_MAX)).map(|_| some_change())).collect()
}

fn fresh() -> Vec<u8> {
    format!("{:x}", terrane_env::rand::range(0..1 << 32)).into_bytes()
}

fn mutation(key: &[u8], changes: &[Change]) -> RowMutation {
    let qualifier = |column: u8| QUALIFIERS[usize::from(column)];
    changes.iter().fold(RowMutation::new(key), |mutation, change| {
        let delete = Delete::new(key);
        let delete = match change {
            Change::Put { column, timestamp, value } => {
                return mutation.put(Put::new(key).set_at(FAMILY, qualifier(*column), *timestamp, value));
            }
            Change::DeleteVersion { column, timestamp } => delete.version(FAMILY, qualifier(*column), *timestamp),
            // Up to the server's time, which is later than all timestamps.
            Change::DeleteColumnUntil { column, timestamp: i64::MAX } => delete.column(FAMILY, qualifier(*column)),
            Change::DeleteColumnUntil { column, timestamp } => {
                delete.column_until(FAMILY, qualifier(*column), *timestamp)
            }
            Change::DeleteFamilyUntil { timestamp } => delete.family_until(FAMILY, *timestamp),
            Change::DeleteFamilyVersion { timestamp } => delete.family_version(FAMILY, *timestamp),
            Change::DeleteRow => delete,
        };
        mutation.delete(delete)
    })
}
