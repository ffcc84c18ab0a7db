//! Entries whose bytes have changed since the leader packed them.

use futures::future::BoxFuture;
use futures::stream;
use terrane_types::versions::FEATURE_LEVEL;
use terrane_types::{GroupId, ReplicaId, ServerId};

use super::*;
use crate::log::SharedLog;
use crate::proposals::entry::{Header, Packer, format_at};
use crate::types::{Packed, log_id};
use crate::{Durable, GroupSpec, LogConfig, Packing, Prepared, StateMachine};

/// Keeps the operations that it applies. It cannot read some.
#[derive(Default)]
struct RecordingMachine {
    applied: Mutex<Vec<Bytes>>,
    damage: Mutex<Option<String>>,
}

const UNREADABLE: &[u8] = b"unreadable";

impl StateMachine for RecordingMachine {
    type Proposal = Vec<u8>;
    type Answer = ();

    fn prepare(&self, _: &Packing, _: &Vec<u8>, _: &mut Vec<u8>) -> Prepared<()> {
        Prepared::Packed
    }

    fn apply<'a>(&'a self, entries: &'a [AppliedEntry]) -> BoxFuture<'a, Vec<Vec<()>>> {
        let mut answers = Vec::new();
        for entry in entries {
            if entry.operations.iter().any(|operation| operation == UNREADABLE) {
                StateMachine::note_damage(self, "it cannot be read");
                break;
            }
            self.applied.lock().extend(entry.operations.iter().cloned());
            answers.push(vec![(); entry.operations.len()]);
        }
        Box::pin(async { answers })
    }

    fn durable(&self) -> Durable {
        Durable::default()
    }

    fn relieve(&self, _: u64) {}

    fn note_damage(&self, what: &str) {
        self.damage.lock().get_or_insert_with(|| what.to_owned());
    }

    fn damage(&self) -> Option<String> {
        self.damage.lock().clone()
    }
}

/// Entry `index`, with this operation.
fn packed(index: u64, operation: &[u8]) -> Entry {
    let header = Header { term: 1, ordinal: index + 1, stamp: 9, time: 9, released: 0 };
    let mut packer = Packer::new(header, 0, format_at(FEATURE_LEVEL));
    packer.push(|entry| {
        entry.extend_from_slice(operation);
        (true, ())
    });
    Entry { log_id: log_id(1, index), payload: EntryPayload::Normal(Packed(packer.finish())) }
}

/// The entry with a bit of its operation flipped.
fn flipped(entry: Entry) -> Entry {
    let EntryPayload::Normal(packed) = entry.payload else { unreachable!("entries here are packed") };
    let mut bytes = packed.0.to_vec();
    *bytes.last_mut().unwrap() ^= 4;
    Entry { payload: EntryPayload::Normal(Packed(bytes.into())), ..entry }
}

/// What a new replica applies of these entries, the last index that it counts as applied, and its damage.
async fn applied(entries: Vec<Entry>) -> (Vec<Bytes>, u64, Option<String>) {
    let directory = tempfile::tempdir().unwrap();
    let log = SharedLog::open(directory.path().to_owned(), &LogConfig::default()).await.unwrap();
    let members = [(ReplicaId(1), ServerId(1))].into();
    let of_group = log.create(GroupSpec { group: GroupId(1), replica: ReplicaId(1), members }).await.unwrap();
    let (machine, applied_state) =
        (Arc::new(RecordingMachine::default()), Arc::new(AppliedState::new(None, FEATURE_LEVEL)));
    let store = log.store(&of_group);
    let mut adapter = Adapter::new(machine.clone(), applied_state.clone(), of_group, store, Arc::default());
    let outcome = adapter.apply(stream::iter(entries.into_iter().map(|entry| Ok((entry, None))))).await;
    assert_eq!(outcome.err().map(|error| error.to_string()), StateMachine::damage(&*machine));
    log.close().await;
    let operations = machine.applied.lock().clone();
    (operations, applied_state.applied_index(), StateMachine::damage(&*machine))
}

#[tokio::test]
async fn a_replica_stops_before_an_entry_that_is_not_what_the_leader_packed() {
    let entries = vec![packed(0, b"a"), packed(1, b"b"), flipped(packed(2, b"c")), packed(3, b"d")];
    let (operations, index, damage) = applied(entries).await;
    assert_eq!((operations, index), (vec![Bytes::from("a"), Bytes::from("b")], 1));
    let damage = damage.unwrap();
    assert!(damage.contains("is not what the leader packed") && damage.contains("checksum"), "{damage}");
}

#[tokio::test]
async fn a_replica_stops_before_an_entry_that_its_state_machine_cannot_read() {
    let entries = vec![packed(0, b"a"), packed(1, UNREADABLE), packed(2, b"c")];
    let (operations, index, damage) = applied(entries).await;
    assert_eq!((operations, index, damage), (vec![Bytes::from("a")], 0, Some("it cannot be read".to_owned())));
}
