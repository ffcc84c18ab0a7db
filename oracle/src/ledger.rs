//! The ledger: the outcome of every operation that must count exactly once, and whether reads agree with it.
//!
//! There are three kinds of objects, each written by any number of concurrent clients:
//! - A **counter** is only incremented by 1, and every increment returns the new value ([`Counter`]).
//! - A **list** is only appended to, eight bytes per operation, and every append returns the whole list. All returned
//!   lists are prefixes of one sequence, in which no operation occurs twice.
//! - A **register** is only replaced by check-and-mutate, which names the operation whose value it replaces. The chain
//!   of replacements back from the last value contains every operation whose condition held, and none whose condition
//!   did not.
//!
//! An operation whose outcome is unknown counts once or not at all, but never twice.

use std::collections::{BTreeMap, BTreeSet};

use crate::counter::Counter;
use crate::verdict::{Fate, Verdict};

/// The number of an operation; 0 means none.
pub type Operation = u64;

/// Bytes that one operation appends to a list, and the size of a register.
pub const TOKEN_BYTES: usize = 8;

/// The bytes of an operation in a list or register.
#[must_use]
pub const fn token(operation: Operation) -> [u8; TOKEN_BYTES] {
    operation.to_be_bytes()
}

/// The operations of a list, in order; `None` if its length is not a multiple of a token.
#[must_use]
pub fn tokens(value: &[u8]) -> Option<Vec<Operation>> {
    let chunks = value.chunks_exact(TOKEN_BYTES);
    let whole = chunks.remainder().is_empty();
    whole.then(|| chunks.map(|chunk| u64::from_be_bytes(chunk.try_into().expect("chunks of eight"))).collect())
}

/// An operation that has started.
#[derive(Clone, Debug)]
#[must_use = "the outcome of a started operation has to be recorded"]
pub struct Begun {
    pub operation: Operation,
    key: Vec<u8>,
    /// What was certain about its object: a counter's value, a list's length, whether a register was written.
    certain: u64,
}

/// A read that has started.
#[derive(Clone, Debug)]
#[must_use = "a read that began has to be judged when it ends"]
pub struct Reading {
    key: Vec<u8>,
    certain: u64,
}

/// All operations and objects of a run.
#[derive(Debug, Default)]
pub struct Ledger {
    last: Operation,
    objects: BTreeMap<Vec<u8>, Object>,
}

#[derive(Debug, Default)]
struct Object {
    /// How each operation that started has ended.
    fates: BTreeMap<Operation, Option<Fate>>,
    /// Counts the operations, and shows nothing if the object is no counter.
    counter: Counter,
    /// The longest prefix of a list that was shown.
    list: Vec<Operation>,
    /// For each operation on a register, the operation whose value it replaces.
    replaces: BTreeMap<Operation, Operation>,
    /// For each replaced value, the operation whose condition held.
    replaced_by: BTreeMap<Operation, Operation>,
    /// Operations whose value a register has shown.
    shown: BTreeSet<Operation>,
}

impl Ledger {
    /// Starts an operation on an object.
    pub fn begin(&mut self, key: &[u8]) -> Begun {
        self.last += 1;
        let operation = self.last;
        self.object(key).begin(key, operation)
    }

    /// Starts an operation that replaces the value of `replaced` in a register; 0 means that the register is absent.
    pub fn begin_replacing(&mut self, key: &[u8], replaced: Operation) -> Begun {
        let begun = self.begin(key);
        self.object(key).replaces.insert(begun.operation, replaced);
        begun
    }

    /// Adds another object to an operation, under the same number.
    pub fn begin_also(&mut self, begun: &Begun, key: &[u8]) -> Begun {
        self.object(key).begin(key, begun.operation)
    }

    /// An increment was applied and returned the new value of its counter.
    ///
    /// # Errors
    /// If that is impossible.
    pub fn incremented(&mut self, begun: &Begun, value: u64) -> Verdict {
        self.settle(begun, Fate::Applied)?.counter.returned(begun.certain + 1, value)
    }

