//! A counter that only grows: each acknowledged addition counts once, each refused one not at all, each other one at most once.
//!
//! So it shows no less than what was acknowledged or shown before a read began, no more than all additions that were called
//! until the read ended and not refused; and no two additions return the same number.

use std::collections::BTreeSet;

use crate::verdict::{Fate, Verdict};

/// The additions and reads of one counter so far.
#[derive(Debug, Default)]
pub struct Counter {
    /// The sum of all additions that were called, without the refused ones.
    called: u64,
    acknowledged: u64,
    /// The highest number that was shown.
    shown: u64,
    /// What additions returned.
    returned: BTreeSet<u64>,
}

impl Counter {
    /// A counter that begins with this number.
    #[must_use]
    pub fn with(number: u64) -> Counter {
        Counter { called: number, acknowledged: number, shown: number, returned: BTreeSet::new() }
    }

    /// The least that a read can show that begins now; an addition that begins now returns its amount more.
    #[must_use]
    pub fn floor(&self) -> u64 {
        self.acknowledged.max(self.shown)
    }

    /// An addition is called.
    pub fn call(&mut self, by: u64) {
        self.called += by;
    }

    /// An addition has ended.
    ///
    /// # Errors
    /// If it was refused, and its effect was shown before.
    pub fn end(&mut self, by: u64, fate: Fate) -> Verdict {
        match fate {
            Fate::Applied => self.acknowledged += by,
            Fate::Refused => self.called -= by,
            Fate::Unknown => {}
        }
        self.within(0, self.shown)
    }

    /// An addition that was applied returned this number; it could return no less than `least`.
    ///
    /// # Errors
    /// If that is impossible.
    pub fn returned(&mut self, least: u64, number: u64) -> Verdict {
        self.show(least, number)?;
        if self.returned.insert(number) { Ok(()) } else { Err(format!("returned {number} to two additions")) }
    }

    /// A read shows this number; it could show no less than `least`.
    ///
    /// # Errors
    /// If that is impossible.
    pub fn show(&mut self, least: u64, number: u64) -> Verdict {
        self.within(least, number)?;
        self.shown = self.shown.max(number);
        Ok(())
    }

    fn within(&self, least: u64, number: u64) -> Verdict {
        let Self { called, acknowledged, shown, .. } = self;
        if (least..=*called).contains(&number) {
            return Ok(());
        }
        let why = if number < least { "one is lost" } else { "one counts twice" };
        Err(format!(
            "is {number}, but can only be {least} to {called}: {why} ({acknowledged} acknowledged, {shown} shown)"
        ))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn amounts_count_once_each_in_any_order_of_their_answers() {
        let mut counter = Counter::with(4);
        let least = counter.floor() + 2;
        counter.call(2);
        counter.call(3);
        for by in [3, 2] {
            counter.end(by, Fate::Applied).unwrap();
        }
        counter.returned(7, 9).unwrap();
        assert!(counter.returned(least, 9).unwrap_err().contains("two additions"));
        counter.show(counter.floor(), 9).unwrap();
        assert!(counter.show(counter.floor(), 8).unwrap_err().contains("one is lost"));
        assert!(counter.show(counter.floor(), 10).unwrap_err().contains("one counts twice"));
    }

    #[test]
    fn an_addition_counts_at_most_once_if_its_outcome_is_unknown_and_never_if_it_was_refused() {
        let mut counter = Counter::default();
        counter.call(2);
        counter.end(2, Fate::Unknown).unwrap();
        counter.call(5);
        counter.show(0, 0).unwrap();
        counter.show(0, 2).unwrap();
        counter.show(0, 7).unwrap();
        assert!(counter.end(5, Fate::Refused).unwrap_err().contains("is 7, but can only be 0 to 2"));
    }
}
