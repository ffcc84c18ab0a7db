//! A proposer's work as scripts: what is packed, put aside, sent again or redirected.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::sync::Arc;
use std::sync::atomic::AtomicUsize;
use std::time::Duration;

use bytes::Bytes;
use parking_lot::Mutex;
use tokio::time::Instant;

use super::{Backlog, EntryOutcome, HeaderInputs};
use terrane_types::versions::FEATURE_LEVEL;

use crate::proposals::entry::{Header, Sequence, format_at};
use crate::proposals::erased::{Answers, submission};
use crate::proposals::submission::Pending;
use crate::script::{Line, check};
use crate::{AppliedEntry, BoxFuture, Durable, Packing, Prepared, Proposal, ProposeError, StateMachine, Timing};

/// `name`, `name:KIND` or `name:KIND:BYTES`. Kinds: `packed`, `alone` (packed as the last of its turn), `landed` (waits until
/// it is alone), `disk` (waits for a read), `later` (waits for time, always), `refused`.
#[derive(Clone)]
struct Word {
    name: String,
    kind: String,
    bytes: usize,
}

impl Word {
    fn new(word: &str) -> Word {
        let mut parts = word.split(':');
        let name = parts.next().expect("a name").to_owned();
        let kind = parts.next().unwrap_or("packed").to_owned();
        Word { name, kind, bytes: parts.next().map_or(10, |bytes| bytes.parse().unwrap()) }
    }
}

impl Proposal for Word {
    fn bytes(&self) -> usize {
        self.bytes
    }
}

/// Names the operations it packs.
#[derive(Default)]
struct RecordingMachine {
    packed: Mutex<Vec<String>>,
    was_read: Mutex<bool>,
}

impl StateMachine for RecordingMachine {
    type Proposal = Word;
    type Answer = String;

    fn prepare(&self, packing: &Packing, word: &Word, entry: &mut Vec<u8>) -> Prepared<String> {
        match word.kind.as_str() {
            "later" => return Prepared::Later,
            "refused" => return Prepared::Refused("refused".to_owned()),
            "landed" if !packing.alone => return Prepared::WhenLanded,
            "disk" if !std::mem::take(&mut *self.was_read.lock()) => {
                return Prepared::NeedsDisk(Box::pin(std::future::ready(())));
            }
            _ => {}
        }
        entry.resize(entry.len() + word.bytes, 0);
        self.packed.lock().push(word.name.clone());
        if word.kind == "alone" { Prepared::PackedAlone } else { Prepared::Packed }
    }

    fn apply<'a>(&'a self, _: &'a [AppliedEntry]) -> BoxFuture<'a, Vec<Vec<String>>> {
        unreachable!("entries are applied by the script")
    }

    fn durable(&self) -> Durable {
        Durable::default()
    }

    fn relieve(&self, _: u64) {}
}

struct Script {
    backlog: Backlog,
    machine: RecordingMachine,
    now: Instant,
    sequence: Sequence,
    clock: u64,
    in_flight: BTreeMap<u64, (Bytes, Vec<Pending>)>,
    answers: Arc<Mutex<Vec<String>>>,
}

impl Script {
    fn new() -> Script {
        let now = Instant::now();
        Script {
            backlog: Backlog::new(Arc::new(AtomicUsize::new(0)), now),
            machine: RecordingMachine::default(),
            now,
            sequence: Sequence::default(),
            clock: 1_000,
            in_flight: BTreeMap::new(),
            answers: Arc::default(),
        }
    }

    fn pending(&self, word: &str) -> Pending {
        let (word, answers) = (Word::new(word), self.answers.clone());
        let (name, bytes) = (word.name.clone(), word.bytes);
        let reply = move |outcome: Result<String, ProposeError>, _: Timing| {
            let answer = outcome.unwrap_or_else(|error| format!("{error:?}"));
            answers.lock().push(format!("{name}: {answer}"));
        };
        Pending { submission: submission(word, reply), bytes, times_aside: 0, submitted_ns: 0 }
    }

