//! The leader's decisions as scripts: what becomes of each write that is packed, while others are in flight.
//!
//! - `write [atomic|nonces] ROW [; ROW]...` prepares a write as the only one of its entry and prints what becomes of it. A row is
//!   `NUMBER KEY PART...`, where a part is `f:q=v` or `f:q=v@9` (put), `f:q+=5` (increment), `f:q.=x` (append), `-f:q` (delete of a
//!   column), `-f:q@9` (of one version), `--f:q` (of the newest one), `-f:` (of a family), `if f:q absent|exists|=v|version 9`, `returns old|new` or
//!   `found`. For what only other protocols ask: `when f:q=v` (a condition that is judged from cells that are read), `times 5 9`
//!   (merges see these times only), `follows` (the newest cell that a condition saw), `merged` (returns nothing else), `ordered`
//!   (changes count in this order), `judged f` (puts with timestamps are left out where a stored tombstone covers them). With `nonces`, numbers are nonces. Values are text, `#5` (a counter) or `*9` (nine bytes).
//! - `read` waits for the reads of the last write and prepares it again; `again` prepares it again without.
//! - `land` applies the oldest entry in flight; `lost` takes all of them back; `time 5` passes five milliseconds; `cold`
//!   and `warm` say whether reads need the disk; `settled 3` settles the numbers below 3; `overlay` says whether it watches.

use std::collections::VecDeque;
use std::fmt::Write as _;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use terrane_raft::BoxFuture;
use terrane_testscript::check_scripts;
use terrane_types::cell::{Cells, LATEST};
use terrane_types::{
    CellKind, CellRef, ColumnTest, Condition, FamilyName, PackedCells, ReadModifyWrite, ReadModifyWriteKind, Returns,
    Test, escape,
};

use super::tests::{Applied, schema};
use super::*;
use crate::group::proposal::RowCondition;
use crate::operation::{Operation, WriteHeader};
use crate::window::{NONCE_CLIENT, Window};

const CLIENT: [u8; 16] = [3; 16];

#[test]
fn scripts() {
    check_scripts(concat!(env!("CARGO_MANIFEST_DIR"), "/src/evaluate/testdata"), || {
        let mut leader = Leader::default();
        move |command, out| leader.run(command, out)
    });
}

struct Leader {
    applied: Arc<Applied>,
    window: Window,
    evaluator: Evaluator,
    /// Ordinal, stamp and bytes of the entries in flight.
    in_flight: VecDeque<(u64, u64, Bytes, [u8; 16])>,
    last: Option<Write>,
    reading: Option<BoxFuture<'static, ()>>,
    landed: u64,
    ordinal: u64,
    stamp: u64,
}

impl Default for Leader {
    fn default() -> Self {
        let (window, evaluator, in_flight) = (Window::default(), Evaluator::default(), VecDeque::new());
        let applied = Arc::default();
        Self { applied, window, evaluator, in_flight, last: None, reading: None, landed: 0, ordinal: 1, stamp: 1000 }
    }
}

impl Leader {
    fn run(&mut self, command: &str, out: &mut String) {
        let (name, rest) = command.split_once(' ').unwrap_or((command, ""));
        match name {
            "write" => {
                self.last = Some(parse_write(rest, self.stamp));
                self.prepare(out);
            }
            "read" => {
                let reading = self.reading.take().expect("something is being read");
                let runtime = tokio::runtime::Builder::new_current_thread().build().expect("a runtime");
                runtime.block_on(reading);
                self.prepare(out);
            }
            "again" => self.prepare(out),
            "land" => self.land(),
            "lost" => {
                self.in_flight.clear();
                self.ordinal = self.landed + 1;
                self.evaluator.forget();
            }
            "time" => self.stamp += rest.parse::<u64>().expect("milliseconds"),
            "cold" => self.applied.cold.store(1, Ordering::Relaxed),
            "warm" => self.applied.cold.store(0, Ordering::Relaxed),
            "settled" => drop(self.window.update(CLIENT, rest.parse().expect("a number"), self.stamp)),
            "overlay" => print(out, if self.evaluator.is_watching() { "watches" } else { "rests" }),
            other => panic!("no command {other}"),
        }
    }

