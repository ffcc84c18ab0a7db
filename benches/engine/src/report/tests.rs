//! The text of the table: the direction of ratios, and the mark for a missing figure.

use super::*;

fn report(seconds: &[(&'static str, f64)]) -> Report {
    let machine = Machine { cpu: "A Fast One".to_owned(), cpus: 2 };
    let mut report = Report::new(machine, &crate::tests::options(), 50.0);
    for &(subject, seconds) in seconds {
        report.contenders.push((subject, "as it comes"));
        let spent = Spent { seconds, process_seconds: seconds, thread_seconds: seconds };
        let mut gets = Measurement::new(subject, Workload::Gets, spent, 1_000, 1_000);
        gets.complete = subject != "sled";
        let mut drain = Measurement::new(subject, Workload::Drain, spent, 1, 1_000);
        (drain.disk_bytes, drain.data_bytes) = (Some(70), Some(140));
        report.extend([gets, drain]);
    }
    report
}

fn row(text: &str, label: &str) -> Vec<String> {
    let line = text.lines().find(|line| line.trim_start().starts_with(label)).unwrap_or_else(|| panic!("{text}"));
    line.trim_start()[label.len()..].split_whitespace().map(str::to_owned).collect()
}

#[test]
fn ratios_above_one_are_better_for_rates_and_for_costs() {
    let text = report(&[("terrane", 0.5), ("sled", 4.0), ("rocksdb", 1.0)]).text();
    assert_eq!(row(&text, "point gets "), ["rows/s", "2,000", "250", "1,000", "2.00×", "0.25×"]);
    assert_eq!(row(&text, "drain "), ["s", "0.50", "4.00", "1.00", "2.00×", "0.25×"]);
    assert_eq!(row(&text, "disk per byte of data"), ["0.50", "0.50", "0.50", "1.00×", "1.00×"]);
    assert!(text.contains("sled, point gets: cut short after 1000 operations"), "{text}");
}

#[test]
fn without_the_baseline_there_are_no_ratios() {
    let text = report(&[("terrane", 0.5), ("sled", 4.0)]).text();
    assert_eq!(row(&text, "point gets "), ["rows/s", "2,000", "250"]);
    assert!(!text.contains("ratios"), "{text}");
}

#[test]
fn every_line_of_json_is_an_object() {
    let lines = report(&[("terrane", 0.5)]).json_lines().unwrap();
    assert_eq!(lines.len(), 3);
    let objects: Vec<serde_json::Value> = lines.iter().map(|line| serde_json::from_str(line).unwrap()).collect();
    assert_eq!(objects[0]["machine"]["cpu"], "A Fast One");
    assert_eq!(objects[1]["workload"], "gets");
    assert_eq!(objects[1]["rows_per_second"], 2_000.0);
    assert_eq!(objects[2]["disk_bytes"], 70);
}

#[test]
fn numbers_are_grouped() {
    assert_eq!([0.123, 99.5, 100.4, 1_234.0, 1_234_567.8].map(number), ["0.12", "99.50", "100", "1,234", "1,234,568"]);
}
