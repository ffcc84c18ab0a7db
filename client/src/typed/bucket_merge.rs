//! Rows of several ranges in one order: the buckets of a salted table, merged by what stands behind the bucket byte.
//!
//! Each range is a stream of its own and all are read at once. The least head (backwards: the greatest) is the next row,
//! which is known once every stream that has not ended shows its head. Rows are skipped here, since no server sees all
//! buckets; each stream stops by itself at as many rows as could be wanted of it.

use std::collections::BTreeMap;
use std::pin::Pin;
use std::task::{Context, Poll};

use bytes::Bytes;
use futures::Stream;

use crate::consistency::older;
use crate::error::Error;
use crate::read::row_data::RowData;
use crate::read::row_stream::RowStream;

/// A merge under way.
#[derive(Debug)]
pub(crate) struct BucketMerge {
    sources: Vec<RowStream>,
    /// Bytes of each row that do not count in the order.
    skip_bytes: usize,
    reverse: bool,
    offset: u64,
    limit: Option<u64>,
    /// The next row of each source that has one, by its place in the order.
    heads: BTreeMap<(Bytes, usize), RowData>,
    /// The sources whose next row is not known.
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

    /// As of when what came so far is complete, if reads of followers bounded it.
    pub(crate) fn as_of_ms(&self) -> Option<u64> {
        self.sources.iter().fold(None, |known, source| older(known, source.as_of_ms()))
    }

    /// Looks for the heads that are missing; whether all are known now.
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
