//! The planted bugs: deliberate mistakes in production code (`terrane_env::planted!`) that the simulator has to find.
//!
//! They measure the simulator. A bug that no seed finds shows a fault that is not injected or a check that is missing.

use crate::fault::draw::{Damage, SyncedFile};
use crate::kind::Kind;

/// A deliberate mistake.
#[derive(Clone, Copy, Debug)]
pub struct PlantedBug {
    /// Its name in the source.
    pub name: &'static str,
    /// What it breaks: one of the rules of ARCHITECTURE.md, or a fault of the track record.
    pub breaks: &'static str,
    /// The scenario that ought to find it.
    pub scenario: Kind,
    /// Whether CI looks for it: it is found within 20 seeds.
    pub quick: bool,
}

impl PlantedBug {
    /// The fault without which it cannot be found. Few runs have it, so those that look for the bug have it in any case.
    #[must_use]
    pub fn needs(&self) -> Option<Requirement> {
        NEEDS.iter().find(|(name, _)| *name == self.name).map(|(_, needed)| *needed)
    }
}

/// A fault that a bug needs to show.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Requirement {
    /// Several masters.
    Masters,
    /// Masters that are replaced by others.
    MastersChange,
    /// A new build that is rolled out, and the former one that is started again by mistake.
    RollOut,
    /// Many moves of regions, some of which are undone while the other group takes the region in.
    Moves,
    /// Many splits and merges.
    Merges,
    /// Groups that lose their majority and are recovered.
    LostMajority,
    /// A catalog that is lost and rebuilt.
    LostCatalog,
    /// Replicas that are replaced.
    Replacements,
    /// Processes that are not the servers that they say they are.
    Strangers,
    /// Disks of all servers that are slow all the time.
    SlowDisks,
    /// Machines that are paused by their hosts, and strict reads.
    Pauses,
    /// A cell of one replica that changes.
    ChangedCell,
    /// Loads that are proposed again later.
    LateLoads,
    /// Damage of the disk of one server.
    Damage(Damage),
    /// Syncs of a file that fail.
    LostSyncs(SyncedFile),
}

