//! What masters tell administrators, as plain data: the same from the master to the client, `--json` and the pages.
//!
//! Masters fill the messages of `terrane.v1`; `proto/src/convert/admin.rs` lists the fields that clients read from them. The
//! JSON is that of `terrane --json`.

pub mod cluster;
pub mod fleet;
#[cfg(feature = "serde")]
mod json;
pub mod past;
pub mod procedures;
