//! The service `Data`: the session stream, streaming scans, and the same calls as plain unary.
//!
//! Answers of all three share one budget of the server. A call that finds it used up is answered `Busy`.

use std::pin::Pin;
use std::sync::Arc;

use futures::Stream;
use terrane_env::time::now_ns;
use terrane_proto::hello::Identity;
use terrane_proto::{error, hello, v1};
use terrane_types::Error;
use tokio::sync::oneshot;
use tokio::time::Instant;
use tonic::{Request, Response, Status, Streaming};

use super::scan_stream::{self, Scan, begin};
use super::{decode, encode, session};
use crate::edge::{Edge, Got, Watch};
use crate::region::read::ROOM_RETRY;

/// Translates the service's calls to the edge.
pub struct DataService {
    pub identity: Identity,
    pub edge: Arc<Edge>,
}

type ReplyStream<T> = Pin<Box<dyn Stream<Item = Result<T, Status>> + Send>>;

#[tonic::async_trait]
impl v1::data_server::Data for DataService {
    type SessionStream = ReplyStream<v1::SessionReply>;
    type ScanStream = ReplyStream<v1::ScanBlock>;

    async fn session(
        &self,
        request: Request<Streaming<v1::SessionRequest>>,
    ) -> Result<Response<Self::SessionStream>, Status> {
        Ok(Response::new(Box::pin(session::serve(self.edge.clone(), self.identity, request.into_inner()))))
    }

    async fn scan(&self, request: Request<v1::ScanCall>) -> Result<Response<Self::ScanStream>, Status> {
        let call = self.decode_scan(request.into_inner()).map_err(|error| error::status(&error))?;
        Ok(Response::new(Box::pin(scan_stream::open(self.edge.clone(), call))))
    }

    async fn mutate(&self, request: Request<v1::MutateCall>) -> Result<Response<v1::MutateReply>, Status> {
        self.mutate_once(request.into_inner()).await.map(Response::new).map_err(|error| error::status(&error))
    }

    async fn get(&self, request: Request<v1::GetCall>) -> Result<Response<v1::GetReply>, Status> {
        self.get_once(request.into_inner()).await.map(Response::new).map_err(|error| error::status(&error))
    }

    async fn scan_once(&self, request: Request<v1::ScanCall>) -> Result<Response<v1::ScanBlock>, Status> {
        self.scan_block(request.into_inner()).await.map(Response::new).map_err(|error| error::status(&error))
    }

    async fn seal_page(&self, request: Request<v1::SealPageCall>) -> Result<Response<v1::SealPageReply>, Status> {
        self.seal(request.into_inner()).map(Response::new).map_err(|error| error::status(&error))
    }

    async fn open_page(&self, request: Request<v1::OpenPageCall>) -> Result<Response<v1::OpenPageReply>, Status> {
        self.open(request.into_inner()).map(Response::new).map_err(|error| error::status(&error))
    }

    /// Takes no budget and waits for nothing: a full server is alive too.
    async fn ping(&self, _: Request<v1::PingCall>) -> Result<Response<v1::PingReply>, Status> {
        Ok(Response::new(v1::PingReply {}))
    }
}

impl DataService {
    fn check(&self, hello: Option<&v1::Hello>) -> Result<(), Error> {
        hello::check_cluster(hello, self.identity, false)
    }

    /// Refuses while the budget of answers is used up: what is read on the runtime's thread is counted when it is sent.
    fn check_budget(&self) -> Result<(), Error> {
        if self.edge.intake.answers_are_full() { Err(Error::Busy { retry_after: ROOM_RETRY }) } else { Ok(()) }
    }

