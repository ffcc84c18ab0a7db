//! The latest requests for changes, by the id that the caller chose for each.
//!
//! A caller that lost a reply sends the same request again with the same id and gets the outcome of the first one, so
//! that a change is made once and a retried create does not fail because its own table exists. Only requests that
//! changed something are recorded: a refused one had no effect.

use std::collections::{BTreeMap, VecDeque};

use bytes::Bytes;
use terrane_types::{Error, Invalid, TableId};

use super::codec::{ByteWriter as _, DecodeError, Reader};

/// Number of recorded requests: at least the last minutes, even when tables are created fast.
const REQUESTS_MAX: usize = 4_096;

/// A request's id: 16 random bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct RequestId(pub [u8; 16]);

impl RequestId {
    /// The id in a request; `None` if the caller sent none.
    ///
    /// # Errors
    /// [`Error::Invalid`] for an id of any other length.
    pub fn of(bytes: &Bytes) -> Result<Option<Self>, Error> {
        if bytes.is_empty() {
            return Ok(None);
        }
        let id = <[u8; 16]>::try_from(bytes.as_ref());
        let id = id.map_err(|_| Invalid::new(format!("a request id has 16 bytes, not {}", bytes.len())))?;
        Ok(Some(Self(id)))
    }
}

/// The latest requests and the tables that they changed; `TableId(0)` if a request changed no table.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Requests {
    /// The oldest first.
    order: VecDeque<RequestId>,
    changed: BTreeMap<RequestId, TableId>,
}

impl Requests {
    /// The table that a recorded request changed.
    pub fn get(&self, id: RequestId) -> Option<TableId> {
        self.changed.get(&id).copied()
    }

    pub(super) fn record(&mut self, id: RequestId, table: TableId) {
        if self.changed.insert(id, table).is_none() {
            self.order.push_back(id);
        }
        while self.order.len() > REQUESTS_MAX {
            if let Some(oldest) = self.order.pop_front() {
                self.changed.remove(&oldest);
            }
        }
    }

    pub(super) fn encode(&self, out: &mut Vec<u8>) {
        out.list(self.order.iter(), |out, id| {
            out.raw(&id.0);
            out.u64(self.changed.get(id).map_or(0, |table| table.0));
        });
    }

    pub(super) fn decode(from: &mut Reader<'_>) -> Result<Self, DecodeError> {
        let mut requests = Self::default();
        for (id, table) in from.list(|from| Ok::<_, DecodeError>((RequestId(from.array()?), TableId(from.u64()?))))? {
            if !terrane_env::planted!("a restarted master forgets its requests") {
                requests.record(id, table);
            }
        }
        Ok(requests)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn id(number: u64) -> RequestId {
        let mut bytes = [0; 16];
        bytes[..8].copy_from_slice(&number.to_le_bytes());
        RequestId(bytes)
    }

    #[test]
    fn the_latest_requests_are_kept_and_encoded() {
        let mut requests = Requests::default();
        (0..REQUESTS_MAX as u64 + 2).for_each(|number| requests.record(id(number), TableId(number)));
        assert_eq!((requests.get(id(1)), requests.get(id(2))), (None, Some(TableId(2))));
        let mut out = Vec::new();
        requests.encode(&mut out);
        assert_eq!(Requests::decode(&mut Reader::new(&out)), Ok(requests));
    }

    #[test]
    fn an_id_has_sixteen_bytes_or_none() {
        assert_eq!(RequestId::of(&Bytes::new()), Ok(None));
        assert_eq!(RequestId::of(&Bytes::from_static(&[7; 16])), Ok(Some(RequestId([7; 16]))));
        assert!(RequestId::of(&Bytes::from_static(&[7; 15])).is_err());
    }
}
