//! The service `Diagnostics` of a master: the filter of its log. A master has no slow requests, since it
//! answers from memory, and no rows.

use terrane_env::log_control;
use terrane_env::net::peer_of;
use terrane_proto::hello::Identity;
use terrane_proto::{error, hello, v1};
use terrane_types::Invalid;
use tonic::{Request, Response, Status};

/// The edge for people's questions.
pub struct DiagnosticsService {
    identity: Identity,
}

impl DiagnosticsService {
    /// The service of a master of this cluster.
    pub fn new(identity: Identity) -> Self {
        Self { identity }
    }

    fn check(&self, hello: Option<&v1::Hello>) -> Result<(), Status> {
        hello::check_cluster(hello, self.identity, false).map_err(|refused| error::status(&refused))
    }
}

#[tonic::async_trait]
impl v1::diagnostics_server::Diagnostics for DiagnosticsService {
    async fn slow_requests(
        &self,
        request: Request<v1::SlowRequestsRequest>,
    ) -> Result<Response<v1::SlowRequestsReply>, Status> {
        self.check(request.into_inner().hello.as_ref())?;
        Ok(Response::new(v1::SlowRequestsReply::default()))
    }

    async fn hot_rows(&self, request: Request<v1::HotRowsRequest>) -> Result<Response<v1::HotRowsReply>, Status> {
        self.check(request.into_inner().hello.as_ref())?;
        Ok(Response::new(v1::HotRowsReply::default()))
    }

    async fn slow_threshold(
        &self,
        request: Request<v1::SlowThresholdRequest>,
    ) -> Result<Response<v1::SlowThresholdReply>, Status> {
        self.check(request.into_inner().hello.as_ref())?;
        Ok(Response::new(v1::SlowThresholdReply::default()))
    }

    async fn log_filter(&self, request: Request<v1::LogFilterRequest>) -> Result<Response<v1::LogFilterReply>, Status> {
        let peer = peer_of(request.extensions());
        let v1::LogFilterRequest { hello, filter } = request.into_inner();
        self.check(hello.as_ref())?;
        let changed = log_control::change_filter_for(&peer, &filter);
        let filter = changed.map_err(|why| error::status(&Invalid::new(why).into()))?;
        Ok(Response::new(v1::LogFilterReply { filter }))
    }
}
