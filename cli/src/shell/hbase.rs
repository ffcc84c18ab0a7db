//! HBase shell lines as commands of ours.
//!
//! The translation is pure: a line such as `scan 't', {LIMIT => 5}` becomes the words of `scan t --limit 5`, so both
//! grammars run the same code. What depends on the table (whether `alter` adds or changes a family) or has no command of its
//! own (`exists`) is an [`Action`] that the session carries out.
//!
//! A line is HBase's if its first argument is quoted and followed by a comma or the end of the line, or if only HBase has
//! its verb. `scan t --limit 5` and `scan 't', LIMIT => 5` can be mixed freely.

use terrane_types::{Invalid, escape_family};

use super::ruby::{Value, arguments};
use crate::args::values::timestamp;

/// What a line does.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Action {
    /// Runs a command of ours.
    Run(Vec<String>),
    /// Adds the families that the table lacks, changes the others, drops some and sets attributes of the table.
    Alter { table: String, families: Vec<(String, Vec<String>)>, drop: Vec<String>, set: Vec<String> },
    /// Says whether the table exists.
    Exists(String),
    /// Says whether the table is disabled, or whether it is enabled.
    IsDisabled { table: String, asked_enabled: bool },
    /// Drops the table if it is disabled, as HBase does.
    Drop(String),
    /// Lists the tables whose names match a regular expression.
    List(String),
    /// Prints a counter; the words are those of a `get`.
    Counter(Vec<String>),
}

/// Verbs of HBase's shell that have no equal here, and what to do instead.
pub const WITHOUT_EQUAL: &[(&str, &str)] = &[
    ("assign", "regions are assigned by the masters; `admin regions t` shows where they are"),
    ("alter_status", "an alteration is complete when `alter` returns"),
    ("clone_snapshot", "there are no snapshots yet; `export` copies a table"),
    ("disable_all", "`list 'regex'` names the tables; disable them one by one: disable 't'"),
    ("drop_all", "`list 'regex'` names the tables; disable and drop them one by one: drop 't'"),
    ("enable_all", "`list 'regex'` names the tables; enable them one by one: enable 't'"),
    ("get_splits", "`list_regions 't'` shows the boundaries"),
    ("grant", "there are no users and permissions yet; listen on addresses that only trusted machines reach"),
    ("locate_region", "`list_regions 't'` shows where each region is"),
    ("merge_region", "`admin merge REGION REGION` merges neighbours"),
    ("move", "`admin move REGION --to SERVER` moves a region"),
    ("snapshot", "there are no snapshots yet; `export` copies a table"),
    ("show_filters", "docs/filters.md lists the tests, and maps HBase's filters to them"),
    ("unassign", "regions are assigned by the masters; `admin move REGION --to SERVER` moves one"),
    ("user_permission", "there are no users and permissions yet"),
    ("whoami", "there are no users yet"),
];

/// Filters of HBase that take a comparator, and how they are written here.
const FILTERS_OF_OURS: &[(&str, &str)] = &[
    ("ColumnCountGetFilter", "columns(10)"),
    ("ColumnPaginationFilter", "columns(10, 20)"),
    ("ColumnRangeFilter", "qualifiers('a'..'b')"),
    ("FamilyFilter", "family = 'f'"),
    ("FuzzyRowFilter", "fuzzy('user-????')"),
    ("InclusiveStopFilter", "rows(..='k')"),
    ("MultiRowRangeFilter", "rows('a'..'c', 'x'..'z')"),
    ("QualifierFilter", "qualifier = 'q'"),
    ("RandomRowFilter", "random(0.1)"),
    ("RowFilter", "row = 'r', contains(row, 'x') or matches(row, 'regex')"),
    ("SingleColumnValueExcludeFilter", "f:q = 'v'"),
    ("SingleColumnValueFilter", "f:q = 'v'; bytes(f:q, pass_missing) = 'v' if rows without the column pass"),
    ("SkipFilter", "skip(value != '0')"),
    ("TimestampsFilter", "timestamps(1700, 1800)"),
    ("ValueFilter", "value = 'v', contains(value, 'x') or matches(value, 'regex')"),
    ("WhileMatchFilter", "while(row < 'k')"),
];

