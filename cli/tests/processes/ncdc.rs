//! Imports weather records, generated ones and, if available, real ones, while their table splits, and compares every
//! exported row with an independent parser of the same lines.
//!
//! The parser here follows the specification of `--format ncdc` and `--format stations` and shares no code with the
//! importer. `TERRANE_TEST_DATA` names a folder with real files; without it, the tests of real files print a note and
//! pass.

use std::fmt::Write as _;
use std::fs::File;
use std::io::{Read, Write as _};
use std::path::{Path, PathBuf};

use flate2::Compression;
use flate2::read::MultiGzDecoder;
use flate2::write::GzEncoder;
use serde_json::Value;

use crate::harness::{Cells, Client, Dev, assert_same_cells, cells_of_tsv, errors_of, text_of, unescaped, write_file};

/// Splits that must happen during the import.
const SPLITS_MIN: usize = 8;
const NCDC_KEY: &str = "station:bytes12, time:desc i64";

/// The content of a set of lines.
#[derive(Default)]
struct Reading {
    cells: Cells,
    records: u64,
    skipped: u64,
}

/// Days since 1970, added up year by year: slow but obviously correct.
fn days_since_1970(year: i64, month: usize, day: i64) -> i64 {
    let leap = |year: i64| (year % 4 == 0 && year % 100 != 0) || year % 400 == 0;
    let of_year = |year: i64| if leap(year) { 366 } else { 365 };
    let whole_years: i64 =
        if year >= 1970 { (1970..year).map(of_year).sum() } else { -(year..1970).map(of_year).sum::<i64>() };
    let february = if leap(year) { 29 } else { 28 };
    let months = [31, february, 31, 30, 31, 30, 31, 31, 30, 31, 30, 31];
    whole_years + months[..month - 1].iter().sum::<i64>() + day - 1
}

/// Characters `first` to `last` of a line, counting from 1.
fn characters(line: &[u8], first: usize, last: usize) -> &[u8] {
    let last = last.min(line.len());
    line.get(first - 1..last).unwrap_or_default()
}

fn number<T: std::str::FromStr>(text: &[u8]) -> T {
    let text = std::str::from_utf8(text).expect("digits");
    text.parse().unwrap_or_else(|_| panic!("{text:?} is no number"))
}

/// Parses records as specified.
fn read_ncdc(lines: &[u8], reading: &mut Reading) {
    for line in lines.split(|&byte| byte == b'\n').filter(|line| !line.is_empty()) {
        let temperature = characters(line, 88, 92);
        if temperature == b"+9999" || !b"01459".contains(&line[93 - 1]) {
            reading.skipped += 1;
            continue;
        }
        reading.records += 1;
        let days = days_since_1970(
            number(characters(line, 16, 19)),
            number(characters(line, 20, 21)),
            number(characters(line, 22, 23)),
        );
        let minutes = number::<i64>(characters(line, 24, 25)) * 60 + number::<i64>(characters(line, 26, 27));
        let time = days * 86_400_000 + minutes * 60_000;
        let reversed = i128::from(i64::MAX) - i128::from(time);
        let mut row = [characters(line, 5, 10), b"-", characters(line, 11, 15)].concat();
        // The low 64 bits, as in Java's long arithmetic.
        row.extend_from_slice(&reversed.to_be_bytes()[8..]);
        // A later record of the same row is a newer version; the table keeps one version.
        reading.cells.insert((row, b"data:airtemp".to_vec()), number::<i32>(temperature).to_be_bytes().to_vec());
    }
}

