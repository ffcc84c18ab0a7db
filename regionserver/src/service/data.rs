//! The service `Data`: the session stream, streaming scans, and the same calls as plain unary.

use std::pin::Pin;
use std::sync::Arc;

use futures::Stream;
use terrane_proto::{error, hello, v1};
use terrane_types::Error;
use tokio::sync::oneshot;
use tonic::{Request, Response, Status, Streaming};

use super::{decode, encode, session};
use crate::consistency::ReadTime;
use crate::edge::{Edge, Header};
use crate::region::read::Got;
use crate::region::scan::{Block, Cursor, ScanRequest};

/// The edge of the data path.
pub struct DataService {
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
        Ok(Response::new(Box::pin(session::serve(self.edge.clone(), request.into_inner()))))
    }

    async fn scan(&self, request: Request<v1::ScanCall>) -> Result<Response<Self::ScanStream>, Status> {
        let call = self.decode_scan(request.into_inner()).map_err(|error| error::status(&error))?;
        Ok(Response::new(Box::pin(blocks(self.edge.clone(), call))))
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

    /// Takes no room and waits for nothing: a full server is alive too.
    async fn ping(&self, _: Request<v1::PingCall>) -> Result<Response<v1::PingReply>, Status> {
        Ok(Response::new(v1::PingReply {}))
    }
}

/// A decoded scan call.
struct Scan {
    header: Header,
    request: Arc<ScanRequest>,
    cursor: Cursor,
    messages: bool,
}

impl DataService {
    fn check(&self, hello: Option<&v1::Hello>) -> Result<(), Error> {
        hello::check_cluster(hello, self.edge.identity, false)
    }

    async fn mutate_once(&self, mut call: v1::MutateCall) -> Result<v1::MutateReply, Error> {
        self.check(call.hello.as_ref())?;
        let under_way = decode::take_under_way(&mut call.header);
        let header = decode::header(call.header)?;
        let body = call.body.unwrap_or_default();
        // Plain calls are for those who do not pack.
        let messages = !decode::has_packed(&body);
        let mutation = decode::mutate(body, under_way)?;
        if let Some(delay) = self.edge.admission.delay() {
            tokio::time::sleep(delay.min(header.deadline)).await;
        }
        let (sender, outcome) = oneshot::channel();
        self.edge.mutate(&header, mutation, move |done| {
            // The caller may have gone away; the write goes on.
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
        let (_, group) = self.edge.find(&header)?;
        let time = self.edge.read_point(&group, header.consistency, header.deadline).await?;
        let rows = match self.edge.get(&header, &request, time.now_ms)? {
            Got::Rows(rows) => rows,
            Got::NeedsDisk(rest) => rest.finish().await?,
        };
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
        let block = self.edge.scan(&scan.header, &scan.request, scan.cursor, time.now_ms).await?;
        let block = encode::scan(block, scan.request.reverse, scan.messages)?;
        Ok(v1::ScanBlock { as_of_ms: time.as_of_ms, ..block })
    }
}

async fn begin(edge: &Edge, scan: &Scan) -> Result<ReadTime, Error> {
    let (_, group) = edge.find(&scan.header)?;
    edge.read_point(&group, scan.header.consistency, scan.header.deadline).await
}

/// The blocks of a scan, each made when the one before it has been taken: flow control is the transport's.
///
/// One read point at the beginning is enough: every row is read at a snapshot taken after it, so no block shows less than
/// what was acknowledged before the scan began. Region and epoch are looked at anew for each block.
fn blocks(edge: Arc<Edge>, scan: Scan) -> impl Stream<Item = Result<v1::ScanBlock, Status>> + Send + 'static {
    async_stream::stream! {
        let time = match begin(&edge, &scan).await {
            Ok(time) => time,
            Err(refused) => {
                yield Err(error::status(&refused));
                return;
            }
        };
        let Scan { header, request, mut cursor, messages } = scan;
        // The token of the last block sent: a redirect in the middle of a scan leaves it usable.
        let mut resume = None;
        // Of a snapshot scan: nothing that it is to see is collected while the stream is open.
        let mut held = None;
        loop {
            let next = edge.scan(&header, &request, cursor.clone(), time.now_ms).await;
            let next = next.and_then(|mut block: Block| {
                held = block.snapshot.take().or_else(|| held.take());
                let (after, done) = (block.cursor.clone(), block.done);
                let block = encode::scan(block, request.reverse, messages)?;
                Ok((v1::ScanBlock { as_of_ms: time.as_of_ms, ..block }, after, done))
            });
            match (next, resume.take()) {
                (Ok((block, after, done)), _) => {
                    cursor = after;
                    resume = Some(block.resume.clone());
                    yield Ok(block);
                    if done {
                        return;
                    }
                }
                (Err(refused), None) => {
                    yield Err(error::status(&refused));
                    return;
                }
                (Err(refused), Some(resume)) => {
                    yield Ok(v1::ScanBlock { resume, error: Some(error::detail(&refused)), ..Default::default() });
                    return;
                }
            }
        }
    }
}
