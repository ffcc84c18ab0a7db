//! One client's session.

use std::collections::BTreeMap;

use bytes::{Buf as _, BufMut as _, Bytes, BytesMut};

use super::nodes::{Node, Nodes};
use super::packet::{Fields, Malformed, packet, put_buffer};
use crate::limits::WATCHES_MAX;

/// Most bytes of a packet, as ZooKeeper's `jute.maxbuffer`.
const PACKET_BYTES_MAX: usize = 1 << 20;

/// Longest path that is watched.
const PATH_BYTES_MAX: usize = 1_024;

/// The bounds within which a client's session timeout is granted, in milliseconds.
const TIMEOUT_MS: (i32, i32) = (4_000, 40_000);

const PASSWORD: [u8; 16] = [0; 16];

/// The transaction id of every answer: a client refuses a server with a lower id than it has seen.
const ZXID: i64 = 1;

mod op {
    pub const CREATE: i32 = 1;
    pub const DELETE: i32 = 2;
    pub const EXISTS: i32 = 3;
    pub const GET_DATA: i32 = 4;
    pub const SET_DATA: i32 = 5;
    pub const SET_ACL: i32 = 7;
    pub const GET_CHILDREN: i32 = 8;
    pub const PING: i32 = 11;
    pub const GET_CHILDREN2: i32 = 12;
    pub const MULTI: i32 = 14;
    pub const CREATE2: i32 = 15;
    pub const RECONFIG: i32 = 16;
    pub const CREATE_CONTAINER: i32 = 19;
    pub const CREATE_TTL: i32 = 21;
    pub const AUTH: i32 = 100;
    pub const SET_WATCHES: i32 = 101;
    pub const SET_WATCHES2: i32 = 105;
    pub const CLOSE: i32 = -11;
}

mod code {
    pub const OK: i32 = 0;
    pub const MARSHALLING: i32 = -5;
    pub const UNIMPLEMENTED: i32 = -6;
    pub const NO_NODE: i32 = -101;
    pub const READ_ONLY: i32 = -119;
}

mod event {
    pub const CREATED: i32 = 1;
    pub const DELETED: i32 = 2;
    pub const DATA_CHANGED: i32 = 3;
    pub const CHILDREN_CHANGED: i32 = 4;
    /// The state of a connection: `SyncConnected`.
    pub const CONNECTED: i32 = 3;
}

/// What to do after some bytes of a client.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Step {
    /// Send these bytes.
    Send(Bytes),
    /// Send these bytes, then close.
    SendAndClose(Bytes),
    /// Close: the client does not speak ZooKeeper's protocol.
    Close,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Watch {
    Data,
    Children,
}

/// A session.
#[derive(Debug)]
pub struct Session {
    /// The session's number, which the client keeps when it reconnects.
    id: i64,
    state: State,
    /// What each watch has seen: the node, or that there is none.
    watches: BTreeMap<(String, Watch), Option<Node>>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    Connecting,
    Connected,
    Ended,
}

impl Session {
    /// A session that gets this number, unless the client has one from before. It is not zero.
    #[must_use]
    pub const fn new(id: i64) -> Self {
        Self { id, state: State::Connecting, watches: BTreeMap::new() }
    }

    /// Whether it has watches.
    #[must_use]
    pub fn is_watching(&self) -> bool {
        !self.watches.is_empty()
    }

    /// The next step for the received bytes, whose beginning it consumes; `None` if more bytes are needed.
    pub fn receive(&mut self, received: &mut BytesMut, nodes: &Nodes) -> Option<Step> {
        if self.state == State::Ended {
            return None;
        }
        if self.state == State::Connecting && received.starts_with(b"ruok") {
            self.state = State::Ended;
            return Some(Step::SendAndClose(Bytes::from_static(b"imok")));
        }
        let length = i32::from_be_bytes(*received.first_chunk()?);
        let Some(length) = usize::try_from(length).ok().filter(|&length| length <= PACKET_BYTES_MAX) else {
            return Some(self.end());
        };
        if received.len() - 4 < length {
            return None;
        }
        received.advance(4);
        let body = received.split_to(length);
        let step = match self.state {
            State::Connecting => self.connect(&body).map(Step::Send),
            _ => self.request(&body, nodes),
        };
        let step = step.unwrap_or(Step::Close);
        if !matches!(step, Step::Send(_)) {
            self.state = State::Ended;
        }
        Some(step)
    }

    /// The events of watches on nodes that differ from what the client has seen. Each watch fires once.
    pub fn changes(&mut self, nodes: &Nodes) -> Vec<Bytes> {
        let mut events = Vec::new();
        self.watches.retain(|(path, watch), seen| {
            let now = nodes.get(path);
            let kind = match (&seen, &now, watch) {
                (None, Some(_), Watch::Data) => event::CREATED,
                (Some(_), None, _) => event::DELETED,
                (Some(seen), Some(now), Watch::Data) if seen.data != now.data => event::DATA_CHANGED,
                (Some(seen), Some(now), Watch::Children) if seen.children != now.children => event::CHILDREN_CHANGED,
                _ => return true,
            };
            events.push(packet(|out| {
                out.put_i32(-1);
                out.put_i64(-1);
                out.put_i32(code::OK);
                out.put_i32(kind);
                out.put_i32(event::CONNECTED);
                put_buffer(out, path.as_bytes());
            }));
            false
        });
        events
    }