fn read_stations(lines: &[u8], reading: &mut Reading) {
    for line in lines.split(|&byte| byte == b'\n').filter(|line| !line.is_empty()) {
        let row = [characters(line, 1, 6), b"-", characters(line, 8, 12)].concat();
        let text = |first, last| String::from_utf8_lossy(characters(line, first, last)).trim().to_owned();
        let degrees = |text: String| {
            (!text.is_empty()).then(|| {
                let thousandths: i64 = text.parse().expect("a coordinate");
                let sign = if thousandths < 0 { "-" } else { "" };
                format!("{sign}{}.{:03}", thousandths.abs() / 1000, thousandths.abs() % 1000)
            })
        };
        let location = match (degrees(text(59, 64)), degrees(text(66, 72))) {
            (Some(latitude), Some(longitude)) => format!("{latitude},{longitude}"),
            _ => String::new(),
        };
        let description = text(44, 57).split_whitespace().collect::<Vec<_>>().join(" ");
        let fields = [("info:name", text(14, 42)), ("info:location", location), ("info:description", description)];
        let before = reading.cells.len();
        for (column, value) in fields.into_iter().filter(|(_, value)| !value.is_empty()) {
            reading.cells.insert((row.clone(), column.as_bytes().to_vec()), value.into_bytes());
        }
        if reading.cells.len() > before { reading.records += 1 } else { reading.skipped += 1 }
    }
}

/// Generates hourly records of some stations in NCDC format, including missing and doubtful readings, both ends of a
/// leap day, and times before and after 1970.
fn invented_lines(seed: u64, hours: u32) -> String {
    let days = [(1969, 12, 31), (1970, 1, 1), (2000, 2, 28), (2000, 2, 29), (2000, 3, 1), (1900, 2, 28), (1901, 1, 1)];
    let mut state = seed;
    let mut chance = |below: u64| {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (state >> 33) % below
    };
    let mut lines = String::new();
    for hour in 0..hours {
        let (year, month, day) = days[usize::try_from(hour / 24).expect("few") % days.len()];
        // Days repeat, each time at another minute.
        let minute = usize::try_from(hour / 24).expect("few") / days.len();
        for station in 0..20 {
            let temperature = if chance(40) == 0 { 9999 } else { i64::try_from(chance(900)).expect("small") - 450 };
            let quality = b"0145923679"[usize::try_from(chance(10)).expect("small")] as char;
            writeln!(
                lines,
                "0000{:06}{:05}{year:04}{month:02}{day:02}{:02}{minute:02}4+64333+023450FM-12+000599999V0202701N0159\
                 19999999N0000001N9{temperature:+05}{quality}+99999102001",
                29_070 + station * 10,
                99_999 - station % 2,
                hour % 24,
            )
            .expect("memory");
        }
    }
    lines
}

fn gzipped(bytes: &[u8]) -> Vec<u8> {
    let mut encoder = GzEncoder::new(Vec::new(), Compression::fast());
    encoder.write_all(bytes).expect("memory");
    encoder.finish().expect("memory")
}

fn gunzipped(path: &Path) -> Vec<u8> {
    let mut bytes = Vec::new();
    let file = File::open(path).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
    MultiGzDecoder::new(file).read_to_end(&mut bytes).expect("gzip");
    bytes
}

/// The folder of real files; prints a note if there is none.
fn real_folder() -> Option<PathBuf> {
    let folder = std::env::var_os("TERRANE_TEST_DATA").map(|folder| PathBuf::from(folder).join("ncdc"));
    match folder {
        Some(folder) if folder.is_dir() => Some(folder),
        Some(folder) => {
            eprintln!("skipped: {} does not exist", folder.display());
            None
        }
        None => {
            eprintln!("skipped: TERRANE_TEST_DATA is not set, so there are no real files to import");
            None
        }
    }
}

/// Real files, either of years or of stations.
fn real_files(folder: &Path, years: bool) -> Vec<PathBuf> {
    let entries = folder.read_dir().expect("readable").map(|entry| entry.expect("readable").path());
    let is_year =
        |path: &Path| path.file_stem().is_some_and(|stem| stem.as_encoded_bytes().iter().all(u8::is_ascii_digit));
    let mut files: Vec<PathBuf> =
        entries.filter(|path| path.extension().is_some_and(|kind| kind == "gz") && is_year(path) == years).collect();
    files.sort();
    files
}

