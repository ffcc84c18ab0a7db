//! Starting other programs.

use std::ffi::OsString;
use std::path::Path;
use std::process::Command;

/// The same cargo that runs this program, in the checkout.
pub fn cargo(root: &Path) -> Command {
    let mut command = Command::new(std::env::var_os("CARGO").unwrap_or_else(|| OsString::from("cargo")));
    command.current_dir(root);
    command
}

/// Runs a command with its output shown; says why when it could not even start.
pub fn succeeds(command: &mut Command) -> bool {
    match command.status() {
        Ok(status) => status.success(),
        Err(error) => {
            eprintln!("cannot run {:?}: {error}", command.get_program());
            false
        }
    }
}