    /// An append was applied and returned the whole list.
    ///
    /// # Errors
    /// If that is impossible.
    pub fn appended(&mut self, begun: &Begun, value: &[u8]) -> Verdict {
        let list = self.settle(begun, Fate::Applied)?.showed_list(begun.certain + 1, value)?;
        match list.last() {
            Some(last) if *last == begun.operation => Ok(()),
            last => Err(format!("the append {} returned a list that ends with {last:?}", begun.operation)),
        }
    }

    /// The condition of a check-and-mutate held.
    ///
    /// # Errors
    /// If the condition of another one held for the same value.
    pub fn replaced(&mut self, begun: &Begun) -> Verdict {
        let object = self.settle(begun, Fate::Applied)?;
        let replaced = object.replaces.get(&begun.operation).copied().unwrap_or_default();
        match object.replaced_by.insert(replaced, begun.operation) {
            None => Ok(()),
            Some(other) => Err(format!("both {other} and {} replaced {replaced}", begun.operation)),
        }
    }

    /// An operation ended without a result.
    ///
    /// # Errors
    /// If it was refused, and its effect was shown before.
    pub fn end(&mut self, begun: &Begun, fate: Fate) -> Verdict {
        let object = self.settle(begun, fate)?;
        let is_shown = object.list.contains(&begun.operation) || object.shown.contains(&begun.operation);
        if fate == Fate::Refused && is_shown {
            return Err(format!("operation {} was refused, but its effect was shown", begun.operation));
        }
        Ok(())
    }

    /// Starts a read of an object.
    pub fn begin_read(&mut self, key: &[u8]) -> Reading {
        Reading { key: key.to_vec(), certain: self.object(key).certain() }
    }

    /// A read of a counter returned `value`; 0 if it is absent.
    ///
    /// # Errors
    /// If that is impossible.
    pub fn read_counter(&mut self, reading: &Reading, value: u64) -> Verdict {
        self.object(&reading.key).counter.show(reading.certain, value)
    }

    /// A read of a list returned `value`; empty if it is absent.
    ///
    /// # Errors
    /// If that is impossible.
    pub fn read_list(&mut self, reading: &Reading, value: &[u8]) -> Verdict {
        self.object(&reading.key).showed_list(reading.certain, value).map(drop)
    }

    /// A read of a register returned the value of `operation`; 0 if it is absent.
    ///
    /// # Errors
    /// If no operation can have written it.
    pub fn read_register(&mut self, reading: &Reading, operation: Operation) -> Verdict {
        let object = self.object(&reading.key);
        if operation == 0 {
            return if reading.certain > 0 { Err("is absent, but was written".to_owned()) } else { Ok(()) };
        }
        object.may_show(operation)?;
        object.shown.insert(operation);
        Ok(())
    }

    /// No operation is in flight, and the counter is `value`.
    ///
    /// # Errors
    /// If increments are missing or counted twice.
    pub fn final_counter(&mut self, key: &[u8], value: u64) -> Verdict {
        let counter = &mut self.object(key).counter;
        counter.show(counter.floor(), value)
    }

    /// No operation is in flight, and the list is `value`.
    ///
    /// # Errors
    /// If appends are missing or occur twice.
    pub fn final_list(&mut self, key: &[u8], value: &[u8]) -> Verdict {
        let object = self.object(key);
        let list = object.showed_list(object.list.len() as u64, value)?;
        object.all_applied_are_in(&list.into_iter().collect())
    }

    /// No operation is in flight, and the register has the value of `operation`.
    ///
    /// # Errors
    /// If an applied replacement is missing.
    pub fn final_register(&mut self, key: &[u8], operation: Operation) -> Verdict {
        let object = self.object(key);
        let (mut chain, mut at) = (BTreeSet::new(), operation);
        while at != 0 {
            object.may_show(at)?;
            if !chain.insert(at) {
                return Err(format!("{at} was applied twice"));
            }
            at = object.replaces.get(&at).copied().unwrap_or_default();
        }
        object.all_applied_are_in(&chain)
    }

    /// The numbers of applied, refused and unknown operations so far.
    #[must_use]
    pub fn counts(&self) -> (usize, usize, usize) {
        let fates = || self.objects.values().flat_map(|object| object.fates.values());
        let count = |fate| fates().filter(|ended| **ended == Some(fate)).count();
        (count(Fate::Applied), count(Fate::Refused), count(Fate::Unknown))
    }

