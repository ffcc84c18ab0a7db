//! The member's half: keeps what arrives, verifies it and installs it.
//!
//! A file has its name only when all of it is synced; until then its name ends in [`UNFINISHED`]. After a restart such files
//! are not continued: nothing is known of what a failed sync has lost of them. Whole files are used again, also for a copy
//! of another moment, but not for one of another leader.

use std::collections::BTreeMap;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use openraft::type_config::alias::{SnapshotMetaOf, SnapshotOf};
use terrane_env::fs::{self, UNFINISHED};
use terrane_types::ReplicaId;
use tokio::time::Instant;

use super::turns::{Turn, Turns};
use super::{Offer, Part, STEP_DEADLINE};
use crate::log::Mark;
use crate::proposals::adapter::{Raft, StateAt};
use crate::proposals::erased::Machine;
use crate::types::{Types, Vote, spawn};
use crate::{BoxFuture, CopiedFile, StagedCopy};

/// Other copies have all turns.
const NO_TURN: &str = "this server receives other copies";

/// The refusal of what does not belong to the copy that was offered last.
const NOT_OFFERED: &str = "it belongs to no copy that this replica receives";

/// The copy that a replica receives, if any. One step at a time: a request that arrives during another one waits, because a
/// link that broke may deliver a request twice. Every step can be repeated.
pub(crate) struct Incoming {
    machine: Arc<dyn Machine>,
    turns: Arc<Turns>,
    state: Arc<tokio::sync::Mutex<State>>,
}

#[derive(Default)]
struct State {
    arriving: Option<Arriving>,
    /// What an earlier copy may have left. It is of no use when everything up to this entry has been applied out of the log.
    left: Option<u64>,
    /// The last entry of the copy that was installed last, in this process.
    installed: Option<u64>,
    /// The replica is being removed.
    closed: bool,
}

/// The answer to an offer.
pub(crate) enum Offered {
    /// The bytes of each file that need not be sent.
    Held(Vec<CopiedFile>),
    /// The replica has installed this copy, or a newer one: the answer to the order did not arrive.
    Installed,
}

struct Arriving {
    /// The number of its offer.
    number: u64,
    mark: Mark,
    files: BTreeMap<u64, u64>,
    /// Where copies of this group arrive, and this one's directory in it.
    all: PathBuf,
    dir: PathBuf,
    /// The files that have begun to arrive, with the bytes that did.
    arrived: BTreeMap<u64, u64>,
    current: Option<(u64, fs::File)>,
    /// Lost if nothing arrives for long.
    turn: Turn,
}

impl Incoming {
    /// `found_to` is the last entry that the log had when the replica was started. If the log brings another one, no copy is
    /// needed of what an earlier process may have received in part.
    pub(crate) fn new(machine: Arc<dyn Machine>, turns: Arc<Turns>, found_to: u64) -> Incoming {
        let state = State { left: Some(found_to + 1), ..State::default() };
        Incoming { machine, turns, state: Arc::new(tokio::sync::Mutex::new(state)) }
    }

    /// Refuses everything from now on, and waits for the step that takes place. What has arrived is the caller's to remove.
    pub(crate) async fn close(&self) {
        let mut state = self.state.lock().await;
        state.closed = true;
        state.arriving = None;
    }

    /// Whether there may be files of a copy that has not been installed.
    pub(crate) fn may_have_files(&self) -> bool {
        // A step that takes place uses them.
        self.state.try_lock().map_or(true, |state| state.arriving.is_some() || state.left.is_some())
    }

