//! The fake region server.

use bytes::{Buf, BufMut, Bytes};
use futures::StreamExt as _;
use futures::stream::BoxStream;
use terrane_proto::v1::data_server::Data;
use terrane_proto::v1::{reply, request, session_reply, session_request};
use terrane_proto::{error, hello, v1};
use terrane_types::{Error, KeyRange, RegionDescriptor, ServerId, cell, pack_row};
use tokio::sync::watch;
use tonic::{Request, Response, Status, Streaming};

use super::{Fault, Row, Shared, World};

pub struct FakeData {
    pub world: Shared,
    pub id: ServerId,
    /// Changes or ends when the server is killed.
    pub stopped: watch::Receiver<bool>,
}

/// What becomes of one request.
enum Done {
    Answer(Box<reply::Body>),
    Break,
    Silence,
}

#[tonic::async_trait]
impl Data for FakeData {
    type SessionStream = BoxStream<'static, Result<v1::SessionReply, Status>>;
    type ScanStream = BoxStream<'static, Result<v1::ScanBlock, Status>>;

    async fn seal_page(&self, _: Request<v1::SealPageCall>) -> Result<Response<v1::SealPageReply>, Status> {
        Err(Status::unimplemented("this server seals nothing"))
    }

    async fn open_page(&self, _: Request<v1::OpenPageCall>) -> Result<Response<v1::OpenPageReply>, Status> {
        Err(Status::unimplemented("this server seals nothing"))
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
                let block = {
                    let mut world = world.lock();
                    find(&world, id, &header).and_then(|region| block(&mut world, &region, &scan))
                };
                match block {
                    Ok(block) => {
                        scan.resume = block.resume.clone();
                        let done = block.done;
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

    async fn mutate(&self, _: Request<v1::MutateCall>) -> Result<Response<v1::MutateReply>, Status> {
        Err(Status::unimplemented("the client uses the session"))
    }

    async fn get(&self, _: Request<v1::GetCall>) -> Result<Response<v1::GetReply>, Status> {
        Err(Status::unimplemented("the client uses the session"))
    }

    async fn scan_once(&self, _: Request<v1::ScanCall>) -> Result<Response<v1::ScanBlock>, Status> {
        Err(Status::unimplemented("the client uses the session"))
    }
}

/// The replies to a batch, in reverse order so that nobody can rely on it, and whether the stream breaks then.
fn answer(world: &Shared, id: ServerId, batch: v1::RequestBatch) -> (Vec<v1::Reply>, bool) {
    let mut world = world.lock();
    let mut replies = Vec::new();
    for request in batch.requests {
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
    let refuse = |refused: &Error| Done::Answer(Box::new(reply::Body::Error(error::detail(refused))));
    let fault = world.faults.pop_front();
    match &fault {
        Some(Fault::Refuse(refused)) => return refuse(refused),
        Some(Fault::BreakBefore) => return Done::Break,
        Some(Fault::Silence) => return Done::Silence,
        Some(Fault::BreakAfter) | None => {}
    }
    let region = match find(world, id, &header) {
        Ok(region) => region,
        Err(refused) => return refuse(&refused),
    };
    let answer = match body {
        Some(request::Body::Mutate(mutate)) => {
            world.rows_in_request_max = world.rows_in_request_max.max(mutate.rows.len());
            Ok(reply::Body::Mutate(super::mutations::apply(world, &region, &header, mutate)))
        }
        Some(request::Body::Get(get)) => Ok(reply::Body::Get(read(world, &get))),
        Some(request::Body::Scan(scan)) => block(world, &region, &scan).map(reply::Body::Scan),
        Some(request::Body::SealPage(_) | request::Body::OpenPage(_)) | None => {
            Err(Error::Internal { message: "a request that this server does not know".to_owned() })
        }
    };
    match (answer, fault) {
        (_, Some(Fault::BreakAfter)) => Done::Break,
        (Ok(body), _) => Done::Answer(Box::new(body)),
        (Err(refused), _) => refuse(&refused),
    }
}

/// The region of a request, if it is here as the client believes.
fn find(world: &World, id: ServerId, header: &v1::RequestHeader) -> Result<RegionDescriptor, Error> {
    let known = world.regions.iter().find(|region| region.region.0 == header.region);
    let region = known.ok_or_else(|| Error::NotFound { what: format!("region {}", header.region) })?;
    let (term, leader) = world.groups[&region.group];
    if leader != id {
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

fn read(world: &World, get: &v1::Get) -> v1::GetReply {
    let mut rows = Vec::new();
    for name in &get.rows {
        if let Some(row) = world.rows.get(name) {
            pack_row(&mut rows, name, &packed(row));
        }
    }
    v1::GetReply { rows: rows.into(), ..v1::GetReply::default() }
}

/// Token: limit left, offset left, the last row passed.
fn block(world: &mut World, region: &RegionDescriptor, scan: &v1::Scan) -> Result<v1::ScanBlock, Error> {
    if let Some((blocks, at)) = world.split_after_blocks.take() {
        if blocks == 0 {
            world.split(&at);
            let current = world.regions.clone();
            return Err(Error::StaleEpoch { region: region.region, current });
        }
        world.split_after_blocks = Some((blocks - 1, at));
    }
    let (mut limit, mut offset, mut passed) = (scan.limit, scan.offset, None);
    if !scan.resume.is_empty() {
        let mut token = scan.resume.clone();
        (limit, offset) = (token.get_u64(), token.get_u64());
        passed = (!token.is_empty()).then_some(token);
    }
    let limited = scan.limit != 0;
    let range = KeyRange::new(scan.start.clone(), scan.stop.clone())?;
    let mut names: Vec<Bytes> =
        world.rows.keys().filter(|row| range.contains(row) && region.range.contains(row)).cloned().collect();
    if scan.reverse {
        names.reverse();
    }
    if let Some(passed) = &passed {
        names.retain(|row| if scan.reverse { row < passed } else { row > passed });
    }
    let mut block = v1::ScanBlock { done: true, ..v1::ScanBlock::default() };
    let mut rows = Vec::new();
    for (seen, name) in names.into_iter().enumerate() {
        if seen == world.block_rows || (limited && limit == 0) {
            block.done = limited && limit == 0;
            break;
        }
        passed = Some(name.clone());
        if offset > 0 {
            offset -= 1;
            continue;
        }
        limit = limit.saturating_sub(u64::from(limited));
        block.row_count += 1;
        if !scan.count_only {
            pack_row(&mut rows, &name, &packed(&world.rows[&name]));
        }
    }
    let mut token = Vec::new();
    token.put_u64(limit);
    token.put_u64(offset);
    token.extend_from_slice(&passed.unwrap_or_default());
    block.resume = token.into();
    block.rows = rows.into();
    (block.limit_left, block.offset_left) = (limit, offset);
    Ok(block)
}