/// HBase's verbs, with the arguments each takes, for help and completion.
pub const VERBS: &[(&str, &str)] = &[
    ("alter", "alter 't', {NAME => 'f', VERSIONS => 5}, {NAME => 'g', METHOD => 'delete'}, READONLY => true"),
    ("append", "append 't', 'row', 'f:q', 'more'"),
    ("balance_switch", "balance_switch true"),
    ("balancer", "balancer"),
    ("compact", "compact 't'"),
    ("count", "count 't'"),
    ("create", "create 't', 'f', {NAME => 'g', VERSIONS => 3, TTL => 86400}, SPLITS => ['k', 'p']"),
    ("create_namespace", "create_namespace 'n'"),
    ("delete", "delete 't', 'row', 'f:q'"),
    ("deleteall", "deleteall 't', 'row'"),
    ("desc", "desc 't'"),
    ("describe", "describe 't'"),
    ("disable", "disable 't'"),
    ("drop", "drop 't'"),
    ("drop_namespace", "drop_namespace 'n'"),
    ("enable", "enable 't'"),
    ("exists", "exists 't'"),
    ("flush", "flush 't'"),
    ("get", "get 't', 'row', {COLUMN => ['f:a', 'f:b'], VERSIONS => 3}"),
    ("get_counter", "get_counter 't', 'row', 'f:q'"),
    ("incr", "incr 't', 'row', 'f:q', 5"),
    ("is_disabled", "is_disabled 't'"),
    ("is_enabled", "is_enabled 't'"),
    ("list", "list 'user.*'"),
    ("list_namespace", "list_namespace"),
    ("list_namespace_tables", "list_namespace_tables 'n'"),
    ("list_regions", "list_regions 't'"),
    ("major_compact", "major_compact 't'"),
    ("put", "put 't', 'row', 'f:q', 'value'"),
    ("scan", "scan 't', {STARTROW => 'a', STOPROW => 'b', COLUMNS => ['f:q'], LIMIT => 10}"),
    ("split", "split 7, 'boundary'"),
    ("status", "status"),
    ("truncate", "truncate 't'"),
    ("version", "version"),
];

/// What `create` and `alter` take, for their help.
pub const ATTRIBUTES: &str = "
Of a family: NAME, VERSIONS => 3, MIN_VERSIONS => 1, TTL => 86400 (seconds, '1 DAY', '30d' or FOREVER), COMPRESSION => 'NONE'|'LZ4'|'ZSTD',
  BLOOMFILTER => 'NONE'|'ROW'|'ROWCOL', BLOCKSIZE => 65536, IN_MEMORY => true, KEEP_DELETED_CELLS => true
Of the table: SPLITS => ['k', 'p'] (create only), READONLY => true, MAX_FILESIZE => BYTES, MEMSTORE_FLUSHSIZE => BYTES
Ignored: BLOCKCACHE, REPLICATION_SCOPE, DATA_BLOCK_ENCODING
Everything else, such as declared keys and column types: `table create` and `table alter` (docs/attributes.md)
";

/// The constants that [`translate`] knows, for completion.
pub const CONSTANTS: &[&str] = &[
    "BLOCKSIZE",
    "BLOOMFILTER",
    "COLUMN",
    "COLUMNS",
    "COMPRESSION",
    "ENDROW",
    "FILTER",
    "IN_MEMORY",
    "KEEP_DELETED_CELLS",
    "LIMIT",
    "MAX_FILESIZE",
    "METHOD",
    "MIN_VERSIONS",
    "NAME",
    "READONLY",
    "REVERSED",
    "ROWPREFIXFILTER",
    "SPLITS",
    "STARTROW",
    "STOPROW",
    "TIMERANGE",
    "TIMESTAMP",
    "TTL",
    "VERSIONS",
];

/// The verbs that our grammar also has at the start of a line.
const SHARED: &[&str] = &["append", "count", "delete", "get", "incr", "put", "scan", "status", "version"];

/// The action of an HBase line; `None` if the line is not HBase's.
pub fn translate(line: &str) -> Option<Result<Action, Invalid>> {
    let line = line.trim();
    let end = line.find(|c: char| c.is_whitespace() || c == '(').unwrap_or(line.len());
    let (verb, rest) = line.split_at(end);
    if !VERBS.iter().any(|(known, _)| *known == verb) {
        return None;
    }
    if SHARED.contains(&verb) && !is_quoted(rest) {
        return None;
    }
    Some(action(verb, rest))
}

