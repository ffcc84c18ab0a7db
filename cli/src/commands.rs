//! One module per group of commands. Each takes its arguments, does the work and prints the result.

pub mod admin;
pub mod bench;
mod comparisons;
pub mod config;
pub mod data;
pub mod demo;
pub mod dev;
mod diagnostics;
pub mod export;
pub mod fleet;
mod hbase_site;
mod hot;
pub mod import;
pub mod man;
pub mod masters;
mod merged_rows;
pub mod namespace;
pub mod ranges;
pub mod recover_group;
pub mod repair;
pub mod role;
mod row_printer;
mod running_settings;
pub mod status;
pub mod table;
pub mod tool;
pub mod version;

use terrane_client::Client;
use terrane_types::closest;

use crate::args::Command;
use crate::args::client::Connection;
use crate::failure::Failure;
use crate::trace_export;

/// Runs the command.
pub async fn run(command: Command) -> Result<(), Failure> {
    match command {
        Command::Demo(args) => demo::run(args).await,
        Command::Dev(args) => dev::run(args).await,
        Command::Master(args) => role::master(args).await,
        Command::Server(args) => role::server(args).await,
        // `main` runs it: a shell runs these commands, and not the other way round.
        Command::Shell(_) => Err(Failure::usage("a shell does not run within a shell")),
        Command::Config(args) => config::run(args).await,
        Command::Status(args) => status::run(args).await,
        Command::Admin(args) => admin::run(args).await,
        Command::Table(args) => table::run(args).await,
        Command::Namespace(args) => namespace::run(args).await,
        Command::Put(args) => data::put(args).await,
        Command::Get(args) => data::get(args).await,
        Command::Delete(args) => data::delete(args).await,
        Command::Incr(args) => data::incr(args).await,
        Command::Append(args) => data::append(args).await,
        Command::Scan(args) => ranges::scan(args).await,
        Command::Count(args) => ranges::count(args).await,
        Command::First(args) => ranges::first(args).await,
        Command::Last(args) => ranges::last(args).await,
        Command::Aggregate(args) => ranges::aggregate(args).await,
        Command::Latest(args) => ranges::latest(args).await,
        Command::Import(args) => import::run(args).await,
        Command::Export(args) => export::run(args).await,
        Command::Bench(args) => bench::run(args).await,
        Command::Completions(args) => man::completions(&args),
        Command::Man(args) => man::pages(&args).await,
        Command::Version(args) => version::run(&args),
        Command::Tool(args) => tool::run(args).await,
    }
}

/// Connects as the connection flags say.
pub async fn connect(connection: &Connection) -> Result<Client, Failure> {
    let tracer = trace_export::of_command(&connection.tracing)?;
    crate::scope::connect(&connection.masters.to_string(), connection.timeout, tracer).await
}

/// A table does not exist; names the nearest one that does.
pub async fn no_table(client: &Client, name: &str) -> Failure {
    let failure = Failure::new(format!("table {name} does not exist"));
    let Ok(tables) = client.admin().list_tables().await else { return failure };
    let names: Vec<String> = tables.iter().map(|table| table.schema.name.to_string()).collect();
    match closest(name, names.iter().map(String::as_str)) {
        Some(meant) => failure.advise(format!("did you mean {meant}? `terrane table list` lists the tables")),
        None => failure.advise("`terrane table list` lists the tables"),
    }
}
