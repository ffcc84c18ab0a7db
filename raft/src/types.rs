//! The openraft type configuration of this crate, and names for the types derived from it.
//!
//! `leader_id_std` allows one leader per term, which the term check of entries depends on. Under the feature `sim` the
//! runtime draws randomness from a task-local seed, so code that starts openraft tasks must run inside [`scope`].

use std::fmt;
use std::future::Future;

use bytes::Bytes;
use openraft::raft::responder::Responder;
use openraft::type_config::alias;
use openraft::vote::RaftLeaderId;
use terrane_types::{ReplicaId, ServerId};
use tokio::sync::watch;
use tokio::task::JoinHandle;

use crate::proposals::erased::Answers;
use crate::runtime::RaftRuntime;

/// The type configuration of all groups.
#[derive(Debug, Clone, Copy, Default, Eq, PartialEq, Ord, PartialOrd)]
pub(crate) struct Types {}

impl openraft::RaftTypeConfig for Types {
    type D = Packed;
    type R = Applied;
    type NodeId = ReplicaId;
    type Node = Member;
    type Term = u64;
    type LeaderId = openraft::impls::leader_id_std::LeaderId<u64, ReplicaId>;
    type Vote = openraft::impls::Vote<Self::LeaderId>;
    type Payload = openraft::EntryPayload<Packed, ReplicaId, Member>;
    type Entry = openraft::Entry<<Self::LeaderId as RaftLeaderId>::Committed, Self::Payload>;
    type Responder<T>
        = Answer<T>
    where
        T: openraft::OptionalSend + 'static;
    type Batch<T>
        = openraft::impls::InlineBatch<T>
    where
        T: openraft::OptionalSend + 'static;
    type AsyncRuntime = RaftRuntime;
    type ErrorSource = openraft::impls::BoxedErrorSource;
}

pub(crate) type LogId = alias::LogIdOf<Types>;
pub(crate) type Vote = alias::VoteOf<Types>;
pub(crate) type Entry = alias::EntryOf<Types>;
pub(crate) type Payload = alias::PayloadOf<Types>;
pub(crate) type Membership = openraft::Membership<ReplicaId, Member>;
pub(crate) type StoredMembership = alias::StoredMembershipOf<Types>;
/// A moment on the clock by which openraft measures leases.
pub(crate) type LeaseInstant = alias::InstantOf<Types>;
pub(crate) type Metrics = openraft::RaftMetrics<Types>;

/// The bytes of a normal entry, as `entry.rs` lays them out.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Packed(pub(crate) Bytes);

impl fmt::Display for Packed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} bytes", self.0.len())
    }
}

/// The outcome of applying an entry.
pub(crate) enum Applied {
    /// It took effect; one answer per operation (none for entries without operations).
    Answered {
        answers: Answers,
        /// How long it and the entries applied together with it took.
        apply_ns: u64,
    },
    /// Its term or ordinal did not hold: it has no effect on any replica.
    Skipped,
}

/// What a membership records about a member in addition to its replica id. Addresses are looked up, never logged.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Member {
    pub(crate) server: ServerId,
}

/// Carries the outcome of one entry straight to the proposer, in the task that learned it.
pub(crate) struct Answer<T> {
    then: Box<dyn FnOnce(T) + Send>,
}

impl<T> Answer<T> {
    pub(crate) fn new(then: impl FnOnce(T) + Send + 'static) -> Answer<T> {
        Answer { then: Box::new(then) }
    }
}

impl<T: openraft::OptionalSend + 'static> Responder<Types, T> for Answer<T> {
    fn on_complete(self, outcome: T) {
        (self.then)(outcome);
    }
}

pub(crate) fn log_id(term: u64, index: u64) -> LogId {
    LogId::new(term.into(), index)
}

pub(crate) fn term_of(id: &LogId) -> u64 {
    id.leader_id.term
}

/// Runs `future` with the randomness of openraft seeded by `seed`, so that the tasks it starts are reproducible in the
/// simulator. In production it is `future` itself.
#[cfg(feature = "sim")]
pub fn scope<F: Future>(seed: u64, future: F) -> impl Future<Output = F::Output> {
    crate::runtime::TokioRuntime::scope(seed, future)
}

/// Runs `future` with the randomness of openraft seeded by `seed`, so that the tasks it starts are reproducible in the
/// simulator. In production it is `future` itself.
#[cfg(not(feature = "sim"))]
pub fn scope<F: Future>(_seed: u64, future: F) -> impl Future<Output = F::Output> {
    future
}

/// Spawns a task that may call into openraft.
pub(crate) fn spawn<F>(future: F) -> JoinHandle<()>
where
    F: Future<Output = ()> + Send + 'static,
{
    tokio::spawn(scope(terrane_env::rand::u64(), future))
}

/// Returns when the host stops or is dropped.
pub(crate) async fn until_stopped(stopped: &mut watch::Receiver<bool>) {
    // The guard inside the answer must not live across another await.
    drop(stopped.wait_for(|stopped| *stopped).await);
}
