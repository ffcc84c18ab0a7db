//! The leader's half: offers a copy, sends what the member lacks, and orders it to install.

use std::collections::BTreeMap;
use std::time::Duration;

use terrane_types::{GroupId, ReplicaId};
use tokio::time::Instant;

use super::progress::{Progress, Sending};
use super::share::Copies;
use super::{Offer, PART_BYTES, Part, STEP_DEADLINE};
use crate::log::Mark;
use crate::peer::{Call, Link, Message};
use crate::proposals::erased::Machine;
use crate::types::Vote;
use crate::{CopiedFile, StateCopy};

/// How long it may take to verify and install everything: so long, and a second for so many bytes.
const INSTALL_DEADLINE: Duration = Duration::from_secs(600);
const VERIFIED_PER_SECOND: u64 = 20 << 20;

/// One member of a group, and how to reach it.
pub(crate) struct Target<'a> {
    pub(crate) group: GroupId,
    pub(crate) replica: ReplicaId,
    pub(crate) link: &'a Link,
    pub(crate) machine: &'a dyn Machine,
    pub(crate) copies: &'a Copies,
    pub(crate) sending: &'a Sending,
}

/// Why a copy was not sent.
pub(crate) enum NotSent {
    /// This process sends others.
    NoTurn,
    /// It failed.
    Failed(String),
}

impl Target<'_> {
    /// Sends a copy; returns the member's vote. After an error the next attempt continues with what has arrived.
    ///
    /// It does not wait for its turn: the log is not kept for a copy that waits, so once it had its turn, the entries after
    /// its mark might be gone.
    pub(crate) async fn send(&self, vote: Vote, mark: Mark) -> Result<Vote, NotSent> {
        let _turn = self.copies.try_turn().ok_or(NotSent::NoTurn)?;
        self.transmit(vote, mark).await.map_err(NotSent::Failed)
    }

    async fn transmit(&self, vote: Vote, mark: Mark) -> Result<Vote, String> {
        let index = mark.log_id.index;
        let _sent = self.sending.begin(self.replica, index);
        // After the mark: whatever the state machine reported as durable then is in the copy.
        let copy = self.machine.copy().await?;
        let mut files = copy.files();
        if terrane_env::planted!("a copy lacks a file") {
            files.pop();
        }
        let bytes: u64 = files.iter().map(|file| file.size).sum();
        self.note(|progress| progress.bytes = bytes);
        let number = terrane_env::rand::u64();
        let offer = Offer { number, vote, mark, files: files.clone() };
        let held: BTreeMap<u64, u64> = match self.ask(Message::Offer(offer), STEP_DEADLINE).await? {
            Message::Held(held) => held.into_iter().map(|file| (file.id, file.size)).collect(),
            // The answer to the order to install came too late.
            Message::Installed(vote) => return Ok(vote),
            _ => return Err(UNEXPECTED.to_owned()),
        };
        for file in files {
            let mut offset = held.get(&file.id).copied().unwrap_or(0).min(file.size);
            self.note(|progress| progress.sent += offset);
            // An empty file is a part too, or the member would never have it.
            while offset < file.size || (file.size == 0 && !held.contains_key(&file.id)) {
                offset = self.send_part(copy.as_ref(), number, file, offset).await?;
                if file.size == 0 {
                    break;
                }
            }
        }
        let within = INSTALL_DEADLINE + Duration::from_secs(bytes / VERIFIED_PER_SECOND);
        match self.ask(Message::Install { offer: number, vote }, within).await? {
            Message::Installed(vote) => Ok(vote),
            _ => Err(UNEXPECTED.to_owned()),
        }
    }

    async fn send_part(&self, copy: &dyn StateCopy, offer: u64, file: CopiedFile, offset: u64) -> Result<u64, String> {
        let CopiedFile { id, size } = file;
        let left = usize::try_from(size - offset).unwrap_or(usize::MAX);
        let length = left.min(terrane_env::limit!("bytes of a part of a copy", PART_BYTES, 8192..=32_768));
        self.copies.pace.wait(length as u64).await;
        let bytes = copy.read(id, offset, length).await.map_err(|error| format!("file {id} of the copy: {error}"))?;
        let next = offset + bytes.len() as u64;
        match self.ask(Message::Part(Part { offer, id, offset, bytes }), STEP_DEADLINE).await? {
            Message::Taken => {
                self.note(|progress| progress.sent += next - offset);
                Ok(next)
            }
            _ => Err(UNEXPECTED.to_owned()),
        }
    }

    fn note(&self, change: impl FnOnce(&mut Progress)) {
        self.sending.note(self.replica, change);
    }

    async fn ask(&self, message: Message, within: Duration) -> Result<Message, String> {
        let (group, replica, deadline) = (self.group, self.replica, Instant::now() + within);
        let replied = self.link.call(Call { group, replica, message, deadline });
        match replied.ok_or("too many calls are queued for this peer")?.await {
            Ok(Message::Failed(what)) => Err(what),
            Ok(message) => Ok(message),
            Err(_) => Err("no reply".to_owned()),
        }
    }
}

const UNEXPECTED: &str = "the peer's reply does not match the request";
