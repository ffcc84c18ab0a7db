//! Which crate may depend on which, read from the manifests.
//!
//! A crate or a dependency that is not listed here is a finding. The lists are part of the design: change them together
//! with ARCHITECTURE.md, never just to make a build pass.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;

use anyhow::Context;
use toml::Table;

use super::finding::Finding;

/// Which of our crates a crate may depend on.
#[derive(Clone, Copy)]
enum May {
    /// Only these.
    Only(&'static [&'static str]),
    /// Any library: it wires the others together or uses them as a client would.
    Any,
}

/// The binary's crate, which no other may depend on.
const BINARY: &str = "terrane";

const ARROWS: &[(&str, May)] = &[
    ("terrane-types-derive", May::Only(&[])),
    ("terrane-types", May::Only(&["terrane-types-derive"])),
    ("terrane-filter", May::Only(&["terrane-types"])),
    ("terrane-proto", May::Only(&["terrane-types"])),
    ("terrane-env", May::Only(&[])),
    ("terrane-engine", May::Only(&["terrane-types", "terrane-env"])),
    ("terrane-metrics", May::Only(&["terrane-types"])),
    ("terrane-raft", May::Only(&["terrane-metrics", "terrane-proto", "terrane-types", "terrane-env"])),
    (
        "terrane-regionserver",
        May::Only(&[
            "terrane-engine",
            "terrane-raft",
            "terrane-metrics",
            "terrane-filter",
            "terrane-proto",
            "terrane-types",
            "terrane-env",
        ]),
    ),
    (
        "terrane-master",
        May::Only(&["terrane-raft", "terrane-metrics", "terrane-proto", "terrane-types", "terrane-env"]),
    ),
    (
        "terrane-hbase",
        May::Only(&[
            "terrane-regionserver",
            "terrane-master",
            "terrane-filter",
            "terrane-proto",
            "terrane-types",
            "terrane-env",
        ]),
    ),
    ("terrane-client", May::Only(&["terrane-filter", "terrane-proto", "terrane-types", "terrane-env"])),
    ("terrane-console", May::Only(&["terrane-metrics", "terrane-types", "terrane-env"])),
    ("terrane-bench-engine", May::Only(&["terrane-engine", "terrane-types", "terrane-env"])),
    ("terrane-bench-client", May::Only(&["terrane-client", "terrane-proto", "terrane-types", "terrane-env"])),
    (BINARY, May::Any),
    ("terrane-tests", May::Any),
    ("terrane-oracle", May::Only(&["terrane-types"])),
    (
        "terrane-hbase-client",
        May::Only(&["terrane-hbase", "terrane-client", "terrane-oracle", "terrane-types", "terrane-env"]),
    ),
    (LAB, May::Only(&["terrane-client", "terrane-env", "terrane-oracle"])),
    ("terrane-simulator", May::Any),
    ("terrane-examples", May::Any),
    ("terrane-fuzz", May::Any),
    (TEST_SCRIPTS, May::Only(&[])),
    (TEST_BROWSER, May::Only(&[])),
    (SHARED_FEATURES, May::Only(&["terrane-env"])),
    ("xtask", May::Only(&["terrane-metrics", LAB])),
];

/// The union of the features of external crates, without code.
const SHARED_FEATURES: &str = "terrane-shared-features";

/// The runner of golden scripts, for tests only.
const TEST_SCRIPTS: &str = "terrane-testscript";

/// The laboratory, whose library launches processes: for tests, the examples and xtask.
const LAB: &str = "terrane-lab";

/// The headless browser, for tests only.
const TEST_BROWSER: &str = "terrane-browser";

/// External crates that only some of our crates may name, so that they remain replaceable. A star matches the rest of a
/// name.
const KEPT_TO: &[(&str, &[&str])] = &[
    ("openraft*", &["terrane-raft"]),
    // The benchmark measures it without our code.
    ("sled", &["terrane-engine", "terrane-bench-engine"]),
    // In raft only for its simulated tests: a dependency cannot be both optional and for tests.
    ("turmoil", &["terrane-env", "terrane-raft", "terrane-simulator"]),
    ("mad-turmoil", &["terrane-simulator"]),
    ("rustix", &["terrane-env"]),
    ("axum", &["terrane-console"]),
    // The benchmark's null server decodes less of each message than the generated code.
    // `terrane-hbase` has protos of its own: HBase's, which nothing else speaks but the small client for tests and what uses it.
    (
        "prost*",
        &[
            "terrane-proto",
            "terrane-hbase",
            "terrane-hbase-client",
            "terrane-simulator",
            "terrane-tests",
            "terrane-bench-client",
        ],
    ),
    ("protox", &["terrane-proto", "terrane-hbase"]),
    // The binary exports spans; the others hand them to it as values.
    ("opentelemetry*", &[BINARY]),
    (
        "tonic*",
        &[
            "terrane-proto",
            "terrane-env",
            "terrane-raft",
            "terrane-regionserver",
            "terrane-master",
            "terrane-client",
            BINARY,
            "terrane-tests",
            // Its hostile clients send requests that no client of ours sends.
            "terrane-simulator",
            "terrane-bench-client",
        ],
    ),
];

