//! The replicas of a server process, as typed by what is proposed to them.

use std::marker::PhantomData;
use std::ops::Deref;
use std::sync::Arc;

use terrane_types::GroupId;

use crate::erased::Machine;
use crate::host::Host;
use crate::{BoxFuture, Factory, Group, GroupSpec, HostConfig, OpenError, Proposal, StateMachine};

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
