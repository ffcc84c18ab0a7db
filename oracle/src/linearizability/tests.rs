//! Histories that are known to be linearizable or not, and random ones compared with a brute-force search.

use rand::rngs::StdRng;
use rand::seq::{IndexedMutRandom, IndexedRandom};
use rand::{Rng, SeedableRng};

use super::*;

/// A history of one key, written as calls and returns.
#[derive(Default)]
struct Story {
    history: History,
}

impl Story {
    fn begin(&mut self, op: Op) -> OpId {
        let now = Duration::from_millis(self.history.moments);
        self.history.begin("c", b"k", op, now)
    }

    fn end(&mut self, id: OpId, outcome: Outcome) {
        let now = Duration::from_millis(self.history.moments);
        self.history.end(id, outcome, now);
    }

    /// An operation during which no other begins or ends.
    fn at_once(&mut self, op: Op, outcome: Outcome) -> &mut Self {
        let id = self.begin(op);
        self.end(id, outcome);
        self
    }

    fn put(&mut self, value: &str) -> &mut Self {
        self.at_once(Op::put(value), Outcome::applied())
    }

    fn reads(&mut self, value: &str) -> &mut Self {
        self.at_once(Op::Read, Outcome::read(Some(value.as_bytes())))
    }

    fn reads_nothing(&mut self) -> &mut Self {
        self.at_once(Op::Read, Outcome::read(None))
    }

    fn holds(&self) {
        assert_eq!(self.history.check(), Ok(None));
    }

    fn is_violated(&self) -> Violation {
        self.history.check().unwrap_err()
    }
}

fn cell(value: &str, version: i64) -> Seen {
    Some(Cell { value: value.into(), version: Some(version) })
}

fn applied_as(version: i64) -> Outcome {
    Outcome::Applied { before: None, after: None, version: Some(version) }
}

fn not_held() -> Outcome {
    Outcome::NotHeld { found: None }
}

#[test]
fn operations_one_at_a_time_hold() {
    let mut story = Story::default();
    story.reads_nothing().put("a").reads("a").put("b").reads("b");
    story.at_once(Op::delete(), Outcome::applied()).reads_nothing();
    story.at_once(Op::append("x"), Outcome::applied()).at_once(Op::append("y"), Outcome::applied()).reads("xy");
    story.holds();
}

#[test]
fn a_stale_read_is_violated_and_explained() {
    let mut story = Story::default();
    story.put("a").reads("a").put("b").reads("b").reads("a");
    let violation = story.is_violated();
    let (culprit, excerpt) = violation.what.split_once(']').expect("it names the culprit");
    assert!(culprit.contains("read -> a at"), "{violation}");
    // The two reads before it do not matter.
    assert_eq!(excerpt.matches("; ").count(), 3, "{violation}");
    assert!(violation.to_string().starts_with("k is not linearizable"), "{violation}");
}

#[test]
fn a_lost_update_is_violated() {
    let mut story = Story::default();
    story.put("a").put("b").reads("a");
    story.is_violated();
    let mut story = Story::default();
    story.put("a").reads_nothing();
    story.is_violated();
    // Two increments at a time, of which one is lost.
    let mut story = Story::default();
    let (one, other) = (story.begin(Op::add(1)), story.begin(Op::add(1)));
    story.end(one, Outcome::applied());
    story.end(other, Outcome::applied());
    story.at_once(Op::Read, Outcome::read(Some(&1i64.to_be_bytes())));
    story.is_violated();
}

#[test]
fn a_value_from_nowhere_is_violated() {
    let mut story = Story::default();
    story.put("a").reads("b");
    story.is_violated();
}

#[test]
fn a_write_that_takes_effect_twice_is_violated() {
    let mut story = Story::default();
    story.at_once(Op::append("x"), Outcome::applied()).reads("xx");
    story.is_violated();
    let mut story = Story::default();
    story.put("a").put("b").reads("b").reads("a");
    story.is_violated();
}

#[test]
fn a_read_from_the_future_is_violated() {
    let mut story = Story::default();
    story.reads("a").put("a");
    story.is_violated();
}

#[test]
fn concurrent_operations_take_effect_in_any_order_but_one() {
    let mut story = Story::default();
    let (a, b) = (story.begin(Op::put("a")), story.begin(Op::put("b")));
    story.end(b, Outcome::applied());
    story.reads("b");
    story.end(a, Outcome::applied());
    story.reads("a").holds();
    let mut story = Story::default();
    let (a, b) = (story.begin(Op::put("a")), story.begin(Op::put("b")));
    story.reads("b").reads("a");
    story.end(a, Outcome::applied());
    story.end(b, Outcome::applied());
    story.reads("b");
    story.is_violated();
}

#[test]
fn a_write_of_the_present_value_may_come_later() {
    let mut story = Story::default();
    story.put("a");
    let (a, b) = (story.begin(Op::put("a")), story.begin(Op::put("b")));
    story.end(a, Outcome::applied());
    story.end(b, Outcome::applied());
    story.reads("a").holds();
}

