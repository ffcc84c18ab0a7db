//! What all read requests of a table have in common: they are built, then awaited.
//!
//! Nothing is sent before a request is awaited, and dropping the future ends the call. A request borrows its table, as a call
//! of an `async fn` would.

use std::time::Duration;

use crate::api::table::Table;
use crate::consistency::Consistency;

/// How a read is executed.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ReadOptions {
    pub(crate) consistency: Consistency,
    timeout: Option<Duration>,
}

impl ReadOptions {
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

/// A read that also returns as of when its answer is complete: awaiting it gives an [`AsOf`](crate::AsOf). Created by the
/// request's `with_as_of`.
#[derive(Clone, Debug)]
#[must_use = "a request is sent when it is awaited"]
pub struct WithAsOf<R>(pub(crate) R);

/// The methods of requests with a field `options` and an `async fn run(self) -> Result<AsOf<T>, Error>`, and awaiting them. `only`:
/// without `with_as_of`, because the stream has that time.
macro_rules! reading_request {
    ($request:ident, $value:ty) => {
        crate::read::request::reading_request!(only $request, $value);

        impl $request<'_> {
            /// Also returns as of when the answer is complete: useful with
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
            /// Which writes the read sees; [`Consistency::Linearizable`](crate::Consistency::Linearizable) by default.
            pub fn consistency(mut self, consistency: crate::consistency::Consistency) -> Self {
                self.options.consistency = consistency;
                self
            }

            /// The timeout of this call, retries included; the table's by default.
            pub fn timeout(mut self, timeout: std::time::Duration) -> Self {
                self.options.timeout(timeout);
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
