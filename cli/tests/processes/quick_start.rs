//! Every command in the quick start and in the page on schemas runs, and prints what the page shows.
//!
//! The blocks ```` ```console ```` of a page are run in order on one cluster, which the line `terrane dev &` starts as the
//! text says, but for its ports and its directory. A line `$ ...` is a command; the lines up to the next one are what it
//! prints. Numbers that differ from run to run (times, durations, rates, sizes, identifiers) are compared as such, blanks as
//! one, and a line `...` stands for any lines. A command has to succeed unless the page shows its error.
//!
//! `TERRANE_REWRITE=1` writes what is printed now into the page, except where the page leaves something out.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::harness::{BINARY, Dev, bounded};

/// The address of the master in the pages.
const MASTER: &str = "127.0.0.1:7600";
/// The first port in the pages, and the distance to the last one of a cluster.
const PORT_FIRST: u16 = 7600;
const PORTS: u16 = 120;
/// Set to record what the pages' commands print now.
const REWRITE: &str = "TERRANE_REWRITE";
/// What the build of this test has done already.
const DONE_BY_THE_BUILD: [&str; 2] = ["cargo build", "export PATH="];

#[test]
fn the_quick_start_does_what_it_says() {
    play("quick-start.md");
}

#[test]
fn the_cases_of_the_schema_page_do_what_they_say() {
    play("schema.md");
}

/// A command of a page: its lines in the page, and what the page says that it prints.
struct Step {
    line: usize,
    command: String,
    /// The first line of the output, and the one after it.
    output: std::ops::Range<usize>,
}

fn play(name: &str) {
    let page = Path::new(env!("CARGO_MANIFEST_DIR")).join("../docs").join(name);
    let text = fs::read_to_string(&page).expect("the page is there");
    let lines: Vec<&str> = text.lines().collect();
    let steps = steps(&lines);
    assert!(steps.iter().any(|step| step.command == "terrane dev &"), "{name} starts no cluster");
    let mut dev = None;
    let mut failures = String::new();
    let mut rewritten: Vec<String> = Vec::new();
    let mut copied = 0;
    for step in &steps {
        if DONE_BY_THE_BUILD.iter().any(|done| step.command.starts_with(done)) {
            continue;
        }
        let printed = if step.command == "terrane dev &" {
            let dev = dev.insert(Dev::start("lsm"));
            with_ports_of_the_page(dev, dev.process.ready.trim())
        } else {
            let dev = dev.as_ref().unwrap_or_else(|| panic!("{name}:{}: there is no cluster yet", step.line));
            run(dev, &step.command, |status| {
                let shown = lines[step.output.clone()].iter().any(|line| line.starts_with("error: "));
                let wanted = if shown { status != 0 } else { status == 0 };
                assert!(wanted, "{name}:{}: {} ends with status {status}", step.line, step.command);
            })
        };
        let expected = &lines[step.output.clone()];
        let printed: Vec<&str> = printed.lines().map(str::trim_end).filter(|line| !line.is_empty()).collect();
        if !is_like(expected, &printed) {
            failures += &format!("{name}:{}: {} prints\n{}\n\n", step.line, step.command, printed.join("\n"));
        }
        if !expected.contains(&"...") {
            rewritten.extend(lines[copied..step.output.start].iter().map(|&line| line.to_owned()));
            rewritten.extend(printed.iter().map(|&line| line.to_owned()));
            copied = step.output.end;
        }
    }
    if std::env::var_os(REWRITE).is_some() {
        rewritten.extend(lines[copied..].iter().map(|&line| line.to_owned()));
        fs::write(&page, rewritten.join("\n") + "\n").expect("the page is written");
        return;
    }
    assert!(failures.is_empty(), "\n{failures}{REWRITE}=1 records it");
}

/// The commands of the blocks; a command that ends with a backslash continues in the next line.
fn steps(lines: &[&str]) -> Vec<Step> {
    let mut steps: Vec<Step> = Vec::new();
    let mut is_block = false;
    let mut continues = false;
    for (index, line) in lines.iter().enumerate() {
        if line.starts_with("```") {
            assert!(!continues, "line {}: a command does not end", index + 1);
            is_block = *line == "```console";
        } else if let Some(step) = steps.last_mut().filter(|_| continues) {
            step.command = format!("{}\n{line}", step.command);
            step.output = index + 1..index + 1;
            continues = line.ends_with('\\');
        } else if let Some(command) = line.strip_prefix("$ ").filter(|_| is_block) {
            steps.push(Step { line: index + 1, command: command.to_owned(), output: index + 1..index + 1 });
            continues = line.ends_with('\\');
        } else if is_block {
            let step = steps.last_mut().expect("a block begins with a command");
            assert_eq!(step.output.end, index, "line {}: a block begins with a command", index + 1);
            step.output.end = index + 1;
        }
    }
    steps
}

