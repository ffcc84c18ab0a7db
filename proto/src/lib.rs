//! The wire: generated messages and services, and the only conversions between them and the types of `terrane-types`.
//!
//! What only servers need (the generated servers, their codec, reflection) is behind the feature `server`, so that programs
//! with the client library do not compile it.
//!
//! This crate makes no decisions. Servers and the client decode at their edge with [`convert`], and every error crosses
//! the wire through the mapping in [`error`]. Byte fields are slices of the receive buffer, so cells are not
//! copied between the socket and the log.

#[cfg(feature = "server")]
pub mod codec;
pub mod convert;
pub mod error;
#[cfg(feature = "fuzzing")]
#[doc(hidden)]
pub mod fuzzing;
pub mod hello;
pub mod leadership;
pub mod mutation;
pub mod projection;
mod secrets;
mod unserved;
pub mod versions;

pub use terrane_types::limits::MESSAGE_BYTES_MAX;

/// The generated messages, clients and servers of package `terrane.v1`.
#[allow(
    missing_docs,
    clippy::all,
    clippy::pedantic,
    clippy::disallowed_methods,
    reason = "generated code; the .proto files carry the documentation"
)]
pub mod v1 {
    tonic::include_proto!("terrane.v1");
    #[cfg(feature = "server")]
    include!(concat!(env!("OUT_DIR"), "/servers/terrane.v1.rs"));
}

/// The compiled `.proto` files as a descriptor set, served by gRPC reflection.
pub const FILE_DESCRIPTOR_SET: &[u8] = include_bytes!(concat!(env!("OUT_DIR"), "/terrane.descriptors"));

/// The header of a master's answer to a look-up that may lack recent changes, because no leader could be asked for them.
pub const OUTDATED: &str = "terrane-outdated";

/// The version of the packed bytes (cells, rows, resume tokens) that request headers name.
pub const PACKED_FORMAT: u32 = 1;

/// Protocol versions this build speaks.
pub const PROTOCOL_VERSIONS: std::ops::RangeInclusive<u32> = 1..=1;

/// The reflection service of every role, so that `grpcurl` needs no files.
///
/// # Errors
/// When the embedded descriptor set cannot be read, which is a defect of the build.
#[cfg(feature = "server")]
pub fn reflection() -> Result<
    tonic_reflection::server::v1::ServerReflectionServer<impl tonic_reflection::server::v1::ServerReflection>,
    tonic_reflection::server::Error,
> {
    tonic_reflection::server::Builder::configure()
        .register_encoded_file_descriptor_set(FILE_DESCRIPTOR_SET)
        .register_encoded_file_descriptor_set(tonic_health_descriptors())
        .build_v1()
}

/// The health service runs next to our own; reflection lists it too.
#[cfg(feature = "server")]
const fn tonic_health_descriptors() -> &'static [u8] {
    tonic_health::pb::FILE_DESCRIPTOR_SET
}
