//! Merges the buckets of a salted table into one order: that of the keys without the bucket byte.
//!
//! Each bucket is a stream, and all are read at once. The smallest head (in reverse, the largest) is the next row; it is known
//! once every stream that has not ended has a head. Offsets are skipped here, because no server sees all buckets; each stream
//! ends at the most rows that could be needed from it.

use std::collections::BTreeMap;
use std::pin::Pin;
use std::task::{Context, Poll};

use bytes::Bytes;
use futures::Stream;

use crate::consistency::older;
use crate::error::Error;
use crate::read::row_data::RowData;
use crate::read::row_stream::RowStream;

/// The merge of several row streams.
#[derive(Debug)]
pub(crate) struct BucketMerge {
    sources: Vec<RowStream>,
    /// Leading bytes of each row that the order ignores.
    skip_bytes: usize,
    reverse: bool,
    offset: u64,
    limit: Option<u64>,
    /// The next row of each source that has one, in order.
    heads: BTreeMap<(Bytes, usize), RowData>,
    /// The sources whose next row is not known yet.
    waited_for: Vec<usize>,
}

impl BucketMerge {
    pub(crate) fn new(
        sources: Vec<RowStream>,
        skip_bytes: usize,
        reverse: bool,
        offset: u64,
        limit: Option<u64>,
    ) -> Self {
        let waited_for = (0..sources.len()).collect();
        Self { sources, skip_bytes, reverse, offset, limit, heads: BTreeMap::new(), waited_for }
    }

    /// As of when the rows so far are complete, if stale reads bound it.
    pub(crate) fn as_of_ms(&self) -> Option<u64> {
        self.sources.iter().fold(None, |known, source| older(known, source.as_of_ms()))
    }

    /// Polls for the missing heads; ready when all are known.
    fn poll_heads(&mut self, context: &mut Context<'_>) -> Poll<Result<(), Error>> {
        let mut still = Vec::new();
        for at in std::mem::take(&mut self.waited_for) {
            match Pin::new(&mut self.sources[at]).poll_next(context) {
                Poll::Pending => still.push(at),
                Poll::Ready(None) => {}
                Poll::Ready(Some(Ok(row))) => {
                    let bytes = row.row().clone().into_bytes();
                    let key = bytes.slice(self.skip_bytes.min(bytes.len())..);
                    self.heads.insert((key, at), row);
                }
                Poll::Ready(Some(Err(error))) => {
                    self.end();
                    return Poll::Ready(Err(error));
                }
            }
        }
        self.waited_for = still;
        if self.waited_for.is_empty() { Poll::Ready(Ok(())) } else { Poll::Pending }
    }

    fn end(&mut self) {
        self.heads.clear();
        self.waited_for.clear();
        self.limit = Some(0);
    }
}

impl Stream for BucketMerge {
    type Item = Result<RowData, Error>;

    fn poll_next(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        let merge = &mut *self;
        loop {
            if merge.limit == Some(0) {
                return Poll::Ready(None);
            }
            match merge.poll_heads(context) {
                Poll::Pending => return Poll::Pending,
                Poll::Ready(Err(error)) => return Poll::Ready(Some(Err(error))),
                Poll::Ready(Ok(())) => {}
            }
            let next = if merge.reverse { merge.heads.pop_last() } else { merge.heads.pop_first() };
            let Some(((_, source), row)) = next else { return Poll::Ready(None) };
            merge.waited_for.push(source);
            if merge.offset > 0 {
                merge.offset -= 1;
                continue;
            }
            merge.limit = merge.limit.map(|limit| limit - 1);
            return Poll::Ready(Some(Ok(row)));
        }
    }
}
