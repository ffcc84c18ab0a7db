//! The TOML file of the settings: one section per role.
//!
//! [`examine`] finds all mistakes of the sections that it is asked for, each with its line. A start asks for the section of its
//! role, `terrane config check` for all.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;

use terrane_engine::BackendKind;
use terrane_types::closest;
use toml::Spanned;
use toml::de::{DeTable, DeValue};

use super::list::{self, FEATURE_LEVEL, Kind, Role, Setting};
use crate::args::values::{Size, address, addresses, collector, duration, share};

/// A mistake in a file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Mistake {
    /// Counted from 1.
    pub line: usize,
    pub message: String,
}

/// A value of a file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FileValue {
    /// As it would be written after a flag.
    pub text: String,
    /// Counted from 1.
    pub line: usize,
}

/// What a section says.
#[derive(Clone, Debug, Default)]
pub struct Section {
    /// The values that can be read.
    pub values: BTreeMap<String, FileValue>,
    /// The settings whose values cannot: a mistake says why.
    pub wrong: BTreeSet<String>,
}

/// What a file says.
#[derive(Debug, Default)]
pub struct Examined {
    /// The sections that are there.
    pub sections: Vec<(Role, Section)>,
    pub mistakes: Vec<Mistake>,
    /// Whether a part of the file is no TOML, so that what its sections say is not all known.
    pub is_unreadable: bool,
}

/// All mistakes in the sections of these roles, and what the sections say.
pub fn examine(text: &str, roles: &[Role]) -> Examined {
    let mut examined = Examined::default();
    let (file, errors) = DeTable::parse_recoverable(text);
    let broken = Broken::of(text, &errors);
    examined.is_unreadable = !errors.is_empty();
    for error in &errors {
        let line = line_of(text, error.span().unwrap_or_default().start);
        examined.mistakes.push(Mistake { line, message: error.message().to_owned() });
    }
    let mut add = |at: Range<usize>, message| {
        let line = line_of(text, at.start);
        if !broken.hides(line) {
            examined.mistakes.push(Mistake { line, message });
        }
    };
    for (name, content) in file.get_ref() {
        // A key outside of sections may be one whose section could not be read.
        if examined.is_unreadable && content.get_ref().as_table().is_none() {
            continue;
        }
        let table = role_of(name.get_ref()).and_then(|role| Ok((role, table_of(role, content.get_ref())?)));
        let (role, table) = match table {
            Ok(found) => found,
            Err(message) => {
                add(name.span(), message);
                continue;
            }
        };
        if !roles.contains(&role) {
            continue;
        }
        let mut section = Section::default();
        for (key, value) in table {
            let (name, span) = (key.get_ref().to_string(), key.span());
            match checked(role, &name, value) {
                Ok(given) => {
                    _ = section.values.insert(name, FileValue { text: given, line: line_of(text, span.start) })
                }
                Err(message) => {
                    section.wrong.insert(name);
                    add(span, message);
                }
            }
        }
        examined.sections.push((role, section));
    }
    examined.mistakes.sort_by_key(|mistake| mistake.line);
    examined
}

/// The lines of a file that say nothing, because what is there is no TOML.
struct Broken {
    lines: BTreeSet<usize>,
    /// From the first heading of a section that cannot be read on, keys may be of another one than it seems.
    from: usize,
}

impl Broken {
    fn of(text: &str, errors: &[toml::de::Error]) -> Broken {
        let places = errors.iter().map(|error| line_of(text, error.span().unwrap_or_default().start));
        let lines: BTreeSet<usize> = places.collect();
        let is_heading =
            |line: &&usize| text.lines().nth(**line - 1).is_some_and(|text| text.trim_start().starts_with('['));
        let from = lines.iter().find(is_heading).copied().unwrap_or(usize::MAX);
        Broken { lines, from }
    }

    fn hides(&self, line: usize) -> bool {
        line >= self.from || self.lines.contains(&line)
    }
}

/// The form of the log that a role's section names, also in a file with mistakes.
pub fn log_format_in(text: &str, role: Role) -> Option<String> {
    let (file, _) = DeTable::parse_recoverable(text);
    let section = entry(file.get_ref(), role.name())?.as_table()?;
    entry(section, "log-format")?.as_str().map(str::to_owned)
}

fn entry<'a, 'text>(table: &'a DeTable<'text>, wanted: &str) -> Option<&'a DeValue<'text>> {
    table.iter().find(|(name, _)| **name.get_ref() == *wanted).map(|(_, value)| value.get_ref())
}

