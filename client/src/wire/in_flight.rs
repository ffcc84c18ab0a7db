//! The requests of one session: queued ones, and sent ones that wait for their replies.
//!
//! Sans-I/O. Each request has a slot in a table; the slot's index and generation form the request's id.

use std::collections::VecDeque;

use terrane_proto::v1;
use terrane_proto::v1::request;
use tokio::sync::oneshot;
use tokio::time::Instant;

use crate::wire::failure::Failure;
use crate::wire::message::Reply;

/// Requests queued or sent on one session.
pub(crate) const IN_FLIGHT_MAX: usize = 8192;
/// Requests and bytes in one message; a larger request travels alone.
const BATCH_REQUESTS_MAX: usize = 1024;
const BATCH_BYTES_MAX: usize = 1 << 20;

/// A reply that is not a refusal.
pub(crate) struct Answered {
    pub(crate) reply: Reply,
    /// The version of the table's schema if the request named an older one, otherwise 0.
    pub(crate) schema_version: u64,
}

pub(crate) type ReplySender = oneshot::Sender<Result<Answered, Failure>>;
pub(crate) type ReplyReceiver = oneshot::Receiver<Result<Answered, Failure>>;

pub(crate) struct State {
    pub(crate) phase: Phase,
    pub(crate) queue: VecDeque<v1::Request>,
    pub(crate) slots: Vec<Slot>,
    free: Vec<u32>,
    /// Queued requests that were taken back; they are skipped when the queue is sent.
    taken_back: usize,
}

pub(crate) enum Phase {
    /// The hello is not answered yet: there are no permits to queue a request.
    Opening,
    Open,
    Broken {
        why: Failure,
        doubtful: bool,
        since: Instant,
    },
}

/// A slot in the table of requests. Its index and generation form the request's id, so that a late reply to an earlier request
/// in the slot is not taken for the reply to the current one.
#[derive(Default)]
pub(crate) struct Slot {
    generation: u32,
    pub(crate) sent: bool,
    pub(crate) reply: Option<ReplySender>,
}

impl State {
    pub(crate) const fn new() -> Self {
        Self { phase: Phase::Opening, queue: VecDeque::new(), slots: Vec::new(), free: Vec::new(), taken_back: 0 }
    }

    /// Whether any request is queued or sent.
    pub(crate) fn waits(&self) -> bool {
        self.slots.len() > self.free.len()
    }

    /// Everything in the queue, up to the limits of one message.
    pub(crate) fn next_batch(&mut self) -> Option<v1::RequestBatch> {
        if self.queue.is_empty() {
            return None;
        }
        let mut requests = Vec::with_capacity(self.queue.len().min(BATCH_REQUESTS_MAX));
        let mut bytes = 0;
        while requests.len() < BATCH_REQUESTS_MAX
            && let Some(next) = self.queue.front()
        {
            bytes += size_of_request(next);
            if bytes > BATCH_BYTES_MAX && !requests.is_empty() {
                break;
            }
            let request = self.queue.pop_front().expect("the front was there");
            if self.mark_sent(request.id) {
                requests.push(request);
            } else {
                self.taken_back -= 1;
            }
        }
        (!requests.is_empty()).then_some(v1::RequestBatch { requests })
    }

    /// A queued request was released. It stays in the queue, which is swept from time to time: taking thousands back costs no
    /// more than queueing them.
    pub(crate) fn take_back(&mut self) {
        self.taken_back += 1;
        if self.taken_back > self.queue.len() / 2 {
            let Self { queue, slots, .. } = self;
            queue.retain(|request| is_waited_for(slots, request.id));
            self.taken_back = 0;
        }
    }

    pub(crate) fn take_slot(&mut self, sender: ReplySender) -> u64 {
        let index = self.free.pop().unwrap_or_else(|| {
            self.slots.push(Slot::default());
            u32::try_from(self.slots.len() - 1).expect("permits keep the table far below 2^32 slots")
        });
        let slot = &mut self.slots[index as usize];
        assert!(slot.reply.is_none(), "slot {index} has two requests: one would get the reply of the other");
        slot.generation = slot.generation.wrapping_add(1);
        slot.sent = false;
        slot.reply = Some(sender);
        u64::from(slot.generation) << 32 | u64::from(index)
    }

    pub(crate) fn slot(&mut self, id: u64) -> Option<(u32, &mut Slot)> {
        let (generation, index) = ((id >> 32) as u32, id as u32);
        let slot = self.slots.get_mut(index as usize)?;
        (slot.generation == generation).then_some((index, slot))
    }

    /// False if the request was taken back.
    fn mark_sent(&mut self, id: u64) -> bool {
        match self.slot(id) {
            Some((_, slot)) if slot.reply.is_some() => {
                slot.sent = true;
                true
            }
            _ => false,
        }
    }

    pub(crate) fn release(&mut self, id: u64) -> Option<ReplySender> {
        let (index, slot) = self.slot(id)?;
        let sender = slot.reply.take()?;
        self.free.push(index);
        Some(sender)
    }
}

fn is_waited_for(slots: &[Slot], id: u64) -> bool {
    let (generation, index) = ((id >> 32) as u32, id as u32);
    slots.get(index as usize).is_some_and(|slot| slot.generation == generation && slot.reply.is_some())
}

/// About how many bytes a mutation has in addition to its row and its cells.
fn extra_bytes(row: &v1::RowMutation) -> usize {
    let read_modify_write = |rmw: &v1::ReadModifyWrite| {
        let appended = match &rmw.what {
            Some(v1::read_modify_write::What::Append(value)) => value.len(),
            _ => 8,
        };
        rmw.family.len() + rmw.qualifier.len() + appended
    };
    row.read_modify_writes.iter().map(read_modify_write).sum::<usize>()
        + row.condition.as_ref().map_or(0, terrane_proto::mutation::condition_bytes)
}

fn size_of_request(request: &v1::Request) -> usize {
    match &request.body {
        Some(request::Body::Mutate(mutate)) => {
            mutate.rows.iter().map(|row| row.row.len() + row.cells.len() + extra_bytes(row) + 32).sum()
        }
        Some(request::Body::Get(get)) => get.rows.iter().map(|row| row.len() + 8).sum(),
        Some(request::Body::Scan(scan)) => scan.start.len() + scan.end.len() + scan.resume.len() + 64,
        Some(request::Body::SealPage(seal)) => seal.positions.iter().map(|position| position.last.len() + 16).sum(),
        Some(request::Body::OpenPage(open)) => open.token.len() + 64,
        Some(request::Body::BulkPart(part)) => {
            part.rows.iter().map(|row| row.row.len() + row.cells.len() + 32).sum::<usize>() + 64
        }
        Some(request::Body::BulkCommit(commit)) => 8 * commit.operations.len() + 64,
        None => 0,
    }
}