    fn prepare(&mut self, out: &mut String) {
        let write = self.last.take().expect("a write comes first");
        let alone = self.in_flight.is_empty();
        let packing = Packing { term: 1, ordinal: self.ordinal, stamp: self.stamp, landed: self.landed, alone };
        let (schema, mut entry) = (schema(), Vec::new());
        let columns: Arc<dyn Columns> = self.applied.clone();
        let target = Target { columns: &columns, schema: &schema };
        let prepared = match self.evaluator.look_up(&packing, Some(&self.window), &write) {
            Numbers::InFlight => Prepared::WhenLanded,
            Numbers::Plain => self.evaluator.pack_plain(&packing, &write, Some(&target), &mut entry),
            Numbers::Each(known) => self.evaluator.pack(&packing, &write, &target, known, &mut entry),
        };
        let client = write.header.client;
        self.last = Some(write);
        match prepared {
            Prepared::Packed => {
                let entry = Bytes::from(entry);
                for row in logged(&entry) {
                    print(out, &format!("entry {}: {}", self.ordinal, shown(&row)));
                }
                self.in_flight.push_back((self.ordinal, self.stamp, entry, client));
                self.ordinal += 1;
            }
            Prepared::WhenLanded => print(out, "waits for what is in flight"),
            Prepared::Later => print(out, "put aside for a moment"),
            Prepared::NeedsDisk(reading) => {
                self.reading = Some(reading);
                print(out, "waits for the disk");
            }
            Prepared::Refused(reply) => print(out, &format!("refused: {}", reply.applied().unwrap_err())),
            Prepared::PackedAlone => panic!("a write is never packed alone"),
        }
    }

    fn land(&mut self) {
        let (ordinal, stamp, entry, client) = self.in_flight.pop_front().expect("an entry is in flight");
        let mut window = self.window.update(client, 0, stamp);
        for row in logged(&entry).filter(|row| !row.untracked) {
            assert!(window.applied(row.operation, row.result.as_ref()), "number {} applied twice", row.operation);
            self.applied.rows.lock().push((row.row.to_vec(), row.cells.to_vec()));
        }
        drop(window);
        self.landed = ordinal;
    }
}

fn print(out: &mut String, line: &str) {
    writeln!(out, "{line}").expect("writing to a string");
}

fn logged(entry: &Bytes) -> impl Iterator<Item = LoggedRow<Bytes>> + use<> {
    match Operation::decode(entry.clone()) {
        Ok(Operation::Write(write)) => write.map(|row| row.expect("a row")),
        _ => panic!("not a write"),
    }
}

/// `7 a f:q=v@1000 -> returned f:q=v@1000`
fn shown(row: &LoggedRow<Bytes>) -> String {
    let mut line = row.operation.to_string();
    if row.untracked {
        line += " nothing";
    } else {
        let key = escape(&row.row);
        write!(line, " {key}{}", shown_cells(&row.cells)).expect("writing to a string");
    }
    let Some(result) = &row.result else { return line };
    let kind = match RowResult::decode(result.clone()).expect("a result").kind {
        ResultKind::Applied { returned } => format!("returned{}", shown_cells(&returned)),
        ResultKind::ConditionFailed { found } => format!("the condition failed{}", shown_cells(&found)),
        ResultKind::Invalid { what } => format!("invalid: {what}"),
        ResultKind::NotTried => "not tried".to_owned(),
        ResultKind::AlreadyApplied => "already applied".to_owned(),
        ResultKind::Postponed => "postponed".to_owned(),
    };
    format!("{line} -> {kind}")
}

fn shown_cells(cells: &[u8]) -> String {
    Cells::new(cells).map(|cell| format!(" {}", shown_cell(&cell))).collect()
}

fn shown_cell(cell: &CellRef<'_>) -> String {
    let at = cell.timestamp;
    match cell.kind {
        CellKind::Put => format!("{cell}={}@{at}", shown_value(cell.value)),
        kind => format!("{kind:?} {cell}@{at}"),
    }
}

fn shown_value(value: &[u8]) -> String {
    match <[u8; 8]>::try_from(value) {
        Ok(counter) => format!("#{}", i64::from_be_bytes(counter)),
        Err(_) if value.len() > 16 => format!("*{}", value.len()),
        Err(_) => escape(value),
    }
}

fn parse_write(text: &str, now_ms: u64) -> Write {
    let (atomic, rows) = text.strip_prefix("atomic ").map_or((false, text), |rows| (true, rows));
    let (client, rows) = rows.strip_prefix("nonces ").map_or((CLIENT, rows), |rows| (NONCE_CLIENT, rows));
    let header = WriteHeader { atomic, ..WriteHeader::plain(7, 1, 0, client) };
    Write::new(header, rows.split(';').map(|row| parse_row(row, now_ms)).collect())
}

