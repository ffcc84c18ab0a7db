//! The cluster that an example runs against; each example is a file of its own.
//!
//! Pass the address of a master as the first argument or in `TERRANE_MASTERS`. Otherwise the example starts `terrane dev` in a
//! temporary directory and stops it at its end, so `cargo build` and `cargo run -p terrane-examples --example feed` are enough
//! to try one.

use std::path::PathBuf;

use anyhow::Context as _;
use terrane_lab::DevCluster;

/// A cluster to run against.
pub struct Cluster {
    /// The argument for [`Client::connect`](terrane_client::Client::connect).
    pub masters: String,
    /// Stopped, and its directory removed, when the example ends.
    _own: Option<DevCluster>,
}

/// The cluster that the user named, or a new one.
///
/// # Errors
/// When none was named and none can be started; the message says what to do.
pub fn cluster() -> anyhow::Result<Cluster> {
    let named = std::env::args().nth(1).or_else(|| std::env::var("TERRANE_MASTERS").ok());
    if let Some(masters) = named {
        return Ok(Cluster { masters, _own: None });
    }
    let program = program()?;
    let own = DevCluster::start(&program, &[]).with_context(|| {
        format!(
            "{} dev did not start; run `cargo build` first, or pass the address of a cluster's master, such as 127.0.0.1:7600",
            program.display()
        )
    })?;
    Ok(Cluster { masters: own.master.clone(), _own: Some(own) })
}

/// The `terrane` that cargo built: one folder above the examples.
fn program() -> anyhow::Result<PathBuf> {
    let this = std::env::current_exe().context("finding this program")?;
    Ok(this.ancestors().nth(2).context("an example is in a folder of the build")?.join("terrane"))
}
