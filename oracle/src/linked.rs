//! Linked lists over random keys, as in HBase's `IntegrationTestBigLinkedList` and Accumulo's continuous ingest: each node
//! refers to a node whose write was acknowledged before its own started. A node that exists and refers to one that does not
//! proves that an acknowledged write was lost, whatever else is known.

use std::collections::BTreeMap;

use crate::verdict::Verdict;

/// The key of a node.
pub type Key = [u8; 8];

/// All nodes of a run.
#[derive(Debug, Default)]
pub struct Nodes {
    nodes: BTreeMap<Key, Node>,
    acknowledged: u64,
}

#[derive(Clone, Copy, Debug)]
struct Node {
    refers_to: Option<Key>,
    is_acknowledged: bool,
}

impl Nodes {
    /// Starts to write a node that refers to another; `None` ends the list. Returns whether the key was free.
    pub fn attempt(&mut self, key: Key, refers_to: Option<Key>) -> bool {
        let free = !self.nodes.contains_key(&key);
        if free {
            self.nodes.insert(key, Node { refers_to, is_acknowledged: false });
        }
        free
    }

    /// The write of a node was acknowledged.
    pub fn acknowledge(&mut self, key: &Key) {
        let node = self.nodes.get_mut(key).expect("a node is written before its write is acknowledged");
        self.acknowledged += u64::from(!node.is_acknowledged);
        node.is_acknowledged = true;
    }

    /// The number of acknowledged nodes.
    #[must_use]
    pub const fn acknowledged(&self) -> u64 {
        self.acknowledged
    }

    /// The first acknowledged node at or after a key; else the first of all.
    #[must_use]
    pub fn some_acknowledged(&self, at: &Key) -> Option<Key> {
        let from = self.nodes.range(*at..).chain(self.nodes.range(..*at));
        from.filter(|(_, node)| node.is_acknowledged).map(|(key, _)| *key).next()
    }

    /// A node was read that was acknowledged, or that another one refers to, before the read started.
    ///
    /// # Errors
    /// If it is absent, or refers to something else than what was written.
    pub fn found(&self, key: &Key, found: Option<Option<Key>>) -> Verdict {
        match (self.nodes.get(key), found) {
            (None, None) => Ok(()),
            (None, Some(_)) => Err(format!("node {} was never written", shown(key))),
            (Some(_), None) => Err(format!("node {} is undefined", shown(key))),
            (Some(node), Some(refers_to)) if node.refers_to == refers_to => Ok(()),
            (Some(node), Some(refers_to)) => {
                let [wrong, right] =
                    [refers_to, node.refers_to].map(|key| key.map_or("nothing".to_owned(), |key| shown(&key)));
                Err(format!("node {} refers to {wrong}, but was written with {right}", shown(key)))
            }
        }
    }

    /// These are all the nodes that exist, with what they refer to, and no write is in flight.
    ///
    /// # Errors
    /// If an acknowledged node is missing, one was never written, or one refers to a node that does not exist.
    pub fn all(&self, there: &BTreeMap<Key, Option<Key>>) -> Verdict {
        for (key, refers_to) in there {
            self.found(key, Some(*refers_to))?;
            if let Some(undefined) = refers_to.filter(|referred| !there.contains_key(referred)) {
                return Err(format!("node {} refers to {}, which is undefined", shown(key), shown(&undefined)));
            }
        }
        let lost = self.nodes.iter().find(|(key, node)| node.is_acknowledged && !there.contains_key(*key));
        lost.map_or(Ok(()), |(key, _)| Err(format!("node {} was acknowledged and is lost", shown(key))))
    }
}

/// A key as the trace shows it.
#[must_use]
pub fn shown(key: &Key) -> String {
    format!("{:016x}", u64::from_be_bytes(*key))
}

#[cfg(test)]
mod tests {
    use super::*;

    const A: Key = [1; 8];
    const B: Key = [2; 8];
    const C: Key = [3; 8];

    /// `c` refers to `b`, which refers to `a`; the write of `c` is not acknowledged.
    fn three() -> Nodes {
        let mut nodes = Nodes::default();
        for (key, refers_to) in [(A, None), (B, Some(A)), (C, Some(B))] {
            assert!(nodes.attempt(key, refers_to));
        }
        nodes.acknowledge(&A);
        nodes.acknowledge(&B);
        nodes
    }

    #[test]
    fn a_whole_list_is_right_with_or_without_the_node_in_flight() {
        let nodes = three();
        nodes.all(&BTreeMap::from([(A, None), (B, Some(A))])).unwrap();
        nodes.all(&BTreeMap::from([(A, None), (B, Some(A)), (C, Some(B))])).unwrap();
        assert_eq!(nodes.acknowledged(), 2);
    }

    #[test]
    fn a_lost_or_undefined_node_is_found() {
        let nodes = three();
        assert!(nodes.all(&BTreeMap::from([(A, None)])).unwrap_err().contains("lost"));
        assert!(nodes.all(&BTreeMap::from([(A, None), (C, Some(B))])).unwrap_err().contains("undefined"));
        assert!(nodes.all(&BTreeMap::from([(A, None), (B, Some(C))])).unwrap_err().contains("was written with"));
        assert!(nodes.all(&BTreeMap::from([([9; 8], None)])).unwrap_err().contains("never written"));
        nodes.found(&B, None).unwrap_err();
        nodes.found(&B, Some(Some(A))).unwrap();
    }

    #[test]
    fn a_walk_starts_at_an_acknowledged_node() {
        let nodes = three();
        assert_eq!(nodes.some_acknowledged(&B), Some(B));
        assert_eq!(nodes.some_acknowledged(&C), Some(A));
        assert_eq!(Nodes::default().some_acknowledged(&A), None);
    }

    #[test]
    fn a_key_is_used_once() {
        let mut nodes = three();
        assert!(!nodes.attempt(A, Some(C)));
        nodes.all(&BTreeMap::from([(A, None), (B, Some(A))])).unwrap();
    }
}
