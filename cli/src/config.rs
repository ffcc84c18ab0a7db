//! Settings of servers. Flags override the environment, which overrides a TOML file, which overrides defaults.
//!
//! Every setting has one name in three spellings (`--memtable-budget`, `TERRANE_MEMTABLE_BUDGET`, `memtable-budget =
//! "…"` in the role's section of the file) and one parser. Its origin is recorded, so that a server prints at startup
//! which values it uses and where they come from. An unknown name in the file is an error: a misspelled setting that is
//! silently ignored would only be noticed when it does damage.

use std::fmt::Display;
use std::net::IpAddr;
use std::path::Path;

use toml::{Table, Value};

use crate::args::values::address_parts;
use crate::failure::{During, Failure};

/// Prefix of every environment variable.
const ENVIRONMENT_PREFIX: &str = "TERRANE_";
/// The sections of a file; one file can configure all roles.
const SECTIONS: [&str; 3] = ["dev", "master", "server"];

/// Looks up settings and records their origins.
pub struct Settings {
    role: &'static str,
    section: Table,
    file: String,
    environment: fn(&str) -> Option<String>,
    /// Name, value and origin of each setting, in the order of lookup.
    notes: Vec<(&'static str, String, String)>,
}

impl Settings {
    /// The settings of a role, including a file if one is given.
    pub async fn open(role: &'static str, file: Option<&Path>) -> Result<Settings, Failure> {
        let mut settings = Settings::without_file(role, |name| std::env::var(name).ok());
        if let Some(path) = file {
            settings.file = path.display().to_string();
            let bytes = terrane_env::fs::read(path)
                .await
                .map_err(|error| Failure::new(format!("cannot read the configuration {}: {error}", path.display())))?;
            settings.section = section(role, &bytes).during(format!("read the configuration {}", path.display()))?;
        }
        Ok(settings)
    }

    fn without_file(role: &'static str, environment: fn(&str) -> Option<String>) -> Settings {
        Settings { role, section: Table::new(), file: String::new(), environment, notes: Vec::new() }
    }

    /// The setting `name`, or `default` if it is not set.
    pub fn pick<T: Display, E: Display>(
        &mut self,
        name: &'static str,
        flag: Option<T>,
        read: impl Fn(&str) -> Result<T, E>,
        default: T,
    ) -> Result<T, Failure> {
        let found = self.find(name, flag, read)?;
        let (value, origin) = found.unwrap_or_else(|| (default, "default".to_owned()));
        self.notes.push((name, value.to_string(), origin));
        Ok(value)
    }

    /// The setting `name`, if it is set.
    pub fn pick_optional<T: Display, E: Display>(
        &mut self,
        name: &'static str,
        flag: Option<T>,
        read: impl Fn(&str) -> Result<T, E>,
    ) -> Result<Option<T>, Failure> {
        let Some((value, origin)) = self.find(name, flag, read)? else { return Ok(None) };
        self.notes.push((name, value.to_string(), origin));
        Ok(Some(value))
    }

    fn find<T, E: Display>(
        &mut self,
        name: &'static str,
        flag: Option<T>,
        read: impl Fn(&str) -> Result<T, E>,
    ) -> Result<Option<(T, String)>, Failure> {
        // Removed from the section even if a flag overrides it, so that only unknown names remain at the end.
        let in_file = self.section.remove(name);
        if let Some(value) = flag {
            return Ok(Some((value, format!("flag --{name}"))));
        }
        let variable = variable_name(name);
        if let Some(text) = (self.environment)(&variable) {
            let value =
                read(&text).map_err(|error| Failure::usage(format!("environment variable {variable}: {error}")))?;
            return Ok(Some((value, format!("environment {variable}"))));
        }
        let Some(value) = in_file else { return Ok(None) };
        let origin = format!("file {}", self.file);
        let place = || format!("{origin}, [{}] {name}", self.role);
        let text = value_text(&value)
            .ok_or_else(|| Failure::usage(format!("{}: not a string, integer, boolean or list", place())))?;
        let value = read(&text).map_err(|error| Failure::usage(format!("{}: {error}", place())))?;
        Ok(Some((value, origin)))
    }

