//! The arguments of the interactive shell.

use clap::{Args, ValueEnum};

use super::client::{Connection, Times};

#[derive(Debug, Args)]
pub struct Shell {
    /// Run this line and exit; can be repeated. Without it, lines come from the terminal or from standard input.
    #[arg(short, long, value_name = "LINE", allow_hyphen_values = true)]
    pub execute: Vec<String>,
    /// How results are shown; `format` changes it. --json is the same as `--format json`.
    #[arg(long, value_name = "FORMAT", default_value = "table")]
    pub format: ShellFormat,
    /// Show how long each command takes: the default at a terminal; `timing` changes it.
    #[arg(long)]
    pub timing: bool,
    /// Continue after a line that fails, as at a terminal. The exit status is then that of the last failure.
    #[arg(long)]
    pub keep_going: bool,
    #[command(flatten)]
    pub times: Times,
    #[command(flatten)]
    pub connection: Connection,
}

/// How results are shown.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum ShellFormat {
    /// Columns, as wide as the terminal allows.
    Table,
    /// A block of lines per row, `NAME value`.
    Row,
    /// One JSON object per line.
    Json,
}
