//! Statements of SQL as lines of ours.
//!
//! A table says which family a column is of and which columns are parts of its key. While it is not known, names are taken as
//! typed, and a column without a family is written with the placeholder `FAMILY`.

use terrane_types::{TableSchema, ValueType, escape};

use super::statement::{ends_clause, is_sql, table_name};
use super::tokens::{Token, tokens};
use super::word;

/// What a row key is called in tables that declare none.
const ROW_NAMES: [&str; 6] = ["row", "rowkey", "row_key", "key", "pk", "id"];
/// Stands for a family that is not known.
const FAMILY: &str = "FAMILY";

/// The lines to type instead of a statement.
pub fn lines(line: &str, schema: Option<&TableSchema>) -> Option<Vec<String>> {
    if !is_sql(line) {
        return None;
    }
    if line.starts_with('\\') {
        return of_psql(line).map(|line| vec![line]);
    }
    let tokens = tokens(line)?;
    let table = Table { schema };
    let words: Vec<String> =
        tokens.iter().take(2).map(|token| token.name().unwrap_or_default().to_lowercase()).collect();
    let second = words.get(1).map_or("", String::as_str);
    let one = |line: Option<String>| line.map(|line| vec![line]);
    match (words.first()?.as_str(), second) {
        ("select", _) => one(table.select(&tokens[1..])),
        ("explain", _) => lines(line.split_once(char::is_whitespace)?.1, schema),
        ("insert" | "upsert" | "replace", _) => table.insert(&tokens[1..]),
        ("update", _) => table.update(&tokens[1..]),
        ("delete", _) => one(table.delete(&tokens[1..])),
        ("show" | "list" | "ls", _) => one(show(&tokens[1..])),
        ("use", _) => {
            one(tokens.get(1).and_then(Token::name).map(|name| format!("table list --namespace {}", word(name))))
        }
        ("create", "table") => one(super::create::line(&tokens[2..])),
        ("create", _) => one(last_name(&tokens).map(|name| format!("namespace create {}", word(name)))),
        ("drop", "table") => one(last_name(&tokens).map(|name| format!("table drop {}", word(table_name(name))))),
        ("drop", _) => one(last_name(&tokens).map(|name| format!("namespace drop {}", word(name)))),
        ("truncate", _) => one(last_name(&tokens).map(|name| format!("table truncate {}", word(table_name(name))))),
        ("describe" | "desc", _) => {
            one(last_name(&tokens).map(|name| format!("table describe {}", word(table_name(name)))))
        }
        ("alter", _) => one(table.alter(&tokens[2..])),
        _ => None,
    }
}

/// The last name of a short statement: `drop table if exists t cascade` has a word behind it.
fn last_name(tokens: &[Token]) -> Option<&str> {
    let named = tokens[1..].iter().filter(|token| !["cascade", "restrict"].iter().any(|word| token.is(word)));
    named.filter_map(Token::name).next_back()
}

/// What `psql` abbreviates.
fn of_psql(line: &str) -> Option<String> {
    let (verb, rest) = line.split_once(char::is_whitespace).unwrap_or((line, ""));
    let table = rest.trim();
    Some(match verb.trim_end_matches('+') {
        "\\d" if !table.is_empty() => format!("table describe {}", word(table_name(table))),
        "\\d" | "\\dt" => "table list".to_owned(),
        "\\l" | "\\dn" => "namespace list".to_owned(),
        "\\q" => "exit".to_owned(),
        "\\?" | "\\h" => "help".to_owned(),
        "\\timing" => "timing on".to_owned(),
        "\\x" => "format row".to_owned(),
        _ => return None,
    })
}

