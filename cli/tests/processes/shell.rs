//! `terrane shell`: as a person types in a pseudo-terminal, as a script feeds it, and the session of a first HBase table.

use std::path::Path;
use std::process::Command;

use rexpect::session::{PtySession, spawn_command};

use crate::harness::{BINARY, Client, Dev, errors_of, text_of};

/// How long an expected text may take; debug builds share two cores with other tests.
const EXPECTED_WITHIN_MS: u64 = 30_000;
const PROMPT: &str = "terrane> ";

/// A shell at a terminal of 100 columns.
fn shell(masters: &str, history: &Path, more: &[&str]) -> PtySession {
    let mut command = Command::new(BINARY);
    command.args(["shell", "--masters", masters]).args(more);
    command.env("TERM", "xterm").env("TERRANE_HISTORY", history);
    let mut session = spawn_command(command, Some(EXPECTED_WITHIN_MS)).expect("a pseudo-terminal");
    session.exp_string(PROMPT).expect("a prompt");
    session
}

/// Types a line, and waits for the next prompt.
fn typed(session: &mut PtySession, line: &str) {
    session.send_line(line).expect("typed");
    session.exp_string("took ").expect("the end of the command");
    session.exp_string(PROMPT).expect("a prompt");
}

/// Types keys without a line end.
fn keys(session: &mut PtySession, keys: &str) {
    session.send(keys).expect("typed");
    session.flush().expect("typed");
}

fn script(client: &Client, lines: &str) -> std::process::Output {
    client.run_with_input(&["shell"], lines)
}

#[test]
fn a_person_types_completes_recalls_and_ends() {
    let dev = Dev::start("lsm");
    dev.client.succeed(&["table", "create", "observations", "--family", "data", "--key", "station:text, time:i64"]);
    let history = dev.path("history");
    let mut session = shell(&dev.client.masters, history.as_ref(), &[]);

    typed(&mut session, "put observations station=oslo,time=5 data:t warm");
    // Tab completes the command, the table, the part of the key and the family.
    keys(&mut session, "get obs\t");
    session.exp_string("observations").expect("the table is completed");
    keys(&mut session, "stat\t");
    session.exp_string("station=").expect("the part is completed");
    keys(&mut session, "oslo,ti\t");
    session.exp_string("time=").expect("the next part is completed");
    keys(&mut session, "5 da\tt\n");
    session.exp_string("station=oslo,time=5").expect("the row");
    session.exp_string("warm").expect("the value");
    session.exp_string(PROMPT).expect("a prompt");

    // Ctrl-C drops the line; the arrow up recalls the one before.
    keys(&mut session, "drop everythin");
    session.send_control('c').expect("typed");
    session.exp_string(PROMPT).expect("a prompt");
    keys(&mut session, "\x1b[A\n");
    session.exp_string("warm").expect("the same row again");
    session.exp_string(PROMPT).expect("a prompt");

    // A typo is answered with the nearest name, and the session goes on.
    session.send_line("scna observations").expect("typed");
    session.exp_string("did you mean scan?").expect("a suggestion");
    session.exp_string(PROMPT).expect("a prompt");
    session.send_line("scan observation").expect("typed");
    session.exp_string("did you mean observations?").expect("a suggestion");
    session.exp_string(PROMPT).expect("a prompt");

    // A loss is confirmed by its name.
    session.send_line("table drop observations").expect("typed");
    session.exp_string("Type observations to confirm:").expect("a question");
    session.send_line("no").expect("typed");
    session.exp_string("nothing was dropped").expect("an answer");
    session.exp_string(PROMPT).expect("a prompt");

    session.send_control('d').expect("typed");
    session.exp_eof().expect("the session ends");
    assert_eq!(dev.client.json(&["count", "observations"])["count"], 1);

    // The next session remembers.
    let mut session = shell(&dev.client.masters, history.as_ref(), &[]);
    keys(&mut session, "\x1b[A\x1b[A\n");
    session.exp_string("did you mean observations?").expect("the line before the last");
    session.exp_string(PROMPT).expect("a prompt");
    session.send_line("exit").expect("typed");
    session.exp_eof().expect("the session ends");
}

#[test]
fn ctrl_c_stops_a_command_and_not_the_session() {
    let dev = Dev::start("memory");
    let mut session = shell(&dev.client.masters, dev.path("history").as_ref(), &[]);
    session.send_line("bench put --seconds 60 --rows 1000 --regions 1").expect("typed");
    session.exp_string("2 s").expect("it runs");
    session.send_control('c').expect("typed");
    session.exp_string("p99.9").expect("a summary of what was done so far");
    session.exp_string("interrupted").expect("why it ended");
    session.exp_string(PROMPT).expect("a prompt");
    typed(&mut session, "table list");
    session.send_control('d').expect("typed");
    session.exp_eof().expect("the session ends");
}

