//! The fake region server.

use std::time::Duration;

use futures::StreamExt as _;
use futures::stream::BoxStream;
use terrane_proto::v1::data_server::Data;
use terrane_proto::v1::{reply, request, session_reply, session_request};
use terrane_proto::{error, hello, v1};
use terrane_types::{Error, Invalid, RegionDescriptor, ServerId, cell, pack_row};
use tokio::sync::watch;
use tonic::{Request, Response, Status, Streaming};

use super::blocks::block;
use super::{Fault, Row, Shared, World};

pub struct FakeData {
    pub world: Shared,
    pub id: ServerId,
    /// Changes or ends when the server is killed.
    pub stopped: watch::Receiver<bool>,
}

/// The time as of which stale reads are complete.
pub const AS_OF_MS: u64 = 1_000;

/// The outcome of one request.
enum Done {
    Answer(Box<reply::Body>),
    Break,
    Silence,
}

#[tonic::async_trait]
impl Data for FakeData {
    type SessionStream = BoxStream<'static, Result<v1::SessionReply, Status>>;
    type ScanStream = BoxStream<'static, Result<v1::ScanBlock, Status>>;

    async fn ping(&self, _: Request<v1::PingCall>) -> Result<Response<v1::PingReply>, Status> {
        runs(&self.world, self.id).await;
        self.world.lock().pings.send_modify(|pings| *pings += 1);
        Ok(Response::new(v1::PingReply {}))
    }

    async fn session(
        &self,
        requests: Request<Streaming<v1::SessionRequest>>,
    ) -> Result<Response<Self::SessionStream>, Status> {
        let (world, id) = (self.world.clone(), self.id);
        let mut requests = requests.into_inner();
        let mut stopped = self.stopped.clone();
        let replies = async_stream::stream! {
            loop {
                let message = tokio::select! {
                    biased;
                    _ = stopped.changed() => {
                        Err(Status::unavailable("the fake server was killed"))
                    }
                    message = requests.next() => match message {
                        Some(Ok(message)) => Ok(message),
                        _ => return,
                    },
                };
                let message = match message {
                    Ok(message) => message,
                    Err(killed) => {
                        yield Err(killed);
                        return;
                    }
                };
                runs(&world, id).await;
                let after_pings = match world.lock().faults.front() {
                    Some(Fault::AfterPings(pings)) => *pings,
                    _ => 0,
                };
                if after_pings > 0 && matches!(message.body, Some(session_request::Body::Batch(_))) {
                    let mut pings = world.lock().pings.subscribe();
                    pings.wait_for(|pings| *pings >= after_pings).await.expect("the world stays");
                }
                match message.body {
                    Some(session_request::Body::Hello(theirs)) => {
                        let identity = hello::Identity { cluster: world.lock().cluster, server: id, boot: 1 };
                        let time = world.lock().cluster_time_ms;
                        match hello::check(&theirs, identity, time) {
                            Ok(ours) => yield Ok(v1::SessionReply { body: Some(session_reply::Body::Hello(ours)) }),
                            Err(refused) => {
                                let detail = error::detail(&refused);
                                yield Ok(v1::SessionReply { body: Some(session_reply::Body::Refused(detail)) });
                                return;
                            }
                        }
                    }
                    Some(session_request::Body::Batch(batch)) => {
                        let (replies, broken) = answer(&world, id, batch);
                        let batch = v1::ReplyBatch { replies };
                        yield Ok(v1::SessionReply { body: Some(session_reply::Body::Batch(batch)) });
                        if broken {
                            yield Err(Status::unavailable("the fake server broke the stream"));
                            return;
                        }
                    }
                    None => return,
                }
            }
        };
        Ok(Response::new(replies.boxed()))
    }