fn show(tokens: &[Token]) -> Option<String> {
    let after = |keyword: &str| {
        let at = tokens.iter().position(|token| token.is(keyword))?;
        tokens[at + 1..].iter().find_map(Token::name)
    };
    let describe = |name: Option<&str>| name.map(|name| format!("table describe {}", word(table_name(name))));
    let Some(first) = tokens.first() else { return Some("table list".to_owned()) };
    let first = first.name()?.to_lowercase();
    Some(match first.as_str() {
        "tables" | "full" | "table" => "table list".to_owned(),
        "databases" | "schemas" | "namespaces" => "namespace list".to_owned(),
        "columns" | "fields" | "indexes" | "index" => return describe(after("from").or_else(|| after("in"))),
        "create" => return describe(after("table")),
        "regions" | "ranges" | "partitions" => match after("from").or_else(|| after("table")) {
            Some(name) => format!("admin regions {}", word(table_name(name))),
            None => "admin regions".to_owned(),
        },
        "servers" | "nodes" => "admin servers".to_owned(),
        "status" | "health" => "status".to_owned(),
        "processlist" | "queries" | "statements" => "admin slow".to_owned(),
        "variables" | "settings" | "all" => "config list".to_owned(),
        "version" => "version".to_owned(),
        _ => return None,
    })
}

/// A comparison `name = value` of a condition.
type Equal = (String, String);

/// The table of a statement.
pub(super) struct Table<'a> {
    pub(super) schema: Option<&'a TableSchema>,
}