/// Whether the arguments begin with a string that a comma or the end follows.
fn is_quoted(rest: &str) -> bool {
    let rest = rest.trim_start().trim_start_matches('(').trim_start();
    let Some(quote) = rest.chars().next().filter(|first| "'\"".contains(*first)) else { return false };
    let after = rest[1..].find(quote).map(|end| rest[end + 2..].trim_start());
    // A bracket or a string is an argument whose comma is missing, which the reader of arguments says.
    after.is_none_or(|after| after.is_empty() || after.starts_with([',', ')', '{', '[', '\'', '"']))
}

fn action(verb: &str, rest: &str) -> Result<Action, Invalid> {
    let usage = || VERBS.iter().find(|(known, _)| *known == verb).map_or("", |(_, usage)| usage);
    let named = |invalid: Invalid| Invalid::new(format!("{invalid}; for example: {}", usage()));
    let values = arguments(rest).map_err(named)?;
    let mut given = RemainingArguments { values: values.into() };
    let action = build(verb, &mut given).map_err(named)?;
    match given.values.pop_front() {
        None => Ok(action),
        Some(_) => Err(named(Invalid::new(format!("{verb} has too many arguments")))),
    }
}

fn build(verb: &str, given: &mut RemainingArguments) -> Result<Action, Invalid> {
    let run = |words: &[&str]| Ok(Action::Run(words.iter().map(|word| (*word).to_owned()).collect()));
    match verb {
        "create" => create(given),
        "alter" => alter(given),
        "put" => {
            let [table, row, column, value] =
                [given.next("table")?, given.next("row")?, given.next("column")?, given.next("value")?];
            let mut words = vec!["put".to_owned(), table, row, column_of(&column), value];
            if let Some(timestamp) = given.optional()? {
                words.extend(["--timestamp".to_owned(), timestamp]);
            }
            words.insert(1, "--".to_owned());
            move_flags(words)
        }
        "get" => get(given),
        "scan" => scan(given),
        "count" => {
            let table = given.next("table")?;
            // How often HBase reports progress, and how many rows it fetches at once, have no meaning here.
            let mut words = Words::new(&["count"], table);
            for (name, value) in given.hash()? {
                match name.as_str() {
                    "INTERVAL" | "CACHE" => {}
                    _ => words.range_or_filter(&name, &value, "count")?,
                }
            }
            Ok(words.run())
        }
        "delete" | "deleteall" => {
            let (table, row) = (given.next("table")?, given.next("row")?);
            let mut words = vec!["delete".to_owned(), "--".to_owned(), table, row];
            match given.optional()? {
                Some(column) => words.push(column_of(&column)),
                None if verb == "delete" => return Err(Invalid::new("delete takes a column; deleteall deletes a row")),
                None => {}
            }
            if given.optional()?.is_some() {
                return Err(Invalid::new("all versions of a column are deleted together, so no timestamp is taken"));
            }
            Ok(Action::Run(words))
        }
        "append" => {
            let (table, row, column) = (given.next("table")?, given.next("row")?, given.next("column")?);
            let words = ["append", "--", &table, &row, &column_of(&column), &given.next("value")?];
            run(&words)
        }
        "incr" => {
            let (table, row, column) = (given.next("table")?, given.next("row")?, given.next("column")?);
            let mut words = vec!["incr".to_owned(), "--".to_owned(), table, row, column_of(&column)];
            words.extend(given.optional()?);
            Ok(Action::Run(words))
        }
        "get_counter" => {
            let (table, row, column) = (given.next("table")?, given.next("row")?, given.next("column")?);
            let words = ["get", "--", &table, &row, &column_of(&column)];
            Ok(Action::Counter(words.map(str::to_owned).to_vec()))
        }
        "list" => match given.optional()? {
            Some(pattern) => Ok(Action::List(pattern)),
            None => run(&["table", "list"]),
        },
        "describe" | "desc" => run(&["table", "describe", &given.next("table")?]),
        "disable" => run(&["table", "disable", &given.next("table")?]),
        "enable" => run(&["table", "enable", &given.next("table")?]),
        "truncate" => run(&["table", "truncate", &given.next("table")?]),
        "drop" => Ok(Action::Drop(given.next("table")?)),
        "exists" => Ok(Action::Exists(given.next("table")?)),
        "is_disabled" | "is_enabled" => {
            Ok(Action::IsDisabled { table: given.next("table")?, asked_enabled: verb == "is_enabled" })
        }
        "flush" => run(&["admin", "flush", &given.next("table")?]),
        "compact" | "major_compact" => run(&["admin", "compact", &given.next("table")?]),
        "list_regions" => run(&["admin", "regions", &given.next("table")?]),
        "split" => {
            let region = given.next("region")?;
            match given.optional()? {
                Some(at) => run(&["admin", "split", &region, &format!("--at={at}")]),
                None => run(&["admin", "split", &region]),
            }
        }
        "balancer" => run(&["admin", "balance", "now"]),
        "balance_switch" => match given.next("true or false")?.as_str() {
            "true" => run(&["admin", "balance", "on"]),
            "false" => run(&["admin", "balance", "off"]),
            other => Err(Invalid::new(format!("{other:?} is not true or false"))),
        },
        "create_namespace" => run(&["namespace", "create", &given.next("namespace")?]),
        "drop_namespace" => run(&["namespace", "drop", &given.next("namespace")?]),
        "list_namespace" => run(&["namespace", "list"]),
        "list_namespace_tables" => run(&["table", "list", "--namespace", &given.next("namespace")?]),
        "status" => {
            given.optional()?;
            run(&["status"])
        }
        "version" => run(&["version"]),
        other => Err(Invalid::new(format!("{other} is not translated"))),
    }
}

