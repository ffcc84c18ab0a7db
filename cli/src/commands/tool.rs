//! `tool`: offline looks at the files of a stopped process. The rooms know their formats; this finds, calls and prints.

mod check;
mod dump;

use crate::args::tool::Tool;
use crate::failure::Failure;

pub async fn run(tool: Tool) -> Result<(), Failure> {
    match tool {
        Tool::Check(args) => check::run(args).await,
        Tool::Dump(args) => dump::run(args).await,
    }
}
