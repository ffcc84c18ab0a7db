//! The arguments of `config`: which settings there are, and what a file says before a process starts with it.

use std::path::PathBuf;

use clap::{Args, Subcommand, ValueEnum};

#[derive(Debug, Subcommand)]
pub enum Config {
    /// Check a TOML file of `dev`, `master` and `server`: prints every mistake with its line, and exits with status 1 if
    /// there is one.
    Check(Check),
    /// List every setting of `dev`, `master` and `server`: key, type, default and meaning.
    List(List),
}

#[derive(Debug, Args)]
pub struct List {
    /// The settings of this role only (default: of every role).
    #[arg(long, value_name = "ROLE")]
    pub role: Option<ConfigRole>,
    /// Print one JSON object per line on standard output, and nothing else.
    #[arg(long)]
    pub json: bool,
}

#[derive(Debug, Args)]
pub struct Check {
    /// The file.
    pub file: PathBuf,
    /// Check the section of this role only (default: every section).
    #[arg(long, value_name = "ROLE")]
    pub role: Option<ConfigRole>,
    /// Print one JSON object per line on standard output, and nothing else.
    #[arg(long)]
    pub json: bool,
}

/// A role with a section.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum ConfigRole {
    Master,
    Server,
    Dev,
}