/// Flags come before the `--` that protects rows and values that begin with a dash.
fn move_flags(mut words: Vec<String>) -> Result<Action, Invalid> {
    if let Some(at) = words.iter().rposition(|word| word == "--timestamp").filter(|at| *at + 2 == words.len()) {
        let flags: Vec<String> = words.drain(at..).collect();
        words.splice(1..1, flags);
    }
    Ok(Action::Run(words))
}

/// HBase writes a family's column without a qualifier as `f:` or `f`; ours needs the colon.
fn column_of(column: &str) -> String {
    if column.contains(':') { column.to_owned() } else { format!("{column}:") }
}

/// The arguments that are left.
struct RemainingArguments {
    values: std::collections::VecDeque<Value>,
}

impl RemainingArguments {
    fn next(&mut self, what: &str) -> Result<String, Invalid> {
        let value = self.values.pop_front().ok_or_else(|| Invalid::new(format!("the {what} is missing")))?;
        value.text().map(str::to_owned).map_err(|invalid| Invalid::new(format!("{what}: {invalid}")))
    }

    fn optional(&mut self) -> Result<Option<String>, Invalid> {
        match self.values.front() {
            Some(Value::Text(_) | Value::Word(_)) => self.next("argument").map(Some),
            Some(Value::List(_) | Value::Hash(_)) | None => Ok(None),
        }
    }

    /// The pairs of all hashes that are left.
    fn hash(&mut self) -> Result<Vec<(String, Value)>, Invalid> {
        let mut pairs = Vec::new();
        while let Some(value) = self.values.pop_front() {
            match value {
                Value::Hash(more) => pairs.extend(more),
                other => return Err(Invalid::new(format!("{:?} has no place here", other.text().unwrap_or("a list")))),
            }
        }
        Ok(pairs)
    }
}

/// The words of a read, flags before positional arguments.
struct Words {
    command: Vec<String>,
    flags: Vec<String>,
    places: Vec<String>,
}

impl Words {
    fn new(command: &[&str], table: String) -> Words {
        Words {
            command: command.iter().map(|word| (*word).to_owned()).collect(),
            flags: Vec::new(),
            places: vec![table],
        }
    }

    fn flag(&mut self, name: &str, value: &str) {
        self.flags.push(format!("--{name}={value}"));
    }

