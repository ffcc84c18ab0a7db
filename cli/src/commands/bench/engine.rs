//! `bench engine`: the storage engines alone, by the library that `benches/rocksdb` uses too.

use terrane_bench_engine::command::{Command, measure};
use terrane_bench_engine::contenders;

use crate::args::bench::BenchEngine;
use crate::failure::{Failure, chain};

pub async fn run(args: BenchEngine) -> Result<(), Failure> {
    let command = Command { options: args.options, only: args.only, json: args.json };
    // It blocks for minutes and has runtimes of its own.
    let measured = terrane_env::task::run_blocking(move || measure(&command, contenders())).await;
    measured.map_err(|error| Failure::new(chain(&*error)))
}
