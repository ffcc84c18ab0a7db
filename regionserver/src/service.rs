//! The gRPC edge: decode, call, encode, map the error. Nothing is decided here, and no message goes further in.

pub mod admin;
pub mod data;
mod decode;
mod encode;
mod scan_stream;
mod session;
