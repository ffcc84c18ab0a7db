//! `tool`: inspects the files of a stopped process. The crates know their own formats; this module finds the files,
//! calls the crates and prints the results.

mod check;
mod dump;
mod rebuild_catalog;

use crate::args::tool::Tool;
use crate::failure::Failure;

pub async fn run(tool: Tool) -> Result<(), Failure> {
    match tool {
        Tool::Check(args) => check::run(args).await,
        Tool::RebuildCatalog(args) => rebuild_catalog::run(args).await,
        Tool::Dump(args) => dump::run(args).await,
    }
}