#[test]
fn a_terminal_shows_dates_until_numbers_are_asked_for() {
    let dev = Dev::start("lsm");
    dev.client.succeed(&["table", "create", "t", "--family", "f", "--key", "time:time", "--column", "f:seen=time"]);
    let mut session = shell(&dev.client.masters, dev.path("history").as_ref(), &[]);
    typed(&mut session, "put t 2026-01-31T12:00+02:00 f:seen 2026-01-31 --timestamp 86400000");
    session.send_line("get t 1769853600000").expect("typed");
    session.exp_string("time=2026-01-31T10:00:00Z").expect("the row");
    session.exp_string("1970-01-02T00:00:00Z").expect("the timestamp");
    session.exp_string("2026-01-31T00:00:00Z").expect("the value");
    session.exp_string(PROMPT).expect("a prompt");
    session.send_line("time raw").expect("typed");
    session.exp_string(PROMPT).expect("a prompt");
    session.send_line("first t").expect("typed");
    session.exp_string("time=1769853600000").expect("the row");
    session.exp_string("86400000").expect("the timestamp");
    session.exp_string("1769817600000").expect("the value");
    session.exp_string(PROMPT).expect("a prompt");
    session.send_control('d').expect("typed");
    session.exp_eof().expect("the session ends");
}

#[test]
fn the_prompt_needs_no_cluster() {
    let directory = tempfile::tempdir().expect("a directory");
    let mut session = shell("127.0.0.1:1", &directory.path().join("history"), &["--timeout", "200ms"]);
    session.send_line("scan t").expect("typed");
    session.exp_string("no master answers at 127.0.0.1:1").expect("the first command says so");
    session.exp_string(PROMPT).expect("a prompt");
    session.send_line("help scan").expect("typed");
    session.exp_string("scan 't', {STARTROW").expect("help needs no cluster");
    session.send_control('d').expect("typed");
    session.exp_eof().expect("the session ends");
}

#[test]
fn the_session_of_a_first_hbase_table_works_as_typed_there() {
    let dev = Dev::start("lsm");
    let session = "\
        # From HBase's quick start.\n\
        create 'test', 'cf'\n\
        list 'test'\n\
        describe 'test'\n\
        put 'test', 'row1', 'cf:a', 'value1'\n\
        put 'test', 'row2', 'cf:b', 'value2'\n\
        put 'test', 'row3', 'cf:c', 'value3'\n\
        scan 'test'\n\
        get 'test', 'row1'\n\
        count 'test'\n\
        scan 'test', {COLUMNS => ['cf:b'], LIMIT => 10}\n\
        alter 'test', {NAME => 'cf', VERSIONS => 3}, 'cf2'\n\
        incr 'test', 'row1', 'cf2:n', 5\n\
        delete 'test', 'row1', 'cf:a'\n\
        deleteall 'test', 'row2'\n\
        is_enabled 'test'\n\
        disable 'test'\n\
        is_enabled 'test'\n\
        enable 'test'\n\
        truncate 'test'\n\
        count 'test'\n\
        disable 'test'\n\
        drop 'test'\n\
        exists 'test'\n\
        exit\n\
        this is not reached\n";
    let output = script(&dev.client, session);
    let text = text_of(&output, 0);
    let found = [
        "test",
        "family cf",
        "value1",
        "row3",
        "\n3\n",
        "value2",
        "\n5\n",
        "\ntrue\n",
        "\nfalse\n",
        "\n0\n",
        "table test does not exist",
    ];
    let mut rest = text.as_str();
    for part in found {
        let at = rest.find(part).unwrap_or_else(|| panic!("{part:?} is missing or out of order in {text}"));
        rest = &rest[at..];
    }
}

#[test]
fn a_script_ends_at_its_first_failure_with_its_status_and_line() {
    let dev = Dev::start("memory");
    let client = &dev.client;
    client.succeed(&["table", "create", "t", "--family", "f"]);
    for (lines, status, named) in [
        ("put t r f:q v\nget t none\nput t s f:q v\n", 3, "line 2"),
        ("put t r f:q v\nscna t\n", 2, "did you mean scan?"),
        ("put t r f:q w --if \"f:q = 'x'\"\n", 4, "line 1"),
        ("drop 't'\n", 1, "disable it first"),
        ("put t r f:q 'v\n", 2, "closing '"),
        ("create 't2', {NAME => 'f', VERSION => 3}\n", 2, "VERSION"),
    ] {
        let output = script(client, lines);
        text_of(&output, status);
        assert!(errors_of(&output).contains(named), "{lines}: {}", errors_of(&output));
    }
    assert_eq!(client.json(&["count", "t"])["count"], 1, "nothing runs after a failure");
    let output = client.run_with_input(&["shell", "--keep-going"], "get t none\nput t s f:q v\n");
    text_of(&output, 3);
    assert_eq!(client.json(&["count", "t"])["count"], 2);

    let rows = client.succeed(&["shell", "-e", "format json", "-e", "scan 't', LIMIT => 1"]);
    assert!(rows.starts_with("{\"row\":\"r\""), "{rows}");
    let rows = client.succeed(&["shell", "--format", "row", "-e", "scan t --limit 1"]);
    assert!(rows.contains("ROW        r\nCOLUMN     f:q\n"), "{rows}");
}
