//! The client against a fake cluster, which answers as a test wants it to.
//!
//! One binary for all of them, because each binary links the client and the fake servers once more.

mod arguments;
mod blocking;
mod bulk;
mod fake;
mod liveness;
mod newcomer;
mod reading;
mod routing;
mod scanning;
mod typed;
mod writing;
