//! `terrane-bench-rocksdb`: the workloads of `benches/engine` on our engine, RocksDB and sled in one run, with ratios.

mod subject;

use std::process::ExitCode;

/// As in the `terrane` command. RocksDB's own memory comes from the system's allocator, its default.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

fn main() -> ExitCode {
    let mut contenders = terrane_bench_engine::contenders();
    contenders.insert(1.min(contenders.len()), subject::CONTENDER);
    terrane_bench_engine::command::main(contenders)
}
