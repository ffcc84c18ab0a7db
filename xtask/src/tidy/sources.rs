//! Rules on the text of source files.
//!
//! Banned words are assembled from parts here, or this file would report itself.

use super::finding::Finding;
use super::text::{bracketed, code_of, find_word, line_of};

/// Longer files are listed: they may hold two ideas.
const LINES_LISTED: usize = 600;
/// Longer files are findings.
const LINES_MAX: usize = 900;

/// Notes to oneself, in any kind of file.
const NOTES: &[&str] = &[concat!("TO", "DO"), concat!("FIX", "ME"), concat!("XX", "X")];

/// What Rust code must not contain, and what to do instead.
const BANNED_CODE: &[(&str, &str)] = &[
    (concat!("todo", "!"), "is not code: finish it or leave it out"),
    (concat!("unimplemented", "!"), "is not code: finish it or leave it out"),
    (concat!("dbg", "!"), "is for debugging: remove it"),
    (concat!("thread::", "sleep"), "waits for time instead of a condition: wait for the condition"),
];

/// Files that compile the list of settings of the binary, which no other crate can import: it is plain data.
const SHARED_FILES: &[&str] =
    &["xtask/src/tidy/limits.rs", "xtask/src/tidy/settings.rs", "cli/tests/processes/deployment.rs"];

/// Beginnings of the paths of code that may start processes, and what it starts. Clusters are started by `lab/` alone, whose
/// launcher the others use.
const STARTS_PROCESSES: &[(&str, &str)] = &[
    ("lab/", "clusters and their clients, HBase's clients, disks and networks that fail"),
    ("xtask/", "cargo, other tools, the examples and the laboratory"),
    ("cli/tests/processes/", "commands of the binary, shells, a browser"),
    ("cli/src/input.rs", "a pipe, in a test"),
    ("tests/tests/monitoring/", "Prometheus"),
    ("raft/src/log/tests/full_disk.rs", "a small file system"),
    ("browser/", "Chromium"),
    ("simulator/tests/simulation.rs", "cargo"),
    ("benches/client/", "itself, as the server that it measures"),
];

/// Crates whose code names no protocol but Terrane's own. Comments may, where they say what a rule is compatible with.
const ONE_PROTOCOL: &[&str] = &[
    "types/",
    "metrics/",
    "filter/",
    "proto/",
    "env/",
    "engine/",
    "raft/",
    "regionserver/",
    "master/",
    "client/",
    "console/",
];

/// Whether the rules apply to this kind of file.
pub fn is_checked(file: &str) -> bool {
    let ending = file.rsplit('/').next().and_then(|name| name.rsplit_once('.')).map_or("", |(_, ending)| ending);
    matches!(ending, "rs" | "proto" | "toml" | "md" | "sh" | "service" | "yml" | "yaml") || file == ".ci/run"
}

/// All findings in one file.
pub fn examine(file: &str, text: &str) -> Vec<Finding> {
    let mut findings = Vec::new();
    for note in NOTES {
        let message = format!("`{note}`: do it, or open an issue");
        findings.extend(find_word(text, note).map(|at| Finding::new(file, line_of(text, at), message.clone())));
    }
    if file.ends_with(".rs") {
        examine_rust(file, text, &mut findings);
    }
    findings
}

fn examine_rust(file: &str, text: &str, findings: &mut Vec<Finding>) {
    let code = code_of(text);
    let mut report = |at: usize, message: String| findings.push(Finding::new(file, line_of(&code, at), message));
    for (banned, why) in BANNED_CODE {
        for at in find_banned(&code, banned) {
            report(at, format!("`{banned}` {why}"));
        }
    }
    let may_start = STARTS_PROCESSES.iter().any(|(path, _)| file.starts_with(path));
    for at in find_word(&code, concat!("Command", "::new")).filter(|_| !may_start) {
        report(at, "starts a process, which only `lab/` does: use its launcher".to_owned());
    }
    if ONE_PROTOCOL.iter().any(|path| file.starts_with(path)) {
        let lower = code.to_ascii_lowercase();
        for at in ["hbase", "zookeeper"].iter().flat_map(|name| lower.match_indices(name)).map(|(at, _)| at) {
            report(
                at,
                "names another protocol, which `hbase/` alone knows: take it as a value or a trait object".to_owned(),
            );
        }
    }
    for at in selects_without_bias(&code) {
        report(at, "`select!` without `biased;` chooses at random: add `biased;` and order the branches".to_owned());
    }
    for at in allowances_without_reason(&code) {
        report(at, "an allowance needs a reason: add `reason = \"...\"`".to_owned());
    }
    let is_listed = SHARED_FILES.contains(&file);
    for (at, _) in attributes(&code).filter(|(_, attribute)| is_path(attribute) && !is_listed) {
        report(at, "`#[path]` hides where a module is: use `x.rs` with its children in `x/`".to_owned());
    }
    for at in ignored_tests(&code) {
        report(at, "an ignored test tests nothing: repair or remove it".to_owned());
    }
    if !text.trim_start().starts_with("//!") {
        report(0, "a module starts with `//!`: what it is, why it is this way, its invariants".to_owned());
    }
    let lines = lines_before_tests(file, text);
    if lines > LINES_MAX {
        report(0, format!("{lines} lines before its tests (at most {LINES_MAX}): split it"));
    }
}

