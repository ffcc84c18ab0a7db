//! The replicas of a server process, as typed by what is proposed to them.

use std::marker::PhantomData;
use std::ops::Deref;
use std::sync::Arc;

use terrane_types::{GroupId, ReplicaId};
use tokio::sync::oneshot;

use crate::groups::host::Host;
use crate::proposals::erased::Machine;
use crate::types::spawn;
use crate::{BoxFuture, Error, Factory, Group, GroupSpec, HostConfig, OpenError, Proposal, StateMachine};

/// All replicas of a server process, whose groups take proposals `P` and answer them with `A`. What does not depend on these
/// types is in [`Host`].
pub struct GroupHost<P, A> {
    host: Host,
    types: PhantomData<fn(P) -> A>,
}

impl<P: Proposal, A: Send + Sync + 'static> GroupHost<P, A> {
    /// Recovers the shared log under `config.dir` and starts the groups recorded in it.
    ///
    /// # Errors
    /// [`OpenError::Damage`] if acknowledged entries are unreadable; the other errors say what to do.
    pub fn open<F>(config: HostConfig, factory: Arc<F>) -> BoxFuture<'static, Result<Arc<Self>, OpenError>>
    where
        F: Factory,
        F::Machine: StateMachine<Proposal = P, Answer = A>,
    {
        let open_machine = move |spec: &GroupSpec| factory.open(spec) as Arc<dyn Machine>;
        let opening = Host::open(config, Box::new(open_machine));
        Box::pin(async move { Ok(Arc::new(Self { host: opening.await?, types: PhantomData })) })
    }

    /// Creates the local replica of a group, durably and idempotently. `lead` starts the first election.
    ///
    /// The creation continues if the caller goes away: a group that is in the log but has no replica could be neither used nor
    /// created again.
    ///
    /// # Errors
    /// [`Error::Exists`] if this server has the group with other members.
    pub async fn create_group(self: &Arc<Self>, spec: GroupSpec, lead: bool) -> Result<(), Error> {
        self.to_the_end(|host| async move { host.host.create_group(spec, lead).await }).await
    }

    /// Creates the local replica of an existing group, durably and idempotently. It is empty and does not vote; it gets the
    /// log once the leader has added it. `spec` has the members to find the leader at, and this replica.
    ///
    /// # Errors
    /// [`Error::Exists`] if this server has another replica of the group.
    pub async fn join_group(self: &Arc<Self>, spec: GroupSpec) -> Result<(), Error> {
        self.to_the_end(|host| async move { host.host.join_group(spec).await }).await
    }

    /// Stops a local replica and removes it from the log, durably and idempotently. What its state machine has elsewhere is
    /// the caller's to remove, now or after a restart. The replica must have left the group, or be given up for good like one whose
    /// disk was lost.
    ///
    /// # Errors
    /// [`Error::Stopped`].
    pub async fn remove_group(self: &Arc<Self>, group: GroupId, replica: ReplicaId) -> Result<(), Error> {
        self.to_the_end(move |host| async move { host.host.remove_group(group, replica).await }).await
    }

    /// Runs a step to its end, even if the caller goes away.
    async fn to_the_end<S, F>(self: &Arc<Self>, step: S) -> Result<(), Error>
    where
        S: FnOnce(Arc<Self>) -> F,
        F: Future<Output = Result<(), Error>> + Send + 'static,
    {
        let (ended, outcome) = oneshot::channel();
        let step = step(self.clone());
        drop(spawn(async move {
            // The caller may have gone away.
            ended.send(step.await).ok();
        }));
        // The task ends without a result only with the process.
        outcome.await.unwrap_or(Err(Error::Stopped))
    }

    /// The local replica of a group.
    pub fn group(&self, id: GroupId) -> Option<Group<P, A>> {
        self.host.replica(id).map(Group::new)
    }

    /// All local replicas, by group id.
    pub fn groups(&self) -> Vec<Group<P, A>> {
        self.host.replicas().into_iter().map(Group::new).collect()
    }
}

impl<P, A> Deref for GroupHost<P, A> {
    type Target = Host;

    fn deref(&self) -> &Host {
        &self.host
    }
}