    async fn state(&self) -> Result<tokio::sync::MutexGuard<'_, State>, String> {
        // No longer than its sender waits.
        let free = tokio::time::timeout(STEP_DEADLINE, self.state.lock()).await;
        let state = free.map_err(|_| "this replica is busy with a copy".to_owned())?;
        if state.closed { Err("this replica is being removed".to_owned()) } else { Ok(state) }
    }

    /// Begins to receive a copy, or continues with one.
    pub(crate) async fn offered(&self, offer: Offer) -> Result<Offered, String> {
        let mut state = self.state().await?;
        if state.installed.is_some_and(|installed| offer.mark.log_id.index <= installed) {
            return Ok(Offered::Installed);
        }
        if let Some(copy) = state.arriving.as_mut().filter(|copy| copy.number == offer.number)
            && copy.turn.keep(Instant::now())
        {
            return Ok(Offered::Held(copy.held()));
        }
        let files: BTreeMap<u64, u64> = offer.files.iter().map(|file| (file.id, file.size)).collect();
        if files.len() != offer.files.len() || !files.contains_key(&0) {
            return Err("a copy names a file twice, or lacks its description".to_owned());
        }
        // What has arrived stays known if this fails: it is removed if the log turns out to be enough.
        let before = state.arriving.take();
        state.left = before.as_ref().map(|before| before.mark.log_id.index).or(state.left);
        let turn = match before {
            Some(before) if before.turn.keep(Instant::now()) => before.turn,
            _ => self.turns.take(Instant::now()).ok_or(NO_TURN)?,
        };
        let bytes = files.values().fold(0, |sum: u64, size| sum.saturating_add(*size));
        let all = self.machine.incoming(bytes).await?;
        // Another leader numbers its files in another way.
        let dir = all.join(offer.vote.leader_id.voted_for.to_string());
        let arrived = found(&all, &dir, &files).await.map_err(|error| format!("{}: {error}", dir.display()))?;
        let copy = Arriving { number: offer.number, mark: offer.mark, files, all, dir, arrived, current: None, turn };
        let held = copy.held();
        // It uses what was left, or removes it.
        state.left = None;
        state.arriving = Some(copy);
        Ok(Offered::Held(held))
    }

    /// Removes what has arrived if the log has turned out to be enough: everything up to `applied` is applied.
    pub(crate) fn discard_superseded(&self, applied: u64) {
        let Ok(mut state) = self.state.clone().try_lock_owned() else { return };
        // A new replica has applied nothing, and a copy of the group's first entry has the index 0 as well.
        let superseded = |index: u64| applied > 0 && index <= applied;
        let arriving = state.arriving.take_if(|copy| superseded(copy.mark.log_id.index)).is_some();
        let left = state.arriving.is_none() && state.left.is_some_and(superseded);
        let Some(dir) = self.machine.incoming_dir().filter(|_| arriving || left) else { return };
        // Until it is removed, also when this step fails.
        state.left = Some(applied);
        // No offer finds half of it removed: it would find the state locked.
        spawn(async move {
            if remove(&dir).await {
                state.left = None;
            }
        });
    }

    /// Takes a part, which must continue its file.
    pub(crate) async fn part(&self, part: Part) -> Result<(), String> {
        let mut state = self.state().await?;
        let copy = state.arriving.as_mut().filter(|copy| copy.number == part.offer).ok_or(NOT_OFFERED)?;
        if !copy.turn.keep(Instant::now()) {
            return Err(NO_TURN.to_owned());
        }
        match copy.take(&part).await {
            Ok(()) => Ok(()),
            Err(error) => {
                // What a failed write or sync left is not known: the next offer begins the file again.
                state.left = Some(copy.mark.log_id.index);
                state.arriving = None;
                Err(format!("part of file {} of a copy: {error}", part.id))
            }
        }
    }

    /// Verifies the copy and installs it through openraft; returns the vote of this replica.
    pub(crate) async fn install(
        &self,
        raft: &Raft,
        replica: ReplicaId,
        offer: u64,
        vote: Vote,
    ) -> Result<Vote, String> {
        let mut state = self.state().await?;
        if state.arriving.as_ref().is_some_and(|copy| copy.number == offer && !copy.turn.hold()) {
            return Err(NO_TURN.to_owned());
        }
        let copy = state.arriving.take_if(|copy| copy.number == offer).ok_or(NOT_OFFERED)?;
        if copy.files.iter().any(|(id, size)| copy.arrived.get(id) != Some(size)) {
            return Err("some files of the copy have not arrived".to_owned());
        }
        let Arriving { mark, all, dir, turn, .. } = copy;
        // Until it is removed.
        state.left = Some(mark.log_id.index);
        let prepared = fs::sync_dir(&dir).await.map_err(|error| error.to_string());
        let staged = match prepared {
            Ok(()) => self.machine.stage(&dir, mark.log_id.index).await,
            Err(error) => Err(error),
        };
        let staged = match staged {
            Ok(staged) => staged,
            Err(what) => {
                remove(&dir).await;
                return Err(format!("the copy is not whole: {what}"));
            }
        };
        let index = mark.log_id.index;
        // What is applied waits for what the copy brings, so openraft could install it only after that.
        let waits = self.machine.progress().lacks.is_some_and(|(entry, _)| entry <= index);
        let staged = if waits {
            staged.install(index).await.map_err(|error| error.to_string())?;
            Box::new(Installed) as Box<dyn StagedCopy>
        } else {
            staged
        };
        let meta = SnapshotMetaOf::<Types> { last_log_id: Some(mark.log_id), last_membership: mark.membership.clone() };
        let snapshot = SnapshotOf::<Types, StateAt> { meta, snapshot: StateAt { mark, staged: Some(staged) } };
        let outcome = raft.install_full_snapshot(vote, snapshot).await.map_err(|error| error.to_string())?;
        // Otherwise the copy is of a leader that was deposed.
        if outcome.vote == vote {
            tracing::info!(%replica, index, "installed a copy of the group");
            state.installed = Some(index);
        }
        // With what former leaders have sent.
        if remove(&all).await {
            state.left = None;
        }
        drop(turn);
        Ok(outcome.vote)
    }
}

