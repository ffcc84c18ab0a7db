//! What the reading requests of a table have in common: they are built, and awaited to be carried out.
//!
//! Nothing is sent before a request is awaited, and dropping the future ends the call. A request borrows its table, as the
//! call of an `async fn` would.

use std::time::Duration;

use crate::api::table::Table;
use crate::consistency::Consistency;

/// How a read is carried out.
#[derive(Clone, Copy, Debug)]
pub(crate) struct How {
    pub(crate) consistency: Consistency,
    timeout: Option<Duration>,
}

impl How {
    pub(crate) const fn new(consistency: Consistency) -> Self {
        Self { consistency, timeout: None }
    }

    pub(crate) const fn timeout(&mut self, timeout: Duration) {
        self.timeout = Some(timeout);
    }

    pub(crate) fn timeout_of(&self, table: &Table) -> Duration {
        self.timeout.unwrap_or(table.timeout)
    }
}

/// A read whose answer comes with the time as of which it is complete: awaiting it gives an [`AsOf`](crate::AsOf). Made by
/// `with_as_of` of the request.
#[derive(Clone, Debug)]
#[must_use = "a request is sent when it is awaited"]
pub struct WithAsOf<R>(pub(crate) R);

/// The methods of requests with a field `how`, and awaiting those that have `async fn run(self) -> Result<AsOf<T>, Error>`.
/// `only`: the time of the answer is told elsewhere, by the stream.
macro_rules! reading_request {
    ($request:ident, $value:ty) => {
        crate::read::request::reading_request!(only $request, $value);

        impl $request<'_> {
            /// Asks for the time as of which the answer is complete, too: interesting with
            /// [`Consistency::Stale`](crate::Consistency::Stale).
            pub const fn with_as_of(self) -> crate::read::request::WithAsOf<Self> {
                crate::read::request::WithAsOf(self)
            }
        }

        impl<'t> IntoFuture for crate::read::request::WithAsOf<$request<'t>> {
            type Output = Result<crate::consistency::AsOf<$value>, crate::error::Error>;
            type IntoFuture = futures::future::BoxFuture<'t, Self::Output>;

            fn into_future(self) -> Self::IntoFuture {
                Box::pin(self.0.run())
            }
        }
    };
    (only $request:ident, $value:ty) => {
        impl $request<'_> {
            /// How fresh the answer is; [`Consistency::Linearizable`](crate::Consistency::Linearizable) if not set.
            pub fn consistency(mut self, consistency: crate::consistency::Consistency) -> Self {
                self.how.consistency = consistency;
                self
            }

            /// How long it may take, retries included; the table's timeout if not set.
            pub fn timeout(mut self, timeout: std::time::Duration) -> Self {
                self.how.timeout(timeout);
                self
            }
        }

        impl<'t> IntoFuture for $request<'t> {
            type Output = Result<$value, crate::error::Error>;
            type IntoFuture = futures::future::BoxFuture<'t, Self::Output>;

            fn into_future(self) -> Self::IntoFuture {
                Box::pin(async move { Ok(self.run().await?.value) })
            }
        }
    };
}

pub(crate) use reading_request;
