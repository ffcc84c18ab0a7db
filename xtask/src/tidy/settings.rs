//! The reference of settings in `docs/configuration.md`, rendered from the list that the roles use.
//!
//! The list is a source file of the binary that imports nothing, so this crate compiles it as well: a setting that is added
//! there without its line in the document is a finding, and `cargo xtask fix` writes the line.

use std::fmt::Write as _;

use super::rendered::Rendered;
use list::{Role, Unset};

#[path = "../../../cli/src/config/list.rs"]
#[allow(dead_code, reason = "the binary uses more of it")]
mod list;

/// The reference.
pub const REFERENCE: Rendered =
    Rendered { file: "docs/configuration.md", list: "cli/src/config/list.rs", text: reference };

fn reference() -> String {
    let mut text = String::new();
    for role in Role::ALL {
        write!(text, "\n## `[{}]`\n\n", role.name()).expect("a string takes any text");
        text.push_str("| key | type | default | meaning | environment |\n|---|---|---|---|---|\n");
        for setting in list::of(role) {
            let default = match setting.unset(role) {
                Some(Unset::Value(value)) => format!("`{value}`"),
                Some(Unset::Means(means)) => means.to_owned(),
                None => String::new(),
            };
            let (key, kind, meaning) = (setting.key, setting.kind.name(), setting.meaning);
            let variable = list::variable(key);
            writeln!(text, "| `{key}` | {kind} | {default} | {meaning} | `{variable}` |")
                .expect("a string takes any text");
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_role_has_its_settings_with_their_defaults() {
        let text = reference();
        assert!(
            text.contains("| `cache-size` | size | `256MiB` | the block cache of a server | `TERRANE_CACHE_SIZE` |")
        );
        assert!(text.contains("| `advertise` | address | the listen address |"));
    }
}
