//! State machines, submissions and answers with their types erased.
//!
//! Callers see one pair of types per host: what is proposed and what it is answered with ([`crate::GroupHost`],
//! [`crate::Group`], [`StateMachine`]). Between the handle and the state machine nothing depends on them, so everything in
//! between, openraft included, is compiled once, in this crate. The types come together again in two places: where a
//! state machine prepares a proposal, and where a submission receives its answer. A host opens all its state machines
//! with one [`crate::Factory`], so they always match.

use std::any::Any;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::vec;

use futures::FutureExt;

use crate::{
    AppliedEntry, BoxFuture, Durable, Packing, Prepared, Progress, ProposeError, StagedCopy, StateCopy, StateMachine,
    Timing,
};

/// Why a downcast here cannot fail.
const ONE_FACTORY: &str = "a host's groups all have the state machine of its factory";

/// A proposal together with the receiver of its outcome.
pub(crate) trait Submission: Send {
    /// The proposal, for [`Machine::prepare`].
    fn proposal(&self) -> &dyn Any;

    /// Passes the outcome on: the next one of these answers, or an error.
    fn finish(self: Box<Self>, outcome: Result<&mut Answers, ProposeError>, timing: Timing);
}

/// What is proposed, and the closure that receives the outcome.
struct Typed<P, A, F> {
    proposal: P,
    reply: F,
    answer: std::marker::PhantomData<fn(A)>,
}

impl<P, A, F> Submission for Typed<P, A, F>
where
    P: Send + 'static,
    A: Send + Sync + 'static,
    F: FnOnce(Result<A, ProposeError>, Timing) + Send + 'static,
{
    fn proposal(&self) -> &dyn Any {
        &self.proposal
    }

    fn finish(self: Box<Self>, outcome: Result<&mut Answers, ProposeError>, timing: Timing) {
        (self.reply)(outcome.map(Answers::take), timing);
    }
}

/// A submission of this proposal, whose outcome goes to `reply`.
pub(crate) fn submission<P, A, F>(proposal: P, reply: F) -> Box<dyn Submission>
where
    P: Send + 'static,
    A: Send + Sync + 'static,
    F: FnOnce(Result<A, ProposeError>, Timing) + Send + 'static,
{
    Box::new(Typed { proposal, reply, answer: std::marker::PhantomData })
}

/// Answers to the operations of one entry that were not passed on yet, in the order of the operations.
pub(crate) struct Answers {
    /// A [`vec::IntoIter`] of the state machine's answers.
    left: Box<dyn Any + Send + Sync>,
    count: usize,
}

impl Answers {
    pub(crate) fn new<A: Send + Sync + 'static>(answers: Vec<A>) -> Answers {
        Answers { count: answers.len(), left: Box::new(answers.into_iter()) }
    }

    /// How many are left.
    pub(crate) fn len(&self) -> usize {
        self.count
    }

    /// The next answer.
    fn take<A: 'static>(&mut self) -> A {
        let left = self.left.downcast_mut::<vec::IntoIter<A>>().expect(ONE_FACTORY);
        self.count -= 1;
        left.next().expect("an entry is answered only if each of its operations has an answer")
    }
}

/// A [`StateMachine`] of any types.
pub(crate) trait Machine: Send + Sync {
    fn prepare(&self, packing: &Packing, proposal: &dyn Any, entry: &mut Vec<u8>) -> Prepared<Answers>;
    fn apply<'a>(&'a self, entries: &'a [AppliedEntry]) -> BoxFuture<'a, Vec<Answers>>;
    fn progress(&self) -> Progress;
    fn note_damage(&self, what: &str);
    fn damage(&self) -> Option<String>;
    fn durable(&self) -> Durable;
    fn keeps_files_after(&self, index: u64) -> bool;
    fn relieve(&self, index: u64);
    fn discard_assumptions(&self);
    fn gained_leadership(&self);
    fn began_to_serve(&self);
    fn lost_leadership(&self);
    fn can_be_copied(&self) -> bool;
    fn copy(&self) -> BoxFuture<'_, Result<Arc<dyn StateCopy>, String>>;
    fn incoming_dir(&self) -> Option<PathBuf>;
    fn incoming(&self, bytes: u64) -> BoxFuture<'_, Result<PathBuf, String>>;
    fn stage<'a>(&'a self, dir: &'a Path, index: u64) -> BoxFuture<'a, Result<Box<dyn StagedCopy>, String>>;
}

impl<M: StateMachine> Machine for M {
    fn prepare(&self, packing: &Packing, proposal: &dyn Any, entry: &mut Vec<u8>) -> Prepared<Answers> {
        let proposal = proposal.downcast_ref::<M::Proposal>().expect(ONE_FACTORY);
        match StateMachine::prepare(self, packing, proposal, entry) {
            Prepared::Packed => Prepared::Packed,
            Prepared::PackedAlone => Prepared::PackedAlone,
            Prepared::Refused(answer) => Prepared::Refused(Answers::new(vec![answer])),
            Prepared::WhenLanded => Prepared::WhenLanded,
            Prepared::NeedsDisk(reading) => Prepared::NeedsDisk(reading),
            Prepared::Later => Prepared::Later,
        }
    }

    fn apply<'a>(&'a self, entries: &'a [AppliedEntry]) -> BoxFuture<'a, Vec<Answers>> {
        StateMachine::apply(self, entries).map(|all| all.into_iter().map(Answers::new).collect()).boxed()
    }

    fn progress(&self) -> Progress {
        StateMachine::progress(self)
    }

    fn note_damage(&self, what: &str) {
        StateMachine::note_damage(self, what);
    }

    fn damage(&self) -> Option<String> {
        StateMachine::damage(self)
    }

    fn durable(&self) -> Durable {
        StateMachine::durable(self)
    }

    fn keeps_files_after(&self, index: u64) -> bool {
        StateMachine::keeps_files_after(self, index)
    }

    fn relieve(&self, index: u64) {
        StateMachine::relieve(self, index);
    }

    fn discard_assumptions(&self) {
        StateMachine::discard_assumptions(self);
    }

    fn gained_leadership(&self) {
        StateMachine::gained_leadership(self);
    }

    fn began_to_serve(&self) {
        StateMachine::began_to_serve(self);
    }

    fn lost_leadership(&self) {
        StateMachine::lost_leadership(self);
    }

    fn can_be_copied(&self) -> bool {
        StateMachine::can_be_copied(self)
    }

    fn copy(&self) -> BoxFuture<'_, Result<Arc<dyn StateCopy>, String>> {
        StateMachine::copy(self)
    }

    fn incoming_dir(&self) -> Option<PathBuf> {
        StateMachine::incoming_dir(self)
    }

    fn incoming(&self, bytes: u64) -> BoxFuture<'_, Result<PathBuf, String>> {
        StateMachine::incoming(self, bytes)
    }

    fn stage<'a>(&'a self, dir: &'a Path, index: u64) -> BoxFuture<'a, Result<Box<dyn StagedCopy>, String>> {
        StateMachine::stage(self, dir, index)
    }
}
