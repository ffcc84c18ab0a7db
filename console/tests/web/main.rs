//! The console over an invented cluster: its API with a plain client, its pages in a headless Chromium.

#![allow(clippy::unwrap_used, reason = "what a test helper unwraps is what the test claims")]

mod api;
mod example;
mod http;
mod measured;
mod pages;
mod screens;

use std::sync::Arc;

use terrane_console::Console;

use crate::example::ExampleCluster;

/// A console on a free port that shows the example.
async fn console() -> (Console, Arc<ExampleCluster>) {
    let console = Console::start("127.0.0.1:0", Arc::new(|| Ok(()))).await.unwrap();
    let cluster = Arc::new(ExampleCluster::new());
    console.show(cluster.clone());
    (console, cluster)
}
