//! Services that exist only after their port serves.
//!
//! A master of a new cluster must answer the other masters before it can open its log, and the services of the log and
//! the catalog need both. One router serves all; until a service is there, its calls are refused as by a master that
//! does not lead, so that callers turn to another one.

use std::convert::Infallible;
use std::sync::{Arc, OnceLock};
use std::task::{Context, Poll};

use futures::future::{Either, Ready, ready};
use terrane_proto::error;
use terrane_types::{Error, GroupId};
use tonic::body::Body;
use tonic::codegen::{Service, http};
use tonic::server::NamedService;

/// A service that may not be there yet.
#[derive(Debug)]
pub struct Deferred<S> {
    service: Arc<OnceLock<S>>,
}

impl<S> Default for Deferred<S> {
    fn default() -> Self {
        Self { service: Arc::default() }
    }
}

impl<S> Clone for Deferred<S> {
    fn clone(&self) -> Self {
        Self { service: Arc::clone(&self.service) }
    }
}

impl<S> Deferred<S> {
    /// Serves calls from now on.
    pub fn begin(&self, service: S) {
        assert!(self.service.set(service).is_ok(), "a service begins once");
    }
}

impl<S: NamedService> NamedService for Deferred<S> {
    const NAME: &'static str = S::NAME;
}

impl<S> Service<http::Request<Body>> for Deferred<S>
where
    S: Service<http::Request<Body>, Response = http::Response<Body>, Error = Infallible> + Clone,
{
    type Response = http::Response<Body>;
    type Error = Infallible;
    type Future = Either<S::Future, Ready<Result<http::Response<Body>, Infallible>>>;

    /// The generated services are always ready.
    fn poll_ready(&mut self, _context: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: http::Request<Body>) -> Self::Future {
        match self.service.get() {
            Some(service) => Either::Left(service.clone().call(request)),
            None => Either::Right(ready(Ok(error::status(&starting()).into_http()))),
        }
    }
}

fn starting() -> Error {
    Error::NotLeader { group: GroupId::MASTER, term: 0, leader: None, address: None, members: Vec::new() }
}
