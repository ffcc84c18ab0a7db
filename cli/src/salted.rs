//! The command that creates a table like another one whose keys begin with a bucket: what helps where rows are written at the
//! end of the keys, since no split does.

use terrane_types::{FamilySchema, TableName, TableSchema};

/// Buckets of the new table: as many regions can be written at once.
const BUCKET: &str = "bucket16";
/// The key of a table that declares none, behind its bucket.
const WHOLE_KEY: &str = "row:tail";
/// What the name of the new table ends with.
const SUFFIX: &str = "_salted";

/// The command, which runs as it is printed; `None`: the keys begin with a bucket already, or the name is too long.
pub fn create_command(schema: &TableSchema) -> Option<String> {
    let key = match &schema.key {
        Some(key) if key.parts().first().is_some_and(|part| part.kind.is_bucket()) => return None,
        Some(key) => key.to_string(),
        None => WHOLE_KEY.to_owned(),
    };
    let name: TableName = format!("{}{SUFFIX}", schema.name).parse().ok()?;
    let mut words = vec!["terrane table create".to_owned(), name.to_string(), format!("--key '{BUCKET}, {key}'")];
    for family in &schema.families {
        words.push(format!("--family {}", quoted(&family_word(family))));
    }
    let mut fresh = TableSchema::new(schema.name.clone());
    fresh.key.clone_from(&schema.key);
    for word in differing(schema.attributes(), &fresh.attributes()) {
        words.push(format!("--set {}", quoted(&word)));
    }
    Some(words.join(" "))
}

/// A family as `--family` takes it.
fn family_word(family: &FamilySchema) -> String {
    let fresh = FamilySchema::new(family.name.clone());
    let mut attributes = differing(family.attributes(), &fresh.attributes());
    // A comma would end the attribute.
    attributes.retain(|word| !word.contains(','));
    let colon = if attributes.is_empty() { "" } else { ":" };
    format!("{}{colon}{}", family.name, attributes.join(","))
}

type Attributes = std::collections::BTreeMap<String, String>;

/// The attributes that are not as in a new table.
fn differing(attributes: Attributes, fresh: &Attributes) -> Vec<String> {
    let differ = attributes.into_iter().filter(|(name, value)| fresh.get(name) != Some(value));
    differ.map(|(name, value)| format!("{name}={value}")).collect()
}

/// A word as a shell takes it.
fn quoted(word: &str) -> String {
    let plain = |letter: char| letter.is_ascii_alphanumeric() || "_-.:=,%/+".contains(letter);
    if word.chars().all(plain) { word.to_owned() } else { format!("'{}'", word.replace('\'', r"'\''")) }
}

#[cfg(test)]
mod tests {
    use clap::Parser;
    use terrane_types::{FamilyName, KeyDeclaration};

    use super::*;
    use crate::args::client::TableCommand;
    use crate::args::{Cli, Command};

    /// The words of a command as a shell makes them.
    fn words(command: &str) -> Vec<String> {
        let (mut words, mut word, mut is_quoted) = (Vec::new(), String::new(), false);
        for letter in command.chars() {
            match letter {
                '\'' => is_quoted = !is_quoted,
                ' ' if !is_quoted => words.push(std::mem::take(&mut word)),
                letter => word.push(letter),
            }
        }
        words.push(word);
        words
    }

    fn schema(key: Option<&str>) -> TableSchema {
        let mut schema = TableSchema::new(TableName::new("ns:clicks").unwrap());
        schema.key = key.map(|key| KeyDeclaration::parse(key).unwrap());
        schema.set_attribute("region_size", "64MiB").unwrap();
        for name in ["d", "e"] {
            let mut family = FamilySchema::new(FamilyName::new(name).unwrap());
            if name == "d" {
                family.set_attribute("versions", "3").unwrap();
                family.set_attribute("ttl", "1d").unwrap();
                family.set_attribute("type.count", "i64").unwrap();
                family.set_attribute("meta.owner", "the team").unwrap();
            }
            schema.add_family(family).unwrap();
        }
        schema
    }

    #[test]
    fn the_command_is_one_that_the_command_line_accepts() {
        for key in [Some("time:desc i64, host:text"), Some("name:text"), None] {
            let schema = schema(key);
            let command = create_command(&schema).expect("a command");
            let Command::Table(TableCommand::Create(create)) = Cli::try_parse_from(words(&command)).unwrap().command
            else {
                panic!("{command}")
            };
            let made = crate::commands::table::spec_of(&create).unwrap_or_else(|why| panic!("{command}: {why:?}"));
            assert_eq!(made.schema.name.to_string(), "ns:clicks_salted");
            assert!(made.schema.key.as_ref().unwrap().parts()[0].kind.is_bucket(), "{command}");
            assert_eq!(made.schema.families, schema.families, "{command}");
        }
    }

    #[test]
    fn keys_that_begin_with_a_bucket_have_one() {
        assert_eq!(create_command(&schema(Some("bucket4, time:i64"))), None);
    }
}