impl Requirement {
    /// Those that a run can be asked for by name.
    pub const NAMED: [(&'static str, Requirement); 13] = [
        ("masters", Requirement::Masters),
        ("masters-change", Requirement::MastersChange),
        ("roll-out", Requirement::RollOut),
        ("moves", Requirement::Moves),
        ("merges", Requirement::Merges),
        ("lost-majority", Requirement::LostMajority),
        ("lost-catalog", Requirement::LostCatalog),
        ("replacements", Requirement::Replacements),
        ("strangers", Requirement::Strangers),
        ("slow-disks", Requirement::SlowDisks),
        ("pauses", Requirement::Pauses),
        ("changed-cell", Requirement::ChangedCell),
        ("late-loads", Requirement::LateLoads),
    ];

    /// The one with a name.
    #[must_use]
    pub fn named(name: &str) -> Option<Requirement> {
        Self::NAMED.iter().find(|(known, _)| *known == name).map(|(_, needed)| *needed)
    }
}

/// The bugs that only such a fault shows.
const NEEDS: &[(&str, Requirement)] = &[
    ("a damaged block is served", Requirement::Damage(Damage::BitRot)),
    ("damage to the log passes for a torn tail", Requirement::Damage(Damage::LogBitRot)),
    ("a zero tail ends a segment", Requirement::Damage(Damage::LogLostEnd)),
    ("a master looks up without asking the leader", Requirement::Masters),
    ("the level rises while a process is away", Requirement::RollOut),
    ("a server does not store the level of its cluster", Requirement::RollOut),
    ("an entry is written before all servers can read it", Requirement::RollOut),
    ("a refused move is adopted", Requirement::Moves),
    ("a move is undone without asking", Requirement::Moves),
    ("a refused move forgets an adopted one", Requirement::Moves),
    ("a region that has left needs no entries", Requirement::Moves),
    ("a vote has the time of a silence", Requirement::SlowDisks),
    ("a start counts as being back", Requirement::Strangers),
    ("a taken address is given to a newcomer", Requirement::Strangers),
    ("a server is live without being called back", Requirement::Strangers),
    ("a newcomer expels the server that has its address", Requirement::Strangers),
    ("strict reads rely on a lease", Requirement::Pauses),
    ("a stale read is complete up to the present", Requirement::Pauses),
    ("replicas that differ are taken for equal", Requirement::ChangedCell),
    ("a load is taken in again", Requirement::LateLoads),
    ("a replayed creation brings a moved region back", Requirement::Moves),
    ("a move leaves the rest behind", Requirement::Moves),
    ("an adopted region forgets its window", Requirement::Moves),
    ("the id of a move is used again", Requirement::Moves),
    ("a frozen region takes writes", Requirement::Moves),
    ("one split of a look is listed", Requirement::Merges),
    ("a merge forgets the window of one side", Requirement::Merges),
    ("a merge leaves the memtables of one side", Requirement::Merges),
    ("a merge judges both sides by one history", Requirement::Merges),
    ("a merged region continues from the lower epoch", Requirement::Merges),
    ("a removed master does not learn of it", Requirement::MastersChange),
    ("a rebuilt catalog gives ids out again", Requirement::LostCatalog),
    ("a copy lacks a file", Requirement::Replacements),
    ("an installed copy lacks a region", Requirement::Replacements),
    ("a copy counts before the log has a record of it", Requirement::Replacements),
    ("a change of members ends before its vote", Requirement::Replacements),
    ("a replica is removed while its group changes", Requirement::Replacements),
    ("a failed sync of the log is ignored", Requirement::LostSyncs(SyncedFile::Log)),
    ("a restart trusts bytes that a failed sync left", Requirement::LostSyncs(SyncedFile::Log)),
    ("a restart trusts a manifest that was not synced", Requirement::LostSyncs(SyncedFile::Manifest)),
];

const DURABLE: &str = "only what a quorum has synced is acknowledged, and it stays";
const READ: &str = "a read is never older than a write acknowledged before it";
const ONCE: &str = "a retried operation applies once, and gets its first answer";
const EPOCH: &str = "a request names a region and its epoch, and only that region answers it";
const DAMAGE: &str = "a failed write or sync ends the process, and damage is never served";
const TIMING: &str = "what readers see depends on the log and the time of reading alone";
const SCAN: &str = "a scan neither skips nor repeats a row";
const SNAPSHOT: &str = "a snapshot scan sees one state";
const HBASE: &str = "HBase's clients get HBase's answers";
const ATOMIC: &str = "a row and an atomic batch are written as a whole";
const BOUNDED: &str = "everything taken from a budget is returned";
const LIVE: &str = "once all is healed, every request is answered";
const ERROR: &str = "an error says what became of the request";
const ALTER: &str = "a change of a table is complete when it is acknowledged";
const AGREE: &str = "members of a group agree on leaders, entries and rows";
const LEVEL: &str = "a process works at the level of its cluster";
const STATUS: &str = "`status` names a server that is away";
const WHO: &str = "a server is what answers at its address, and is there while it serves";
const TRACED: &str = "a traced write carries its trace to every replica";
const SEEN: &str = "the master lists what happened once, with its reason, and counts each row about once";
const MAP: &str = "regions tile their table, and each has an id of its own";

/// All planted bugs, in the order of a write: log and reads, region server, engine, master, client.
pub const PLANTED: &[PlantedBug] = &[
    bug("acknowledge before the sync", DURABLE, Kind::Rows, true),
    bug("a failed sync of the log is ignored", DAMAGE, Kind::Rows, true),
    bug("the names of log segments are not synced", DURABLE, Kind::Rows, true),
    bug("a vote is not logged", DURABLE, Kind::Rows, true),
    bug("the log is purged beyond what is flushed", DURABLE, Kind::Rows, true),
    bug("a copy lacks a file", LIVE, Kind::Rows, false),
    bug("an installed copy lacks a region", AGREE, Kind::Rows, false),
    bug("a member votes twice in a term", AGREE, Kind::Rows, false),
    bug("a follower loses the end of an entry", AGREE, Kind::Rows, true),
    bug("a copy counts before the log has a record of it", DURABLE, Kind::Registers, false),
    bug("a held file is not synced", DURABLE, Kind::Rows, false),
    bug("damage to the log passes for a torn tail", DAMAGE, Kind::Rows, false),
    bug("the checksum of a message is not looked at", AGREE, Kind::Rows, true),
    bug("a zero tail ends a segment", DAMAGE, Kind::Rows, true),
    bug("a restart trusts bytes that a failed sync left", DAMAGE, Kind::Rows, true),
    bug("a restart trusts a manifest that was not synced", DAMAGE, Kind::Rows, true),
    bug("a lease never ends", READ, Kind::Rows, false),
    bug("a leader reads without a quorum", READ, Kind::Rows, true),
    bug("a linearizable read does not wait", READ, Kind::Rows, true),
    bug("strict reads rely on a lease", READ, Kind::Rows, false),
    bug("replicas that differ are taken for equal", AGREE, Kind::Counters, true),
    bug("a follower claims its own clock", READ, Kind::Stale, false),
    bug("a stale read is complete up to the present", READ, Kind::Stale, false),
    bug("a stamp follows one clock", TIMING, Kind::Ttl, false),
    bug("stamps go back after a change of leader", TIMING, Kind::Rows, false),
    bug("a new leader decides before it has caught up", ONCE, Kind::Counters, true),
    bug("a read expires by one clock", TIMING, Kind::Ttl, false),
    bug("a split region is answered by its first daughter", EPOCH, Kind::Rows, true),
    bug("a load is taken in again", ONCE, Kind::Loads, true),
    bug("a replica skips the files of a load", DURABLE, Kind::Loads, true),
    bug("the files of a load go once they are taken in", LIVE, Kind::Loads, false),
    bug("files go with the holder's log", LIVE, Kind::Loads, false),
    bug("a flush waits for an entry", LIVE, Kind::Wide, true),
    bug("a successor is chosen that has not applied", LIVE, Kind::Loads, false),
    bug("a retry is applied again", ONCE, Kind::Counters, true),
    bug("a nonce is not recorded", ONCE, Kind::Hbase, true),
    bug("a delete of the newest version takes all versions", HBASE, Kind::HbaseModel, true),
    bug("deletes and puts that arrive together count in their order", HBASE, Kind::HbaseModel, true),
    bug("an increment takes the place of the version that it saw", HBASE, Kind::HbaseModel, true),
    bug("the window is lost at a restart", ONCE, Kind::Counters, false),
    bug("a split forgets the window", ONCE, Kind::Counters, true),
    bug("a merge forgets the window of one side", ONCE, Kind::Counters, false),
    bug("a merge leaves the memtables of one side", DURABLE, Kind::Batches, false),
    bug("a merge judges both sides by one history", TIMING, Kind::Schema, false),
    bug("a merged region continues from the lower epoch", EPOCH, Kind::Registers, false),
    bug("a split cuts an atomic prefix", ATOMIC, Kind::Batches, false),
    bug("a frozen region takes writes", DURABLE, Kind::Registers, false),
    bug("a move leaves the rest behind", DURABLE, Kind::Registers, false),
    bug("an adopted region forgets its window", ONCE, Kind::Counters, false),
    bug("a refused move is adopted", MAP, Kind::Registers, false),
    bug("a vote has the time of a silence", LIVE, Kind::Rows, false),
    bug("a refused move forgets an adopted one", MAP, Kind::Registers, false),
    bug("a region that has left needs no entries", MAP, Kind::Registers, false),
    bug("a move is undone without asking", DURABLE, Kind::Registers, false),
    bug("a replayed creation brings a moved region back", MAP, Kind::Counters, false),
    bug("the id of a move is used again", MAP, Kind::Registers, false),
    bug("a change of members ends before its vote", MAP, Kind::Rows, false),
    bug("a replica is removed while its group changes", DURABLE, Kind::Rows, false),
    bug("a removed master does not learn of it", LIVE, Kind::Rows, false),
    bug("a rebuilt catalog gives ids out again", MAP, Kind::Rows, false),
    bug("a master looks up without asking the leader", READ, Kind::Schema, false),
    bug("a number under way is settled", ERROR, Kind::Counters, false),
    bug("the result of an operation is not kept", ONCE, Kind::Counters, true),
    bug("a write to a dropped family is acknowledged", ALTER, Kind::Schema, true),
    bug("a refusal by an old schema is final", READ, Kind::Schema, false),
    bug("a dropped family keeps its cells", ALTER, Kind::Schema, true),
    bug("a disabled table is read", ALTER, Kind::Schema, true),
    bug("a truncated table keeps its rows", ALTER, Kind::Schema, true),
    bug("a condition ignores writes in flight", READ, Kind::Registers, false),
    bug("an old leader remembers its columns", ONCE, Kind::Registers, false),
    bug("an atomic batch is applied in part", ATOMIC, Kind::Batches, false),
    bug("a write counts twice", BOUNDED, Kind::Rows, true),
    bug("the buffer of a batch is kept", BOUNDED, Kind::Rows, true),
    bug("a failed write keeps its admission", BOUNDED, Kind::Rows, true),
    bug("an unfinished message keeps its budget", BOUNDED, Kind::Hostile, true),
    bug("an answer is in no budget", BOUNDED, Kind::HbaseModel, true),
    bug("a dead connection keeps its permit", BOUNDED, Kind::Hbase, true),
    bug("a page token is trusted unchecked", ERROR, Kind::Hostile, true),
    bug("a scan resumes one row late", SCAN, Kind::Scans, true),
    bug("a scan repeats its last row", SCAN, Kind::Scans, true),
    bug("a row larger than a block is cut short", SCAN, Kind::Wide, true),
    bug("the parts of a row come from several states", ATOMIC, Kind::Wide, true),
    bug("a snapshot scan moves on with each block", SNAPSHOT, Kind::Scans, true),
    bug("a scan's read point is forgotten when its region moves", SNAPSHOT, Kind::Scans, true),
    bug("the manifest is not synced", DURABLE, Kind::Rows, true),
    bug("a store file is not synced", DURABLE, Kind::Rows, true),
    bug("the names of store files are not synced", DURABLE, Kind::Rows, true),
    bug("a clean-up removes files of a running flush", DURABLE, Kind::Rows, true),
    bug("a tombstone goes before the cells it hides", TIMING, Kind::Batches, false),
    bug("a compaction leaves out an input", DURABLE, Kind::Rows, true),
    bug("a flush keeps one version of a column", AGREE, Kind::Rows, true),
    bug("a flush expires by the server's clock", TIMING, Kind::Ttl, false),
    bug("a damaged block is served", DAMAGE, Kind::Rows, true),
    bug("a bloom filter misses rows", READ, Kind::Rows, true),
    bug("the cache confuses files", DAMAGE, Kind::Rows, true),
    bug("a collection forgets live snapshots", SNAPSHOT, Kind::Scans, true),
    bug("a split loses the row at its boundary", DURABLE, Kind::Rows, true),
    bug("a get reads only the newest file", ATOMIC, Kind::Batches, false),
    bug("the level rises while a process is away", LEVEL, Kind::Rows, false),
    bug("a server does not store the level of its cluster", LEVEL, Kind::Rows, false),
    bug("an entry is written before all servers can read it", LEVEL, Kind::Counters, false),
    bug("a request to the master is not recorded", ONCE, Kind::Schema, true),
    bug("a restarted master forgets its requests", ONCE, Kind::Schema, false),
    bug("an alter ends before its last group", ALTER, Kind::Schema, true),
    bug("region ids are given out twice", MAP, Kind::Rows, true),
    bug("a region without a report is not listed", MAP, Kind::Rows, true),
    bug("the map gives daughters the epoch of their parent", MAP, Kind::Rows, true),
    bug("a silent server is not reported", STATUS, Kind::Rows, true),
    bug("a start counts as being back", WHO, Kind::Rows, false),
    bug("a taken address is given to a newcomer", WHO, Kind::Rows, false),
    bug("a server is live without being called back", WHO, Kind::Rows, false),
    bug("a newcomer expels the server that has its address", WHO, Kind::Rows, false),
    bug("a report counts twice", SEEN, Kind::Rows, true),
    bug("a split's load is counted for both daughters", SEEN, Kind::Rows, true),
    bug("an event is listed again at every look", SEEN, Kind::Rows, true),
    bug("one split of a look is listed", SEEN, Kind::Rows, true),
    bug("an election loses its reason", SEEN, Kind::Rows, true),
    bug("a retry takes a new number", ONCE, Kind::Counters, true),
    bug("an unknown outcome is reported as a failure", ERROR, Kind::Registers, false),
    bug("a scan goes on behind a region that changed", SCAN, Kind::Scans, true),
    bug("a traced write is logged without its trace", TRACED, Kind::Rows, true),
    bug("a stale location stays", LIVE, Kind::Rows, true),
    bug("two clients share an identity", ONCE, Kind::Counters, true),
    bug("rows held back count as written", ERROR, Kind::List, true),
];

const fn bug(name: &'static str, breaks: &'static str, scenario: Kind, quick: bool) -> PlantedBug {
    PlantedBug { name, breaks, scenario, quick }
}

#[cfg(test)]
mod tests;