    async fn mutate_once(&self, mut call: v1::MutateCall) -> Result<v1::MutateReply, Error> {
        let arrived_ns = now_ns();
        self.check(call.hello.as_ref())?;
        let under_way = decode::take_under_way(&mut call.header);
        let header = decode::header(call.header)?;
        let body = call.body.unwrap_or_default();
        // Plain calls are for callers that do not pack cells.
        let messages = !decode::has_packed(&body);
        let mutation = decode::mutate(body, under_way)?;
        if let Some(delay) = self.edge.admission.delay() {
            tokio::time::sleep(delay.min(header.deadline)).await;
        }
        if self.edge.admission.is_full() {
            let _waits = self.edge.admission.queue(mutation.bytes())?;
            self.edge.admission.wait(Instant::now(), header.deadline).await;
        }
        let (sender, outcome) = oneshot::channel();
        self.edge.mutate(&header, mutation, arrived_ns, move |done| {
            // The caller may have gone away; the write continues.
            sender.send(done).ok();
        });
        match tokio::time::timeout(header.deadline, outcome).await {
            Ok(Ok(done)) => done.map(|mutated| encode::mutate(mutated, messages)),
            // Not answered in time, or not at all because the server goes down: it may be in the log all the same.
            Ok(Err(_)) | Err(_) => Err(Error::Uncertain { not_tried: false }),
        }
    }

    async fn get_once(&self, call: v1::GetCall) -> Result<v1::GetReply, Error> {
        self.check(call.hello.as_ref())?;
        let header = decode::header(call.header)?;
        let body = call.body.unwrap_or_default();
        let messages = decode::wants_messages(body.cells_as);
        let request = decode::get(body)?;
        let began_ns = now_ns();
        let mut watch = Watch::get(&self.edge, &header, &request, began_ns);
        let (hosted, group) = self.edge.find(&header)?;
        let consistency = self.edge.consistency(&hosted, header.consistency);
        let time = self.edge.read_point(&group, consistency, header.deadline).await?;
        self.check_budget()?;
        watch.begins(&self.edge, now_ns().saturating_sub(began_ns));
        let got = match self.edge.get(&header, &request, time.now_ms) {
            Ok(Got::Rows(rows)) => Ok(rows),
            Ok(Got::NeedsDisk(rest)) => rest.finish(&self.edge.intake).await,
            Err(error) => Err(error),
        };
        watch.ended(&self.edge, got.as_ref().err());
        let rows = got?;
        Ok(v1::GetReply { as_of_ms: time.as_of_ms, ..encode::get(rows, messages)? })
    }

    fn seal(&self, call: v1::SealPageCall) -> Result<v1::SealPageReply, Error> {
        self.check(call.hello.as_ref())?;
        let (binding, positions) = decode::seal_page(call.body.unwrap_or_default())?;
        Ok(v1::SealPageReply { token: self.edge.page_seal.seal(&binding, &positions)? })
    }

    fn open(&self, call: v1::OpenPageCall) -> Result<v1::OpenPageReply, Error> {
        self.check(call.hello.as_ref())?;
        let (binding, token) = decode::open_page(call.body.unwrap_or_default())?;
        Ok(encode::opened(self.edge.page_seal.open(&binding, token)?))
    }

    fn decode_scan(&self, call: v1::ScanCall) -> Result<Scan, Error> {
        self.check(call.hello.as_ref())?;
        let header = decode::header(call.header)?;
        let body = call.body.unwrap_or_default();
        let messages = decode::wants_messages(body.cells_as);
        let (request, cursor) = decode::scan(body)?;
        Ok(Scan { header, request, cursor, messages })
    }

    async fn scan_block(&self, call: v1::ScanCall) -> Result<v1::ScanBlock, Error> {
        let scan = self.decode_scan(call)?;
        let time = begin(&self.edge, &scan).await?;
        self.check_budget()?;
        let block = self.edge.scan(&scan.header, &scan.request, scan.cursor, time.now_ms).await?;
        let block = encode::scan(block, scan.request.reverse, scan.messages)?;
        Ok(v1::ScanBlock { as_of_ms: time.as_of_ms, ..block })
    }
}
