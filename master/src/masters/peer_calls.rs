//! What this master answers to the other masters.

use std::collections::BTreeMap;
use std::sync::{Arc, OnceLock};

use bytes::Bytes;
use terrane_env::budget::{Unit, Usage};
use terrane_proto::{error, v1};
use terrane_types::{Error, GroupId};
use tonic::{Request, Response, Status};

use crate::catalog::Catalog;
use crate::context::MasterContext;
use crate::masters::founding::FoundingState;
use crate::masters::joining::Joining;
use crate::masters::numbers::{Peer, numbered};
use crate::masters::peers::wire;
use crate::masters::replacing;
use crate::versions;

/// The service of one master for the others. It answers about the founding before the catalog is open.
#[derive(Clone)]
pub struct PeerCalls {
    joining: Arc<Joining>,
    founding: Arc<OnceLock<Arc<FoundingState>>>,
    context: Arc<OnceLock<Arc<MasterContext>>>,
}

impl PeerCalls {
    /// The service of a process whose identity is not known yet.
    pub fn new(joining: Joining) -> Self {
        Self { joining: Arc::new(joining), founding: Arc::default(), context: Arc::default() }
    }

    /// What the process is.
    pub fn joining(&self) -> &Joining {
        &self.joining
    }

    /// Answers the other masters with this from now on, unless it does already.
    pub fn announce(&self, state: Arc<FoundingState>) -> Arc<FoundingState> {
        Arc::clone(self.founding.get_or_init(|| state))
    }

    /// The catalog is open.
    pub fn begin(&self, context: Arc<MasterContext>) {
        assert!(self.context.set(context).is_ok(), "a catalog is opened once");
    }

    fn context(&self, hello: Option<&v1::Hello>) -> Result<&MasterContext, Status> {
        let context = self.context.get().ok_or_else(starting)?;
        let admitted = context.journal.peers().check(hello).and_then(|()| {
            let cluster = context.journal.read(Catalog::level);
            versions::admit_known(&terrane_proto::versions::theirs(hello, None), cluster)
        });
        admitted.map_err(|refused| error::status(&refused))?;
        Ok(context)
    }
}

fn starting() -> Status {
    error::status(&Error::NotLeader {
        group: GroupId::MASTER,
        term: 0,
        leader: None,
        address: None,
        members: Vec::new(),
    })
}

/// The masters, without those that are being added, with the numbers that they had when they became masters.
fn present(context: &MasterContext) -> Vec<Peer> {
    let changed = context.journal.read(|catalog| catalog.masters().present.clone());
    if !changed.is_empty() {
        return changed;
    }
    let peers = context.journal.peers();
    // One that was added may not have the catalog yet.
    let places = if peers.is_founder() { peers.places() } else { BTreeMap::new() };
    places.into_iter().map(|(place, address)| Peer { number: numbered(place, 0), address }).collect()
}

/// How this master stands.
pub fn state(context: &MasterContext) -> v1::MasterStateReply {
    let status = context.journal.group_status();
    let leads = context.leadership.holds();
    v1::MasterStateReply {
        leads,
        term: status.term,
        applied: status.applied,
        committed: status.committed,
        waits: if leads { context.waits() } else { Vec::new() },
        members: status.members.values().map(|server| server.0).collect(),
        versions: Some(context.versions.said()),
        is_learner: !status.voters.contains(&status.replica),
        leader: context.journal.leader_address().unwrap_or_default(),
        endpoints: context.endpoints.iter().cloned().map(Into::into).collect(),
        resources: context.budgets.usage().into_iter().map(resource_usage).collect(),
        issues: context.health.own().into_iter().map(Into::into).collect(),
    }
}

fn resource_usage(usage: Usage) -> v1::ResourceUsage {
    let Usage { name, unit, used, peak, limit, refused } = usage;
    v1::ResourceUsage { name: name.to_owned(), bytes: unit == Unit::Bytes, used, peak, limit, refused }
}

#[tonic::async_trait]
impl v1::master_peers_server::MasterPeers for PeerCalls {
    async fn founding(&self, _request: Request<v1::FoundingRequest>) -> Result<Response<v1::FoundingReply>, Status> {
        let mut reply = self.founding.get().ok_or_else(starting)?.reply();
        if let Some(context) = self.context.get() {
            reply.cluster_id = Bytes::copy_from_slice(&context.journal.peers().cluster().0);
            reply.masters = present(context).iter().map(wire).collect();
        }
        Ok(Response::new(reply))
    }

    async fn read_index(&self, request: Request<v1::ReadIndexRequest>) -> Result<Response<v1::ReadIndexReply>, Status> {
        let context = self.context(request.get_ref().hello.as_ref())?;
        let index = context.journal.read_index().await.map_err(|refused| error::status(&refused))?;
        Ok(Response::new(v1::ReadIndexReply { index }))
    }

    async fn master_state(
        &self,
        request: Request<v1::MasterStateRequest>,
    ) -> Result<Response<v1::MasterStateReply>, Status> {
        let context = self.context(request.get_ref().hello.as_ref())?;
        Ok(Response::new(state(context)))
    }

    async fn replace(&self, request: Request<v1::ReplaceRequest>) -> Result<Response<v1::ReplaceReply>, Status> {
        let v1::ReplaceRequest { hello, place, master, address } = request.into_inner();
        let context = self.context(hello.as_ref())?;
        let place = usize::try_from(place).unwrap_or(usize::MAX);
        let step = replacing::step(context, place, master, &address).await;
        step.map(Response::new).map_err(|refused| error::status(&refused))
    }

    async fn join(&self, request: Request<v1::JoinRequest>) -> Result<Response<v1::JoinReply>, Status> {
        self.joining.answer(request.into_inner()).map(Response::new).map_err(|refused| error::status(&refused))
    }
}