    /// Finishes the lookup: rejects unknown names in the file and prints the settings.
    pub fn finish(self) -> Result<(), Failure> {
        if let Some(name) = self.section.keys().next() {
            let known: Vec<&str> = self.notes.iter().map(|(name, ..)| *name).collect();
            return Err(Failure::usage(format!(
                "{}: [{}] has no setting {name:?}; known settings: {}",
                self.file,
                self.role,
                known.join(", ")
            )));
        }
        for (name, value, origin) in &self.notes {
            eprintln!("{:<16} = {value}  ({origin})", name);
        }
        Ok(())
    }
}

fn variable_name(name: &str) -> String {
    format!("{ENVIRONMENT_PREFIX}{}", name.to_ascii_uppercase().replace('-', "_"))
}

fn section(role: &str, bytes: &[u8]) -> Result<Table, Failure> {
    let text = std::str::from_utf8(bytes).map_err(|_| Failure::usage("the file is not UTF-8 text"))?;
    let mut file: Table = text.parse().map_err(|error: toml::de::Error| Failure::usage(error.to_string()))?;
    if let Some(unknown) = file.keys().find(|name| !SECTIONS.contains(&name.as_str())) {
        return Err(Failure::usage(format!("{unknown:?} is not a section; use [{}]", SECTIONS.join("], ["))));
    }
    match file.remove(role) {
        Some(Value::Table(section)) => Ok(section),
        Some(_) => Err(Failure::usage(format!("{role:?} is not a section; write [{role}]"))),
        None => Ok(Table::new()),
    }
}

/// A value as it would be written after a flag.
fn value_text(value: &Value) -> Option<String> {
    match value {
        Value::String(text) => Some(text.clone()),
        Value::Integer(number) => Some(number.to_string()),
        Value::Boolean(flag) => Some(flag.to_string()),
        Value::Array(values) => Some(values.iter().map(value_text).collect::<Option<Vec<_>>>()?.join(",")),
        Value::Float(_) | Value::Datetime(_) | Value::Table(_) => None,
    }
}

/// Who can connect to an address.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Reach {
    Loopback,
    Network,
    /// Every address of the machine; others cannot connect to it by this name.
    Wildcard,
}

fn reach(address: &str) -> Result<Reach, Failure> {
    let (host, _) = address_parts(address)?;
    Ok(match host.parse::<IpAddr>() {
        Ok(ip) if ip.is_loopback() => Reach::Loopback,
        Ok(ip) if ip.is_unspecified() => Reach::Wildcard,
        Ok(_) => Reach::Network,
        Err(_) if host == "localhost" => Reach::Loopback,
        Err(_) => Reach::Network,
    })
}

