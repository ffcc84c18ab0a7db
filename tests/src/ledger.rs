//! What became of every operation that must count exactly once, and whether what is read agrees with it.
//!
//! Three kinds of objects, each written by any number of clients at once:
//! - a **counter** is only ever incremented by 1, and every increment answers the new value. No two may get the same one,
//!   none a value at or below what was certain when it began, none above what was ever begun;
//! - a **list** is only ever appended to, eight bytes an operation, and every append answers the whole of it. All answers
//!   are beginnings of one sequence, in which no operation comes twice;
//! - a **register** is only ever replaced by check-and-mutate, naming the operation whose value it replaces. Followed back
//!   from its last value, every operation that was told that its condition held is met, and none that was told it did not.
//!
//! An operation was *applied*, *refused* (nothing of it was done), or its fate is *unknown*: it then counts once or not at
//! all, and never twice.

use std::collections::{BTreeMap, BTreeSet};

/// The number of an operation; 0 stands for none.
pub type Operation = u64;

/// Bytes that one operation appends to a list, and that a register holds.
pub const TOKEN_BYTES: usize = 8;

/// What stands for an operation in a list or register.
#[must_use]
pub const fn token(operation: Operation) -> [u8; TOKEN_BYTES] {
    operation.to_be_bytes()
}

/// The operations of a list, in order; `None` when it is not made of whole tokens.
#[must_use]
pub fn tokens(value: &[u8]) -> Option<Vec<Operation>> {
    let chunks = value.chunks_exact(TOKEN_BYTES);
    let whole = chunks.remainder().is_empty();
    whole.then(|| chunks.map(|chunk| u64::from_be_bytes(chunk.try_into().expect("chunks of eight"))).collect())
}

/// How an operation ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Fate {
    Open,
    Applied,
    Refused,
    Unknown,
}

/// An operation that has begun.
#[derive(Clone, Debug)]
#[must_use = "an operation that began has to be told how it ended"]
pub struct Begun {
    pub operation: Operation,
    key: Vec<u8>,
    /// What was certain of its object: a counter's value, a list's length, that a register was written.
    certain: u64,
}

/// A read that has begun.
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
    applied: u64,
    refused: u64,
    unknown: u64,
}

#[derive(Debug, Default)]
struct Object {
    fates: BTreeMap<Operation, Fate>,
    /// What reads and answers have shown: the highest value of a counter.
    seen: u64,
    applied: u64,
    refused: u64,
    /// Values that increments were answered.
    answered: BTreeSet<u64>,
    /// The longest beginning of a list that was shown.
    list: Vec<Operation>,
    /// For each operation of a register, the one whose value it replaces.
    replaces: BTreeMap<Operation, Operation>,
    /// Who replaced a value and was told so.
    replaced_by: BTreeMap<Operation, Operation>,
    /// Operations whose value a register was seen to have.
    shown: BTreeSet<Operation>,
}

/// What must not be, in a sentence.
pub type Verdict = Result<(), String>;

impl Ledger {
    /// An operation on an object begins.
    pub fn begin(&mut self, key: &[u8]) -> Begun {
        self.last += 1;
        let object = self.objects.entry(key.to_vec()).or_default();
        object.fates.insert(self.last, Fate::Open);
        Begun { operation: self.last, key: key.to_vec(), certain: object.certain() }
    }

    /// An operation on a register begins, which replaces the value of `replaced` (0: there is none yet).
    pub fn begin_replacing(&mut self, key: &[u8], replaced: Operation) -> Begun {
        let begun = self.begin(key);
        self.objects.entry(key.to_vec()).or_default().replaces.insert(begun.operation, replaced);
        begun
    }

    /// An operation of several objects at once begins on a further one, under the same number.
    pub fn begin_also(&mut self, begun: &Begun, key: &[u8]) -> Begun {
        let object = self.objects.entry(key.to_vec()).or_default();
        object.fates.insert(begun.operation, Fate::Open);
        Begun { operation: begun.operation, key: key.to_vec(), certain: object.certain() }
    }

    /// An increment was applied and answered the new value of its counter.
    ///
    /// # Errors
    /// When that cannot be.
    pub fn incremented(&mut self, begun: &Begun, value: u64) -> Verdict {
        self.settle(begun, Fate::Applied);
        let object = self.object(&begun.key);
        object.within(begun.certain + 1, value)?;
        object.seen = object.seen.max(value);
        if object.answered.insert(value) { Ok(()) } else { Err(format!("two increments were answered {value}")) }
    }

    /// An append was applied and answered the whole list.
    ///
    /// # Errors
    /// When that cannot be.
    pub fn appended(&mut self, begun: &Begun, value: &[u8]) -> Verdict {
        self.settle(begun, Fate::Applied);
        let list = self.object(&begun.key).showed_list(begun.certain + 1, value)?;
        match list.last() {
            Some(last) if *last == begun.operation => Ok(()),
            last => Err(format!("the append {} was answered a list that ends with {last:?}", begun.operation)),
        }
    }

