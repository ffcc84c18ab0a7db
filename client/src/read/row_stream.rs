//! Rows of a range as a stream, over all the regions it spans.

use std::pin::Pin;
use std::task::{Context, Poll};

use futures::future::BoxFuture;
use futures::{Stream, StreamExt as _, TryStreamExt as _};

use crate::error::Error;
use crate::read::row_data::RowData;
use crate::read::scanner::Scanner;

/// The rows of a scan, one after another: a [`Stream`], or a loop over [`RowStream::next`] until it answers `None`.
///
/// Rows arrive in blocks. This process buffers one block, or for a longer scan as much as the connection's window allows: a
/// slow reader slows the servers down, and nothing piles up. Dropping the stream ends the scan. The stream ends after an
/// error.
///
/// ```no_run
/// # async fn run(table: terrane_client::Table) -> Result<(), terrane_client::Error> {
/// let mut rows = table.scan("user-").await?;
/// while let Some(row) = rows.try_next().await? {
///     println!("{row}");
/// }
/// // Few rows: all at once.
/// let newest_ten = table.scan("user-").reverse().limit(10).collect().await?;
/// // Many rows: some at a time.
/// let mut rows = table.scan(..).await?;
/// loop {
///     let some = rows.next_many(1_000).await?;
///     if some.is_empty() {
///         break;
///     }
///     println!("{}", some.len());
/// }
/// # Ok(()) }
/// ```
pub struct RowStream {
    state: State,
    rows: std::vec::IntoIter<RowData>,
}

/// The scan after a block, and the rows of the block.
type Fetched = (Box<Scanner>, Result<Vec<RowData>, Error>);

/// What a stream is doing.
enum State {
    /// Nothing; the next block has not been requested.
    Idle(Box<Scanner>),
    /// Waiting for a block.
    Fetching(BoxFuture<'static, Fetched>),
    /// The last row was returned, or an error. As of when the rows are complete.
    Ended(Option<u64>),
}

impl std::fmt::Debug for RowStream {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let mut shown = f.debug_struct("RowStream");
        if let State::Idle(scanner) = &self.state {
            shown.field("scanner", scanner);
        }
        shown.finish_non_exhaustive()
    }
}

impl RowStream {
    pub(crate) fn new(scanner: Scanner) -> Self {
        Self { state: State::Idle(Box::new(scanner)), rows: Vec::new().into_iter() }
    }

    /// The next row; `None` at the end. Waits at most the read's timeout. Dropping this future loses nothing: the next call
    /// waits for the same row.
    pub async fn next(&mut self) -> Option<Result<RowData, Error>> {
        std::future::poll_fn(|context| Pin::new(&mut *self).poll_next(context)).await
    }

    /// The next row, `None` at the end; an error is the function's: `while let Some(row) = rows.try_next().await? { .. }`. As
    /// [`RowStream::next`].
    ///
    /// # Errors
    /// The stream's.
    pub async fn try_next(&mut self) -> Result<Option<RowData>, Error> {
        self.next().await.transpose()
    }

    /// The next rows, up to this many: fewer, or none, only at the end. A row that was read before an error is lost; dropping
    /// this future loses the rows that it has read.
    ///
    /// # Errors
    /// The stream's.
    pub async fn next_many(&mut self, rows: usize) -> Result<Vec<RowData>, Error> {
        self.take(rows).try_collect().await
    }

    /// All remaining rows. They are held in memory together: give the scan a [limit](crate::Scan::limit), or take them in parts
    /// with [`RowStream::next_many`], unless the range is known to be small.
    ///
    /// # Errors
    /// The stream's; the rows read before are lost.
    pub async fn collect(mut self) -> Result<Vec<RowData>, Error> {
        self.next_many(usize::MAX).await
    }

    /// The same rows as a [`Stream`]; it is one by itself.
    pub fn into_stream(self) -> impl Stream<Item = Result<RowData, Error>> + Send {
        self
    }

    /// For a scan with [`Consistency::Stale`](crate::Consistency::Stale): the rows returned so far include every write
    /// acknowledged before this time, in milliseconds since 1970 by the cluster's clock. `None`: the rows are linearizable,
    /// or there are none yet.
    #[must_use]
    pub fn as_of_ms(&self) -> Option<u64> {
        match &self.state {
            State::Idle(scanner) => scanner.as_of_ms(),
            State::Fetching(_) => None,
            State::Ended(as_of_ms) => *as_of_ms,
        }
    }
}

impl Stream for RowStream {
    type Item = Result<RowData, Error>;

    fn poll_next(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        let stream = &mut *self;
        loop {
            if let Some(row) = stream.rows.next() {
                return Poll::Ready(Some(Ok(row)));
            }
            match std::mem::replace(&mut stream.state, State::Ended(None)) {
                State::Idle(scanner) if scanner.is_finished() => {
                    stream.state = State::Ended(scanner.as_of_ms());
                    return Poll::Ready(None);
                }
                State::Idle(mut scanner) => {
                    stream.state = State::Fetching(Box::pin(async move {
                        let mut rows = Vec::new();
                        let taken = scanner.advance(&mut rows).await;
                        (scanner, taken.map(|()| rows))
                    }));
                }
                State::Fetching(mut fetching) => match fetching.as_mut().poll(context) {
                    Poll::Pending => {
                        stream.state = State::Fetching(fetching);
                        return Poll::Pending;
                    }
                    Poll::Ready((scanner, Ok(rows))) => {
                        stream.rows = rows.into_iter();
                        stream.state = State::Idle(scanner);
                    }
                    Poll::Ready((scanner, Err(error))) => {
                        stream.state = State::Ended(scanner.as_of_ms());
                        return Poll::Ready(Some(Err(error)));
                    }
                },
                State::Ended(as_of_ms) => {
                    stream.state = State::Ended(as_of_ms);
                    return Poll::Ready(None);
                }
            }
        }
    }
}
