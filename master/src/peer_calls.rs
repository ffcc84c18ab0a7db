//! What this master answers to the other masters.

use std::sync::{Arc, OnceLock};

use terrane_proto::{error, v1};
use terrane_types::{Error, GroupId};
use tonic::{Request, Response, Status};

use crate::catalog::Catalog;
use crate::context::MasterContext;
use crate::founding::Told;
use crate::{replacing, versions};

/// The service of one master for the others. It answers about the founding before the catalog is open.
#[derive(Clone)]
pub struct PeerCalls {
    told: Arc<Told>,
    context: Arc<OnceLock<Arc<MasterContext>>>,
}

impl PeerCalls {
    /// The service of a master that tells this about the founding.
    pub fn new(told: Arc<Told>) -> Self {
        Self { told, context: Arc::default() }
    }

    /// The catalog is open.
    pub fn begin(&self, context: Arc<MasterContext>) {
        assert!(self.context.set(context).is_ok(), "a catalog is opened once");
    }

    fn context(&self, hello: Option<&v1::Hello>) -> Result<&MasterContext, Status> {
        let starting =
            || Error::NotLeader { group: GroupId::MASTER, term: 0, leader: None, address: None, members: Vec::new() };
        let context = self.context.get().ok_or_else(|| error::status(&starting()))?;
        let admitted = context.journal.peers().check(hello).and_then(|()| {
            let cluster = context.journal.read(Catalog::level);
            versions::admit_known(&terrane_proto::versions::theirs(hello, None), cluster)
        });
        admitted.map_err(|refused| error::status(&refused))?;
        Ok(context)
    }
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
    }
}

#[tonic::async_trait]
impl v1::master_peers_server::MasterPeers for PeerCalls {
    async fn founding(&self, _request: Request<v1::FoundingRequest>) -> Result<Response<v1::FoundingReply>, Status> {
        Ok(Response::new(self.told.reply()))
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
        let v1::ReplaceRequest { hello, place, master } = request.into_inner();
        let context = self.context(hello.as_ref())?;
        let place = usize::try_from(place).unwrap_or(usize::MAX);
        let step = replacing::step(context, place, master).await;
        step.map(Response::new).map_err(|refused| error::status(&refused))
    }
}
