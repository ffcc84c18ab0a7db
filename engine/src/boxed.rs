//! The type of the engine's asynchronous calls.

use std::future::Future;
use std::pin::Pin;

/// A boxed future. The compiler generates the body of an `async fn` in every crate that awaits it; a boxed one is compiled
/// once, here. The calls that return one each do a lot of work, so the allocation does not show.
pub type BoxFuture<'a, T> = Pin<Box<dyn Future<Output = T> + Send + 'a>>;