fn checked(role: Role, key: &str, value: &Spanned<DeValue<'_>>) -> Result<String, String> {
    let setting = setting(role, key).ok_or_else(|| unknown_key(role, key))?;
    let text = text_of(setting.kind, value.get_ref());
    let text = text.and_then(|text| check_value(setting.kind, &text).map(|()| text));
    text.map_err(|why| format!("[{}] {key}: {why}", role.name()))
}

fn setting(role: Role, key: &str) -> Option<&'static Setting> {
    list::of(role).chain([&FEATURE_LEVEL]).find(|setting| setting.key == key)
}

/// A key that the role does not have: names the nearest that it has, or the role that has it.
pub fn unknown_key(role: Role, key: &str) -> String {
    let unknown = format!("[{}] has no setting {key:?}", role.name());
    if let Some(owner) = Role::ALL.into_iter().find(|role| list::of(*role).any(|setting| setting.key == key)) {
        return format!("{unknown}; it belongs to [{}]", owner.name());
    }
    match closest(key, list::of(role).map(|setting| setting.key)) {
        Some(meant) => format!("{unknown}; did you mean {meant}?"),
        None => unknown,
    }
}

fn role_of(name: &str) -> Result<Role, String> {
    let names = Role::ALL.map(Role::name);
    Role::ALL.into_iter().find(|role| role.name() == name).ok_or_else(|| match closest(name, names) {
        Some(meant) => format!("{name:?} is not a section; did you mean [{meant}]?"),
        None => format!("{name:?} is not a section; use [{}]", names.join("], [")),
    })
}

fn table_of<'a, 'text>(role: Role, content: &'a DeValue<'text>) -> Result<&'a DeTable<'text>, String> {
    let name = role.name();
    content.as_table().ok_or_else(|| format!("{name:?} is not a section; write [{name}]"))
}

/// A value as it would be written after a flag; an error if its type cannot hold what the setting is.
fn text_of(kind: Kind, value: &DeValue<'_>) -> Result<String, String> {
    let unfit = |is: &str| Err(format!("it is {is}; write {}", kind.described()));
    match value {
        DeValue::String(text) => Ok(text.to_string()),
        DeValue::Integer(number) => match kind {
            Kind::Size | Kind::Switch | Kind::Address | Kind::Addresses => unfit("a number"),
            _ => Ok(number.to_string()),
        },
        DeValue::Boolean(is) if kind == Kind::Switch => Ok(is.to_string()),
        DeValue::Boolean(_) => unfit("true or false"),
        DeValue::Array(values) if kind == Kind::Addresses => {
            let each = values.iter().map(|value| match value.get_ref() {
                DeValue::String(text) => Ok(text.to_string()),
                _ => unfit("a list of something else"),
            });
            Ok(each.collect::<Result<Vec<_>, String>>()?.join(","))
        }
        DeValue::Array(_) => unfit("a list"),
        DeValue::Float(_) => unfit("a number with a fraction"),
        DeValue::Datetime(_) => unfit("a date"),
        DeValue::Table(_) => unfit("a table"),
    }
}

/// Whether the text is a value of this kind; the error says what one is.
pub fn check_value(kind: Kind, text: &str) -> Result<(), String> {
    let number = |error: std::num::ParseIntError| format!("{text:?} is not {}: {error}", kind.described());
    match kind {
        Kind::Directory if text.is_empty() => Err(format!("it is empty; write {}", kind.described())),
        Kind::Directory | Kind::Text => Ok(()),
        Kind::Address => address(text).map(drop).map_err(|error| error.to_string()),
        Kind::Addresses => addresses(text).map(drop).map_err(|error| error.to_string()),
        Kind::Engine => text.parse::<BackendKind>().map(drop).map_err(|error| error.to_string()),
        Kind::Count => text.parse::<u32>().map(drop).map_err(number),
        Kind::Port => text.parse::<u16>().map(drop).map_err(number),
        Kind::Size => text.parse::<Size>().map(drop).map_err(|error| error.to_string()),
        Kind::Time => duration(text).map(drop).map_err(|error| error.to_string()),
        Kind::Share => share(text).map(drop).map_err(|error| error.to_string()),
        Kind::Collector => collector(text).map(drop).map_err(|error| error.to_string()),
        Kind::Switch => text.parse::<bool>().map(drop).map_err(|_| format!("{text:?} is not true or false")),
    }
}