impl Table<'_> {
    fn parts(&self) -> Vec<String> {
        let key = self.schema.and_then(|schema| schema.key.as_ref());
        key.map_or_else(Vec::new, |key| key.text_parts().iter().map(|part| part.name.clone()).collect())
    }

    /// The column that a name of SQL means.
    fn column(&self, name: &str) -> String {
        if name.contains(':') {
            return name.to_owned();
        }
        let families = self.schema.map(|schema| &schema.families[..]).unwrap_or_default();
        let is_family = |family: &str| families.iter().any(|known| known.name.as_str() == family);
        if let Some((family, qualifier)) = name.split_once('.')
            && (is_family(family) || families.is_empty())
        {
            return format!("{family}:{qualifier}");
        }
        // An alias of the table before the name.
        let name = name.rsplit_once('.').map_or(name, |(_, name)| name);
        let declares = |family: &&terrane_types::FamilySchema| family.types.contains_key(name.as_bytes());
        let family = families.iter().find(declares).or_else(|| families.first());
        format!("{}:{name}", family.map_or(FAMILY.to_owned(), |family| family.name.to_string()))
    }

    fn type_of(&self, column: &str) -> Option<ValueType> {
        let (family, qualifier) = column.split_once(':')?;
        self.schema?.value_type(family.as_bytes(), qualifier.as_bytes())
    }

    fn is_row(&self, name: &str) -> bool {
        self.parts().is_empty() && ROW_NAMES.contains(&name.to_lowercase().as_str())
    }

    /// What a name of a condition is in a filter.
    fn subject(&self, name: &str) -> String {
        let short = name.rsplit_once('.').map_or(name, |(_, name)| name);
        if self.parts().iter().any(|part| part == short) {
            return format!("key({short})");
        }
        if self.is_row(short) {
            return "row".to_owned();
        }
        let column = self.column(name);
        let (family, qualifier) = column.split_once(':').unwrap_or((FAMILY, &column));
        let quoted = |text: &str| match text.chars().all(|c| c.is_ascii_alphanumeric() || "_-.".contains(c)) {
            true => text.to_owned(),
            false => literal(text),
        };
        format!("{}:{}", quoted(family), quoted(qualifier))
    }

    fn select(&self, tokens: &[Token]) -> Option<String> {
        let from = tokens.iter().position(|token| token.is("from"))?;
        let (wanted, rest) = (&tokens[..from], &tokens[from + 1..]);
        let table = word(table_name(rest.first()?.name()?));
        if ["group", "having", "union", "join"].iter().any(|clause| rest.iter().any(|token| token.is(clause))) {
            return None;
        }
        let clauses = Clauses::of(rest);
        let filter = match clauses.condition {
            [] => None,
            condition => Some(condition),
        };
        let is_whole = wanted.first().is_some_and(|token| token.is_sign("*"));
        if is_whole
            && let Some(condition) = filter
            && let Some(row) = self.equalities(condition).and_then(|equal| self.row(&equal))
        {
            return Some(format!("get {table} {row}"));
        }
        let flags = match filter {
            Some(condition) => format!(" --filter \"{}\"", self.filter(condition)?),
            None => String::new(),
        };
        if let [name, open, inside, close, ..] = wanted
            && open.is_sign("(")
            && close.is_sign(")")
        {
            let function = name.name()?.to_lowercase();
            return match function.as_str() {
                "count" if inside.is_sign("*") || inside.value().is_some() => Some(format!("count {table}{flags}")),
                "count" | "sum" | "min" | "max" | "avg" => {
                    let column = self.column(inside.name()?);
                    let number = match self.type_of(&column) {
                        Some(declared) if declared.is_number() => column,
                        _ => format!("'i64({column})'"),
                    };
                    Some(format!("aggregate {table} {function} {number}{flags}"))
                }
                _ => None,
            };
        }
        let mut line = format!("scan {table}");
        if !is_whole {
            line.push_str(&self.columns(wanted)?);
        }
        line.push_str(&flags);
        if clauses.reverse {
            line.push_str(" --reverse");
        }
        for (flag, value) in [("limit", clauses.limit), ("offset", clauses.offset)] {
            if let Some(value) = value {
                line.push_str(&format!(" --{flag} {value}"));
            }
        }
        Some(line)
    }

    /// The flags of a list of columns. Keys are always shown.
    fn columns(&self, wanted: &[Token]) -> Option<String> {
        let mut flags = String::new();
        for item in wanted.split(|token| token.is_sign(",")) {
            let item = item.strip_prefix(&[Token::Name("distinct".to_owned())][..]).unwrap_or(item);
            let name = item.first()?.name()?;
            let short = name.rsplit_once('.').map_or(name, |(_, name)| name);
            if !self.is_row(short) && !self.parts().iter().any(|part| part == short) {
                flags.push_str(&format!(" --column {}", word(self.column(name).replace(',', "\\x2C"))));
            }
        }
        Some(flags)
    }

    /// The condition as a filter, of tests that both have.
    fn filter(&self, condition: &[Token]) -> Option<String> {
        let mut words: Vec<String> = Vec::new();
        let mut subject = String::new();
        for (at, token) in condition.iter().enumerate() {
            let keyword = token.name().map(str::to_lowercase).unwrap_or_default();
            let is_keyword = matches!(token, Token::Name(_));
            words.push(match (token, keyword.as_str()) {
                (_, "and" | "or" | "not" | "in" | "between" | "like" | "ilike" | "is" | "null") if is_keyword => {
                    keyword
                }
                (Token::Text(text), _) => self.operand(&subject, text, true),
                (Token::Number(number), _) => self.operand(&subject, number, false),
                (Token::Name(name) | Token::Quoted(name), _) => {
                    // A function of SQL has no equal.
                    if condition.get(at + 1).is_some_and(|next| next.is_sign("(")) {
                        return None;
                    }
                    subject = self.compared(&self.subject(name), &condition[at + 1..]);
                    subject.clone()
                }
                (Token::Sign(sign), _) => match sign.as_str() {
                    "(" | ")" | "," | "=" | "!=" | "<>" | "<" | "<=" | ">" | ">=" => sign.clone(),
                    "==" => "=".to_owned(),
                    _ => return None,
                },
            });
        }
        let text = words.join(" ").replace("( ", "(").replace(" )", ")").replace(" ,", ",");
        Some(text)
    }

    /// The subject as it is compared: a column without a declared type is read as a number where it is ordered among numbers.
    fn compared(&self, subject: &str, rest: &[Token]) -> String {
        let is_column = subject.contains(':');
        let number = matches!(rest, [Token::Sign(sign), Token::Number(_), ..] if ["<", "<=", ">", ">="].contains(&sign.as_str()))
            || matches!(rest, [between, Token::Number(_), ..] if between.is("between"));
        let is_number = self.type_of(subject).is_some_and(ValueType::is_number);
        if is_column && number && !is_number { format!("i64({subject})") } else { subject.to_owned() }
    }

    /// A value beside a subject: a number stays one where the table or the comparison says so.
    fn operand(&self, subject: &str, value: &str, is_text: bool) -> String {
        let is_number = match subject {
            "row" => false,
            part if part.starts_with("key(") => !is_text,
            column => self.type_of(column).map_or(!is_text && column.starts_with("i64("), ValueType::is_number),
        };
        if is_number { value.to_owned() } else { literal(value) }
    }

    /// The comparisons of a condition, if they are all `name = value` and joined by `and`.
    fn equalities(&self, condition: &[Token]) -> Option<Vec<Equal>> {
        let tests = condition.split(|token| token.is("and"));
        tests
            .map(|test| match test {
                [name, sign, value] if sign.is_sign("=") => Some((name.name()?.to_owned(), value.value()?.to_owned())),
                _ => None,
            })
            .collect()
    }

    /// The row that these comparisons name, if they name one and say nothing else.
    fn row(&self, equal: &[Equal]) -> Option<String> {
        let (row, others) = self.row_and_others(equal)?;
        others.is_empty().then_some(row)
    }

    /// The row that the values name, and the values that are no part of it.
    fn row_and_others<'e>(&self, values: &'e [Equal]) -> Option<(String, Vec<&'e Equal>)> {
        let parts = self.parts();
        let short = |name: &'e str| name.rsplit_once('.').map_or(name, |(_, name)| name);
        if parts.is_empty() {
            let at = values.iter().position(|(name, _)| self.is_row(short(name)))?;
            let others = values.iter().enumerate().filter(|(place, _)| *place != at).map(|(_, value)| value).collect();
            return Some((word(escape(values[at].1.as_bytes())), others));
        }
        let mut texts = Vec::new();
        for part in &parts {
            let (_, value) = values.iter().find(|(name, _)| short(name) == part)?;
            texts.push(format!("{part}={}", part_value(value)));
        }
        let others = values.iter().filter(|(name, _)| !parts.iter().any(|part| part == short(name))).collect();
        Some((texts.join(","), others))
    }

    /// A `put` for each column of each row.
    fn insert(&self, tokens: &[Token]) -> Option<Vec<String>> {
        let tokens = tokens.strip_prefix(&[tokens.first().filter(|token| token.is("into"))?.clone()][..])?;
        let table = word(table_name(tokens.first()?.name()?));
        let at = tokens.iter().position(|token| token.is("values") || token.is("value"))?;
        let names: Vec<String> = tokens[1..at].iter().filter_map(|token| token.name().map(str::to_owned)).collect();
        let mut lines = Vec::new();
        for row in tokens[at + 1..].split(|token| token.is_sign("(")).skip(1) {
            let values: Vec<&str> = row
                .iter()
                .map_while(|token| if token.is_sign(")") { None } else { Some(token) })
                .filter_map(Token::value)
                .collect();
            let named: Vec<Equal> = match (&names[..], &values[..]) {
                // HBase's order: the row, a column, its value.
                ([], [row, column, value]) if column.contains(':') => {
                    vec![("row".to_owned(), (*row).to_owned()), ((*column).to_owned(), (*value).to_owned())]
                }
                (names, values) if names.len() == values.len() && !names.is_empty() => {
                    names.iter().cloned().zip(values.iter().map(|value| (*value).to_owned())).collect()
                }
                _ => return None,
            };
            // Without a name that says so, the first column of a table without a key is the row.
            let found = self.row_and_others(&named).or_else(|| {
                let (first, others) = named.split_first().filter(|_| self.parts().is_empty())?;
                Some((word(escape(first.1.as_bytes())), others.iter().collect()))
            });
            let (row, others) = found?;
            lines.extend(self.puts(&table, &row, others));
        }
        (!lines.is_empty()).then_some(lines)
    }

    fn puts<'e>(&self, table: &str, row: &str, values: impl IntoIterator<Item = &'e Equal>) -> Vec<String> {
        let put = |(name, value): &Equal| {
            format!("put {table} {row} {} {}", word(self.column(name)), word(escape(value.as_bytes())))
        };
        values.into_iter().map(put).collect()
    }

    fn update(&self, tokens: &[Token]) -> Option<Vec<String>> {
        let table = word(table_name(tokens.first()?.name()?));
        let set = tokens.iter().position(|token| token.is("set"))?;
        let condition = tokens.iter().position(|token| token.is("where"))?;
        let row = self.row(&self.equalities(&tokens[condition + 1..])?)?;
        let values = tokens[set + 1..condition].split(|token| token.is_sign(","));
        let values: Option<Vec<Equal>> = values
            .map(|value| match value {
                [name, sign, value] if sign.is_sign("=") => Some((name.name()?.to_owned(), value.value()?.to_owned())),
                _ => None,
            })
            .collect();
        Some(self.puts(&table, &row, &values?)).filter(|lines| !lines.is_empty())
    }

    /// A row is deleted by its key; what else a condition selects is shown.
    fn delete(&self, tokens: &[Token]) -> Option<String> {
        let from = tokens.strip_prefix(&[tokens.first().filter(|token| token.is("from"))?.clone()][..])?;
        let table = word(table_name(from.first()?.name()?));
        let condition = Clauses::of(from).condition;
        match self.equalities(condition).and_then(|equal| self.row(&equal)) {
            Some(row) => Some(format!("delete {table} {row}")),
            None => Some(format!("scan {table} --filter \"{}\"", self.filter(condition)?)),
        }
    }

    fn alter(&self, tokens: &[Token]) -> Option<String> {
        let table = word(table_name(tokens.first()?.name()?));
        let rest: Vec<&Token> = tokens[1..].iter().filter(|token| !token.is("column")).collect();
        match rest[..] {
            [add, name, kind, ..] if add.is("add") => {
                let kind = super::create::value_type(kind.name()?)?;
                Some(format!("table alter {table} --column {}={kind}", word(self.column(name.name()?))))
            }
            [drop, name, ..] if drop.is("drop") => {
                Some(format!("table alter {table} --column {}=none", word(self.column(name.name()?))))
            }
            _ => None,
        }
    }
}