#[test]
fn a_write_with_an_unknown_outcome_may_take_effect_late_once_or_never() {
    let unknown = |story: &mut Story| {
        let id = story.begin(Op::put("u"));
        story.end(id, Outcome::Unknown);
    };
    let mut story = Story::default();
    story.put("a");
    unknown(&mut story);
    story.reads("a").put("b").reads("b").reads("u").reads("u").holds();
    let mut story = Story::default();
    story.put("a");
    unknown(&mut story);
    story.reads("a").reads("a").holds();
    let mut story = Story::default();
    story.put("a");
    unknown(&mut story);
    story.reads("u").put("b").reads("u");
    story.is_violated();
    // Not before its call.
    let mut story = Story::default();
    story.reads("u");
    unknown(&mut story);
    story.is_violated();
}

#[test]
fn a_refused_write_has_no_effect() {
    let mut story = Story::default();
    story.put("a").at_once(Op::put("b"), Outcome::Refused).reads("a").holds();
    story.reads("b");
    story.is_violated();
}

#[test]
fn conditions_are_judged_by_what_they_found() {
    let set = |from: &str, to: &str| Op::put_if(Condition::Equals(from.into()), to);
    let mut story = Story::default();
    story.put("a").at_once(set("a", "b"), Outcome::applied()).at_once(set("a", "c"), not_held()).reads("b").holds();
    let mut story = Story::default();
    story.put("a");
    let (one, other) = (story.begin(set("a", "b")), story.begin(set("a", "c")));
    story.end(one, Outcome::applied());
    story.end(other, Outcome::applied());
    story.is_violated();
    let mut story = Story::default();
    story.put("a").at_once(Op::put_if(Condition::Absent, "b"), Outcome::applied());
    story.is_violated();
    let mut story = Story::default();
    story.put("a").at_once(Op::put_if(Condition::Exists, "b"), not_held());
    story.is_violated();
    let mut story = Story::default();
    story.put("a").at_once(set("z", "b"), Outcome::NotHeld { found: Some(cell("q", 1)) });
    story.is_violated();
}

#[test]
fn versions_are_learned_and_then_have_to_agree() {
    let mut story = Story::default();
    story.put("a");
    story.at_once(Op::Read, Outcome::Read(cell("a", 5))).at_once(Op::Read, Outcome::Read(cell("a", 5))).holds();
    story.at_once(Op::put_if(Condition::Version(4), "b"), not_held());
    story.at_once(Op::put_if(Condition::Version(5), "b"), applied_as(6));
    story.at_once(Op::Read, Outcome::Read(cell("b", 6))).holds();
    story.at_once(Op::Read, Outcome::Read(cell("b", 7)));
    story.is_violated();
    let mut story = Story::default();
    story.at_once(Op::put("a"), applied_as(5)).at_once(Op::put_if(Condition::Version(5), "b"), not_held());
    story.is_violated();
}

#[test]
fn returned_cells_are_checked() {
    let number = |number: i64| Some(Cell::of_value(&number.to_be_bytes()));
    let giving = |after| Outcome::Applied { before: None, after: Some(after), version: None };
    let mut story = Story::default();
    story.at_once(Op::add(2), giving(number(2))).at_once(Op::add(3), giving(number(5))).holds();
    story.at_once(Op::add(1), giving(number(5)));
    story.is_violated();
    let mut story = Story::default();
    let replaced = Outcome::Applied { before: Some(cell("a", 1)), after: None, version: None };
    story.at_once(Op::put("a"), applied_as(1)).at_once(Op::put("b"), replaced.clone()).holds();
    story.at_once(Op::put("c"), replaced);
    story.is_violated();
}

#[test]
fn keys_are_independent_and_the_violated_one_is_named() {
    let mut history = History::default();
    for key in ["a", "b"] {
        let write = history.begin("c", key.as_bytes(), Op::put(key), Duration::ZERO);
        history.end(write, Outcome::applied(), Duration::ZERO);
    }
    let read = history.begin("c", b"b", Op::Read, Duration::ZERO);
    history.end(read, Outcome::read(Some(b"a")), Duration::ZERO);
    assert_eq!(history.check().unwrap_err().key, b"b", "it never held a");
    assert_eq!(history.known(), 3);
}

#[test]
fn a_search_beyond_its_bound_is_neither_a_violation_nor_a_proof() {
    let mut story = Story::default();
    for value in ["a", "b", "c", "d", "e", "f", "g", "h"] {
        let id = story.begin(Op::append(value));
        story.end(id, Outcome::Unknown);
    }
    story.reads("impossible");
    assert_eq!(story.history.check_within(50), Ok(Some(b"k".to_vec())));
    story.is_violated();
}

/// What a client does in a generated history.
#[derive(Clone)]
enum Client {
    Idle,
    Called(OpId, Op),
    Done(OpId, Outcome),
}

