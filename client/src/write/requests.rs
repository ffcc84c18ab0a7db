//! Writes that are built and not yet sent: they accept more settings, and start when they are awaited.
//!
//! Each is a future that owns what it needs, so it can be awaited, joined with others or spawned. Dropping it gives the call up:
//! a request that was not sent will not be, and one that was may be applied.

use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use bytes::Bytes;
use futures::future::BoxFuture;
use terrane_types::Returns;

use crate::api::table::Table;
use crate::error::{Error, RowError};
use crate::write::condition::Condition;
use crate::write::outcome::{AtomicOutcome, MutationOutcome};
use crate::write::row_mutation::RowMutation;

/// A write of one row; it is sent when it is awaited. `T` is its result.
///
/// ```no_run
/// # async fn run(table: terrane_client::Table) -> Result<(), terrane_client::Error> {
/// use std::time::Duration;
/// use terrane_client::{Put, Returns, column};
///
/// table.put(Put::new("user-17").set("info", "name", "Ada")).await?;
///
/// let outcome = table
///     .put(Put::new("user-17").set("info", "mail", "ada@example.org"))
///     .when(column("info", "mail").is_absent())
///     .returning(Returns::Old)
///     .timeout(Duration::from_secs(2))
///     .await?;
/// assert!(outcome.held);
/// # Ok(()) }
/// ```
#[must_use = "a write is not sent until it is awaited"]
pub struct WriteRequest<T> {
    state: State,
    /// Converts the row's outcome to the result.
    answer: fn(MutationOutcome) -> Result<T, Error>,
}

enum State {
    Built(Built),
    /// While the call is created.
    Begins,
    Sent(BoxFuture<'static, Result<MutationOutcome, Error>>),
}

struct Built {
    table: Table,
    mutation: RowMutation,
    timeout: Duration,
}

impl<T> WriteRequest<T> {
    pub(crate) fn new(table: &Table, mutation: RowMutation, answer: fn(MutationOutcome) -> Result<T, Error>) -> Self {
        let built = Built { table: table.clone(), mutation, timeout: table.timeout };
        Self { state: State::Built(built), answer }
    }

    /// The timeout of this call, waits and retries included; the table's by default.
    pub fn timeout(self, timeout: Duration) -> Self {
        self.build(|built| built.timeout = timeout)
    }

    /// Applies the write only if this condition holds; the outcome says whether it did. See [`RowMutation::when`].
    pub fn when(self, condition: impl Into<Condition>) -> WriteRequest<MutationOutcome> {
        let with = |mutation: RowMutation| mutation.when(condition);
        self.change(with).outcome()
    }

    /// Returns cells as they were before or as they are after. See [`RowMutation::returning`].
    pub fn returning(self, returns: Returns) -> WriteRequest<MutationOutcome> {
        self.change(|mutation| mutation.returning(returns)).outcome()
    }

    /// If the condition does not hold, returns the columns that it names. See [`RowMutation::return_found`].
    pub fn return_found(self) -> WriteRequest<MutationOutcome> {
        self.change(RowMutation::return_found).outcome()
    }

    fn outcome(self) -> WriteRequest<MutationOutcome> {
        WriteRequest { state: self.state, answer: Ok }
    }

    fn change(self, change: impl FnOnce(RowMutation) -> RowMutation) -> Self {
        self.build(|built| {
            let empty = RowMutation::new([]);
            built.mutation = change(std::mem::replace(&mut built.mutation, empty));
        })
    }

    /// Settings apply before the first await; a write that has started is not changed.
    fn build(mut self, set: impl FnOnce(&mut Built)) -> Self {
        match &mut self.state {
            State::Built(built) => set(built),
            State::Begins | State::Sent(_) => {
                tracing::warn!("a write was changed after it was sent; the change has no effect")
            }
        }
        self
    }
}

impl<T> Future for WriteRequest<T> {
    type Output = Result<T, Error>;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        if let State::Built(_) = &self.state
            && let State::Built(built) = std::mem::replace(&mut self.state, State::Begins)
        {
            let Built { table, mutation, timeout } = built;
            self.state = State::Sent(Box::pin(async move { table.write_row(mutation, timeout).await }));
        }
        let State::Sent(call) = &mut self.state else { return Poll::Pending };
        let outcome = ready!(call.as_mut().poll(context));
        Poll::Ready(outcome.and_then(self.answer))
    }
}

impl<T> fmt::Debug for WriteRequest<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.state {
            State::Built(built) => f.debug_struct("WriteRequest").field("mutation", &built.mutation).finish(),
            State::Begins | State::Sent(_) => f.write_str("WriteRequest(sent)"),
        }
    }
}

/// The results of single writes.
pub(crate) mod answers {
    use super::{Bytes, Error, MutationOutcome};

    #[expect(clippy::unnecessary_wraps, reason = "the other conversions can fail")]
    pub(crate) fn nothing(_: MutationOutcome) -> Result<(), Error> {
        Ok(())
    }

    #[expect(clippy::unnecessary_wraps, reason = "the other conversions can fail")]
    pub(crate) fn held(outcome: MutationOutcome) -> Result<bool, Error> {
        Ok(outcome.held)
    }

    /// The new value of the one column that was named.
    pub(crate) fn value(outcome: MutationOutcome) -> Result<Bytes, Error> {
        let row = outcome.row.as_ref();
        let value = row.and_then(|row| row.cells().next().map(|cell| Bytes::copy_from_slice(cell.value)));
        value.ok_or_else(|| Error::internal("the server did not return the value it wrote"))
    }

    pub(crate) fn counter(outcome: MutationOutcome) -> Result<i64, Error> {
        let value = value(outcome)?;
        let bytes = <[u8; 8]>::try_from(&value[..]);
        bytes
            .map(i64::from_be_bytes)
            .map_err(|_| Error::internal("the server returned a counter that does not have 8 bytes"))
    }
}

macro_rules! batch_request {
    ($(#[$docs:meta])* $name:ident, $answer:ty, $send:ident) => {
        $(#[$docs])*
        #[must_use = "a write is not sent until it is awaited"]
        pub struct $name {
            table: Table,
            mutations: Vec<RowMutation>,
            timeout: Duration,
            sent: Option<BoxFuture<'static, Result<$answer, Error>>>,
        }

        impl $name {
            pub(crate) fn new(table: &Table, mutations: Vec<RowMutation>) -> Self {
                Self { table: table.clone(), mutations, timeout: table.timeout, sent: None }
            }

            /// The timeout of this call, waits and retries included; the table's by default.
            pub fn timeout(mut self, timeout: Duration) -> Self {
                self.timeout = timeout;
                self
            }
        }

        impl Future for $name {
            type Output = Result<$answer, Error>;

            fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
                let this = &mut *self;
                let call = this.sent.get_or_insert_with(|| {
                    let (table, timeout) = (this.table.clone(), this.timeout);
                    let mutations = std::mem::take(&mut this.mutations);
                    Box::pin(async move { table.$send(mutations, timeout).await })
                });
                call.as_mut().poll(context)
            }
        }

        impl fmt::Debug for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.debug_struct(stringify!($name)).field("mutations", &self.mutations.len()).finish()
            }
        }
    };
}

batch_request! {
    /// Independent writes of many rows; they are sent when awaited. Created by [`Table::mutate_many`]. The outcomes come in the
    /// order of the rows.
    WriteManyRequest, Vec<Result<MutationOutcome, RowError>>, write_many
}

batch_request! {
    /// An atomic write of several rows; it is sent when it is awaited. Created by [`Table::atomic`].
    AtomicRequest, AtomicOutcome, write_atomic
}
