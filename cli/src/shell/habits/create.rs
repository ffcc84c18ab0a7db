//! `create table` of SQL: a family for the columns, the primary key as the parts of the row key.

use super::statement::table_name;
use super::tokens::Token;
use super::word;

/// The family that columns without one get.
const FAMILY: &str = "d";

/// The line of what follows `create table`.
pub fn line(tokens: &[Token]) -> Option<String> {
    let skipped = ["if", "not", "exists"];
    let begin = tokens.iter().position(|token| !skipped.iter().any(|word| token.is(word)))?;
    let name = table_name(tokens[begin].name()?);
    let definitions = definitions(&tokens[begin + 1..]);
    let mut key: Vec<String> = definitions.iter().find_map(|definition| primary_key(definition)).unwrap_or_default();
    let columns: Vec<(&str, &str)> = definitions.iter().filter_map(|definition| column(definition)).collect();
    if key.is_empty() {
        let alone = definitions.iter().find(|definition| definition.iter().any(|token| token.is("primary")));
        key.extend(alone.and_then(|definition| column(definition)).map(|(name, _)| name.to_owned()));
    }
    let mut line = format!("table create {} --family {FAMILY}", word(name));
    let parts: Option<Vec<String>> = key
        .iter()
        .map(|name| {
            let (_, kind) = columns.iter().find(|(column, _)| column == name)?;
            Some(format!("{name}:{}", part_type(kind)?))
        })
        .collect();
    if let Some(parts) = parts.filter(|parts| !parts.is_empty()) {
        line.push_str(&format!(" --key '{}'", parts.join(", ")));
    }
    for (name, kind) in columns.iter().filter(|(name, _)| !key.iter().any(|part| part == name)) {
        if let Some(kind) = value_type(kind) {
            line.push_str(&format!(" --column {}", word(format!("{FAMILY}:{name}={kind}"))));
        }
    }
    Some(line)
}

/// What stands between the commas of the outer parentheses.
fn definitions(tokens: &[Token]) -> Vec<Vec<&Token>> {
    let (mut depth, mut all) = (0, vec![Vec::new()]);
    for token in tokens {
        match token {
            Token::Sign(sign) if sign == "(" => depth += 1,
            Token::Sign(sign) if sign == ")" => depth -= 1,
            Token::Sign(sign) if sign == "," && depth == 1 => {
                all.push(Vec::new());
                continue;
            }
            _ => {}
        }
        let is_outermost = depth == 1 && token.is_sign("(");
        if depth > 0
            && !is_outermost
            && let Some(last) = all.last_mut()
        {
            last.push(token);
        }
    }
    all
}

/// A column's name and type.
fn column<'t>(definition: &[&'t Token]) -> Option<(&'t str, &'t str)> {
    let [name, kind, ..] = definition else { return None };
    let is_constraint =
        ["primary", "unique", "constraint", "foreign", "check", "index", "key"].iter().any(|word| name.is(word));
    if is_constraint { None } else { Some((name.name()?, kind.name()?)) }
}

/// The names in `primary key (a, b)`.
fn primary_key(definition: &[&Token]) -> Option<Vec<String>> {
    let at = definition.windows(2).position(|pair| pair[0].is("primary") && pair[1].is("key"))?;
    let open = definition.get(at + 2).filter(|token| token.is_sign("("))?;
    let begin = definition.iter().position(|token| std::ptr::eq(*token, *open))?;
    let names = definition[begin + 1..].iter().take_while(|token| !token.is_sign(")"));
    Some(names.filter_map(|token| token.name().map(str::to_owned)).collect())
}

/// The type of a column's values for a type of SQL.
pub fn value_type(kind: &str) -> Option<&'static str> {
    Some(match kind.to_lowercase().as_str() {
        "int" | "integer" | "int4" | "smallint" | "tinyint" | "i32" => "i32",
        "bigint" | "int8" | "long" | "serial" | "bigserial" | "timestamp" | "timestamptz" | "datetime" | "i64" => "i64",
        "unsigned_int" | "u32" => "u32",
        "unsigned_long" | "u64" => "u64",
        "float" | "double" | "real" | "float8" | "f64" => "f64",
        "text" | "varchar" | "char" | "string" | "character" | "json" => "text",
        "bytea" | "blob" | "binary" | "varbinary" | "bytes" => "bytes",
        _ => return None,
    })
}

/// The type of a part of a key.
fn part_type(kind: &str) -> Option<&'static str> {
    match kind.to_lowercase().as_str() {
        "uuid" => Some("uuid"),
        "bool" | "boolean" => Some("bool"),
        _ => value_type(kind),
    }
}