    fn range_or_filter(&mut self, name: &str, value: &Value, verb: &str) -> Result<(), Invalid> {
        match name {
            "STARTROW" => self.flag("start", value.text()?),
            "STOPROW" | "ENDROW" => self.flag("stop", value.text()?),
            "ROWPREFIXFILTER" => self.flag("prefix", value.text()?),
            "FILTER" => self.flag("filter", &filter_of(value.text()?)?),
            "TIMERANGE" => match value.list()?[..] {
                [from, to] => self.flag("time-range", &format!("{from}..{to}")),
                _ => return Err(Invalid::new("TIMERANGE takes [from, to]")),
            },
            "TIMESTAMP" => {
                let at = timestamp(value.text()?)?;
                self.flag("time-range", &format!("{at}..{}", at.saturating_add(1)));
            }
            // What a client caches or where it reads is not the user's concern here.
            "CACHE" | "CACHE_BLOCKS" | "BATCH" | "ALL_METRICS" => {}
            other => return Err(Invalid::new(format!("{verb} does not know {other}"))),
        }
        Ok(())
    }

    fn run(self) -> Action {
        let Words { mut command, flags, places } = self;
        command.extend(flags);
        command.push("--".to_owned());
        command.extend(places);
        Action::Run(command)
    }
}

fn get(given: &mut RemainingArguments) -> Result<Action, Invalid> {
    let (table, row) = (given.next("table")?, given.next("row")?);
    let mut words = Words::new(&["get"], table);
    words.places.push(row);
    while let Some(value) = given.values.pop_front() {
        let Value::Hash(pairs) = value else {
            words.places.extend(value.list()?.into_iter().map(str::to_owned));
            continue;
        };
        for (name, value) in pairs {
            match name.as_str() {
                "COLUMN" | "COLUMNS" => words.places.extend(value.list()?.into_iter().map(str::to_owned)),
                "VERSIONS" => words.flag("versions", value.text()?),
                "STARTROW" | "STOPROW" | "ENDROW" | "ROWPREFIXFILTER" => {
                    return Err(Invalid::new(format!("get reads one row, so {name} has no meaning")));
                }
                _ => words.range_or_filter(&name, &value, "get")?,
            }
        }
    }
    Ok(words.run())
}

fn scan(given: &mut RemainingArguments) -> Result<Action, Invalid> {
    let mut words = Words::new(&["scan"], given.next("table")?);
    for (name, value) in given.hash()? {
        match name.as_str() {
            "COLUMN" | "COLUMNS" => {
                for column in value.list()? {
                    words.flag("column", &column.replace(',', r"\x2C"));
                }
            }
            "LIMIT" => words.flag("limit", value.text()?),
            "VERSIONS" => words.flag("versions", value.text()?),
            "REVERSED" if value.text()? == "true" => words.flags.push("--reverse".to_owned()),
            "REVERSED" => {}
            _ => words.range_or_filter(&name, &value, "scan")?,
        }
    }
    Ok(words.run())
}

/// HBase's textual filters that have an equal; anything else is taken as a filter of ours.
fn filter_of(text: &str) -> Result<String, Invalid> {
    let Some((name, rest)) = text.split_once('(').filter(|(name, _)| name.trim().ends_with("Filter")) else {
        return Ok(text.to_owned());
    };
    let single = rest.matches("Filter").count() == 0;
    let inside = rest.trim_end().strip_suffix(')').filter(|_| single);
    let inside = inside.and_then(|inside| arguments(inside).ok()).unwrap_or_default();
    let quoted = |value: &Value| value.text().map(|text| format!("'{}'", text.replace('\'', r"\x27")));
    match (name.trim(), &inside[..]) {
        ("PrefixFilter", [prefix]) => Ok(format!("prefix(row, {})", quoted(prefix)?)),
        ("FirstKeyOnlyFilter", []) => Ok("first_key_only()".to_owned()),
        ("KeyOnlyFilter", []) => Ok("keys_only()".to_owned()),
        ("PageFilter", [rows]) => Ok(format!("page({})", rows.text()?)),
        ("ColumnPrefixFilter", [prefix]) => Ok(format!("prefix(qualifier, {})", quoted(prefix)?)),
        (name, _) => {
            let ours = FILTERS_OF_OURS.iter().find(|(theirs, _)| *theirs == name).filter(|_| single);
            let ours = ours.map_or("such as f:q = 'v' and prefix(row, 'a')", |(_, ours)| ours);
            Err(Invalid::new(format!(
                "the filter {text} is not translated: write it in our language, {ours} (docs/filters.md maps HBase's filters to it)"
            )))
        }
    }
}

