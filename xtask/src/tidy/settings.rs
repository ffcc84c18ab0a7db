//! The reference of settings in `docs/configuration.md`, rendered from the list that the roles use.
//!
//! The list is a source file of the binary that imports nothing, so this crate compiles it as well: a setting that is added
//! there without its line in the document is a finding, and `cargo xtask fix` writes the line.

use std::fmt::Write as _;

use super::finding::Finding;
use list::{Role, Unset};

#[path = "../../../cli/src/config/list.rs"]
#[allow(dead_code, reason = "the binary uses more of it")]
mod list;

/// The document.
pub const FILE: &str = "docs/configuration.md";

const BEGIN: &str = "<!-- Rendered from cli/src/config/list.rs by `cargo xtask fix`; do not edit. -->\n";
const END: &str = "<!-- End of what is rendered. -->";

/// The document with its reference as the list has it; `None` if it has no place for the reference.
pub fn render(document: &str) -> Option<String> {
    let begin = document.find(BEGIN)? + BEGIN.len();
    let end = begin + document[begin..].find(END)?;
    Some(format!("{}{}\n{}", &document[..begin], reference(), &document[end..]))
}

/// A finding if the document's reference is not the one of the list.
pub fn examine(document: &str) -> Option<Finding> {
    let Some(rendered) = render(document) else {
        return Some(Finding::new(FILE, 1, format!("has no reference between `{}` and `{END}`", BEGIN.trim())));
    };
    if rendered == document {
        return None;
    }
    let same = document.lines().zip(rendered.lines()).take_while(|(ours, theirs)| ours == theirs).count();
    Some(Finding::new(FILE, same + 1, "differs from the list of settings: run `cargo xtask fix`"))
}

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
    fn the_reference_is_between_its_marks() {
        let document = format!("# Settings\n{BEGIN}old\n{END}\nThe rest.\n");
        let stale = examine(&document).unwrap();
        assert_eq!(stale.line, 3);
        let rendered = render(&document).unwrap();
        assert!(examine(&rendered).is_none());
        assert!(rendered.starts_with("# Settings\n") && rendered.ends_with(&format!("{END}\nThe rest.\n")));
        assert!(
            rendered
                .contains("| `cache-size` | size | `256MiB` | the block cache of a server | `TERRANE_CACHE_SIZE` |")
        );
        assert!(rendered.contains("| `advertise` | address | the listen address |"));
    }

    #[test]
    fn a_document_without_a_place_for_it_is_found() {
        assert!(examine("# Settings\n").is_some());
    }
}