    fn settle(&mut self, begun: &Begun, fate: Fate) -> Result<&mut Object, String> {
        let object = self.object(&begun.key);
        let before = object.fates.insert(begun.operation, Some(fate));
        assert_eq!(before, Some(None), "an operation ends once");
        object.counter.end(1, fate)?;
        Ok(object)
    }

    fn object(&mut self, key: &[u8]) -> &mut Object {
        self.objects.entry(key.to_vec()).or_default()
    }
}

impl Object {
    fn begin(&mut self, key: &[u8], operation: Operation) -> Begun {
        self.fates.insert(operation, None);
        self.counter.call(1);
        Begun { operation, key: key.to_vec(), certain: self.certain() }
    }

    /// The lower bound of later reads and replies.
    fn certain(&self) -> u64 {
        self.counter.floor().max(self.list.len() as u64).max(self.shown.len() as u64)
    }

    fn may_show(&self, operation: Operation) -> Verdict {
        match self.fates.get(&operation) {
            None => Err(format!("shows operation {operation}, which never started here")),
            Some(Some(Fate::Refused)) => Err(format!("shows operation {operation}, which was refused")),
            Some(_) => Ok(()),
        }
    }

    /// A list was shown, at least this long: it extends the longest one shown before, or is a prefix of it.
    fn showed_list(&mut self, least: u64, value: &[u8]) -> Result<Vec<Operation>, String> {
        let list = tokens(value)
            .ok_or_else(|| format!("a list has {} bytes, which is no whole number of operations", value.len()))?;
        let common = list.len().min(self.list.len());
        if list[..common] != self.list[..common] {
            return Err(format!("the list {list:?} does not agree with {:?}, which was shown before", self.list));
        }
        if (list.len() as u64) < least {
            return Err(format!("the list {list:?} lacks some of the {least} certain operations"));
        }
        let distinct: BTreeSet<Operation> = list.iter().copied().collect();
        if distinct.len() < list.len() {
            return Err(format!("the list {list:?} has an operation twice"));
        }
        list[common..].iter().try_for_each(|&operation| self.may_show(operation))?;
        if list.len() > self.list.len() {
            self.list.clone_from(&list);
        }
        Ok(list)
    }

