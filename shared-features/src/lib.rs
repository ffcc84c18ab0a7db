//! One set of features for external crates, whatever part of the workspace is built.
//!
//! Cargo compiles a crate once per set of features, and with it everything that depends on it. Without this crate,
//! `cargo run -- demo`, `cargo test --workspace`, `cargo test -p terrane-engine` and the simulator would each compile
//! tokio, tonic, openraft and our own crates again. It has no code: a dependency on it adds the union of the features.
//!
//! The `terrane` binary depends on it through a default feature, `shared-build`; libraries only for their tests. `cargo
//! xtask dist` builds without it.
