//! Readers that scan, count and sum up, with small blocks, limits, offsets, filters and pauses.

use terrane_client::{Error, LatestPer, RowData, RowStream, Scan, Table, ValueType};
use terrane_oracle::rows::{Asked, Scanning};
use terrane_types::KeyRange;

use super::{FAMILY, GROUPS, KIND, NUMBER, PADDING, RowKind, Shared, count, groups, padding, rows_of};
use crate::scenario::play::{CAPTIVE, CAPTIVE_PATIENCE, PATIENCE, below, passed, pause};
use crate::trace;

const READERS_PER_HOST: usize = 2;
const PAUSE_MS: u64 = 220;
/// Longest pause between two rows that a slow reader takes, and of how many rows it makes one.
const ROW_PAUSE_MS: u64 = 30;
const PAUSE_ONE_IN: usize = 4;
/// Block sizes; 0 is the server's usual one. Most are about as large as a few rows.
const BLOCK_BYTES: [u32; 5] = [0, 1, 400, 900, 4_000];
const GROUPS_MAX: usize = 5;
const LIMIT_MAX: u64 = 30;
const OFFSET_MAX: u64 = 20;

/// Scans in all ways until the faults are over.
pub async fn scan_all_the_time(host: &'static str, shared: Shared) -> Result<(), Error> {
    let table = shared.table(PATIENCE).await?;
    let readers = (0..READERS_PER_HOST)
        .map(|reader| Reader { who: format!("{host}.{reader}"), table: table.clone(), shared: shared.clone() }.run());
    futures::future::join_all(readers).await.into_iter().collect()
}

/// A reader that reaches the isolated leader.
pub async fn be_captive(shared: Shared) -> Result<(), Error> {
    let table = shared.table(PATIENCE).await?.with_timeout(CAPTIVE_PATIENCE);
    Reader { who: CAPTIVE.to_owned(), table, shared }.run().await
}

/// Reads in several ways and has every result checked.
pub struct Reader {
    pub who: String,
    pub table: Table,
    pub shared: Shared,
}

/// Which rows a reader asks for, and how.
#[derive(Clone, Debug)]
pub struct Question {
    pub asked: Asked,
    /// Only rows of this kind.
    pub kind: Option<RowKind>,
    pub block_bytes: u32,
    pub is_snapshot: bool,
    pub is_slow: bool,
}

impl Question {
    pub fn all(range: KeyRange) -> Question {
        Question { asked: Asked::all(range), kind: None, block_bytes: 0, is_snapshot: false, is_slow: false }
    }

    pub fn random() -> Question {
        let from = below(GROUPS);
        let range = groups(from, (from + 1 + below(GROUPS_MAX)).min(GROUPS));
        let range = if below(6) == 0 { KeyRange::all() } else { range };
        let cut = below(3) == 0;
        let asked = Asked {
            range,
            reverse: below(2) == 0,
            offset: if cut { terrane_env::rand::range(0..OFFSET_MAX) } else { 0 },
            limit: cut.then(|| terrane_env::rand::range(1..LIMIT_MAX)),
        };
        Question {
            asked,
            kind: some_kind(),
            block_bytes: BLOCK_BYTES[below(BLOCK_BYTES.len())],
            is_snapshot: below(2) == 0,
            is_slow: below(3) == 0,
        }
    }

    /// The same rows, a page of so many.
    pub fn page_of(&self, rows: u64) -> Question {
        Question { asked: Asked { offset: 0, limit: Some(rows), ..self.asked.clone() }, ..self.clone() }
    }

    /// The filter of the question, if it has one.
    pub fn filter(&self) -> Option<String> {
        self.kind.map(|kind| format!("{FAMILY}:{KIND} = '{}'", kind.name()))
    }

    pub fn scan(&self) -> Scan {
        let Asked { range, reverse, offset, limit } = self.asked.clone();
        let mut scan = Scan::range(range).offset(offset).block_bytes(self.block_bytes);
        scan = if reverse { scan.reverse() } else { scan };
        scan = if self.is_snapshot { scan.snapshot() } else { scan };
        scan = limit.map_or(scan.clone(), |limit| scan.limit(limit));
        self.filter().map_or(scan.clone(), |filter| scan.filter(filter))
    }

    pub fn begin(&self, shared: &Shared, asked: Asked) -> Scanning {
        let kind = self.kind;
        shared.model.borrow().begin_scan(asked, |row| kind.is_none_or(|kind| RowKind::of(row) == kind))
    }
}

fn some_kind() -> Option<RowKind> {
    [None, None, Some(RowKind::Fixed), Some(RowKind::Churn), Some(RowKind::Twin)][below(5)]
}

impl Reader {
    async fn run(self) -> Result<(), Error> {
        let act = async || {
            let done = match below(10) {
                0 | 1 => self.count(&Question { kind: some_kind(), ..Question::random() }).await,
                2 => self.latest().await,
                3 => self.get().await,
                _ => self.scan(&Question::random()).await,
            };
            match done {
                Err(error @ Error::SnapshotTooOld) => {
                    trace::note(format_args!("{}: {error}", self.who));
                    Ok(())
                }
                done => passed(format_args!("{}", self.who), done),
            }
        };
        self.shared.until_over(PAUSE_MS, act).await
    }