    fn all_applied_are_in(&self, there: &BTreeSet<Operation>) -> Verdict {
        let missing =
            self.fates.iter().find(|(operation, fate)| **fate == Some(Fate::Applied) && !there.contains(operation));
        missing.map_or(Ok(()), |(operation, _)| Err(format!("operation {operation} was applied but is missing")))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn list_of(operations: &[Operation]) -> Vec<u8> {
        operations.iter().flat_map(|&operation| token(operation)).collect()
    }

    #[test]
    fn increments_that_each_count_once_are_right_in_any_order_of_their_answers() {
        let mut ledger = Ledger::default();
        let (one, two) = (ledger.begin(b"c"), ledger.begin(b"c"));
        ledger.incremented(&two, 1).unwrap();
        ledger.incremented(&one, 2).unwrap();
        ledger.final_counter(b"c", 2).unwrap();
        assert_eq!(ledger.counts(), (2, 0, 0));
    }

    #[test]
    fn an_increment_that_counts_twice_is_found() {
        let mut ledger = Ledger::default();
        let one = ledger.begin(b"c");
        assert!(ledger.incremented(&one, 2).unwrap_err().contains("can only be 1 to 1"));
        let mut ledger = Ledger::default();
        let (one, two) = (ledger.begin(b"c"), ledger.begin(b"c"));
        ledger.incremented(&one, 1).unwrap();
        assert!(ledger.incremented(&two, 1).unwrap_err().contains("two additions"));
        assert!(ledger.final_counter(b"c", 3).is_err());
    }

    #[test]
    fn a_lost_increment_is_found() {
        let mut ledger = Ledger::default();
        let one = ledger.begin(b"c");
        ledger.incremented(&one, 1).unwrap();
        let reading = ledger.begin_read(b"c");
        ledger.read_counter(&reading, 0).unwrap_err();
        ledger.final_counter(b"c", 0).unwrap_err();
        let late = ledger.begin(b"c");
        ledger.incremented(&late, 1).unwrap_err();
    }

    #[test]
    fn an_unknown_increment_counts_once_or_not_at_all() {
        for (value, right) in [(0, false), (1, true), (2, true), (3, false)] {
            let mut ledger = Ledger::default();
            let (one, two) = (ledger.begin(b"c"), ledger.begin(b"c"));
            ledger.end(&one, Fate::Unknown).unwrap();
            ledger.incremented(&two, 1).unwrap();
            assert_eq!(ledger.final_counter(b"c", value).is_ok(), right, "{value}");
        }
    }

    #[test]
    fn a_refused_increment_does_not_count() {
        let mut ledger = Ledger::default();
        let one = ledger.begin(b"c");
        ledger.end(&one, Fate::Refused).unwrap();
        ledger.final_counter(b"c", 1).unwrap_err();
        let two = ledger.begin(b"c");
        let reading = ledger.begin_read(b"c");
        ledger.read_counter(&reading, 1).unwrap();
        ledger.end(&two, Fate::Refused).unwrap_err();
    }

    #[test]
    fn lists_are_beginnings_of_one_sequence_without_repetitions() {
        let mut ledger = Ledger::default();
        let (one, two, three) = (ledger.begin(b"l"), ledger.begin(b"l"), ledger.begin(b"l"));
        ledger.appended(&two, &list_of(&[2])).unwrap();
        ledger.appended(&one, &list_of(&[2, 1])).unwrap();
        ledger.end(&three, Fate::Unknown).unwrap();
        let reading = ledger.begin_read(b"l");
        assert!(ledger.read_list(&reading, &list_of(&[2])).unwrap_err().contains("certain"));
        assert!(ledger.read_list(&reading, &list_of(&[1, 2])).unwrap_err().contains("agree"));
        assert!(ledger.read_list(&reading, &list_of(&[2, 1, 1])).unwrap_err().contains("twice"));
        assert!(ledger.read_list(&reading, &list_of(&[2, 1, 9])).unwrap_err().contains("never started"));
        ledger.final_list(b"l", &list_of(&[2, 1, 3])).unwrap();
        ledger.final_list(b"l", &list_of(&[2, 1])).unwrap_err();
    }

    #[test]
    fn an_append_that_is_answered_and_not_there_is_found() {
        let mut ledger = Ledger::default();
        let (one, two) = (ledger.begin(b"l"), ledger.begin(b"l"));
        ledger.end(&one, Fate::Applied).unwrap();
        ledger.appended(&two, &list_of(&[2])).unwrap();
        assert!(ledger.final_list(b"l", &list_of(&[2])).unwrap_err().contains("operation 1"));
        ledger.final_list(b"l", &list_of(&[2, 1])).unwrap();
    }

    #[test]
    fn a_register_is_followed_back_through_everything_that_held() {
        let mut ledger = Ledger::default();
        let one = ledger.begin_replacing(b"r", 0);
        ledger.replaced(&one).unwrap();
        let (two, three) = (ledger.begin_replacing(b"r", 1), ledger.begin_replacing(b"r", 1));
        ledger.replaced(&two).unwrap();
        ledger.final_register(b"r", 1).unwrap_err();
        ledger.final_register(b"r", 2).unwrap();
        ledger.end(&three, Fate::Refused).unwrap();
        assert!(ledger.final_register(b"r", 3).unwrap_err().contains("refused"));
        let reading = ledger.begin_read(b"r");
        assert!(ledger.read_register(&reading, 0).unwrap_err().contains("absent"));
    }

    #[test]
    fn a_retry_that_is_answered_anew_is_found() {
        // Its first try was applied; the condition of the second did not hold, because its own value is there.
        let mut ledger = Ledger::default();
        let (one, early) = (ledger.begin_replacing(b"r", 0), ledger.begin_read(b"r"));
        ledger.read_register(&early, 1).unwrap();
        ledger.read_register(&early, 0).unwrap();
        ledger.end(&one, Fate::Refused).unwrap_err();
        let mut ledger = Ledger::default();
        let (one, two) = (ledger.begin_replacing(b"r", 0), ledger.begin_replacing(b"r", 0));
        ledger.replaced(&one).unwrap();
        assert!(ledger.replaced(&two).unwrap_err().contains("both"));
    }
}
