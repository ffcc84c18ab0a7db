//! Which page tokens open, as scripts. A token is sealed for table 7, [a,z) forwards, without a filter.
//!
//! ```text
//! keys ID ... at=S           the master sends these keys, newest first
//! seal NAME at=S [ROW]       a token for the position after this row
//! open NAME [table=N] [start=ROW] [end=ROW] [reverse] [filter=TEXT] [damaged]
//! ```

use std::collections::BTreeMap;
use std::fmt::Write as _;

use terrane_testscript::check_scripts;

use super::*;

fn binding(words: &[&str]) -> Binding {
    let option = |name: &str| words.iter().find_map(|word| word.strip_prefix(name)?.strip_prefix('='));
    let row = |name: &str, default: &'static str| Bytes::from(option(name).unwrap_or(default).to_owned());
    Binding {
        table: TableId(option("table").map_or(7, |table| table.parse().expect("a table"))),
        start: row("start", "a"),
        end: row("end", "z"),
        reverse: words.contains(&"reverse"),
        filter: option("filter").unwrap_or_default().to_owned(),
    }
}

fn message(error: &Error) -> String {
    match error {
        Error::Invalid(invalid) => invalid.what.clone(),
        other => other.to_string(),
    }
}

fn command(
    seal: &PageSeal,
    tokens: &mut BTreeMap<String, Bytes>,
    origin: Instant,
    line: &str,
) -> Result<Option<String>, Error> {
    let words: Vec<&str> = line.split(' ').collect();
    let at = words.iter().find_map(|word| word.strip_prefix("at=")).map_or(0, |s| s.parse().expect("seconds"));
    let at = origin + Duration::from_secs(at);
    match words[0] {
        "keys" => {
            let ids = words[1..].iter().filter_map(|id| id.parse().ok());
            let key = |id: u32| PageKey { id, secret: Bytes::from(vec![u8::try_from(id).expect("a small id"); 32]) };
            seal.set_at(ids.map(key).collect(), at);
            Ok(None)
        }
        "seal" => {
            let last = Bytes::from(words.get(3).copied().unwrap_or_default().to_owned());
            let token = seal.seal_at(&binding(&[]), &[Position { bucket: 0, last, finished: false }], at)?;
            let key = u32::from_le_bytes(token[1..5].try_into().expect("four bytes"));
            tokens.insert(words[1].to_owned(), token);
            Ok(Some(format!("{} is sealed with key {key}", words[1])))
        }
        "open" => {
            let mut token = tokens.get(words[1]).expect("a token").to_vec();
            if words.contains(&"damaged") {
                *token.last_mut().expect("a token is not empty") ^= 1;
            }
            let positions = seal.open(&binding(&words), token.into())?;
            Ok(Some(format!("{} opens after row {:?}", words[1], positions[0].last)))
        }
        _ => panic!("no such command: {line}"),
    }
}

#[test]
fn tokens_open_as_recorded() {
    let origin = Instant::now();
    check_scripts(concat!(env!("CARGO_MANIFEST_DIR"), "/src/edge/page_token/testdata"), || {
        let (seal, mut tokens) = (PageSeal::default(), BTreeMap::new());
        move |line: &str, out: &mut String| {
            let printed = command(&seal, &mut tokens, origin, line).unwrap_or_else(|error| Some(message(&error)));
            if let Some(printed) = printed {
                writeln!(out, "{printed}").expect("writing to a string");
            }
        }
    });
}