    /// Scans and has the result checked, also what was received before an error.
    pub async fn scan(&self, question: &Question) -> Result<(), Error> {
        let begun = question.begin(&self.shared, question.asked.clone());
        let mut stream = self.table.scan(question.scan()).await?;
        let mut rows = Vec::new();
        let failed = self.take(&mut stream, question.is_slow, &mut rows).await.err();
        let shown: Vec<(Vec<u8>, u64)> = rows.iter().map(|row| (row.row().to_vec(), self.number_in(row))).collect();
        let cut = question.asked.limit.is_some_and(|limit| shown.len() as u64 >= limit);
        trace::note(format_args!("{} scanned {} rows: {question:?}, {failed:?}", self.who, shown.len()));
        self.judge(begun, &shown, !cut && failed.is_none());
        if question.is_snapshot {
            self.twins_are_equal(&shown);
        }
        count(&self.shared.done.scans);
        failed.map_or(Ok(()), Err)
    }

    async fn take(&self, stream: &mut RowStream, is_slow: bool, rows: &mut Vec<RowData>) -> Result<(), Error> {
        while let Some(row) = stream.next().await {
            rows.push(row?);
            if is_slow && below(PAUSE_ONE_IN) == 0 {
                pause(ROW_PAUSE_MS).await;
            }
        }
        Ok(())
    }

    pub fn judge(&self, begun: Scanning, shown: &[(Vec<u8>, u64)], complete: bool) {
        self.shared.judge_read(&self.who, self.shared.model.borrow_mut().judge_scan(begun, shown, complete));
    }

    /// The twins of a group are in one region and change together, so a snapshot shows them equal.
    fn twins_are_equal(&self, shown: &[(Vec<u8>, u64)]) {
        let twins: Vec<_> = shown.iter().filter(|(row, _)| RowKind::of(row) == RowKind::Twin).collect();
        for pair in twins.windows(2) {
            let ((one, number), (other, other_number)) = (pair[0], pair[1]);
            if one[..4] != other[..4] {
                continue;
            }
            self.shared.context.state.checked();
            count(&self.shared.done.snapshots);
            if number != other_number {
                let other = other.escape_ascii();
                let what = format!("is {number} in a snapshot and {other} is {other_number}, which change together");
                self.shared.fail(&self.who, one, what);
            }
        }
    }

    /// Counts rows and sums up their numbers.
    pub async fn count(&self, question: &Question) -> Result<(), Error> {
        let asked = Asked::all(question.asked.range.clone());
        let begun = question.begin(&self.shared, asked.clone());
        let filter = question.filter();
        let counted = self.table.count(asked.range.clone());
        let counted = filter.iter().fold(counted, |counted, filter| counted.filter(filter)).await?;
        self.judge_count(&begun, counted, None);
        let begun = question.begin(&self.shared, asked.clone());
        let summed = self.table.aggregate(FAMILY, NUMBER, ValueType::U64).range(asked.range);
        let summed = filter.iter().fold(summed, |summed, filter| summed.filter(filter)).await?;
        let sum = summed.sum().map_or(Some(0), |sum| sum.as_i128().and_then(|sum| u64::try_from(sum).ok()));
        trace::note(format_args!("{} counted {counted} rows, sum {sum:?}: {question:?}", self.who));
        self.judge_count(&begun, summed.count(), Some(sum.unwrap_or(u64::MAX)));
        Ok(())
    }

    fn judge_count(&self, begun: &Scanning, counted: u64, sum: Option<u64>) {
        self.shared.judge_read(&self.who, self.shared.model.borrow().end_count(begun, counted, sum));
    }

    /// The first row of each group, which exists all the time.
    pub async fn latest(&self) -> Result<(), Error> {
        let is_first = |row: &[u8]| row[4..].starts_with(b"00");
        let begun = self.shared.model.borrow().begin_scan(Asked::all(KeyRange::all()), is_first);
        let mut stream = self.table.latest(LatestPer::parts(1)).await?;
        let mut rows = Vec::new();
        self.take(&mut stream, false, &mut rows).await?;
        let shown: Vec<_> = rows.iter().map(|row| (row.row().to_vec(), self.number_in(row))).collect();
        self.judge(begun, &shown, true);
        Ok(())
    }

    /// Gets the rows of a group by their keys.
    pub async fn get(&self) -> Result<(), Error> {
        let group = below(GROUPS);
        let question = Question::all(groups(group, group + 1));
        let begun = question.begin(&self.shared, question.asked.clone());
        let rows = self.table.get_many(rows_of(group).map(terrane_client::Get::new)).await?;
        let shown: Vec<_> = rows.iter().flatten().map(|row| (row.row().to_vec(), self.number_in(row))).collect();
        self.judge(begun, &shown, true);
        Ok(())
    }

    /// The number of the change that a row shows; all its columns must be of the same one.
    pub fn number_in(&self, row: &RowData) -> u64 {
        let key = row.row();
        let number = row.read::<u64>(FAMILY, NUMBER).ok().flatten().unwrap_or_default();
        let bytes = row.value(FAMILY, PADDING).unwrap_or_default();
        let right = row.value(FAMILY, KIND) == Some(RowKind::of(key).name().as_bytes())
            && bytes == padding(key, number, self.shared.context.plan.value_bytes);
        if !right {
            self.shared.fail(&self.who, key, format_args!("is no row that was written: {row:?}"));
        }
        number
    }
}