/// Imports files and then lines of standard input. The last lines are sent only after the table has split often enough,
/// so that the splits certainly happen during the import, with rows after them.
fn import_while_splitting(client: &Client, table: &str, format: &str, files: &[PathBuf], lines: &str) -> Value {
    let files: Vec<String> = files.iter().map(|path| path.display().to_string()).collect();
    let mut arguments = vec!["import", table, "--format", format, "--json"];
    arguments.extend(files.iter().map(String::as_str));
    arguments.push("-");
    let mut import = client.start(&arguments);
    client.wait_for_regions(table, SPLITS_MIN + 1);
    assert!(import.feed(lines), "the import ended early");
    let output = import.finish().expect("it ends");
    serde_json::from_str(&text_of(&output, 0)).expect("JSON")
}

fn assert_counts(counts: &Value, reading: &Reading) {
    assert_eq!(counts["imported"], reading.records, "{counts}");
    assert_eq!(counts["skipped"], reading.skipped, "{counts}");
    assert_eq!((&counts["malformed"], &counts["refused"]), (&0.into(), &0.into()), "{counts}");
}

/// Compares all rows as printed by `export` and `scan --json`, and their number.
fn assert_table_is(client: &Client, table: &str, expected: &Cells) {
    assert_same_cells(&client.cells(table), expected);
    let mut scanned = Cells::new();
    let mut rows = 0;
    for line in client.json_lines(&["scan", table]) {
        rows += 1;
        for cell in line["cells"].as_array().expect("cells") {
            let text = |value: &Value| unescaped(value.as_str().expect("text"));
            scanned.insert((text(&line["row"]), text(&cell["column"])), text(&cell["value"]));
        }
    }
    assert_same_cells(&scanned, expected);
    assert_eq!(client.json(&["count", table])["count"], rows);
}

#[test]
fn generated_records_are_there_after_many_splits() {
    let directory = tempfile::tempdir().expect("a directory");
    let lines = invented_lines(1, 24 * 25);
    let (first, rest) = lines.split_at(lines.len() / 3 / 120 * 120);
    let (first, rest) = (first.to_owned() + rest.split_inclusive('\n').next().expect("a line"), rest);
    let rest = rest.split_once('\n').expect("lines").1;
    let (second, last) = rest.split_at(rest.match_indices('\n').nth(4_000).expect("lines").0 + 1);
    let (plain, zipped) = (directory.path().join("a"), directory.path().join("b"));
    write_file(&plain, first.as_bytes());
    write_file(&zipped, &gzipped(second.as_bytes()));
    let mut reading = Reading::default();
    for part in [first.as_str(), second, last] {
        read_ncdc(part.as_bytes(), &mut reading);
    }
    assert!(reading.skipped > 100 && reading.cells.len() > 5_000, "{}", reading.cells.len());

    let dev = Dev::start_in(directory, "lsm", &[]);
    let create = ["table", "create", "w", "--family", "data", "--key", NCDC_KEY, "--region-size", "16KiB"];
    dev.client.succeed(&create);
    let counts = import_while_splitting(&dev.client, "w", "ncdc", &[plain, zipped], last);
    assert_counts(&counts, &reading);
    assert_table_is(&dev.client, "w", &reading.cells);
}

#[test]
fn real_records_are_there_after_many_splits() {
    let Some(folder) = real_folder() else { return };
    let years = real_files(&folder, true);
    assert!(years.contains(&folder.join("1901.gz")), "1901.gz is missing in {}", folder.display());
    let last = invented_lines(2, 24);
    let mut reading = Reading::default();
    for year in &years {
        read_ncdc(&gunzipped(year), &mut reading);
    }
    read_ncdc(last.as_bytes(), &mut reading);

    let dev = Dev::start("sled");
    let create = ["table", "create", "observations", "--family", "data", "--key", NCDC_KEY, "--region-size", "16KiB"];
    dev.client.succeed(&create);
    let counts = import_while_splitting(&dev.client, "observations", "ncdc", &years, &last);
    assert_counts(&counts, &reading);
    assert_table_is(&dev.client, "observations", &reading.cells);
}