    async fn scan(&self, call: Request<v1::ScanCall>) -> Result<Response<Self::ScanStream>, Status> {
        let call = call.into_inner();
        let (world, id) = (self.world.clone(), self.id);
        let identity = hello::Identity { cluster: world.lock().cluster, server: id, boot: 1 };
        hello::check_cluster(call.hello.as_ref(), identity, false).map_err(|refused| error::status(&refused))?;
        let header = call.header.unwrap_or_default();
        let mut scan = call.body.unwrap_or_default();
        let blocks = async_stream::stream! {
            loop {
                runs(&world, id).await;
                let block = {
                    let mut world = world.lock();
                    world.reads.push((id, header.consistency()));
                    find(&world, id, &header).and_then(|region| block(&mut world, &region, &scan))
                };
                match block {
                    Ok(block) => {
                        scan.resume = block.resume.clone();
                        let done = block.done;
                        world.lock().sends_block();
                        yield Ok(block);
                        if done {
                            return;
                        }
                    }
                    Err(refused) => {
                        yield Ok(v1::ScanBlock { error: Some(error::detail(&refused)), ..v1::ScanBlock::default() });
                        return;
                    }
                }
            }
        };
        Ok(Response::new(blocks.boxed()))
    }

    terrane_proto::unserved! { Status::unimplemented("the client uses the session") =>
        seal_page(SealPageCall) -> v1::SealPageReply;
        open_page(OpenPageCall) -> v1::OpenPageReply;
        mutate(MutateCall) -> v1::MutateReply;
        get(GetCall) -> v1::GetReply;
        scan_once(ScanCall) -> v1::ScanBlock;
    }
}

/// Waits while the server hangs.
async fn runs(world: &Shared, id: ServerId) {
    let mut hung = world.lock().hung.subscribe();
    hung.wait_for(|hung| !hung.contains(&id)).await.expect("the world stays");
}

/// The replies to a batch, in reverse order so that no test relies on it, and whether the stream breaks then.
fn answer(world: &Shared, id: ServerId, batch: v1::RequestBatch) -> (Vec<v1::Reply>, bool) {
    let mut world = world.lock();
    let mut replies = Vec::new();
    let takes = world.takes_at_once;
    for (number, request) in batch.requests.into_iter().enumerate() {
        if number >= takes {
            let detail = error::detail(&Error::Busy { retry_after: Duration::from_millis(5) });
            let body = Some(reply::Body::Error(Box::new(detail)));
            replies.insert(0, v1::Reply { id: request.id, body, ..v1::Reply::default() });
            continue;
        }
        match handle(&mut world, id, request.header.unwrap_or_default(), request.body) {
            Done::Answer(body) => {
                replies.insert(0, v1::Reply { id: request.id, body: Some(*body), ..v1::Reply::default() })
            }
            Done::Break => return (replies, true),
            Done::Silence => {}
        }
    }
    (replies, false)
}

