//! `terrane-bench-engine`: our engine and sled. `benches/rocksdb` runs RocksDB beside them.

use std::process::ExitCode;

#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

fn main() -> ExitCode {
    terrane_bench_engine::command::main(terrane_bench_engine::contenders())
}
