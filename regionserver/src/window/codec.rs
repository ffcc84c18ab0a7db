//! The encoding of the window in a region's durable point (`docs/formats/operations.md`).
//!
//! ```text
//! window = version u8 (1) | floor u64 | clients u32 | client ... | nonces           no bytes at all: an empty window
//! client = id [16] | last u64 | since u64 | settled u64 | ranges u32 | (first u64 | last u64) ...
//!        | results u32 | (operation u64 | result u32-length) ...
//!        | results gone below u64 | settled ranges u32 | (first u64 | last u64) ...
//! nonces = batches u32 | (stamp u64 | nonces u32 | number u64 ...) ...
//! ```
//!
//! Clients, ranges, results and stamps are ascending. The manifest's record carries the checksum.

use bytes::Bytes;
use terrane_types::ByteWriter as _;

use super::{CLIENT_BYTES, Client, Nonces, RANGE_BYTES, RESULT_OVERHEAD_BYTES, Ranges, Window};
use crate::record::{Malformed, Reader};

const VERSION: u8 = 1;

/// Encoded size of a batch of nonces without them.
const BATCH_BYTES: usize = 8 + 4;

impl Window {
    #[must_use]
    pub fn encode(&self) -> Bytes {
        let mut out = Vec::with_capacity(1 + 8 + 4 + self.bytes);
        out.push(VERSION);
        out.u64(self.floor);
        out.count(self.clients.len());
        for (id, client) in &self.clients {
            out.extend_from_slice(id);
            out.u64(client.last);
            out.u64(client.since);
            out.u64(client.settled);
            put_ranges(&mut out, &client.applied);
            out.list(client.results.iter(), |out, (operation, result)| {
                out.u64(*operation);
                out.bytes(result);
            });
            out.u64(client.gone_below);
            put_ranges(&mut out, &client.settled_above);
        }
        put_nonces(&mut out, &self.nonces);
        out.into()
    }

    pub fn decode(record: Bytes) -> Result<Self, Malformed> {
        if record.is_empty() {
            return Ok(Self::default());
        }
        let mut reader = Reader::new(record);
        if reader.u8()? != VERSION {
            return Err(Malformed("this build does not know the version of the window of operations"));
        }
        let mut window = Self { floor: reader.u64()?, ..Self::default() };
        for _ in 0..reader.count(CLIENT_BYTES)? {
            let id = reader.array()?;
            let client = read_client(&mut reader)?;
            window.insert(id, client);
        }
        window.nonces = read_nonces(&mut reader)?;
        reader.finish()?;
        Ok(window)
    }
}

fn put_nonces(out: &mut Vec<u8>, nonces: &Nonces) {
    let batches_at = out.len();
    out.count(0);
    // The stamp of the last batch, where its count is, and the count.
    let (mut last, mut batches) = (None, 0u32);
    for (stamp, number) in nonces.iter() {
        let (at, count) = match last {
            Some((of, at, count)) if of == stamp => (at, count + 1),
            _ => {
                batches += 1;
                out.u64(stamp);
                out.count(0);
                (out.len() - 4, 1u32)
            }
        };
        out.u64(number);
        out[at..at + 4].copy_from_slice(&count.to_le_bytes());
        last = Some((stamp, at, count));
    }
    out[batches_at..batches_at + 4].copy_from_slice(&batches.to_le_bytes());
}

fn read_nonces(reader: &mut Reader) -> Result<Nonces, Malformed> {
    let (mut nonces, mut last) = (Nonces::default(), None);
    for _ in 0..reader.count(BATCH_BYTES)? {
        let stamp = reader.u64()?;
        if last.is_some_and(|last| stamp <= last) {
            return Err(Malformed("the nonces of a window are not ascending in time"));
        }
        last = Some(stamp);
        for _ in 0..reader.count(8)? {
            if !nonces.insert(stamp, reader.u64()?) {
                return Err(Malformed("a nonce is in a window twice"));
            }
        }
    }
    Ok(nonces)
}

fn put_ranges(out: &mut Vec<u8>, ranges: &Ranges) {
    out.count(ranges.len());
    for (first, last) in ranges.iter() {
        out.u64(first);
        out.u64(last);
    }
}

fn read_ranges(reader: &mut Reader) -> Result<Ranges, Malformed> {
    let (mut ranges, mut above) = (Ranges::default(), None);
    for _ in 0..reader.count(RANGE_BYTES)? {
        let (first, last) = (reader.u64()?, reader.u64()?);
        if first > last || above.is_some_and(|above| first <= above) {
            return Err(Malformed("the numbers of a window are not ascending"));
        }
        above = Some(last);
        ranges.insert_range(first, last);
    }
    Ok(ranges)
}

fn read_client(reader: &mut Reader) -> Result<Client, Malformed> {
    let (last, since, settled) = (reader.u64()?, reader.u64()?, reader.u64()?);
    let mut client = Client::new(last, since, settled);
    client.applied = read_ranges(reader)?;
    for _ in 0..reader.count(RESULT_OVERHEAD_BYTES)? {
        let operation = reader.u64()?;
        // Copied, because a slice would keep the whole record in memory.
        client.keep(operation, Bytes::copy_from_slice(&reader.bytes()?));
    }
    client.gone_below = reader.u64()?;
    client.settled_above = read_ranges(reader)?;
    Ok(client)
}
