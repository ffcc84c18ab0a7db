//! Forged histories, as scripts: each kind of mistake is found, and histories with every kind of failure pass.

use std::fmt::Write as _;

use super::*;

#[test]
fn forged_histories_are_judged() {
    terrane_testscript::check_scripts(concat!(env!("CARGO_MANIFEST_DIR"), "/src/check/testdata"), || {
        let mut check = Check::default();
        let mut ms = 0;
        move |line, out: &mut String| {
            let words: Vec<&str> = line.split_whitespace().collect();
            ms += 1;
            match words[..] {
                ["call", op, ref action @ ..] => {
                    check.event(Event { ms, op: number(op), what: What::Call(action_of(action)) });
                }
                ["end", op, ref answer @ ..] => {
                    check.event(Event { ms, op: number(op), what: What::Return(answer_of(answer)) });
                }
                ["conclude"] => conclude(std::mem::take(&mut check), out),
                _ => panic!("no such command: {line}"),
            }
        }
    });
}

fn conclude(check: Check, out: &mut String) {
    let verdict = check.conclude();
    // Scripts are about one kind of operation; that the others are absent is no matter.
    let findings = verdict.findings.iter().filter(|finding| !finding.starts_with("no "));
    findings.for_each(|finding| writeln!(out, "{finding}").expect("writing to a string"));
    verdict.undecided.iter().for_each(|key| writeln!(out, "undecided: {key}").expect("writing to a string"));
    writeln!(out, "{:?}", verdict.totals).expect("writing to a string");
}

#[test]
fn an_empty_history_proves_nothing() {
    assert_eq!(Check::default().conclude().violations, 3);
}

fn number<N: std::str::FromStr>(word: &str) -> N {
    word.parse().unwrap_or_else(|_| panic!("{word} is no number"))
}

fn action_of(words: &[&str]) -> Action {
    let text = |word: &str| word.to_owned();
    match *words {
        ["put", row, value] => Action::Put { row: text(row), value: text(value) },
        ["get", row] => Action::Get { row: text(row) },
        ["scan"] => Action::Scan { start: String::new(), stop: String::new() },
        ["scan", start, stop] => Action::Scan { start: text(start), stop: text(stop) },
        ["add", counter, by] => Action::Add { counter: text(counter), by: number(by) },
        ["count", counter] => Action::Count { counter: text(counter) },
        ["read", register] => Action::Read { register: text(register) },
        ["write", register, value] => Action::Write { register: text(register), value: text(value) },
        ["swap", register, from, value] => {
            Action::Swap { register: text(register), from: text(from), value: text(value) }
        }
        _ => panic!("no such action: {words:?}"),
    }
}

fn answer_of(words: &[&str]) -> Answer {
    let text = |word: &str| word.to_owned();
    match *words {
        ["written"] => Answer::Written,
        ["absent"] => Answer::Found(None),
        ["found", value] => Answer::Found(Some(text(value))),
        ["rows", ref rows @ ..] => {
            let row = |pair: &&str| pair.split_once('=').map(|(row, value)| (text(row), text(value)));
            Answer::Rows(rows.iter().map(|pair| row(pair).expect("row=value")).collect())
        }
        ["number", number_] => Answer::Number(number(number_)),
        ["not-held"] => Answer::NotHeld,
        ["failed"] => Answer::Failed("refused".to_owned()),
        ["unknown"] => Answer::Unknown("timeout".to_owned()),
        _ => panic!("no such answer: {words:?}"),
    }
}