    fn end(&mut self) -> Step {
        self.state = State::Ended;
        Step::Close
    }

    fn connect(&mut self, body: &[u8]) -> Result<Bytes, Malformed> {
        let mut fields = Fields(body);
        let (_version, _seen, timeout, id) = (fields.int()?, fields.long()?, fields.int()?, fields.long()?);
        let _password = fields.buffer()?;
        // Old clients leave the flag out, and expect none back.
        let asks_for_read_only = !fields.0.is_empty();
        if id != 0 {
            self.id = id;
        }
        self.state = State::Connected;
        let id = self.id;
        Ok(packet(|out| {
            out.put_i32(0);
            out.put_i32(timeout.clamp(TIMEOUT_MS.0, TIMEOUT_MS.1));
            out.put_i64(id);
            put_buffer(out, &PASSWORD);
            if asks_for_read_only {
                out.put_u8(0);
            }
        }))
    }

    fn request(&mut self, body: &[u8], nodes: &Nodes) -> Result<Step, Malformed> {
        let mut fields = Fields(body);
        let (xid, opcode) = (fields.int()?, fields.int()?);
        let answer = match opcode {
            op::EXISTS | op::GET_DATA | op::GET_CHILDREN | op::GET_CHILDREN2 => {
                match self.read(opcode, &mut fields, nodes) {
                    Ok(Some(body)) => reply(xid, code::OK, &body),
                    Ok(None) => reply(xid, code::NO_NODE, &[]),
                    Err(Malformed) => reply(xid, code::MARSHALLING, &[]),
                }
            }
            // What a client has watched before it reconnected is read again by the client itself.
            op::PING | op::AUTH | op::SET_WATCHES | op::SET_WATCHES2 => reply(xid, code::OK, &[]),
            op::CLOSE => return Ok(Step::SendAndClose(reply(xid, code::OK, &[]))),
            op::CREATE
            | op::DELETE
            | op::SET_DATA
            | op::SET_ACL
            | op::MULTI
            | op::CREATE2
            | op::RECONFIG
            | op::CREATE_CONTAINER
            | op::CREATE_TTL => reply(xid, code::READ_ONLY, &[]),
            _ => reply(xid, code::UNIMPLEMENTED, &[]),
        };
        Ok(Step::Send(answer))
    }

    fn read(&mut self, opcode: i32, fields: &mut Fields<'_>, nodes: &Nodes) -> Result<Option<Bytes>, Malformed> {
        let (path, watched) = (fields.text()?, fields.flag()?);
        let node = nodes.get(path);
        let lists = matches!(opcode, op::GET_CHILDREN | op::GET_CHILDREN2);
        // Only `exists` leaves a watch where there is no node.
        if watched && (node.is_some() || opcode == op::EXISTS) {
            self.watch(path, if lists { Watch::Children } else { Watch::Data }, node.clone());
        }
        Ok(node.map(|node| {
            let mut out = BytesMut::new();
            match opcode {
                op::GET_DATA => put_buffer(&mut out, &node.data),
                op::GET_CHILDREN | op::GET_CHILDREN2 => {
                    out.put_i32(i32::try_from(node.children.len()).expect("there are three at most"));
                    node.children.iter().for_each(|name| put_buffer(&mut out, name.as_bytes()));
                }
                _ => {}
            }
            if opcode != op::GET_CHILDREN {
                put_stat(&mut out, &node);
            }
            out.freeze()
        }))
    }

    /// A watch over the limit is not kept: clients also read again after a failure.
    fn watch(&mut self, path: &str, watch: Watch, seen: Option<Node>) {
        let key = (path.to_owned(), watch);
        let known = self.watches.contains_key(&key);
        if known || (self.watches.len() < WATCHES_MAX && path.len() <= PATH_BYTES_MAX) {
            self.watches.insert(key, seen);
        }
    }
}

fn reply(xid: i32, error: i32, body: &[u8]) -> Bytes {
    packet(|out| {
        out.put_i32(xid);
        out.put_i64(ZXID);
        out.put_i32(error);
        out.put_slice(body);
    })
}

fn put_stat(out: &mut BytesMut, node: &Node) {
    // czxid, mzxid, ctime, mtime.
    [ZXID, ZXID, 0, 0].into_iter().for_each(|field| out.put_i64(field));
    // version, cversion, aversion.
    [0; 3].into_iter().for_each(|field| out.put_i32(field));
    // ephemeralOwner.
    out.put_i64(0);
    out.put_i32(i32::try_from(node.data.len()).expect("data is short"));
    out.put_i32(i32::try_from(node.children.len()).expect("there are three at most"));
    // pzxid.
    out.put_i64(ZXID);
}

#[cfg(test)]
mod tests;