fn create(given: &mut RemainingArguments) -> Result<Action, Invalid> {
    let table = given.next("table")?;
    let mut words = vec!["table".to_owned(), "create".to_owned(), table];
    let mut families = 0;
    while let Some(value) = given.values.pop_front() {
        match value {
            Value::Hash(pairs) => {
                let (family, attributes, others) = family_of(pairs)?;
                if let Some(family) = family {
                    families += 1;
                    words.push(format!("--family={}", with_attributes(&family, &attributes)));
                } else if !attributes.is_empty() {
                    return Err(Invalid::new("attributes of a family need its NAME"));
                }
                for (name, value) in others {
                    match name.as_str() {
                        "SPLITS" => words.extend(value.list()?.into_iter().map(|key| format!("--split-at={key}"))),
                        "NUMREGIONS" | "SPLITALGO" | "SPLITS_FILE" => {
                            return Err(Invalid::new(format!(
                                "{name} is not known; list the boundaries: SPLITS => ['g', 'p']"
                            )));
                        }
                        _ => words.push(format!("--set={}", table_attribute(&name, &value)?)),
                    }
                }
            }
            family => {
                families += 1;
                words.push(format!("--family={}", with_attributes(family.text()?, &[])));
            }
        }
    }
    if families == 0 {
        return Err(Invalid::new("a table needs at least one family"));
    }
    Ok(Action::Run(words))
}

fn alter(given: &mut RemainingArguments) -> Result<Action, Invalid> {
    let table = given.next("table")?;
    let (mut families, mut drop, mut set) = (Vec::new(), Vec::new(), Vec::new());
    while let Some(value) = given.values.pop_front() {
        let Value::Hash(mut pairs) = value else {
            families.push((value.text()?.to_owned(), Vec::new()));
            continue;
        };
        // `alter 't', 'delete' => 'f'`.
        if let [(verb, family)] = &pairs[..]
            && verb == "DELETE"
        {
            drop.push(family.text()?.to_owned());
            continue;
        }
        let method = pairs.iter().position(|(name, _)| name == "METHOD").map(|at| pairs.remove(at).1);
        let (family, attributes, others) = family_of(pairs)?;
        match (family, method) {
            (Some(family), Some(method)) if method.text()? == "delete" => drop.push(family),
            (_, Some(method)) => {
                return Err(Invalid::new(format!("METHOD {:?} is not known; only 'delete' is", method.text()?)));
            }
            (Some(family), None) => families.push((family, attributes)),
            (None, None) if !attributes.is_empty() => {
                return Err(Invalid::new("attributes of a family need its NAME"));
            }
            (None, None) => {}
        }
        for (name, value) in others {
            set.push(table_attribute(&name, &value)?);
        }
    }
    Ok(Action::Alter { table, families, drop, set })
}

pub fn with_attributes(family: &str, attributes: &[String]) -> String {
    let family = escape_family(family.as_bytes());
    if attributes.is_empty() { family } else { format!("{family}:{}", attributes.join(",")) }
}

/// The name of a family and its attributes, and what is left for the table.
type FamilyParts = (Option<String>, Vec<String>, Vec<(String, Value)>);