/// The clauses of a query behind its table.
struct Clauses<'t> {
    condition: &'t [Token],
    reverse: bool,
    limit: Option<&'t str>,
    offset: Option<&'t str>,
}

impl<'t> Clauses<'t> {
    fn of(tokens: &'t [Token]) -> Clauses<'t> {
        let at = |keyword: &str| tokens.iter().position(|token| token.is(keyword));
        let condition = at("where").map_or(&[][..], |at| {
            let rest = &tokens[at + 1..];
            &rest[..rest.iter().position(ends_clause).unwrap_or(rest.len())]
        });
        let number = |keyword: &str| match tokens.get(at(keyword)? + 1) {
            Some(Token::Number(number)) => Some(number.as_str()),
            _ => None,
        };
        let limit = number("limit").or_else(|| number("first")).or_else(|| number("next"));
        let reverse = at("order").is_some_and(|order| tokens[order..].iter().any(|token| token.is("desc")));
        Clauses { condition, reverse, limit, offset: number("offset") }
    }
}

/// A string of a filter. It may stand in double quotes, so what a shell or we would read there is written as bytes.
fn literal(text: &str) -> String {
    let escaped = escape(text.as_bytes()).replace("\\\\", "\\x5C");
    let mut safe = String::with_capacity(escaped.len() + 2);
    for c in escaped.chars() {
        match c {
            '\'' | '"' | '$' | '`' => safe.push_str(&format!("\\x{:02X}", u32::from(c))),
            _ => safe.push(c),
        }
    }
    format!("'{safe}'")
}

/// A value of a part of a key in a line of parts.
fn part_value(value: &str) -> String {
    match value.contains([',', '=', '\'', ' ', '"']) {
        true => format!("'{}'", value.replace('\'', "''")),
        false => value.to_owned(),
    }
}