/// What a command prints, as the page would show it.
fn run(dev: &Dev, command: &str, judge: impl Fn(i32)) -> String {
    let mut sh = Command::new("sh");
    let binaries: PathBuf = Path::new(BINARY).parent().expect("it is in a directory").to_owned();
    let path = std::env::var("PATH").unwrap_or_default();
    sh.args(["-c", &command.replace(MASTER, &dev.client.masters)]).current_dir(dev.directory.path());
    sh.env("PATH", format!("{}:{path}", binaries.display())).env("TERRANE_MASTERS", &dev.client.masters);
    let output = bounded(&mut sh);
    let printed = [output.stdout, output.stderr].map(|bytes| String::from_utf8(bytes).expect("UTF-8")).concat();
    judge(output.status.code().expect("no signal ends it"));
    with_ports_of_the_page(dev, &printed)
}

/// The text with the ports that the page has.
fn with_ports_of_the_page(dev: &Dev, text: &str) -> String {
    let (_, base) = dev.client.masters.rsplit_once(':').expect("an address");
    let base: u16 = base.parse().expect("a port");
    (0..=PORTS).fold(text.to_owned(), |text, offset| {
        text.replace(&format!("127.0.0.1:{}", base + offset), &format!("127.0.0.1:{}", PORT_FIRST + offset))
    })
}

/// Whether the lines are those of the page, but for what differs from run to run.
fn is_like(expected: &[&str], printed: &[&str]) -> bool {
    match expected.iter().position(|line| *line == "...") {
        None => {
            expected.len() == printed.len()
                && expected.iter().zip(printed).all(|(expected, printed)| blurred(expected) == blurred(printed))
        }
        Some(at) => {
            let (before, after) = (&expected[..at], &expected[at + 1..]);
            printed.len() >= at
                && is_like(before, &printed[..at])
                && (at..=printed.len()).any(|from| is_like(after, &printed[from..]))
        }
    }
}

/// The line without what differs from run to run.
fn blurred(line: &str) -> String {
    let words: Vec<&str> = line.split_whitespace().collect();
    let mut blurred: Vec<String> = Vec::new();
    for (at, word) in words.iter().enumerate() {
        let bare = word.trim_matches(|c: char| "(),;".contains(c));
        let number = bare.replace(',', "");
        let is_number = number.parse::<f64>().is_ok();
        let unit = words.get(at + 1).map_or("", |next| next.trim_matches(|c: char| "(),;".contains(c)));
        let has_unit = ["ms", "s", "µs", "rows/s", "B", "KiB", "MiB", "B/s", "KiB/s"].contains(&unit);
        let is_time = number.len() == 13 && number.bytes().all(|byte| byte.is_ascii_digit());
        let is_opaque = bare.len() >= 32 && !bare.contains('=');
        blurred.push(match () {
            () if is_time || is_opaque || (is_number && has_unit) => "*".to_owned(),
            () if ["ms", "s", "µs", "B", "KiB", "MiB"].contains(&bare) => "unit".to_owned(),
            () => (*word).to_owned(),
        });
    }
    blurred.join(" ")
}

#[test]
fn commands_are_found_with_what_they_print() {
    let lines = ["text", "```console", "$ a \\", "  b", "one", "two", "$ c", "```", "```sh", "$ d", "```"];
    let steps = steps(&lines);
    let found: Vec<_> = steps.iter().map(|step| (step.command.as_str(), &lines[step.output.clone()])).collect();
    assert_eq!(found, [("a \\\n  b", &["one", "two"][..]), ("c", &[])]);
}

#[test]
fn what_differs_from_run_to_run_does_not_count() {
    let alike = |expected: &[&str], printed: &[&str]| is_like(expected, printed);
    assert!(alike(&["exported 4 rows in 2.8 ms (1,417 rows/s)"], &["exported 4 rows in 1.1 s (1,400 rows/s)"]));
    assert!(!alike(&["exported 4 rows in 2.8 ms"], &["exported 5 rows in 2.8 ms"]));
    assert!(alike(&["a  1767225600000  x"], &["a 1767225600001 x"]));
    assert!(alike(&["a", "...", "b"], &["a", "1", "2", "b"]) && alike(&["...", "b"], &["b"]));
    assert!(!alike(&["a", "...", "b"], &["a", "1"]) && !alike(&["a"], &["a", "b"]));
}