/// The length of a long file that is still within the limit.
pub fn long(file: &str, text: &str) -> Option<usize> {
    let lines = lines_before_tests(file, text);
    (file.ends_with(".rs") && lines > LINES_LISTED && lines <= LINES_MAX).then_some(lines)
}

fn find_banned<'a>(code: &'a str, banned: &'static str) -> impl Iterator<Item = usize> + 'a {
    // The exclamation mark ends a macro's name, so only the part before it must be a whole word.
    let name = banned.trim_end_matches('!');
    find_word(code, name).filter(move |&at| code[at..].starts_with(banned))
}

fn selects_without_bias(code: &str) -> Vec<usize> {
    let name = concat!("select", "!");
    find_banned(code, name)
        .filter(|&at| {
            let body = code[at + name.len()..].trim_start();
            let body = body.trim_start_matches(['{', '(', '[']).trim_start();
            !body.starts_with("biased;")
        })
        .collect()
}

/// Inner and outer attributes with `allow(...)` or `expect(...)`, also inside `cfg_attr`.
fn allowances_without_reason(code: &str) -> Vec<usize> {
    attributes(code)
        .filter(|&(_, attribute)| {
            ["allow", "expect"].iter().any(|kind| {
                find_word(attribute, kind).any(|at| {
                    let arguments = &attribute[at + kind.len()..];
                    arguments.starts_with('(') && find_word(bracketed(arguments, 0), "reason").next().is_none()
                })
            })
        })
        .map(|(at, _)| at)
        .collect()
}

fn ignored_tests(code: &str) -> Vec<usize> {
    attributes(code)
        .filter(|(_, attribute)| find_word(attribute, "ignore").next().is_some())
        .map(|(at, _)| at)
        .collect()
}

fn is_path(attribute: &str) -> bool {
    let inside = attribute.trim_start_matches('[').trim_start();
    inside.strip_prefix("path").is_some_and(|rest| rest.trim_start().starts_with('='))
}

fn attributes(code: &str) -> impl Iterator<Item = (usize, &str)> {
    code.match_indices('#').filter_map(|(at, _)| {
        let after = &code[at + 1..];
        let bracket = at + 1 + usize::from(after.starts_with('!'));
        code[bracket..].starts_with('[').then(|| (at, bracketed(code, bracket)))
    })
}