    /// A turn of the proposer: everything that may be sent is.
    fn turn(&mut self, out: &mut String) {
        if self.backlog.requeue_returned() {
            writeln!(out, "the state machine drops its assumptions").unwrap();
        }
        let Some(term) = self.backlog.leads() else { return };
        self.backlog.expire_uncertain(self.now);
        while self.backlog.may_send(self.now) {
            let inputs = HeaderInputs {
                sequence: self.sequence,
                time: self.clock,
                floor: self.clock,
                released: 0,
                format: format_at(FEATURE_LEVEL),
            };
            let Some(entry) = self.backlog.pack(term, &inputs, &self.machine, self.now) else { continue };
            let names = self.machine.packed.lock().drain(..).collect::<Vec<_>>().join(" ");
            let names = if names.is_empty() { "no operations".to_owned() } else { names };
            let stamp = self.backlog.last_stamp;
            writeln!(out, "sends entry {} of term {term} at {stamp}: {names}", entry.ordinal).unwrap();
            self.in_flight.insert(entry.ordinal, (entry.bytes, entry.proposals));
        }
    }

    fn land(&mut self, ordinal: u64, how: &str, log_term: Option<u64>) {
        let (bytes, proposals) = self.in_flight.remove(&ordinal).expect("the entry is in flight");
        let header: Header = crate::proposals::entry::unpack(&bytes, format_at(FEATURE_LEVEL)).unwrap().0;
        let back = |proposals, refused| EntryOutcome::Back { ordinal, proposals, refused };
        let landed = match how {
            "applied" if self.sequence.accept(log_term.unwrap_or(header.term), &header) => {
                let mut answers = Answers::new(vec!["ok".to_owned(); proposals.len()]);
                proposals.into_iter().for_each(|pending| pending.answer(&mut answers, Timing::default()));
                EntryOutcome::Applied
            }
            "applied" => back(proposals, false),
            "refused" => back(proposals, true),
            "lost" => {
                proposals.into_iter().for_each(|pending| pending.fail(ProposeError::Uncertain));
                EntryOutcome::Lost
            }
            other => panic!("unknown outcome {other}"),
        };
        self.backlog.landed(landed, self.now);
    }

    fn play(&mut self, line: &str, out: &mut String) {
        let line = Line::new(line);
        match line.command() {
            "lead" => {
                if self.backlog.set_leads(Some(line.word(0))) {
                    writeln!(out, "the state machine drops what a leader keeps").unwrap();
                }
            }
            "follow" => {
                if self.backlog.set_leads(None) {
                    writeln!(out, "the state machine drops what a leader keeps").unwrap();
                }
                if self.backlog.redirect_waiting(line.has("awaits-successor"), self.now) {
                    self.backlog.fail_waiting(&ProposeError::NotLeader { term: 0, leader: None });
                }
            }
            "submit" => {
                let words: Vec<_> = line.words().map(|word| self.pending(word)).collect();
                self.backlog.take(words);
            }
            "hint" => self.backlog.hint = true,
            "read" => {
                *self.machine.was_read.lock() = true;
                self.backlog.reading = None;
            }
            "lands" => self.land(line.word(0), line.words().nth(1).expect("an outcome"), line.get("log-term")),
            "clock" => self.clock = line.word(0),
            "wait" => {
                self.now += Duration::from_millis(line.word(0));
                self.backlog.requeue_deferred(self.now);
                if self.backlog.timers(self.now).stalled.is_some_and(|at| at <= self.now) {
                    self.backlog.give_up_waiting();
                }
            }
            "turn" => {}
            other => panic!("unknown command {other}"),
        }
        self.turn(out);
        for answer in self.answers.lock().drain(..) {
            writeln!(out, "{answer}").unwrap();
        }
        let work = &self.backlog;
        let back: usize = work.back.iter().map(|(_, proposals)| proposals.len()).sum();
        let counts = (work.waiting.len(), work.aside.len(), work.in_flight, back);
        writeln!(out, "-- waiting {} aside {} in flight {} back {}", counts.0, counts.1, counts.2, counts.3).unwrap();
    }
}

/// Each command is followed by a turn of the proposer, and prints what it sends and answers.
/// - `lead TERM`, `follow [awaits-successor]`: a change of leadership.
/// - `submit WORD...`: proposals come in, see [`Word`]. `hint`: an entry is wanted in any case. `read`: a read has finished.
/// - `lands ORDINAL applied|refused|lost [log-term=T]`: an entry ends; applied in its own term unless said otherwise.
/// - `wait MS`, `clock MS`: time passes, for timers and for stamps.
fn start() -> impl FnMut(&str, &mut String) {
    let mut script = Script::new();
    move |line, out| script.play(line, out)
}

#[test]
fn scripts() {
    check("proposals/proposer/backlog", start);
}
