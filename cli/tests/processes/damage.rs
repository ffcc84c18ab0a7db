//! `tool check` and `tool dump` on the files of a real cluster, intact and with a flipped bit anywhere.

use std::fmt::Write as _;
use std::path::{Path, PathBuf};

use rand::rngs::StdRng;
use rand::{Rng, SeedableRng};
use serde_json::Value;

use crate::harness::{COMMAND_MAX, Client, Cluster, Dev, Ended, Role, data_in, errors_of, terrane, text_of};

/// Small segments, so that the log is more than preallocated zeros.
const FLAGS: [&str; 1] = ["--log-limit=8MiB"];

/// Writes rows to two tables: some are flushed and compacted, others only in the log until the stop flushes them.
fn fill(client: &Client) {
    for table in ["t", "u"] {
        client.succeed(&["table", "create", table, "--family", "f:compression=lz4", "g:bloom=rowcol"]);
        for round in 0..3 {
            let mut lines = String::new();
            for number in 0..600 {
                let row = format!("{:08x}", (number * 7 + round * 131) % 4_000);
                writeln!(lines, "{row}\tf:q\t{round}\tvalue {number} {}", "v".repeat(60)).expect("memory");
                writeln!(lines, "{row}\tg:{number}\t{round}\t{round}").expect("memory");
            }
            let output = client.run_with_input(&["import", table, "--format", "tsv", "-"], &lines);
            text_of(&output, 0);
            if round < 2 {
                client.succeed(&["admin", "flush", table]);
            }
        }
    }
    client.succeed(&["delete", "t", "00000007"]);
}

/// The directory of a stopped cluster, and where its files are.
fn stopped(engine: &str) -> (tempfile::TempDir, PathBuf) {
    let dev = Dev::start_with(engine, &FLAGS);
    fill(&dev.client);
    let directory = dev.stop();
    let data = data_in(&directory);
    (directory, data)
}

/// All files below a directory except lock files, whose content has no meaning.
fn files(directory: &Path) -> Vec<PathBuf> {
    let mut found = Vec::new();
    for entry in std::fs::read_dir(directory).expect("a directory") {
        let path = entry.expect("an entry").path();
        if path.is_dir() {
            found.extend(files(&path));
        } else if !path.ends_with("LOCK") {
            found.push(path);
        }
    }
    found.sort();
    found
}

/// The lines of `tool check --json`, which must exit with this status.
fn check(directory: &Path, status: i32) -> Vec<Value> {
    let output = terrane(&["tool", "check", directory.to_str().expect("text"), "--json"]);
    let text = text_of(&output, status);
    text.lines().map(|line| serde_json::from_str(line).expect("JSON")).collect()
}

/// Flips one bit at a time, half of them in a random byte of all, half in a random file, and expects each to be found
/// in that file, at or before its place.
fn each_flipped_bit_is_found(engine: &str, flips: usize, seed: u64) {
    let (_directory, data) = stopped(engine);
    let whole = check(&data, 0);
    let summary = whole.last().expect("a summary");
    assert_eq!((&summary["whole"], &summary["warnings"]), (&true.into(), &0.into()), "{whole:?}");
    let files = files(&data);
    assert_eq!(summary["files"], files.len(), "not all files were verified: {whole:?}");
    let lengths: Vec<u64> = files.iter().map(|path| path.metadata().expect("it is there").len()).collect();
    let mut dice = StdRng::seed_from_u64(seed);
    for flip in 0..flips {
        let (file, offset) = if flip % 2 == 0 {
            let mut at = dice.random_range(0..lengths.iter().sum());
            let file = lengths.iter().position(|&length| {
                let is_here = at < length;
                at -= if is_here { 0 } else { length };
                is_here
            });
            (file.expect("below the sum"), at)
        } else {
            let file = dice.random_range(0..files.len());
            (file, dice.random_range(0..lengths[file]))
        };
        let bit = dice.random_range(0..8u8);
        let told = format!("seed {seed}, flip {flip}: bit {bit} of byte {offset} of {}", files[file].display());
        let bytes = std::fs::read(&files[file]).expect("it is there");
        let mut flipped = bytes.clone();
        flipped[usize::try_from(offset).expect("a length")] ^= 1 << bit;
        std::fs::write(&files[file], &flipped).expect("written");
        let output = terrane(&["tool", "check", data.to_str().expect("text"), "--json"]);
        assert_eq!(output.status.code(), Some(1), "{told}: {output:?}");
        let found = String::from_utf8_lossy(&output.stdout).into_owned();
        let finding: Value = serde_json::from_str(found.lines().next().expect("a line")).expect("JSON");
        assert_eq!(finding["severity"], "damage", "{told}: {found}");
        assert_eq!(finding["file"], files[file].to_str().expect("text"), "{told}: {found}");
        assert!(finding["offset"].as_u64().expect("a number") <= offset, "{told}: {found}");
        std::fs::write(&files[file], &bytes).expect("written");
    }
    check(&data, 0);
}