fn family_of(pairs: Vec<(String, Value)>) -> Result<FamilyParts, Invalid> {
    let (mut family, mut attributes, mut others) = (None, Vec::new(), Vec::new());
    for (name, value) in pairs {
        let attribute = match name.as_str() {
            "NAME" => {
                family = Some(value.text()?.to_owned());
                continue;
            }
            "VERSIONS" => format!("versions={}", value.text()?),
            "MIN_VERSIONS" => format!("min_versions={}", value.text()?),
            "TTL" => match value.text()? {
                "FOREVER" | "2147483647" => "ttl=none".to_owned(),
                span => format!("ttl={}", ttl_of(span)),
            },
            "COMPRESSION" => match value.text()?.to_ascii_lowercase().as_str() {
                known @ ("none" | "lz4" | "zstd") => format!("compression={known}"),
                other => {
                    return Err(Invalid::new(format!("COMPRESSION {other:?} is not known; it is NONE, LZ4 or ZSTD")));
                }
            },
            "BLOOMFILTER" => format!("bloom={}", value.text()?.to_ascii_lowercase()),
            "BLOCKSIZE" => {
                let size = value.text()?;
                let unit = if size.bytes().all(|byte| byte.is_ascii_digit()) { "B" } else { "" };
                format!("block_size={size}{unit}")
            }
            "IN_MEMORY" => format!("in_memory={}", value.text()?.to_ascii_lowercase()),
            "KEEP_DELETED_CELLS" => format!("keep_deleted_cells={}", value.text()?.to_ascii_lowercase()),
            // Every block is cached as it is read, and nothing is replicated to other clusters.
            "BLOCKCACHE" | "REPLICATION_SCOPE" | "DATA_BLOCK_ENCODING" => continue,
            _ => {
                others.push((name, value));
                continue;
            }
        };
        attributes.push(attribute);
    }
    Ok((family, attributes, others))
}

/// A span as the attribute `ttl` takes it. HBase's shell also reads words, `1 DAY 12 HOURS`, and describes with
/// `86400 SECONDS (1 DAY)`.
fn ttl_of(span: &str) -> String {
    let words: Vec<&str> = span.split('(').next().unwrap_or_default().split_whitespace().collect();
    let seconds = |pair: &[&str]| {
        let [number, unit] = pair else { return None };
        let length: u64 = match unit.to_ascii_uppercase().trim_end_matches('S') {
            "DAY" => 86_400,
            "HOUR" => 3_600,
            "MINUTE" => 60,
            "SECOND" => 1,
            _ => return None,
        };
        number.parse::<u64>().ok()?.checked_mul(length)
    };
    let all: Option<Vec<u64>> = words.chunks(2).map(seconds).collect();
    match all.and_then(|all| all.into_iter().try_fold(0, u64::checked_add)) {
        Some(seconds) if !words.is_empty() => seconds.to_string(),
        _ => span.to_owned(),
    }
}