/// Lines before the tests, which may be as long as they need to be.
fn lines_before_tests(file: &str, text: &str) -> usize {
    if file.ends_with("/tests.rs") {
        return 0;
    }
    let is_tests = |line: &&str| line.starts_with("#[cfg(test)]") || line.starts_with("#[cfg(all(test");
    let mut lines = text.lines().enumerate().peekable();
    while let Some((number, line)) = lines.next() {
        let opens_module = lines.peek().is_some_and(|(_, next)| next.starts_with("mod ") && next.ends_with('{'));
        if is_tests(&line) && opens_module {
            return number;
        }
    }
    text.lines().count()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The lines with findings, after adding a module comment.
    fn lines(body: &str) -> Vec<usize> {
        let text = format!("//! A module.\n{body}");
        examine("room/src/a.rs", &text).into_iter().map(|finding| finding.line).collect()
    }

    #[test]
    fn clean_code_is_clean() {
        let body = r#"
            #[allow(dead_code, reason = "kept for the next step")]
            fn a() { tokio::select! { biased; _ = b() => {} } }
            #[cfg_attr(test, expect(dead_code, reason = "as above"))]
            /// Words in prose, like todo! and thread::sleep, are fine; so are "dbg!(x)" and #[ignore].
            fn b() { c("thread::sleep(1) #[allow(dead_code)] dbg!(x)") }
            fn todo() { mytodo!(1); ignore(2) }
        "#;
        assert_eq!(lines(body), Vec::<usize>::new());
    }

    #[test]
    fn notes_are_found_everywhere() {
        let note = concat!("TO", "DO");
        assert_eq!(lines(&format!("// {note}: later\n/* {}:x */", concat!("FIX", "ME"))), [2, 3]);
        assert_eq!(examine("docs/a.md", &format!("a\n{note} b")).len(), 1);
        assert_eq!(examine("a/b.proto", concat!("// XX", "X")).len(), 1);
        assert_eq!(examine("docs/a.md", &format!("{note}S and PO{note} are names")), []);
    }

    #[test]
    fn unfinished_code_is_found() {
        for body in [
            "fn a() { todo!() }",
            "fn a() { unimplemented!(\"x\") }",
            "fn a() { dbg!(1); }",
            "fn a() { std::dbg!(1); }",
        ] {
            assert_eq!(lines(body), [2], "{body}");
        }
    }

    #[test]
    fn sleeping_threads_are_found() {
        assert_eq!(lines("fn a() { std::thread::sleep(D) }\nfn b() { thread::sleep(D) }"), [2, 3]);
        assert_eq!(lines("fn a() { tokio::time::sleep(D) }"), Vec::<usize>::new());
    }

    #[test]
    fn processes_are_started_in_the_laboratory() {
        let text = "//! A module.\nfn a() { std::process::Command::new(program).spawn() }\n";
        let findings = |file| examine(file, text).len();
        assert_eq!(["lab/src/a.rs", "xtask/src/a.rs", "cli/tests/processes/a.rs"].map(findings), [0, 0, 0]);
        assert_eq!(["cli/src/a.rs", "examples/feed.rs", "tests/tests/a.rs"].map(findings), [1, 1, 1]);
    }

    #[test]
    fn other_protocols_are_named_behind_their_door() {
        let text =
            "//! HBase's.\nuse terrane_hbase::Place;\n/// As HBase does.\nfn at(HbasePlaces: u8, zookeeper: &str) {}\n";
        let found = |file| examine(file, text).into_iter().map(|finding| finding.line).collect::<Vec<_>>();
        assert_eq!(found("master/src/a.rs"), [2, 4, 4]);
        assert_eq!(["hbase/src/a.rs", "cli/src/a.rs", "tests/tests/a.rs"].map(|file| found(file).len()), [0, 0, 0]);
    }

    #[test]
    fn a_select_without_bias_is_found() {
        assert_eq!(lines("fn a() { tokio::select! {\n _ = b() => {} } }"), [2]);
        assert_eq!(lines("fn a() { select! { // biased;\n _ = b() => {} } }"), [2]);
        assert_eq!(
            lines("fn a() { tokio::select! {\n // first what ends us\n biased;\n _ = b() => {} } }"),
            Vec::<usize>::new()
        );
    }

    #[test]
    fn an_allowance_without_reason_is_found() {
        for body in [
            "#[allow(dead_code)]\nfn a() {}",
            "#![allow(dead_code)]",
            "#[expect(dead_code)]\nfn a() {}",
            "#[cfg_attr(test, allow(dead_code))]\nfn a() {}",
            "#[allow(\n    dead_code,\n)]\nfn a() {}",
            "#[allow(dead_code)] // reason = because\nfn a() {}",
        ] {
            assert_eq!(lines(body), [2], "{body}");
        }
    }

    #[test]
    fn a_module_elsewhere_is_found() {
        assert_eq!(lines("#[path = \"other.rs\"]\nmod a;"), [2]);
        assert_eq!(lines("#[pathological = 1]\n#[a(path)]\nmod a;"), Vec::<usize>::new());
    }

    #[test]
    fn an_ignored_test_is_found() {
        for body in [
            "#[test]\n#[ignore]\nfn a() {}",
            "#[test]\n#[ignore = \"slow\"]\nfn a() {}",
            "#[test]\n#[cfg_attr(x, ignore)]\nfn a() {}",
        ] {
            assert_eq!(lines(body), [3], "{body}");
        }
    }

    #[test]
    fn a_module_opens_with_its_paragraph() {
        assert_eq!(examine("a/src/b.rs", "use c;\n//! Too late.\n").len(), 1);
        assert_eq!(examine("a/src/b.rs", "\n//! In time.\nuse c;\n"), []);
        assert_eq!(examine("a/src/b.rs", "").len(), 1);
    }

    #[test]
    fn length_counts_up_to_the_tests() {
        let of = |before: usize, after: usize| {
            let tests = format!("#[cfg(test)]\nmod tests {{\n{}}}\n", "// test\n".repeat(after));
            format!("//! Long.\n{}{tests}", "fn a() {}\n".repeat(before - 1))
        };
        let findings = |text: &str| examine("a/src/b.rs", text).len();
        assert_eq!((long("a/src/b.rs", &of(600, 2_000)), findings(&of(600, 2_000))), (None, 0));
        assert_eq!((long("a/src/b.rs", &of(601, 0)), findings(&of(601, 0))), (Some(601), 0));
        assert_eq!((long("a/src/b.rs", &of(901, 0)), findings(&of(901, 0))), (None, 1));
    }

    #[test]
    fn a_test_only_import_does_not_end_the_count() {
        let text = format!("//! Long.\n#[cfg(test)]\nuse x;\n{}", "fn a() {}\n".repeat(1_000));
        assert_eq!(examine("a/src/b.rs", &text).len(), 1);
    }

    #[test]
    fn files_of_other_kinds_are_left_alone() {
        assert!(is_checked("a/b.rs") && is_checked(".ci/run") && is_checked("docs/x.md"));
        assert!(!is_checked("Cargo.lock") && !is_checked("a/b.gz") && !is_checked("LICENSE"));
    }
}