#[test]
fn each_of_a_hundred_flipped_bits_is_found() {
    each_flipped_bit_is_found("lsm", 100, 20_261_121);
}

#[test]
fn each_flipped_bit_is_found_with_the_memory_engine() {
    each_flipped_bit_is_found("memory", 30, 7);
}

#[test]
fn a_killed_process_leaves_intact_files_and_a_running_one_is_refused() {
    let dev = Dev::start_with("lsm", &FLAGS);
    fill(&dev.client);
    let data = data_in(&dev.directory);
    let refused = terrane(&["tool", "check", data.to_str().expect("text")]);
    assert_eq!(text_of(&refused, 1), "");
    assert!(errors_of(&refused).contains("in use by another process"), "{}", errors_of(&refused));
    dev.process.kill();
    check(&data, 0);
    // The directory of one process.
    check(&data.join("server-2"), 0);
    check(&data.join("master"), 0);
}

#[test]
fn missing_truncated_and_foreign_files_are_named() {
    let (_directory, data) = stopped("lsm");
    let tables = data.join("server-1/engine/tables");
    let all = files(&tables);
    std::fs::copy(&all[0], tables.join("0000000000999999.tbl")).expect("copied");
    let warned = check(&data, 0);
    assert_eq!(
        (&warned[0]["severity"], warned.last().map(|line| &line["warnings"])),
        (&"warning".into(), Some(&1.into()))
    );
    let bytes = std::fs::read(&all[0]).expect("read");
    std::fs::write(&all[0], &bytes[..bytes.len() / 2]).expect("written");
    std::fs::remove_file(&all[1]).expect("removed");
    let found = check(&data, 1);
    let named = |path: &Path| {
        found.iter().any(|line| line["severity"] == "damage" && line["file"] == path.to_str().expect("text"))
    };
    assert!(named(&all[0]) && named(&all[1]), "{found:?}");
    let nothing = tempfile::tempdir().expect("a directory");
    text_of(&terrane(&["tool", "check", nothing.path().to_str().expect("text")]), 1);
}

/// Waits until a process ends because it cannot go on.
fn aborted(role: &mut Role) -> Ended {
    let ended = role.process.take().expect("it runs").ended(COMMAND_MAX).expect("it ends");
    assert!(!ended.status.success(), "{ended:?}");
    ended
}

/// An open file takes writes and syncs on after its name is gone, so a process has to look.
#[test]
fn a_process_whose_data_directory_is_deleted_ends() {
    let mut cluster = Cluster::start("lsm", &[]);
    let client = cluster.client.clone();
    client.succeed(&["table", "create", "t", "--family", "f"]);
    let server = cluster.server_directory(0);
    std::fs::remove_dir_all(&server).expect("deleted");
    let ended = aborted(&mut cluster.servers[0]);
    let names = |ended: &Ended, directory: &Path| {
        let said = format!("the data directory {} was deleted, moved or replaced", directory.display());
        assert!(ended.stderr.contains(&said), "{ended:?}");
    };
    names(&ended, &server);
    client.succeed(&["put", "t", "row", "f:q", "the other servers go on"]);
    let master = cluster.data.path().join("master-0");
    std::fs::rename(&master, cluster.data.path().join("moved")).expect("moved");
    names(&aborted(&mut cluster.masters[0]), &master);
}

#[test]
fn a_store_file_is_shown_with_properties_index_and_cells() {
    let (_directory, data) = stopped("lsm");
    let shown = files(&data.join("server-1/engine/tables"))
        .into_iter()
        .max_by_key(|path| path.metadata().expect("it is there").len());
    let file = shown.expect("a file").display().to_string();
    let output = terrane(&["tool", "dump", &file, "--cells", "5", "--json"]);
    let lines: Vec<Value> = text_of(&output, 0).lines().map(|line| serde_json::from_str(line).expect("JSON")).collect();
    assert!(lines[0]["cells"].as_u64().expect("a number") > 5, "{lines:?}");
    assert_eq!(lines.iter().filter(|line| line["row"].is_string()).count(), 5);
    assert_eq!(lines.iter().find(|line| line["row"].is_string()).expect("a cell")["row"], lines[0]["first_row"]);
    assert!(lines.iter().any(|line| line["offset"] == 0), "{lines:?}");
    let text = text_of(&terrane(&["tool", "dump", &file]), 0);
    assert!(text.contains("timestamps") && text.lines().all(|line| line.chars().count() <= 200), "{text}");
    text_of(&terrane(&["tool", "dump", "no-such-file"]), 2);
}