fn handle(world: &mut World, id: ServerId, header: v1::RequestHeader, body: Option<request::Body>) -> Done {
    world.requests += 1;
    let refuse = |refused: &Error| Done::Answer(Box::new(reply::Body::Error(Box::new(error::detail(refused)))));
    let fault = world.faults.pop_front();
    match &fault {
        Some(Fault::Refuse(refused)) => return refuse(refused),
        Some(Fault::BreakBefore) => return Done::Break,
        Some(Fault::Silence) => return Done::Silence,
        Some(Fault::BreakAfter | Fault::AfterPings(_)) | None => {}
    }
    let region = match find(world, id, &header) {
        Ok(region) => region,
        Err(refused) => return refuse(&refused),
    };
    if let Some(request::Body::Get(_) | request::Body::Scan(_)) = &body {
        world.reads.push((id, header.consistency()));
    }
    let as_of_ms = if header.consistency() == v1::Consistency::Stale { AS_OF_MS } else { 0 };
    let answer = match body {
        Some(request::Body::Mutate(mutate)) => {
            world.rows_in_request_max = world.rows_in_request_max.max(mutate.rows.len());
            Ok(reply::Body::Mutate(super::mutations::apply(world, &region, &header, mutate)))
        }
        Some(request::Body::Get(get)) => Ok(reply::Body::Get(v1::GetReply { as_of_ms, ..read(world, &get) })),
        Some(request::Body::Scan(scan)) => {
            block(world, &region, &scan).map(|block| reply::Body::Scan(Box::new(v1::ScanBlock { as_of_ms, ..block })))
        }
        Some(request::Body::SealPage(seal)) => {
            world.sealed.push(*seal);
            // As many bytes as the tag at the end of every real token.
            let token = (world.sealed.len() as u64).to_be_bytes().repeat(4).into();
            Ok(reply::Body::SealPage(v1::SealPageReply { token }))
        }
        Some(request::Body::BulkPart(part)) => {
            super::loads::part(world, &region, &header.client_id, *part).map(reply::Body::BulkPart)
        }
        Some(request::Body::BulkCommit(commit)) => match super::loads::commit(world, &header.client_id, *commit) {
            Some(reply) => Ok(reply::Body::BulkCommit(reply)),
            None => return Done::Break,
        },
        Some(request::Body::OpenPage(open)) => opened(world, &open).map(reply::Body::OpenPage),
        None => Err(Error::Internal { message: "a request that this server does not know".to_owned() }),
    };
    match (answer, fault) {
        (_, Some(Fault::BreakAfter)) => Done::Break,
        (Ok(body), _) => Done::Answer(Box::new(body)),
        (Err(refused), _) => refuse(&refused),
    }
}

/// The region of a request, if it is here, as the client assumes.
fn find(world: &World, id: ServerId, header: &v1::RequestHeader) -> Result<RegionDescriptor, Error> {
    let known = world.regions.iter().find(|region| region.region.0 == header.region);
    let region = known.ok_or_else(|| Error::NotFound { what: format!("region {}", header.region) })?;
    let (term, leader) = world.groups[&region.group];
    if leader != id && header.consistency() != v1::Consistency::Stale {
        let hint = world.hints.then_some(leader);
        return Err(Error::NotLeader {
            group: region.group,
            term,
            leader: hint,
            address: hint.map(|leader| world.addresses[&leader].clone()),
            members: world.members(),
        });
    }
    if region.epoch.0 != header.epoch {
        let current = world.regions.iter().filter(|other| other.group == region.group).cloned().collect();
        return Err(Error::StaleEpoch { region: region.region, current });
    }
    Ok(region.clone())
}

pub fn packed(row: &Row) -> Vec<u8> {
    let mut cells = Vec::new();
    for ((family, qualifier), (timestamp, value)) in row {
        cell::pack(&mut cells, cell::CellRef::put(family, qualifier, *timestamp, value));
    }
    cells
}

fn read(world: &mut World, get: &v1::Get) -> v1::GetReply {
    let mut rows = Vec::new();
    for name in &get.rows {
        if let Some(row) = world.rows.get(name) {
            pack_row(&mut rows, name, &if get.exists_only { Vec::new() } else { packed(row) });
        }
    }
    world.projection = get.projection.clone().unwrap_or_default();
    v1::GetReply { rows: rows.into(), ..v1::GetReply::default() }
}

fn opened(world: &World, open: &v1::OpenPage) -> Result<v1::OpenPageReply, Error> {
    let number = open.token.first_chunk().copied().map(u64::from_be_bytes).unwrap_or_default();
    let sealed = usize::try_from(number).ok().and_then(|number| world.sealed.get(number.checked_sub(1)?));
    let refuse = |what: &str| Error::Invalid(Invalid::new(what));
    let sealed = sealed.ok_or_else(|| refuse("the page token is damaged"))?;
    if sealed.binding != open.binding {
        return Err(refuse("the page token was made for another range, direction or filter"));
    }
    Ok(v1::OpenPageReply { positions: sealed.positions.clone() })
}
