//! Names that do not exist, and the one that was probably meant.

use terrane_types::{TableSchema, closest, escape};

/// What tests are of, besides columns and parts of the key.
const SUBJECTS: [&str; 4] = ["row", "family", "qualifier", "value"];
/// Names of tests in other languages, in small letters, and ours.
const ELSEWHERE: [(&str, &str); 20] = [
    ("columnprefixfilter", "prefix"),
    ("columnrangefilter", "qualifiers"),
    ("ends_with", "matches"),
    ("endswith", "matches"),
    ("firstkeyonlyfilter", "first_key_only"),
    ("fuzzyrowfilter", "fuzzy"),
    ("isnull", "absent"),
    ("keyonlyfilter", "keys_only"),
    ("limit", "page"),
    ("pagefilter", "page"),
    ("prefixfilter", "prefix"),
    ("randomrowfilter", "random"),
    ("regex", "matches"),
    ("regexp", "matches"),
    ("regexp_like", "matches"),
    ("rlike", "matches"),
    ("starts_with", "prefix"),
    ("startswith", "prefix"),
    ("substring", "contains"),
    ("timestampsfilter", "timestamps"),
];

/// Reports an unknown name and suggests a similar one.
pub(crate) fn unknown_name<'n>(kind: &str, name: &str, known: impl IntoIterator<Item = &'n str>) -> String {
    let elsewhere = ELSEWHERE.iter().find(|(theirs, _)| name.eq_ignore_ascii_case(theirs)).map(|(_, ours)| *ours);
    match elsewhere.filter(|_| kind == "test").or_else(|| nearest(name, known)) {
        Some(meant) => format!("there is no {kind} `{name}`; did you mean `{meant}`?"),
        None => format!("there is no {kind} `{name}`"),
    }
}

/// The known name that is most similar to this one, if any is similar.
pub(crate) fn nearest<'n>(name: &str, known: impl IntoIterator<Item = &'n str>) -> Option<&'n str> {
    let lower = name.to_lowercase();
    let nearest = known.into_iter().map(|known| (distance(&lower, known), known)).min()?;
    (nearest.0 <= nearest.1.len().div_ceil(3)).then_some(nearest.1)
}

/// Reports a word that is no subject. Most often it is a column without its family or a part of the key without `key(…)`, which the
/// table can tell.
pub(crate) fn unknown_subject(name: &str, schema: Option<&TableSchema>) -> String {
    let hint = "tests are of row, key(part), family, qualifier, value, or a column like data:airtemp";
    let meant = schema.and_then(|schema| meant_subject(name, schema));
    match meant {
        Some(meant) => format!("there is no subject `{name}`; did you mean `{meant}`? ({hint})"),
        None => format!("{} ({hint})", unknown_name("subject", name, SUBJECTS)),
    }
}

fn meant_subject(name: &str, schema: &TableSchema) -> Option<String> {
    let parts = schema
        .key
        .iter()
        .flat_map(|key| key.text_parts())
        .map(|part| (part.name.clone(), format!("key({})", part.name)));
    let columns = schema.families.iter().flat_map(|family| {
        family.types.keys().map(|qualifier| (escape(qualifier), format!("{}:{}", family.name, escape(qualifier))))
    });
    let known: Vec<(String, String)> = parts.chain(columns).collect();
    let full = |short: &str| known.iter().find(|(known, _)| known == short).map(|(_, full)| full.clone());
    if let Some(full) = full(name) {
        return Some(full);
    }
    if nearest(name, SUBJECTS).is_some() {
        return None;
    }
    let meant = closest(name, known.iter().map(|(short, _)| short.as_str())).and_then(full);
    // A column that is not declared is of the only family.
    let of_family = || match &schema.families[..] {
        [only] => Some(format!("{}:{name}", only.name)),
        _ => None,
    };
    meant.or_else(of_family)
}

/// The Levenshtein distance of two words; the same letters in another order count as one edit.
fn distance(left: &str, right: &str) -> usize {
    let sorted = |word: &str| {
        let mut letters = word.as_bytes().to_vec();
        letters.sort_unstable();
        letters
    };
    if left != right && left.len() == right.len() && sorted(left) == sorted(right) {
        return 1;
    }
    // Names are short; a much longer word is not similar to any.
    if left.len() > 32 {
        return left.len();
    }
    let mut row: Vec<usize> = (0..=right.len()).collect();
    for (line, a) in left.bytes().enumerate() {
        let mut diagonal = row[0];
        row[0] = line + 1;
        for (column, b) in right.bytes().enumerate() {
            let replaced = diagonal + usize::from(a != b);
            diagonal = row[column + 1];
            row[column + 1] = replaced.min(diagonal + 1).min(row[column] + 1);
        }
    }
    row[right.len()]
}