/// A copy that is installed already.
struct Installed;

impl StagedCopy for Installed {
    fn install(self: Box<Self>, _: u64) -> BoxFuture<'static, io::Result<()>> {
        Box::pin(std::future::ready(Ok(())))
    }
}

impl Arriving {
    fn held(&self) -> Vec<CopiedFile> {
        self.arrived.iter().map(|(id, size)| CopiedFile { id: *id, size: *size }).collect()
    }

    async fn take(&mut self, part: &Part) -> io::Result<()> {
        let invalid = |what: &str| io::Error::new(io::ErrorKind::InvalidData, what.to_owned());
        let size = *self.files.get(&part.id).ok_or_else(|| invalid("the copy has no such file"))?;
        let arrived = self.arrived.get(&part.id).copied().unwrap_or(0);
        let next = part.offset + part.bytes.len() as u64;
        if self.arrived.contains_key(&part.id) && next <= arrived {
            // It was sent twice.
            return Ok(());
        }
        if part.offset != arrived || next > size {
            return Err(invalid("it does not continue the file"));
        }
        let unfinished = self.dir.join(CopiedFile::name(part.id) + UNFINISHED);
        if self.current.as_ref().is_none_or(|(id, _)| *id != part.id) {
            let file = if arrived == 0 {
                fs::File::create_new(&unfinished).await?
            } else {
                fs::File::open_rw(&unfinished).await?
            };
            self.current = Some((part.id, file));
        }
        let (_, file) = self.current.as_ref().expect("it was just opened");
        file.write_all_at(&part.bytes, part.offset).await?;
        if next == size {
            file.sync_all().await?;
            self.current = None;
            fs::rename(&unfinished, &self.dir.join(CopiedFile::name(part.id))).await?;
        }
        self.arrived.insert(part.id, next);
        Ok(())
    }
}

/// The whole files of a copy that are in its directory. Everything else in it is removed, and what other leaders sent.
async fn found(all: &Path, dir: &Path, files: &BTreeMap<u64, u64>) -> io::Result<BTreeMap<u64, u64>> {
    fs::create_dir_durable(all).await?;
    for name in fs::list(all).await? {
        let other = all.join(&name);
        if other != dir {
            fs::remove_dir_all(&other).await?;
        }
    }
    fs::create_dir_durable(dir).await?;
    let mut found = BTreeMap::new();
    for name in fs::list(dir).await? {
        let path = dir.join(&name);
        let id = name.parse::<u64>().ok().filter(|id| *id > 0 && CopiedFile::name(*id) == name);
        let size = id.and_then(|id| files.get(&id).copied());
        match (id, size) {
            (Some(id), Some(size)) if fs::file_len(&path).await? == size => drop(found.insert(id, size)),
            _ => fs::remove_file(&path).await?,
        }
    }
    Ok(found)
}

/// Removes a directory of what has arrived, if it is there, also from a disk whose power is cut.
async fn remove(dir: &Path) -> bool {
    let removed = fs::remove_dir_durable(dir).await;
    if let Err(error) = &removed {
        tracing::warn!(dir = %dir.display(), %error, "a copy that is no longer needed was not removed; trying again later");
    }
    removed.is_ok()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::proposals::entry::Sequence;
    use crate::types::{StoredMembership, log_id};

    #[tokio::test]
    async fn a_part_that_arrives_twice_is_taken_once() {
        let all = tempfile::tempdir().unwrap();
        let turn = Turns::new(1).take(Instant::now()).unwrap();
        let (all, files) = (all.path().to_owned(), BTreeMap::from([(0, 5)]));
        let mut copy = Arriving {
            number: 1,
            mark: Mark { log_id: log_id(1, 7), membership: StoredMembership::default(), sequence: Sequence::default() },
            files,
            dir: all.clone(),
            all: all.clone(),
            arrived: BTreeMap::new(),
            current: None,
            turn,
        };
        let part = |offset: u64, bytes: &'static [u8]| Part { offer: 1, id: 0, offset, bytes: bytes.into() };
        for part in [part(0, b"abc"), part(0, b"abc"), part(3, b"de"), part(0, b"abc"), part(3, b"de")] {
            copy.take(&part).await.unwrap();
        }
        copy.take(&part(4, b"xy")).await.unwrap_err();
        assert_eq!(copy.held(), [CopiedFile { id: 0, size: 5 }]);
        assert_eq!(fs::read(&all.join(CopiedFile::name(0))).await.unwrap(), b"abcde");
    }
}