fn parse_row(text: &str, now_ms: u64) -> CheckedRow {
    let mut words = text.split_whitespace();
    let operation = words.next().expect("a number").parse().expect("a number");
    let row = Bytes::copy_from_slice(words.next().expect("a key").as_bytes());
    let (mut cells, mut request) = (Vec::<Cell>::new(), RowRequest::default());
    // How many cells come before each merge.
    let mut before = Vec::new();
    while let Some(word) = words.next() {
        match word {
            "if" => {
                let (family, qualifier) = column(words.next().expect("a column"));
                let test = match words.next().expect("a test") {
                    "absent" => Test::Absent,
                    "exists" => Test::Exists,
                    "version" => Test::Version(words.next().expect("a version").parse().expect("a version")),
                    value => Test::Equal(parse_value(value.strip_prefix('=').expect("a test")).into()),
                };
                request.condition = Some(Condition::Column(ColumnTest::new(family, qualifier, test)));
            }
            "returns" if words.next() == Some("old") => request.returns = Returns::Old,
            "returns" => request.returns = Returns::New,
            "found" => request.return_found = true,
            "when" => {
                let (name, value) = words.next().expect("a column").split_once('=').expect("f:q=v");
                let (family, qualifier) = column(name);
                let reads = Projection::all().with_column(family, qualifier);
                request.extras.condition = Some(Arc::new(Holds { reads, value: parse_value(value) }));
            }
            "times" => {
                let mut time = || words.next().expect("a time").parse().expect("a time");
                request.extras.merge_times = Some((time(), time()));
            }
            "turn" => request.extras.turns.push(words.next().expect("a number").parse().expect("a number")),
            "first" => request.extras.first_times.push(words.next().expect("a time").parse().expect("a time")),
            "follows" => request.extras.follows_condition = true,
            "merged" => request.extras.returns_merged = true,
            "versions" => request.extras.makes_versions = true,
            "judged" => {
                let family = words.next().expect("a family");
                request.extras.by_timestamp.push(FamilyName::new(family).expect("a family"));
            }
            "ordered" => request.extras.places = Some(Vec::new()),
            _ if word.starts_with("--") => {
                let (family, qualifier) = column(&word[2..]);
                let (qualifier, what) = (qualifier.into(), ReadModifyWriteKind::DeleteNewest);
                before.push(cells.len());
                request.read_modify_writes.push(ReadModifyWrite { family, qualifier, what });
            }
            _ if word.starts_with('-') => cells.push(parse_delete(&word[1..])),
            _ => match word.split_once("+=").or_else(|| word.split_once(".=")) {
                Some((name, value)) => {
                    let what = match word.contains("+=") {
                        true => ReadModifyWriteKind::Increment(value.parse().expect("a number")),
                        false => ReadModifyWriteKind::Append(parse_value(value).into()),
                    };
                    let (family, qualifier) = column(name);
                    let qualifier = qualifier.into();
                    before.push(cells.len());
                    request.read_modify_writes.push(ReadModifyWrite { family, qualifier, what });
                }
                None => {
                    let (name, value) = word.split_once('=').expect("a part of a row");
                    let (value, at) = value.split_once('@').unwrap_or((value, ""));
                    let timestamp = at.parse().unwrap_or(LATEST);
                    cells.push((CellKind::Put, column(name), timestamp, parse_value(value)));
                }
            },
        }
    }
    let cells = cells.iter().map(|(kind, (family, qualifier), timestamp, value)| CellRef {
        family: family.as_bytes(),
        qualifier,
        timestamp: *timestamp,
        kind: *kind,
        tags: &[],
        value,
    });
    if let Some(places) = &mut request.extras.places {
        let bytes = |count| cells.clone().take(count).map(|cell| cell.packed_len()).sum();
        *places = before.into_iter().map(bytes).collect();
    }
    let cells = PackedCells::from_cells(cells).expect("cells within their limits");
    CheckedRow { operation, first_try_ms: now_ms, row, cells, request: request.boxed() }
}

/// A condition as another protocol has them: a column has this value.
#[derive(Debug)]
struct Holds {
    reads: Projection,
    value: Vec<u8>,
}

impl RowCondition for Holds {
    fn reads(&self) -> &Projection {
        &self.reads
    }

    fn judge(&self, _row: &[u8], cells: &[u8]) -> Result<Option<i64>, Invalid> {
        let cell = Cells::new(cells).next().filter(|cell| cell.value == self.value);
        Ok(cell.map(|cell| cell.timestamp))
    }
}

type Cell = (CellKind, (FamilyName, Vec<u8>), i64, Vec<u8>);

fn parse_delete(text: &str) -> Cell {
    let (name, timestamp) = text.split_once('@').unwrap_or((text, ""));
    let column = column(name);
    match timestamp.parse() {
        Ok(timestamp) => (CellKind::Delete, column, timestamp, Vec::new()),
        Err(_) if column.1.is_empty() => (CellKind::DeleteFamily, column, LATEST, Vec::new()),
        Err(_) => (CellKind::DeleteColumn, column, LATEST, Vec::new()),
    }
}

fn column(name: &str) -> (FamilyName, Vec<u8>) {
    let (family, qualifier) = name.split_once(':').expect("family:qualifier");
    (FamilyName::new(family).expect("a family"), qualifier.as_bytes().to_vec())
}

fn parse_value(text: &str) -> Vec<u8> {
    match (text.strip_prefix('#'), text.strip_prefix('*')) {
        (Some(counter), _) => counter.parse::<i64>().expect("a counter").to_be_bytes().to_vec(),
        (_, Some(bytes)) => vec![b'x'; bytes.parse().expect("a length")],
        _ => text.as_bytes().to_vec(),
    }
}