    /// A check-and-mutate was told that its condition held.
    ///
    /// # Errors
    /// When another was told so of the same value.
    pub fn replaced(&mut self, begun: &Begun) -> Verdict {
        self.settle(begun, Fate::Applied);
        let object = self.object(&begun.key);
        let replaced = object.replaces.get(&begun.operation).copied().unwrap_or_default();
        match object.replaced_by.insert(replaced, begun.operation) {
            None => Ok(()),
            Some(other) => Err(format!("both {other} and {} were told that they replaced {replaced}", begun.operation)),
        }
    }

    /// An operation was applied; what it answered was lost, or it answers nothing.
    pub fn applied(&mut self, begun: &Begun) {
        self.settle(begun, Fate::Applied);
    }

    /// Nothing of an operation was done: its condition did not hold, or it failed for good.
    ///
    /// # Errors
    /// When its effect was seen before.
    pub fn refused(&mut self, begun: &Begun) -> Verdict {
        self.settle(begun, Fate::Refused);
        let object = self.object(&begun.key);
        if object.list.contains(&begun.operation) || object.shown.contains(&begun.operation) {
            return Err(format!("operation {} was refused, and its effect was seen", begun.operation));
        }
        object.within(0, object.seen)
    }

    /// Nobody knows whether an operation was applied.
    pub fn unknown(&mut self, begun: &Begun) {
        self.settle(begun, Fate::Unknown);
    }

    /// A read of an object begins.
    pub fn begin_read(&mut self, key: &[u8]) -> Reading {
        Reading { key: key.to_vec(), certain: self.object(key).certain() }
    }

    /// A counter reads as `value`; 0 when it is absent.
    ///
    /// # Errors
    /// When it may not.
    pub fn read_counter(&mut self, reading: &Reading, value: u64) -> Verdict {
        let object = self.object(&reading.key);
        object.within(reading.certain, value)?;
        object.seen = object.seen.max(value);
        Ok(())
    }

    /// A list reads as `value`; empty when it is absent.
    ///
    /// # Errors
    /// When it may not.
    pub fn read_list(&mut self, reading: &Reading, value: &[u8]) -> Verdict {
        self.object(&reading.key).showed_list(reading.certain, value).map(drop)
    }

    /// A register has the value of `operation`; 0 when it is absent.
    ///
    /// # Errors
    /// When nobody can have given it.
    pub fn read_register(&mut self, reading: &Reading, operation: Operation) -> Verdict {
        let object = self.object(&reading.key);
        if operation == 0 {
            return if reading.certain > 0 { Err("is absent, but was written".to_owned()) } else { Ok(()) };
        }
        object.may_show(operation)?;
        object.shown.insert(operation);
        Ok(())
    }

    /// Nothing is under way any more, and the counter is `value`.
    ///
    /// # Errors
    /// When increments are missing, or counted twice.
    pub fn final_counter(&mut self, key: &[u8], value: u64) -> Verdict {
        let object = self.object(key);
        let least = object.applied.max(object.seen);
        object.within(least, value)
    }

    /// Nothing is under way any more, and the list is `value`.
    ///
    /// # Errors
    /// When appends are missing, or there twice.
    pub fn final_list(&mut self, key: &[u8], value: &[u8]) -> Verdict {
        let object = self.object(key);
        let list = object.showed_list(object.list.len() as u64, value)?;
        object.all_applied_are_in(&list.into_iter().collect())
    }

    /// Nothing is under way any more, and the register has the value of `operation`.
    ///
    /// # Errors
    /// When a replacement that held is missing.
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

    /// Operations that were applied, refused, and of unknown fate so far.
    #[must_use]
    pub const fn counts(&self) -> (u64, u64, u64) {
        (self.applied, self.refused, self.unknown)
    }

    fn settle(&mut self, begun: &Begun, fate: Fate) {
        let object = self.objects.entry(begun.key.clone()).or_default();
        let before = object.fates.insert(begun.operation, fate);
        assert_eq!(before, Some(Fate::Open), "an operation ends once");
        match fate {
            Fate::Applied => {
                object.applied += 1;
                self.applied += 1;
            }
            Fate::Refused => {
                object.refused += 1;
                self.refused += 1;
            }
            Fate::Unknown | Fate::Open => self.unknown += 1,
        }
    }

    fn object(&mut self, key: &[u8]) -> &mut Object {
        self.objects.entry(key.to_vec()).or_default()
    }
}

impl Object {
    /// What no later read or answer may be below.
    fn certain(&self) -> u64 {
        self.applied.max(self.seen).max(self.list.len() as u64).max(self.shown.len() as u64)
    }

