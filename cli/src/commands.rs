//! One module per group of commands. Each takes its arguments, does the work and prints the result.

pub mod admin;
pub mod bench;
pub mod data;
pub mod demo;
pub mod dev;
pub mod export;
pub mod fleet;
pub mod import;
pub mod masters;
pub mod namespace;
pub mod ranges;
pub mod recover_group;
pub mod role;
mod row_printer;
pub mod status;
pub mod table;
pub mod tool;
pub mod version;

use terrane_client::Client;

use crate::args::client::Connection;
use crate::args::{Cli, Command};
use crate::failure::Failure;

/// Runs the command.
pub async fn run(cli: Cli) -> Result<(), Failure> {
    match cli.command {
        Command::Demo(args) => demo::run(args).await,
        Command::Dev(args) => dev::run(args).await,
        Command::Master(args) => role::master(args).await,
        Command::Server(args) => role::server(args).await,
        Command::Status(args) => status::run(args).await,
        Command::Admin(args) => admin::run(args).await,
        Command::Table(args) => table::run(args).await,
        Command::Namespace(args) => namespace::run(args).await,
        Command::Put(args) => data::put(args).await,
        Command::Get(args) => data::get(args).await,
        Command::Delete(args) => data::delete(args).await,
        Command::Incr(args) => data::incr(args).await,
        Command::Scan(args) => ranges::scan(args).await,
        Command::Count(args) => ranges::count(args).await,
        Command::First(args) => ranges::first(args).await,
        Command::Last(args) => ranges::last(args).await,
        Command::Aggregate(args) => ranges::aggregate(args).await,
        Command::Latest(args) => ranges::latest(args).await,
        Command::Import(args) => import::run(args).await,
        Command::Export(args) => export::run(args).await,
        Command::Bench(args) => bench::run(args).await,
        Command::Version(args) => version::run(&args),
        Command::Tool(args) => tool::run(args).await,
    }
}

/// Connects as the connection flags say.
async fn connect(connection: &Connection) -> Result<Client, Failure> {
    let client = Client::builder().masters(&connection.masters.to_string()).timeout(connection.timeout).build().await?;
    Ok(client)
}
