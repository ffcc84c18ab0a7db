//! Placeholder.
#[allow(clippy::all, clippy::pedantic, reason = "generated code")]
pub mod v1 {
    tonic::include_proto!("terrane.v1");
}