#[test]
fn real_stations_are_there_after_many_splits() {
    let Some(folder) = real_folder() else { return };
    let list = folder.join("stations-fixed-width.txt.gz");
    let last = "ZZ0010 99999 NOWHERE                       NO  JN   ENJA  -00933 -008667 +00090\n";
    let mut reading = Reading::default();
    read_stations(&gunzipped(&list), &mut reading);
    read_stations(last.as_bytes(), &mut reading);
    assert_eq!(reading.cells[&(b"ZZ0010-99999".to_vec(), b"info:location".to_vec())], b"-0.933,-8.667");
    assert_eq!(reading.cells[&(b"ZZ0010-99999".to_vec(), b"info:description".to_vec())], b"NO JN ENJA");

    let dev = Dev::start("lsm");
    let create = ["table", "create", "s", "--family", "info", "--key", "station:bytes12", "--region-size", "128KiB"];
    dev.client.succeed(&create);
    let counts = import_while_splitting(&dev.client, "s", "stations", &[list], last);
    assert_counts(&counts, &reading);
    assert_table_is(&dev.client, "s", &reading.cells);
}

#[test]
fn malformed_lines_are_counted_and_named_and_the_rest_is_imported() {
    let directory = tempfile::tempdir().expect("a directory");
    let good = invented_lines(3, 2);
    let mut lines: Vec<&str> = good.lines().collect();
    let bad_date = lines[9].replacen("19691231", "19691232", 1);
    let bad_temperature = format!("{}X{}", &lines[12][..88], &lines[12][89..]);
    lines[4] = "short";
    lines[9] = &bad_date;
    lines[12] = &bad_temperature;
    let bad = [4, 9, 12];
    let mut reading = Reading::default();
    for (_, line) in lines.iter().enumerate().filter(|(index, _)| !bad.contains(index)) {
        read_ncdc(line.as_bytes(), &mut reading);
    }
    let path = directory.path().join("weather");
    write_file(&path, lines.join("\n").as_bytes());
    let path = path.display().to_string();

    let dev = Dev::start_in(directory, "lsm", &[]);
    for table in ["w", "strict", "wrong"] {
        dev.client.succeed(&["table", "create", table, "--family", if table == "wrong" { "other" } else { "data" }]);
    }
    let output = dev.client.run(&["import", "w", "--format", "ncdc", &path, "--json"]);
    let counts: Value = serde_json::from_str(&text_of(&output, 0)).expect("JSON");
    assert_eq!((&counts["malformed"], &counts["imported"]), (&3.into(), &reading.records.into()), "{counts}");
    for (number, named) in [(5, "93"), (10, "19691232"), (13, "air temperature")] {
        let errors = errors_of(&output);
        let line = errors.lines().find(|line| line.starts_with(&format!("{path}:{number}: ")));
        assert!(line.is_some_and(|line| line.contains(named)), "{errors}");
    }
    assert_same_cells(&dev.client.cells("w"), &reading.cells);

    let strict = dev.client.run(&["import", "strict", "--format", "ncdc", "--strict", &path]);
    text_of(&strict, 1);
    assert!(errors_of(&strict).contains(&format!("{path}:5: ")), "{}", errors_of(&strict));
    let mut before = Reading::default();
    read_ncdc(lines[..4].join("\n").as_bytes(), &mut before);
    assert_same_cells(&dev.client.cells("strict"), &before.cells);

    assert!(dev.client.fail(&["import", "wrong", "--format", "ncdc", &path], 1).contains("data"));
    let absent = dev.client.fail(&["import", "w", "--format", "ncdc", "/no/such/file"], 1);
    assert!(absent.contains("/no/such/file"), "{absent}");
    assert_eq!(cells_of_tsv(&dev.client.succeed(&["export", "wrong", "--format", "tsv"])), Cells::new());
}
