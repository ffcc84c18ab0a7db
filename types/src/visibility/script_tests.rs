//! Golden scripts of one column. The commands:
//!
//! - `rules [from=SEQUENCE] [at=MS] versions=N min_versions=N ttl=MS keep_deleted_cells[=ttl]`: the family's rules; with `from`, a
//!   change by the log entry with that stamp.
//! - `put T [ttl=MS]`, `delete T`, `delete_column T`, `delete_family T`, `delete_family_version T`: the next mutation, at timestamp T. Its
//!   sequence number is printed.
//! - `read [seq=N] [now=MS] [versions=N] [below=T] [raw]`: the visible timestamps, newest first; with `raw`, what is stored.
//! - `empty_put T`: as `put`, without a value.
//! - `collect [snapshot=N] [now=MS] [covers_older]`: the fate of each cell, in storage order.

use std::cmp::Reverse;
use std::fmt::Write as _;

use super::*;
use crate::schema::KeepDeleted;

struct Column {
    history: RulesHistory,
    cells: Vec<CellMeta>,
    sequence: u64,
}

/// The number after `name=`.
fn number<T: std::str::FromStr>(rest: &str, name: &str) -> Option<T> {
    let value = rest.split(' ').filter_map(|word| word.split_once('=')).find(|(found, _)| *found == name)?.1;
    Some(value.parse().unwrap_or_else(|_| panic!("{name}={value} is not a number")))
}

fn rules(rest: &str) -> FamilyRules {
    FamilyRules {
        versions: number(rest, "versions").unwrap_or(1),
        min_versions: number(rest, "min_versions").unwrap_or(0),
        ttl_ms: number(rest, "ttl"),
        keep_deleted_cells: match rest.split(' ').find(|word| word.starts_with("keep_deleted_cells")) {
            None => KeepDeleted::No,
            Some("keep_deleted_cells=ttl") => KeepDeleted::Ttl,
            Some(_) => KeepDeleted::Yes,
        },
    }
}

impl Column {
    fn command(&mut self, line: &str, out: &mut String) {
        let (command, rest) = line.split_once(' ').unwrap_or((line, ""));
        let kind = match command {
            "rules" => return self.change_rules(rest),
            "read" => return self.read(rest, out),
            "collect" => return self.collect(rest, out),
            "put" | "empty_put" => CellKind::Put,
            "delete" => CellKind::Delete,
            "delete_column" => CellKind::DeleteColumn,
            "delete_family" => CellKind::DeleteFamily,
            "delete_family_version" => CellKind::DeleteFamilyVersion,
            _ => panic!("no such command: {line}"),
        };
        self.sequence += 1;
        let timestamp = rest.split(' ').next().and_then(|word| word.parse().ok()).expect("a timestamp");
        let is_bare = command != "put";
        let expires_ms = number(rest, "ttl").map_or(i64::MAX, |ttl: i64| timestamp + ttl);
        self.cells.push(CellMeta { is_bare, expires_ms, ..CellMeta::new(timestamp, self.sequence, 0, kind) });
        self.cells.sort_by_key(|cell| Reverse((cell.timestamp, cell.sequence)));
        writeln!(out, "{line} @{}", self.sequence).unwrap();
    }

    fn change_rules(&mut self, rest: &str) {
        match number(rest, "from") {
            None => self.history = RulesHistory::new(rules(rest)),
            Some(sequence) => {
                let stamp_ms = number(rest, "at").expect("at=MS");
                self.history.push(RulesChange { sequence, stamp_ms, rules: rules(rest) });
            }
        }
    }

    fn read(&self, rest: &str, out: &mut String) {
        let view = View {
            versions: number(rest, "versions").unwrap_or(u32::MAX),
            time_max: number(rest, "below").unwrap_or(i64::MAX),
            raw: rest.contains("raw"),
            ..View::latest(number(rest, "seq").unwrap_or(self.sequence), number(rest, "now").unwrap_or(0))
        };
        let mut resolver = Resolver::new(&self.history, view);
        resolver.start_row();
        let visible = resolver.column(&self.cells);
        let shown = visible.iter().map(|at| {
            let CellMeta { timestamp, kind, .. } = self.cells[*at as usize];
            if view.raw { format!("{kind:?}({timestamp})") } else { timestamp.to_string() }
        });
        let shown: Vec<String> = shown.collect();
        writeln!(out, "sees {}", if shown.is_empty() { "nothing".to_owned() } else { shown.join(" ") }).unwrap();
    }

    fn collect(&self, rest: &str, out: &mut String) {
        let snapshot = number(rest, "snapshot").unwrap_or(self.sequence);
        let now_ms = number(rest, "now").unwrap_or(0);
        let mut collector = Collector::new(&self.history, snapshot, now_ms, rest.contains("covers_older"));
        collector.start_row();
        for (cell, fate) in self.cells.iter().zip(collector.column(&self.cells)) {
            writeln!(out, "{:?} {} @{}: {fate:?}", cell.kind, cell.timestamp, cell.sequence).unwrap();
        }
    }
}

#[test]
fn scripts_play_as_recorded() {
    terrane_testscript::check_scripts(concat!(env!("CARGO_MANIFEST_DIR"), "/src/visibility/testdata"), || {
        let mut column = Column { history: RulesHistory::new(rules("")), cells: Vec::new(), sequence: 0 };
        move |line: &str, out: &mut String| column.command(line, out)
    });
}