/// The sequential model that generates histories: it shares nothing with the search.
fn execute(state: &mut Option<Vec<u8>>, op: &Op) -> Outcome {
    let before = state.clone();
    let Op::Update { condition, change } = op else { return Outcome::read(before.as_deref()) };
    let holds = match condition {
        Condition::Always => true,
        Condition::Absent => before.is_none(),
        Condition::Exists => before.is_some(),
        Condition::Equals(value) => before.as_ref() == Some(value),
        Condition::Version(_) => unreachable!("the model has no versions"),
    };
    if !holds {
        return Outcome::NotHeld { found: Some(before.as_deref().map(Cell::of_value)) };
    }
    *state = match change {
        Change::Put(value) => Some(value.clone()),
        Change::Delete => None,
        Change::Append(bytes) => Some([before.unwrap_or_default(), bytes.clone()].concat()),
        Change::Add(_) => unreachable!("the model has no numbers"),
    };
    Outcome::applied()
}

fn random_op(rng: &mut StdRng, values: &[String]) -> Op {
    let value = values.choose(rng).expect("not empty").clone();
    let other = values.choose(rng).expect("not empty").clone();
    match rng.random_range(0..10) {
        0..=3 => Op::Read,
        4 | 5 => Op::put(value),
        6 => Op::delete(),
        7 => Op::append(value),
        8 => Op::put_if(Condition::Equals(other.into_bytes()), value),
        _ => Op::put_if(Condition::Absent, value),
    }
}

/// A linearizable history: every operation takes effect at one moment between call and return, or its outcome is lost.
fn generated(rng: &mut StdRng, events: usize, clients: usize, values: &[String], lost: f64) -> Story {
    let mut story = Story::default();
    let (mut state, mut clients) = (None, vec![Client::Idle; clients]);
    for _ in 0..events {
        let client = rng.random_range(0..clients.len());
        clients[client] = match clients[client].clone() {
            Client::Idle => {
                let op = random_op(rng, values);
                Client::Called(story.begin(op.clone()), op)
            }
            Client::Called(id, _) if rng.random_bool(lost) => {
                story.end(id, Outcome::Unknown);
                Client::Idle
            }
            Client::Called(id, op) => Client::Done(id, execute(&mut state, &op)),
            Client::Done(id, _) if rng.random_bool(lost) => {
                story.end(id, Outcome::Unknown);
                Client::Idle
            }
            Client::Done(id, outcome) => {
                story.end(id, outcome);
                Client::Idle
            }
        };
    }
    story
}

/// Tries all orders, without any of the search's shortcuts.
fn brute_force(records: &[Record], placed: &mut Vec<bool>, state: &Option<Vec<u8>>) -> bool {
    let is_missing = |place: usize| !placed[place] && records[place].is_known();
    let missing: Vec<usize> = (0..records.len()).filter(|place| is_missing(*place)).collect();
    if missing.is_empty() {
        return true;
    }
    let last_call = missing.iter().map(|place| records[*place].returned).min().expect("not empty");
    for place in 0..records.len() {
        if placed[place] || records[place].called > last_call {
            continue;
        }
        let mut reached = state.clone();
        let outcome = execute(&mut reached, &records[place].op);
        if records[place].is_known() && outcome != records[place].outcome {
            continue;
        }
        placed[place] = true;
        let found = brute_force(records, placed, &reached);
        placed[place] = false;
        if found {
            return true;
        }
    }
    false
}

fn names(count: usize) -> Vec<String> {
    (0..count).map(|name| format!("v{name}")).collect()
}

#[test]
fn the_search_agrees_with_trying_all_orders() {
    let mut rng = StdRng::seed_from_u64(13);
    let (mut right, mut wrong) = (0, 0);
    for _ in 0..3_000 {
        let values = names(3);
        let mut story = generated(&mut rng, 20, 3, &values, 0.1);
        // Half of them with another result somewhere, which may or may not be possible.
        if rng.random_bool(0.5) {
            let reads = story.history.records.iter_mut().filter(|record| matches!(record.outcome, Outcome::Read(_)));
            if let Some(read) = reads.collect::<Vec<_>>().choose_mut(&mut rng) {
                let value = values.choose(&mut rng).expect("not empty");
                read.outcome = Outcome::read(rng.random_bool(0.8).then_some(value.as_bytes()));
            }
        }
        let records: Vec<Record> = story.history.records.iter().filter(|record| record.counts()).cloned().collect();
        let expected = brute_force(&records, &mut vec![false; records.len()], &None);
        let judged = story.history.check();
        assert_eq!(judged == Ok(None), expected, "{judged:?} {records:#?}");
        *if expected { &mut right } else { &mut wrong } += 1;
    }
    assert!(right > 500 && wrong > 500, "{right} right, {wrong} wrong");
}

#[test]
fn long_histories_hold_until_a_result_is_changed() {
    for seed in 0..10 {
        let mut rng = StdRng::seed_from_u64(seed);
        let mut story = generated(&mut rng, 600, 4, &names(40), 0.005);
        story.holds();
        let reads = story.history.records.iter_mut().filter(|record| matches!(record.outcome, Outcome::Read(_)));
        let mut reads: Vec<&mut Record> = reads.collect();
        reads.choose_mut(&mut rng).expect("there are reads").outcome = Outcome::read(Some(b"never"));
        let violation = story.is_violated();
        assert!(violation.what.contains("never"), "{violation}");
    }
}