fn line_of(text: &str, at: usize) -> usize {
    text.as_bytes()[..at.min(text.len())].iter().filter(|&&byte| byte == b'\n').count() + 1
}

#[cfg(test)]
mod tests {
    use super::*;

    fn mistakes(text: &str) -> Vec<String> {
        let found = examine(text, &Role::ALL).mistakes;
        found.into_iter().map(|mistake| format!("{}: {}", mistake.line, mistake.message)).collect()
    }

    #[test]
    fn a_right_file_has_no_mistakes() {
        let text = "[master]\npeers = ['a:1', 'b:1', 'c:1']\nreplace-after = '5m'\n[server]\ncache-size = '4GiB'\ninsecure = true\n";
        let examined = examine(text, &Role::ALL);
        assert_eq!(examined.mistakes, []);
        let [(Role::Master, master), (Role::Server, server)] = examined.sections.as_slice() else {
            panic!("{examined:?}")
        };
        assert_eq!((master.values["peers"].text.as_str(), master.values["peers"].line), ("a:1,b:1,c:1", 2));
        let text = |key: &str| server.values[key].text.as_str();
        assert_eq!((text("cache-size"), text("insecure")), ("4GiB", "true"));
    }

    #[test]
    fn each_mistake_has_its_line() {
        let text = "[server]\nlog-limt = '1GiB'\ncache-size = true\nlisten = 7700\n\nmasters = [1]\npeers = 'a:1'\nzone = 1.5\n";
        assert_eq!(
            mistakes(text),
            [
                "2: [server] has no setting \"log-limt\"; did you mean log-limit?",
                "3: [server] cache-size: it is true or false; write a size, such as \"4GiB\"",
                "4: [server] listen: it is a number; write an address, such as \"127.0.0.1:7600\"",
                "6: [server] masters: it is a list of something else; write a list of addresses, such as \
                 [\"10.0.0.1:7600\", \"10.0.0.2:7600\"]",
                "7: [server] has no setting \"peers\"; it belongs to [master]",
                "8: [server] zone: it is a number with a fraction; write text, such as \"rack-1\"",
            ]
        );
    }

    #[test]
    fn sections_and_syntax_are_checked() {
        assert_eq!(mistakes("[sever]\na = 1\n"), ["1: \"sever\" is not a section; did you mean [server]?"]);
        assert_eq!(mistakes("\n[rack]\n"), ["2: \"rack\" is not a section; use [master], [server], [dev]"]);
        assert_eq!(mistakes("server = 1"), ["1: \"server\" is not a section; write [server]"]);
        assert_eq!(mistakes("[dev]\nservers = 1\nservers = 2\n"), ["3: duplicate key"]);
        assert!(mistakes("[dev]\n= 1\n")[0].starts_with("2: "));
        assert!(examine("= 1", &Role::ALL).is_unreadable);
    }

    #[test]
    fn what_is_no_toml_does_not_hide_the_other_mistakes() {
        let text = "[server]\ncache-size = 4GiB\nlog-limt = '1GiB'\nlog-limit = 'much'\n[mster]\n";
        let found = mistakes(text);
        let lines: Vec<&str> = found.iter().map(|mistake| &mistake[..2]).collect();
        assert_eq!(lines, ["2:", "3:", "4:", "5:"], "{found:?}");
        // Keys below a heading that cannot be read are of no known section.
        let found = mistakes("[server]\nlog-limt = '1GiB'\n[master\ncache-size = '1GiB'\npeers = ['a']\n");
        assert!(
            found[0].starts_with("2: ") && found[1..].iter().all(|mistake| mistake.starts_with("3: ")),
            "{found:?}"
        );
    }

    #[test]
    fn values_are_checked_by_kind() {
        for (kind, good, bad) in [
            (Kind::Directory, "/d", ""),
            (Kind::Address, "h:1", "h"),
            (Kind::Addresses, "h:1,i:2", "h:1,i"),
            (Kind::Engine, "lsm", "rocks"),
            (Kind::Count, "3", "three"),
            (Kind::Port, "7600", "76000"),
            (Kind::Size, "1GiB", "1GB"),
            (Kind::Time, "5m", "5 minutes"),
            (Kind::Share, "0.5", "1.5"),
            (Kind::Collector, "http://h:4317", "h:4317"),
            (Kind::Switch, "false", "no"),
        ] {
            check_value(kind, good).unwrap_or_else(|why| panic!("{kind:?}: {why}"));
            assert!(check_value(kind, bad).is_err(), "{kind:?}");
        }
    }
}