fn table_attribute(name: &str, value: &Value) -> Result<String, Invalid> {
    let text = value.text()?;
    match name {
        "READONLY" => Ok(format!("read_only={}", text.to_ascii_lowercase())),
        "MAX_FILESIZE" => Ok(format!("region_size={text}B")),
        "MEMSTORE_FLUSHSIZE" => Ok(format!("flush_size={text}B")),
        other => Err(Invalid::new(format!(
            "{other} is not known; `help create` and `help alter` list what is, and docs/attributes.md explains it"
        ))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn run(line: &str) -> String {
        match translate(line) {
            Some(Ok(Action::Run(words))) => words.join(" "),
            other => panic!("{line}: {other:?}"),
        }
    }

    #[test]
    fn the_session_of_a_first_table_is_translated() {
        for (line, words) in [
            ("create 'test', 'cf'", "table create test --family=cf"),
            ("list", "table list"),
            ("describe 'test'", "table describe test"),
            ("put 'test', 'row1', 'cf:a', 'value1'", "put -- test row1 cf:a value1"),
            ("scan 'test'", "scan -- test"),
            ("get 'test', 'row1'", "get -- test row1"),
            ("disable 'test'", "table disable test"),
            ("enable 'test'", "table enable test"),
        ] {
            assert_eq!(run(line), words, "{line}");
            assert!(
                <crate::args::Cli as clap::Parser>::try_parse_from(std::iter::once("terrane").chain(words.split(' ')))
                    .is_ok(),
                "{words}"
            );
        }
        assert_eq!(translate("drop 'test'"), Some(Ok(Action::Drop("test".to_owned()))));
    }

    #[test]
    fn options_become_flags() {
        for (line, words) in [
            (
                "scan 't', {COLUMNS => ['f:a', 'f:b'], LIMIT => 10, STARTROW => 'x', REVERSED => true}",
                "scan --column=f:a --column=f:b --limit=10 --start=x --reverse -- t",
            ),
            ("scan 't', LIMIT => 1, FILTER => \"PrefixFilter('a')\"", "scan --limit=1 --filter=prefix(row, 'a') -- t"),
            ("scan 't', TIMERANGE => [5, 9]", "scan --time-range=5..9 -- t"),
            ("scan 't', TIMERANGE => ['2026-01-01', 'now']", "scan --time-range=2026-01-01..now -- t"),
            ("get 't', 'r', {TIMESTAMP => '1970-01-02'}", "get --time-range=86400000..86400001 -- t r"),
            ("put 't', 'r', 'f:q', 'v', '2026-01-01'", "put --timestamp 2026-01-01 -- t r f:q v"),
            ("create 't', {NAME => 'f', TTL => '1 DAY 12 hours'}", "table create t --family=f:ttl=129600"),
            ("create 't', {NAME => 'f', TTL => '86400 SECONDS (1 DAY)'}", "table create t --family=f:ttl=86400"),
            ("create 't', {NAME => 'f', TTL => '30d'}", "table create t --family=f:ttl=30d"),
            ("get 't', 'r', {COLUMN => 'f:a', VERSIONS => 4}", "get --versions=4 -- t r f:a"),
            ("get 't', 'r', 'f:a', 'f:b'", "get -- t r f:a f:b"),
            ("put 't', 'r', 'f', '-5', 17", "put --timestamp 17 -- t r f: -5"),
            ("incr 't', 'r', 'f:n', -5", "incr -- t r f:n -5"),
            ("count 't', INTERVAL => 1000", "count -- t"),
            ("delete 't', 'r', 'f:q'", "delete -- t r f:q"),
            ("deleteall 't', 'r'", "delete -- t r"),
            (
                "create 'n:t', {NAME => 'f', VERSIONS => 3, TTL => 86400, COMPRESSION => 'ZSTD', BLOOMFILTER => 'ROWCOL'}, SPLITS => ['g', 'p']",
                "table create n:t --family=f:versions=3,ttl=86400,compression=zstd,bloom=rowcol --split-at=g --split-at=p",
            ),
            ("major_compact 't'", "admin compact t"),
            ("list_namespace_tables 'n'", "table list --namespace n"),
            ("balance_switch false", "admin balance off"),
            ("list", "table list"),
        ] {
            assert_eq!(run(line), words, "{line}");
        }
    }

    #[test]
    fn lines_of_our_grammar_are_left_alone() {
        for line in [
            "scan t --limit 5",
            "put t r f:q v",
            "put t 'a b' f:q v",
            "get t user='Li',time=5",
            "status",
            "table list",
            "help",
        ] {
            assert_eq!(translate(line), None, "{line}");
        }
    }

    #[test]
    fn families_are_added_changed_and_dropped() {
        let alter = translate(
            "alter 't', {NAME => 'f', VERSIONS => 5}, 'g', {NAME => 'h', METHOD => 'delete'}, READONLY => true",
        );
        let families = vec![("f".to_owned(), vec!["versions=5".to_owned()]), ("g".to_owned(), vec![])];
        let wanted = Action::Alter {
            table: "t".to_owned(),
            families,
            drop: vec!["h".to_owned()],
            set: vec!["read_only=true".to_owned()],
        };
        assert_eq!(alter, Some(Ok(wanted)));
        let dropped = translate("alter 't', 'delete' => 'f'");
        let wanted = Action::Alter { table: "t".to_owned(), families: vec![], drop: vec!["f".to_owned()], set: vec![] };
        assert_eq!(dropped, Some(Ok(wanted)));
    }

    #[test]
    fn mistakes_are_answered_with_an_example() {
        for (line, named) in [
            ("create 't'", "at least one family"),
            ("put 't', 'r', 'f:q'", "the value is missing"),
            ("put 't', 'r', 'f:q', 'v', 1, 2", "too many arguments"),
            ("scan 't', {LIMITS => 5}", "does not know LIMITS"),
            ("create 't', {NAME => 'f', COMPRESSION => 'SNAPPY'}", "NONE, LZ4 or ZSTD"),
            ("scan 't', FILTER => \"ValueFilter(=, 'binary:x')\"", "docs/filters.md"),
            ("delete 't', 'r'", "deleteall"),
        ] {
            let error = translate(line).expect(line).expect_err(line).to_string();
            assert!(error.contains(named) && error.contains("for example: "), "{line}: {error}");
        }
    }
}