/// Rejects addresses that would expose a server unintentionally, or that others could not connect to. Returns a warning
/// if the user allowed the exposure.
pub fn check_exposure(
    listen: &str,
    console: &str,
    advertise: Option<&str>,
    insecure: bool,
) -> Result<Option<String>, Failure> {
    if reach(listen)? == Reach::Wildcard && advertise.is_none() {
        return Err(Failure::usage(format!("{listen} is a wildcard address, which others cannot connect to"))
            .advise("add --advertise HOST:PORT with the address at which others reach this process"));
    }
    if let Some(advertise) = advertise
        && reach(advertise)? == Reach::Wildcard
    {
        return Err(Failure::usage(format!("{advertise} cannot be advertised: it is a wildcard address"))
            .advise("advertise the address at which others reach this process"));
    }
    let mut exposed = Vec::new();
    for address in [listen, console] {
        if reach(address)? != Reach::Loopback {
            exposed.push(address);
        }
    }
    if exposed.is_empty() {
        return Ok(None);
    }
    let exposed = exposed.join(" and ");
    if !insecure {
        return Err(Failure::usage(format!(
            "{exposed} can be reached from other machines, and Terrane has no TLS yet"
        ))
        .advise("listen on 127.0.0.1, or add --insecure if everyone on that network may read and write all data"));
    }
    Ok(Some(format!(
        "warning: {exposed} can be reached from other machines: traffic is not encrypted, and everyone who can connect can \
         read and write all data (--insecure)"
    )))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::args::values::{Addresses, Size, addresses};

    fn settings(environment: fn(&str) -> Option<String>, toml: &str) -> Settings {
        let mut settings = Settings::without_file("server", environment);
        settings.file = "t.toml".to_owned();
        settings.section = section("server", toml.as_bytes()).expect("a section");
        settings
    }

    fn text(value: &str) -> Result<String, std::convert::Infallible> {
        Ok(value.to_owned())
    }

    fn origin(settings: &Settings, name: &str) -> String {
        settings.notes.iter().find(|note| note.0 == name).expect("noted").2.clone()
    }

    #[test]
    fn flags_outrank_environment_file_and_default_in_this_order() {
        let environment = |name: &str| (name == "TERRANE_B_B" || name == "TERRANE_A").then(|| "environment".to_owned());
        let mut settings = settings(environment, "[server]\na = 'file'\nb-b = 'file'\nc = 'file'\n[master]\nx = 1");
        let mut pick = |name, flag: Option<&str>| {
            settings.pick(name, flag.map(str::to_owned), text, "default".to_owned()).expect("a value")
        };
        assert_eq!(pick("a", Some("flag")), "flag");
        assert_eq!(pick("b-b", None), "environment");
        assert_eq!(pick("c", None), "file");
        assert_eq!(pick("d", None), "default");
        assert_eq!(origin(&settings, "a"), "flag --a");
        assert_eq!(origin(&settings, "b-b"), "environment TERRANE_B_B");
        assert_eq!(origin(&settings, "c"), "file t.toml");
        assert_eq!(origin(&settings, "d"), "default");
        settings.finish().expect("every name is known");
    }

    #[test]
    fn lists_numbers_and_flags_of_a_file_are_read_as_on_the_command_line() {
        let toml = "[server]\nmasters = ['a:1', 'b:2']\nlog-limit = '1GiB'\nservers = 2\ninsecure = true";
        let mut settings = settings(|_| None, toml);
        let masters = settings.pick("masters", None, addresses, Addresses(Vec::new())).expect("masters");
        assert_eq!(masters.0, ["a:1", "b:2"]);
        let limit = settings.pick("log-limit", None, str::parse::<Size>, Size(0)).expect("a size");
        assert_eq!(limit, Size(1 << 30));
        assert_eq!(settings.pick("servers", None, str::parse::<u32>, 3).expect("a number"), 2);
        assert!(settings.pick("insecure", None, str::parse::<bool>, false).expect("a flag"));
    }

    #[test]
    fn errors_in_a_file_name_their_place() {
        let unknown = settings(|_| None, "[server]\nmastres = 'a:1'").finish().expect_err("misspelt");
        assert!(unknown.to_string().contains("mastres"), "{unknown}");
        let mut settings = settings(|_| None, "[server]\nlog-limit = 'much'");
        let bad = settings.pick("log-limit", None, str::parse::<Size>, Size(0)).expect_err("not a size");
        assert!(bad.to_string().contains("t.toml, [server] log-limit"), "{bad}");
        assert_eq!(bad.exit, crate::failure::Exit::Usage);
        assert!(section("server", b"[sever]\na = 1").expect_err("misspelt").to_string().contains("sever"));
        assert!(section("server", b"server = 1").is_err());
        assert!(section("server", b"= 1").is_err());
    }

    #[test]
    fn exposure_to_other_machines_must_be_allowed() {
        let check = |listen, advertise, insecure| check_exposure(listen, "127.0.0.1:7710", advertise, insecure);
        for listen in ["127.0.0.1:1", "localhost:1", "[::1]:1", "127.9.9.9:0"] {
            assert_eq!(check(listen, None, false).expect("loopback"), None);
        }
        for listen in ["10.0.0.1:1", "node-1:7700"] {
            assert!(check(listen, None, false).expect_err("exposed").to_string().contains("no TLS yet"));
            assert!(check(listen, None, true).expect("insisted").expect("a warning").contains(listen));
        }
        assert!(check("0.0.0.0:1", None, true).is_err());
        assert!(check("[::]:1", None, true).is_err());
        assert!(check("0.0.0.0:1", Some("0.0.0.0:1"), true).is_err());
        assert!(check("0.0.0.0:1", Some("node-1:1"), false).is_err());
        assert!(check("0.0.0.0:1", Some("node-1:1"), true).is_ok());
        assert!(check_exposure("127.0.0.1:1", "0.0.0.0:2", None, false).is_err());
    }
}