    /// Whether a counter may be `value` now, when it was at least `least`.
    fn within(&self, least: u64, value: u64) -> Verdict {
        let most = self.fates.len() as u64 - self.refused;
        if (least..=most).contains(&value) {
            return Ok(());
        }
        let Self { applied, refused, seen, .. } = self;
        Err(format!(
            "is {value}, but can only be {least} to {most} ({applied} applied, {refused} refused of {} begun, {seen} seen)",
            self.fates.len()
        ))
    }

    fn may_show(&self, operation: Operation) -> Verdict {
        match self.fates.get(&operation) {
            None => Err(format!("shows operation {operation}, which never began here")),
            Some(Fate::Refused) => Err(format!("shows operation {operation}, which was refused")),
            Some(Fate::Open | Fate::Applied | Fate::Unknown) => Ok(()),
        }
    }

    /// A list was shown, at least so long: it goes on where the longest before ended, or is a beginning of it.
    fn showed_list(&mut self, least: u64, value: &[u8]) -> Result<Vec<Operation>, String> {
        let list = tokens(value).ok_or_else(|| format!("a list of {} bytes is not whole", value.len()))?;
        let common = list.len().min(self.list.len());
        if list[..common] != self.list[..common] {
            return Err(format!("the list {list:?} does not agree with {:?}, which was shown before", self.list));
        }
        if (list.len() as u64) < least {
            return Err(format!("the list {list:?} has not the {least} operations that are certain"));
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
        let missing = self.fates.iter().find(|(operation, fate)| **fate == Fate::Applied && !there.contains(operation));
        missing.map_or(Ok(()), |(operation, _)| Err(format!("operation {operation} was applied and is not there")))
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
        assert!(ledger.incremented(&two, 1).unwrap_err().contains("two increments"));
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
            ledger.unknown(&one);
            ledger.incremented(&two, 1).unwrap();
            assert_eq!(ledger.final_counter(b"c", value).is_ok(), right, "{value}");
        }
    }

    #[test]
    fn a_refused_increment_does_not_count() {
        let mut ledger = Ledger::default();
        let one = ledger.begin(b"c");
        ledger.refused(&one).unwrap();
        ledger.final_counter(b"c", 1).unwrap_err();
        let two = ledger.begin(b"c");
        let reading = ledger.begin_read(b"c");
        ledger.read_counter(&reading, 1).unwrap();
        ledger.refused(&two).unwrap_err();
    }

    #[test]
    fn lists_are_beginnings_of_one_sequence_without_repetitions() {
        let mut ledger = Ledger::default();
        let (one, two, three) = (ledger.begin(b"l"), ledger.begin(b"l"), ledger.begin(b"l"));
        ledger.appended(&two, &list_of(&[2])).unwrap();
        ledger.appended(&one, &list_of(&[2, 1])).unwrap();
        ledger.unknown(&three);
        let reading = ledger.begin_read(b"l");
        assert!(ledger.read_list(&reading, &list_of(&[2])).unwrap_err().contains("certain"));
        assert!(ledger.read_list(&reading, &list_of(&[1, 2])).unwrap_err().contains("agree"));
        assert!(ledger.read_list(&reading, &list_of(&[2, 1, 1])).unwrap_err().contains("twice"));
        assert!(ledger.read_list(&reading, &list_of(&[2, 1, 9])).unwrap_err().contains("never began"));
        ledger.final_list(b"l", &list_of(&[2, 1, 3])).unwrap();
        ledger.final_list(b"l", &list_of(&[2, 1])).unwrap_err();
    }

    #[test]
    fn an_append_that_is_answered_and_not_there_is_found() {
        let mut ledger = Ledger::default();
        let (one, two) = (ledger.begin(b"l"), ledger.begin(b"l"));
        ledger.applied(&one);
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
        ledger.refused(&three).unwrap();
        assert!(ledger.final_register(b"r", 3).unwrap_err().contains("refused"));
        let reading = ledger.begin_read(b"r");
        assert!(ledger.read_register(&reading, 0).unwrap_err().contains("absent"));
    }

    #[test]
    fn a_retry_that_is_answered_anew_is_found() {
        // Its first try was applied, and the second was told that the condition does not hold: its own value is there.
        let mut ledger = Ledger::default();
        let (one, early) = (ledger.begin_replacing(b"r", 0), ledger.begin_read(b"r"));
        ledger.read_register(&early, 1).unwrap();
        ledger.read_register(&early, 0).unwrap();
        ledger.refused(&one).unwrap_err();
        let mut ledger = Ledger::default();
        let (one, two) = (ledger.begin_replacing(b"r", 0), ledger.begin_replacing(b"r", 0));
        ledger.replaced(&one).unwrap();
        assert!(ledger.replaced(&two).unwrap_err().contains("both"));
    }
}
