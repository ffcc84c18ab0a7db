//! The gRPC edge: decodes requests, calls, encodes replies, and maps errors. It decides nothing, and no protobuf message goes
//! further in.

pub mod admin;
pub mod data;
mod decode;
pub mod diagnostics;
mod encode;
#[cfg(feature = "fuzzing")]
pub mod fuzzing;
mod scan_stream;
mod session;
