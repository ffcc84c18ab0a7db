//! Rows that are written once: what gets and scans may show of them.

use std::collections::BTreeMap;
use std::ops::Bound;

use super::Findings;
use super::event::Answer;

/// All rows that any client tried to write.
#[derive(Debug, Default)]
pub struct Rows(BTreeMap<String, Row>);

#[derive(Debug)]
struct Row {
    value: String,
    /// The write certainly failed.
    failed: bool,
    acknowledged: bool,
    /// From then on, reads that are called show it.
    visible_from: Option<u64>,
    /// It was read after that.
    confirmed: bool,
}

impl Rows {
    /// A write is called.
    pub fn call(&mut self, row: &str, value: &str, findings: &mut Findings) {
        let value = value.to_owned();
        let new = Row { value, failed: false, acknowledged: false, visible_from: None, confirmed: false };
        if self.0.insert(row.to_owned(), new).is_some() {
            findings.add(|| format!("row {row} is written twice: the test is wrong"));
        }
    }

    /// A write returns.
    pub fn end(&mut self, row: &str, answer: &Answer, moment: u64, findings: &mut Findings) {
        let Some(state) = self.0.get_mut(row) else { return };
        match answer {
            Answer::Written => {
                state.acknowledged = true;
                state.visible_from.get_or_insert(moment);
            }
            Answer::Failed(why) => {
                state.failed = true;
                if state.visible_from.is_some() {
                    findings.add(|| format!("row {row} was read, but its write certainly failed: {why}"));
                }
            }
            _ => {}
        }
    }

    /// A get returns that was called at the first moment.
    pub fn end_get(&mut self, row: &str, answer: &Answer, (called, moment): (u64, u64), findings: &mut Findings) {
        let Answer::Found(found) = answer else { return };
        match found {
            Some(value) => self.shown(row, value, moment, findings),
            None => self.absent(row, called, "a get", findings),
        }
        self.confirm(row, called);
    }

    /// A scan returns.
    pub fn end_scan(
        &mut self,
        (start, stop): (&str, &str),
        answer: &Answer,
        (called, moment): (u64, u64),
        findings: &mut Findings,
    ) {
        let Answer::Rows(found) = answer else { return };
        if let Some(pair) = found.windows(2).find(|pair| pair[0].0 >= pair[1].0) {
            let (one, other) = (&pair[0].0, &pair[1].0);
            findings.add(|| format!("a scan of {start}..{stop} shows row {other} after {one}"));
        }
        let found: BTreeMap<&str, &str> = found.iter().map(|(row, value)| (&**row, &**value)).collect();
        for (row, value) in &found {
            if *row < start || (!stop.is_empty() && *row >= stop) {
                findings.add(|| format!("a scan of {start}..{stop} shows row {row}"));
            }
            self.shown(row, value, moment, findings);
        }
        let end = if stop.is_empty() { Bound::Unbounded } else { Bound::Excluded(stop) };
        let asked: Vec<String> =
            self.0.range::<str, _>((Bound::Included(start), end)).map(|(row, _)| row.clone()).collect();
        for row in asked {
            if !found.contains_key(&*row) {
                self.absent(&row, called, "a scan", findings);
            }
            self.confirm(&row, called);
        }
    }

    fn shown(&mut self, row: &str, value: &str, moment: u64, findings: &mut Findings) {
        match self.0.get_mut(row) {
            None => findings.add(|| format!("row {row} = {value} was read, but never written")),
            Some(state) if state.failed => findings.add(|| format!("row {row} was read, but its write failed")),
            Some(state) if state.value != value => {
                findings.add(|| format!("row {row} reads {value}, but {} was written", state.value));
            }
            Some(state) => _ = state.visible_from.get_or_insert(moment),
        }
    }

    fn absent(&self, row: &str, called: u64, who: &str, findings: &mut Findings) {
        let Some(state) = self.0.get(row) else { return };
        if state.visible_from.is_some_and(|from| from < called) {
            let how = if state.acknowledged { "acknowledged" } else { "read" };
            findings.add(|| format!("row {row} is lost: {who} does not find it, after it was {how}"));
        }
    }

    fn confirm(&mut self, row: &str, called: u64) {
        if let Some(state) = self.0.get_mut(row) {
            state.confirmed |= state.visible_from.is_some_and(|from| from < called);
        }
    }

    /// Every acknowledged row was read.
    pub fn conclude(&self, findings: &mut Findings) {
        for (row, state) in &self.0 {
            if state.acknowledged && !state.confirmed {
                findings.add(|| format!("row {row} was acknowledged, and never read after that"));
            }
        }
    }
}
