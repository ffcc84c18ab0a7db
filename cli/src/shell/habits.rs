//! Lines that people bring from SQL and from HBase's shell, answered with the line to type here, made of their own words.
//!
//! Pure: what a table declares makes columns and keys complete and may be unknown. A line that Terrane understands is no habit.
//!
//! Invariant: every suggested line is read by our grammar (a test runs each of them), or no line is suggested.

mod create;
mod sql;
mod statement;
mod tokens;

use terrane_types::TableSchema;

use super::ruby::arguments;

pub use statement::table_of;

/// The lines to type instead of this one.
pub fn lines(line: &str, schema: Option<&TableSchema>) -> Option<Vec<String>> {
    let line = line.trim().trim_end_matches(';').trim_end();
    sql::lines(line, schema).or_else(|| of_hbase(line))
}

/// Whether the line is SQL, though its first word may be one of ours: `create table t (…)`, `delete from t where …`.
pub fn is_sql(line: &str) -> bool {
    statement::is_sql(line)
}

/// Advice to type these lines.
pub fn advice(lines: &[String], program: &str) -> String {
    match lines {
        [only] => format!("type: {program}{only}"),
        several => {
            let shown: Vec<String> = several.iter().map(|line| format!("\n    {program}{line}")).collect();
            format!("type:{}", shown.concat())
        }
    }
}

/// Lines of HBase's shell that have no equal verb here.
fn of_hbase(line: &str) -> Option<Vec<String>> {
    let end = line.find(|c: char| c.is_whitespace() || c == '(').unwrap_or(line.len());
    let (verb, rest) = line.split_at(end);
    let values = arguments(rest).ok()?;
    let texts: Vec<&str> = values.iter().map_while(|value| value.text().ok()).collect();
    let one = |line: String| Some(vec![line]);
    let is_number = |text: &str| !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
    match (verb, &texts[..]) {
        ("alter_async", [_, ..]) => one(format!("alter{rest}")),
        ("alter_status", _) | ("rit" | "list_procedures" | "list_locks", _) => one("admin procedures".to_owned()),
        ("assign" | "unassign" | "close_region" | "regioninfo" | "get_regioninfo", _) => {
            one("admin regions".to_owned())
        }
        ("balancer_enabled", _) => one("admin balance --dry-run".to_owned()),
        ("clone_snapshot", [snapshot, table, ..]) => {
            one(format!("import {} --format jsonl {}", word(table), word(format!("{snapshot}.jsonl"))))
        }
        ("compaction_state", [table]) => one(format!("admin regions {}", word(table))),
        ("decommission_regionservers", _) => {
            let servers = values.first().and_then(|value| value.list().ok()).unwrap_or_default();
            let lines: Vec<String> =
                servers.iter().map(|server| format!("admin drain {}", word(address(server)))).collect();
            (!lines.is_empty()).then_some(lines)
        }
        ("recommission_regionserver", [server, ..]) => one(format!("admin undrain {}", word(address(server)))),
        ("describe_namespace", [namespace]) => one(format!("table list --namespace {}", word(namespace))),
        ("get_splits" | "locate_region", [table, ..]) => one(format!("admin regions {}", word(table))),
        ("list_deadservers" | "list_decommissioned_regionservers" | "list_liveservers", _) => {
            one("admin servers".to_owned())
        }
        ("list_regions_hot" | "processlist" | "get_slowlog_responses" | "get_largelog_responses", _) => {
            one("admin slow".to_owned())
        }
        ("merge_region", [one_region, other, ..]) if is_number(one_region) && is_number(other) => {
            one(format!("admin merge {one_region} {other}"))
        }
        ("move", [region, server]) if is_number(region) => {
            one(format!("admin move {region} --to {}", word(address(server))))
        }
        ("merge_region" | "move", _) => one("admin regions".to_owned()),
        ("snapshot", [table, name, ..]) => {
            one(format!("export {} --out {}", word(table), word(format!("{name}.jsonl"))))
        }
        ("truncate_preserve", [table]) => one(format!("table truncate {}", word(table))),
        ("hbck" | "catalogjanitor_run" | "normalize", _) => one("admin check".to_owned()),
        ("update_all_config" | "update_config", _) => one("config list".to_owned()),
        _ => None,
    }
}

/// The address of a server name of HBase's, `host,port,startcode`, or the text as it is.
fn address(server: &str) -> String {
    let mut parts = server.split(',');
    match (parts.next(), parts.next(), parts.next()) {
        (Some(host), Some(port), Some(_)) => format!("{host}:{port}"),
        _ => server.to_owned(),
    }
}

/// The text as one word of a line, quoted if it must be.
pub fn word(text: impl AsRef<str>) -> String {
    let text = text.as_ref();
    let is_plain = |c: char| c.is_alphanumeric() || "_-.:=,/@+%\\".contains(c);
    // Quotes within a word stay: key parts need them.
    let needs_quotes = text.is_empty() || text.starts_with('-') || !text.chars().all(is_plain);
    match (needs_quotes, text.contains('\'')) {
        (false, _) => text.to_owned(),
        (true, false) => format!("'{text}'"),
        (true, true) => format!("\"{}\"", text.replace('"', "\\x22")),
    }
}

#[cfg(test)]
mod tests;