/// Crates without I/O and async, usable by every other crate.
const NO_ASYNC: &[&str] = &["terrane-types", "terrane-types-derive"];
const ASYNC_CRATES: &[&str] = &["tokio", "tokio-stream", "tokio-util", "futures"];

/// Checks every manifest of the workspace.
pub fn examine(root: &Path) -> anyhow::Result<Vec<Finding>> {
    let workspace = read(root, "Cargo.toml")?;
    let mut findings = Vec::new();
    for member in members(root)? {
        let file = format!("{member}/Cargo.toml");
        findings.extend(examine_manifest(&file, &read(root, &file)?, &workspace));
    }
    Ok(findings)
}

/// The folders of the workspace's packages.
pub fn members(root: &Path) -> anyhow::Result<Vec<String>> {
    let workspace = read(root, "Cargo.toml")?;
    let members = workspace.get("workspace").and_then(|w| w.get("members")).and_then(toml::Value::as_array);
    let members = members.context("Cargo.toml lists no workspace members")?;
    Ok(members.iter().filter_map(toml::Value::as_str).map(str::to_owned).collect())
}

fn read(root: &Path, file: &str) -> anyhow::Result<Table> {
    let text = fs::read_to_string(root.join(file)).with_context(|| format!("reading {file}"))?;
    text.parse().with_context(|| format!("parsing {file}"))
}

fn examine_manifest(file: &str, manifest: &Table, workspace: &Table) -> Vec<Finding> {
    let report = |message: String| Finding::new(file, 0, message);
    let name = manifest.get("package").and_then(|p| p.get("name")).and_then(toml::Value::as_str).unwrap_or("");
    let Some((_, may)) = ARROWS.iter().find(|(package, _)| *package == name) else {
        return vec![report(format!(
            "`{name}` is a new crate: list what it may depend on in xtask/src/tidy/arrows.rs"
        ))];
    };
    let mut findings = Vec::new();
    for (dependency, section) in dependencies(manifest, workspace) {
        let refusal = match dependency.as_str() {
            SHARED_FEATURES
                if name == BINARY
                    || name == "terrane-tests"
                    || name == "terrane-simulator"
                    || name == LAB
                    || section == "dev-dependencies" =>
            {
                None
            }
            SHARED_FEATURES => Some("libraries take the shared features for their tests only"),
            LAB if name == BINARY => (section != "dev-dependencies").then_some("the laboratory is for tests"),
            TEST_BROWSER => (section != "dev-dependencies").then_some("the browser is for tests"),
            TEST_SCRIPTS => (section != "dev-dependencies").then_some("golden scripts are for tests"),
            ours if is_ours(ours) => refused_ours(*may, ours),
            _ if name == SHARED_FEATURES => None,
            theirs => refused_crate(name, theirs),
        };
        findings.extend(refusal.map(|why| report(format!("`{name}` → `{dependency}` ({section}): {why}"))));
    }
    if manifest.get("lints").and_then(|l| l.get("workspace")).and_then(toml::Value::as_bool) != Some(true) {
        findings
            .push(report(format!("`{name}` does not inherit the workspace's lints: add `[lints] workspace = true`")));
    }
    findings
}

fn is_ours(dependency: &str) -> bool {
    dependency == BINARY || dependency == "xtask" || dependency.starts_with("terrane-")
}

fn refused_ours(may: May, dependency: &str) -> Option<&'static str> {
    if dependency == BINARY || dependency == "xtask" {
        return Some("a binary cannot be depended on");
    }
    if dependency.starts_with("terrane-bench-") {
        return Some("nothing that ships contains benchmarks");
    }
    match may {
        May::Any => None,
        May::Only(allowed) if allowed.contains(&dependency) => None,
        May::Only(_) => Some("the design does not allow this dependency"),
    }
}

fn refused_crate(name: &str, dependency: &str) -> Option<&'static str> {
    if NO_ASYNC.contains(&name) && ASYNC_CRATES.contains(&dependency) {
        return Some("this crate has no I/O and no async");
    }
    let matches = |pattern: &str| match pattern.strip_suffix('*') {
        Some(beginning) => dependency.starts_with(beginning),
        None => dependency == pattern,
    };
    let (_, crates) = KEPT_TO.iter().find(|(pattern, _)| matches(pattern))?;
    (!crates.contains(&name)).then_some("only other crates may name it")
}

