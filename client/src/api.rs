//! The handles of a client: the client itself, a table, the administrator's calls, and their blocking form.

pub(crate) mod admin;
pub mod blocking;
pub(crate) mod client;
pub(crate) mod core;
pub(crate) mod table;
pub(crate) mod url;
