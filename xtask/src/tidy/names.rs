//! File names without meaning: such a name shows that the module has no single idea.

use std::path::Path;

use super::finding::Finding;

/// Words that may not appear in the name of a file or folder.
const BANNED: &[&str] = &["util", "utils", "common", "helper", "helpers", "misc", "manager", "managers"];

/// Exceptions, with the reason.
const ALLOWED: &[(&str, &str)] = &[(
    "proto/proto/terrane/v1/common.proto",
    "the customary name of the messages that all services of a package share",
)];

/// Checks paths only. An exception for a missing file is a finding too, if its top-level folder exists.
pub fn examine(files: &[String]) -> Vec<Finding> {
    let mut findings: Vec<Finding> = files.iter().filter_map(|file| name_finding(file)).collect();
    for (allowed, _) in ALLOWED {
        let folder_exists = files.iter().any(|file| file.split('/').next() == allowed.split('/').next());
        if folder_exists && !files.iter().any(|file| file == allowed) {
            findings.push(Finding::new(
                allowed,
                0,
                "does not exist: remove its exception from xtask/src/tidy/names.rs",
            ));
        }
    }
    findings
}

fn name_finding(file: &str) -> Option<Finding> {
    if file.ends_with("/mod.rs") && file.split('/').any(|part| part == "src") {
        return Some(Finding::new(file, 0, "modules are `x.rs` with their parts in `x/`: rename it"));
    }
    if ALLOWED.iter().any(|(allowed, _)| *allowed == file) {
        return None;
    }
    let word = Path::new(file)
        .iter()
        .flat_map(|part| words(&part.to_string_lossy()))
        .find(|word| BANNED.contains(&word.as_str()))?;
    Some(Finding::new(file, 0, format!("`{word}` in a file name has no meaning: name the file after its idea")))
}

fn words(part: &str) -> Vec<String> {
    part.split(|c: char| !c.is_alphanumeric()).map(str::to_lowercase).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn found(file: &str) -> bool {
        !examine(&[file.to_owned()]).is_empty()
    }

    #[test]
    fn names_without_meaning_are_found_in_files_and_folders() {
        for wrong in [
            "a/util.rs",
            "a/utils/mod.rs",
            "tests/common/mod.rs",
            "a/test_helpers.rs",
            "Misc.md",
            "a/region-manager.rs",
        ] {
            assert!(found(wrong), "{wrong}");
        }
    }

    #[test]
    fn a_module_file_in_its_own_folder_is_found_in_sources() {
        assert!(found("a/src/b/mod.rs"));
        assert!(!found("a/tests/fake/mod.rs") && !found("a/src/model.rs"));
    }

    #[test]
    fn words_inside_words_are_fine() {
        for right in ["a/utilization.rs", "a/commonest.rs", "docs/management.md", "a/locator.rs"] {
            assert!(!found(right), "{right}");
        }
    }

    #[test]
    fn an_exception_is_for_one_existing_file() {
        assert!(!found("proto/proto/terrane/v1/common.proto"));
        assert!(found("proto/proto/terrane/v2/common.proto"));
        assert!(found("proto/build.rs"), "the allowed file is missing from the list");
    }
}