/// Every dependency under its real name, with its section. Dependencies of tests count too.
fn dependencies(manifest: &Table, workspace: &Table) -> BTreeMap<String, String> {
    let mut found = BTreeMap::new();
    let targets = manifest.get("target").and_then(toml::Value::as_table);
    let tables = targets.into_iter().flat_map(|targets| targets.values()).filter_map(toml::Value::as_table);
    for table in std::iter::once(manifest).chain(tables) {
        for section in ["dependencies", "dev-dependencies", "build-dependencies"] {
            let entries = table.get(section).and_then(toml::Value::as_table);
            for (key, value) in entries.into_iter().flatten() {
                found.entry(real_name(key, value, workspace)).or_insert_with(|| section.to_owned());
            }
        }
    }
    found
}

/// A dependency's real name: it may be renamed in the manifest or in the workspace's.
fn real_name(key: &str, value: &toml::Value, workspace: &Table) -> String {
    let shared = workspace.get("workspace").and_then(|w| w.get("dependencies")).and_then(|d| d.get(key));
    let from_workspace = value.get("workspace").is_some().then_some(shared).flatten();
    let renamed = value.get("package").or_else(|| from_workspace.and_then(|shared| shared.get("package")));
    renamed.and_then(toml::Value::as_str).unwrap_or(key).to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    const WORKSPACE: &str =
        "[workspace.dependencies]\nbytes = \"1\"\nlog-of-raft = { package = \"openraft\", version = \"1\" }\n";

    fn messages(name: &str, body: &str) -> Vec<String> {
        let manifest = format!("[package]\nname = \"{name}\"\n[lints]\nworkspace = true\n{body}");
        let findings = examine_manifest("room/Cargo.toml", &manifest.parse().unwrap(), &WORKSPACE.parse().unwrap());
        findings.into_iter().map(|finding| finding.message).collect()
    }

    #[test]
    fn arrows_on_the_list_are_fine() {
        assert_eq!(
            messages("terrane-engine", "[dependencies]\nterrane-types.workspace = true\nbytes = \"1\"\n"),
            [""; 0]
        );
        assert_eq!(messages("terrane", "[dependencies]\nterrane-engine.workspace = true\n"), [""; 0]);
        assert_eq!(messages("terrane-raft", "[dependencies]\nopenraft = \"1\"\nopenraft-rt = \"1\"\n"), [""; 0]);
    }

    #[test]
    fn arrows_off_the_list_are_found_in_every_section() {
        for section in ["dependencies", "dev-dependencies", "build-dependencies", "target.'cfg(unix)'.dependencies"] {
            let found = messages("terrane-engine", &format!("[{section}]\nterrane-raft.workspace = true\n"));
            assert_eq!(found.len(), 1, "{section}");
            assert!(found[0].contains("`terrane-engine` → `terrane-raft`"), "{}", found[0]);
        }
    }

    #[test]
    fn a_renamed_dependency_is_known_by_its_real_name() {
        let direct = "[dependencies]\nstore = { package = \"terrane-engine\", path = \"../engine\" }\n";
        assert_eq!(messages("terrane-master", direct).len(), 1);
        assert_eq!(messages("terrane-master", "[dependencies]\nlog-of-raft.workspace = true\n").len(), 1);
    }

    #[test]
    fn nothing_depends_on_a_binary() {
        assert_eq!(messages("terrane-tests", "[dependencies]\nterrane = { path = \"../cli\" }\n").len(), 1);
        assert_eq!(messages("terrane", "[dependencies]\nxtask = { path = \"../xtask\" }\n").len(), 1);
        assert_eq!(messages("terrane", "[dependencies]\nterrane-lab.workspace = true\n").len(), 1);
        assert_eq!(messages("terrane", "[dev-dependencies]\nterrane-lab.workspace = true\n"), [""; 0]);
    }

    #[test]
    fn external_crates_are_kept_to_some_crates() {
        for (name, dependency) in [
            ("terrane-master", "openraft-rt-tokio"),
            ("terrane-regionserver", "sled"),
            ("terrane-engine", "tonic"),
            ("terrane-client", "turmoil"),
            ("terrane-types", "tokio"),
            ("terrane-types", "prost"),
        ] {
            assert_eq!(
                messages(name, &format!("[dependencies]\n{dependency} = \"1\"\n")).len(),
                1,
                "{name} {dependency}"
            );
        }
    }

    #[test]
    fn an_unlisted_crate_is_found() {
        assert!(messages("terrane-extra", "")[0].contains("new crate"));
    }

    #[test]
    fn a_crate_without_the_workspace_lints_is_found() {
        let manifest = "[package]\nname = \"terrane-env\"\n".parse().unwrap();
        assert_eq!(examine_manifest("env/Cargo.toml", &manifest, &Table::new()).len(), 1);
    }
}
