//! Settings of servers. Flags override the environment, which overrides a TOML file, which overrides defaults.
//!
//! Every setting has one name in three spellings (`--memtable-budget`, `TERRANE_MEMTABLE_BUDGET`, `memtable-budget =
//! "…"` in the role's section of the file), one parser, and one entry in [`list`], which has its default. Its origin is
//! recorded, so that a server prints at startup which values it uses and where they come from. An unknown name in the file
//! is an error: a misspelled setting that is silently ignored would only be noticed when it does damage. An unknown
//! variable is noted only, since it may belong to another program.
//!
//! A lookup does not stop at a mistake: it goes on with the default, and [`Settings::finish`] has all mistakes. `terrane config
//! check` is such a lookup of each section, so it finds what a start would find.

pub mod file;
pub mod list;
mod mistakes;
pub mod ports;

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::{self, Display};
use std::ops::RangeInclusive;
use std::path::Path;
use std::time::Duration;

use terrane_env::trace::Tracer;
use terrane_types::closest;

use crate::args::roles::{Log, Traces};
use crate::args::values::{Time, collector, duration, share};
use crate::failure::Failure;
use crate::logging::{self, LogFormat};
use crate::trace_export;
use file::{Examined, Section};
use list::{FEATURE_LEVEL, Role, Setting, Unset, variable};
pub use mistakes::{Mistake, Mistakes};

/// With a shorter lease, clients lose scanners between calls. With a longer one, a region keeps replaced versions for clients
/// that are gone.
const SCANNER_LEASES: RangeInclusive<Duration> = Duration::from_secs(1)..=Duration::from_secs(3_600);

/// Prefix of every environment variable.
const ENVIRONMENT_PREFIX: &str = "TERRANE_";
/// Variables that are no settings of a role: of the logs, the shell, the systemd units and the tests.
const OTHER_VARIABLES: [&str; 8] = [
    "TERRANE_LOG",
    "TERRANE_HISTORY",
    "TERRANE_OPTIONS",
    "TERRANE_REWRITE",
    "TERRANE_SEED",
    "TERRANE_FULL",
    "TERRANE_SCHEDULE",
    "TERRANE_TEST_DATA",
];
/// Prefix of the variables that only tests set.
const TEST_PREFIX: &str = "TERRANE_TEST_";

/// Where settings come from, besides flags.
#[derive(Clone, Debug, Default)]
pub struct Sources {
    /// The name of the file; empty without one.
    file: String,
    /// What the role's section of the file has.
    section: Section,
    /// What is wrong with the file.
    mistakes: Vec<Mistake>,
    /// Variables of the environment that begin with our prefix.
    environment: BTreeMap<String, String>,
}

impl Sources {
    /// The environment, and the role's section of a file if one is given.
    pub async fn open(role: Role, file: Option<&Path>) -> Result<Sources, Failure> {
        let variables = std::env::vars_os().filter_map(|(name, value)| {
            let name = name.into_string().ok().filter(|name| name.starts_with(ENVIRONMENT_PREFIX))?;
            Some((name, value.to_string_lossy().into_owned()))
        });
        let mut sources = Sources { environment: variables.collect(), ..Sources::default() };
        if let Some(path) = file {
            sources.add_file(role, &path.display().to_string(), &read(path).await?)?;
        }
        Ok(sources)
    }

    fn add_file(&mut self, role: Role, name: &str, text: &str) -> Result<(), Mistakes> {
        let Examined { sections, mistakes, is_unreadable } = file::examine(text, &[role]);
        self.file = name.to_owned();
        self.section = sections.into_iter().map(|(_, section)| section).next().unwrap_or_default();
        self.mistakes = mistakes.into_iter().map(Mistake::from).collect();
        if is_unreadable {
            return Err(Mistakes { file: self.file.clone(), list: std::mem::take(&mut self.mistakes) });
        }
        Ok(())
    }

    /// A section of a file alone, without the environment of this process. Its own mistakes are known already.
    pub fn of_section(file: &str, section: Section) -> Sources {
        Sources { file: file.to_owned(), section, ..Sources::default() }
    }
}

/// The text of a configuration file.
pub async fn read(path: &Path) -> Result<String, Failure> {
    let attempt = || format!("cannot read the configuration {}", path.display());
    let bytes = terrane_env::fs::read(path).await.map_err(|error| Failure::new(format!("{}: {error}", attempt())))?;
    String::from_utf8(bytes.to_vec()).map_err(|_| Failure::usage("the file is not UTF-8 text").during(attempt()))
}

/// Looks up settings and records their origins.
pub struct Settings {
    role: Role,
    sources: Sources,
    /// The keys that were looked up, each with its value and origin.
    used: BTreeMap<&'static str, (String, Origin)>,
    warnings: Vec<String>,
    /// The settings that cannot be read; their defaults stand in until the end.
    wrong: BTreeSet<String>,
    mistakes: Vec<Mistake>,
    log: LogSettings,
    traces: TraceSettings,
}

/// Where a value comes from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Origin {
    Flag,
    Environment,
    /// A line of the file.
    File(usize),
    Default,
}

/// Where a process exports spans to, and which requests begin a trace.
#[derive(Debug, Default)]
struct TraceSettings {
    endpoint: Option<String>,
    share: f64,
}

/// How a process logs.
#[derive(Debug, Default)]
struct LogSettings {
    format: LogFormat,
    audit_file: Option<String>,
}

/// A setting as a process uses it until it ends.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct UsedSetting {
    pub role: Role,
    pub key: &'static str,
    /// What is used, as text. A secret is hidden.
    pub value: String,
    /// What is used without any setting, as text.
    pub default: Option<&'static str>,
    /// A flag, a variable of the environment, a file, or `default`.
    pub origin: String,
    pub meaning: &'static str,
}

impl fmt::Display for UsedSetting {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:<16} = {}  ({})", self.key, self.value, self.origin)
    }
}

/// What is shown instead of a secret.
const HIDDEN: &str = "(hidden)";

/// Whether the value of a key is shown to no one: logs and consoles are read by more people than may use it.
fn is_secret(key: &str) -> bool {
    ["password", "secret", "token", "private-key"].iter().any(|part| key.contains(part))
}

/// The settings of a process, for its user.
#[derive(Debug)]
pub struct Used {
    /// All settings of the role, in the order of the list.
    pub settings: Vec<UsedSetting>,
    /// What may not be meant.
    pub warnings: Vec<String>,
    log: LogSettings,
    traces: TraceSettings,
}

impl Used {
    /// Prints the settings and the warnings on standard error, in the form of the log.
    pub fn print(&self) {
        for setting in &self.settings {
            logging::say_setting(setting.key, &setting.value, &setting.origin, &setting.to_string());
        }
        self.warnings.iter().for_each(|warning| logging::warn(warning));
    }

    /// The tracer of the settings; with a collector it starts the export.
    pub fn tracer(&self) -> Result<Tracer, Failure> {
        let TraceSettings { endpoint, share } = &self.traces;
        endpoint
            .as_ref()
            .map_or_else(|| Ok(Tracer::default()), |endpoint| trace_export::start(endpoint, "terrane-server", *share))
    }

    /// Puts the settings of the log into effect.
    pub fn apply(&self) -> Result<(), Failure> {
        logging::set_format(self.log.format);
        self.log.audit_file.as_ref().map_or(Ok(()), |file| logging::keep_audit_in(Path::new(file)))
    }
}

impl Settings {
    pub fn new(role: Role, mut sources: Sources) -> Settings {
        let (mistakes, wrong) = (std::mem::take(&mut sources.mistakes), std::mem::take(&mut sources.section.wrong));
        Settings {
            role,
            sources,
            used: BTreeMap::new(),
            warnings: Vec::new(),
            wrong,
            mistakes,
            log: LogSettings::default(),
            traces: TraceSettings::default(),
        }
    }

    /// The setting `key`, or its default if it is not set. So also if it cannot be read, which is a mistake.
    pub fn pick<T: Display, E: Display>(
        &mut self,
        key: &'static str,
        flag: Option<T>,
        read: impl Fn(&str) -> Result<T, E>,
    ) -> T {
        let (setting, unset) = self.setting(key);
        if let Some(value) = self.find(setting, flag, &read) {
            return value;
        }
        let Unset::Value(default) = unset else { panic!("{key} has no default: it is optional") };
        let value = read(default).unwrap_or_else(|error| panic!("the default of {key}: {error}"));
        self.note(key, value.to_string(), Origin::Default);
        value
    }

    /// The setting `key`, if it is set.
    pub fn pick_optional<T: Display, E: Display>(
        &mut self,
        key: &'static str,
        flag: Option<T>,
        read: impl Fn(&str) -> Result<T, E>,
    ) -> Option<T> {
        let (setting, unset) = self.setting(key);
        let found = self.find(setting, flag, &read);
        if let (None, Unset::Means(default)) = (&found, unset) {
            self.note(key, default.to_owned(), Origin::Default);
        }
        found
    }

    /// Keeps what is wrong with a setting, or with several together: `why` is the predicate of a sentence about the first. The
    /// others have a part in it.
    pub fn mistake(&mut self, keys: &[&'static str], why: impl Display, advice: Option<String>) {
        // The default is used for a value that cannot be read, and nothing is to be said about it.
        if keys.iter().any(|key| self.wrong.contains(*key)) {
            return;
        }
        let origin = |key: &&'static str| self.used.get(key).map_or(Origin::Default, |(_, origin)| *origin);
        let line = keys.iter().map(origin).find_map(|origin| match origin {
            Origin::File(line) => Some(line),
            Origin::Flag | Origin::Environment | Origin::Default => None,
        });
        let Some(key) = keys.first() else { return };
        let shown = match origin(key) {
            // The flag of `dev`, whose variable would name the masters of commands.
            Origin::Flag if *key == "master-count" => "--masters".to_owned(),
            Origin::Flag => format!("--{key}"),
            Origin::Environment => format!("environment variable {}", variable(key)),
            Origin::File(_) => format!("[{}] {key}", self.role.name()),
            Origin::Default if line.is_some() => format!("[{}] {key}, which is not set,", self.role.name()),
            Origin::Default => format!("--{key}"),
        };
        self.mistakes.push(Mistake { line, message: format!("{shown} {why}"), advice });
    }

    /// Keeps something that the user should know.
    pub fn warn(&mut self, warning: String) {
        self.warnings.push(warning);
    }

    /// The entry of a key in the list. A key that the list lacks is a mistake of ours, which the first start would show.
    fn setting(&self, key: &'static str) -> (&'static Setting, Unset) {
        let all = list::of(self.role).chain([&FEATURE_LEVEL]);
        let listed = all.filter_map(|setting| Some((setting, setting.unset(self.role)?)));
        let mut named = listed.filter(|(setting, _)| setting.key == key);
        named.next().unwrap_or_else(|| panic!("{} has no setting {key}", self.role.name()))
    }

    fn note(&mut self, key: &'static str, value: String, origin: Origin) {
        self.used.insert(key, (value, origin));
    }

    fn find<T: Display, E: Display>(
        &mut self,
        setting: &'static Setting,
        flag: Option<T>,
        read: impl Fn(&str) -> Result<T, E>,
    ) -> Option<T> {
        let key = setting.key;
        // As in a file: what a value of this kind is, rather than what its parser missed.
        let read = |text: &str| {
            read(text).map_err(|why| file::check_value(setting.kind, text).err().unwrap_or_else(|| why.to_string()))
        };
        let (value, origin) = if let Some(value) = flag {
            (Ok(value), Origin::Flag)
        } else if let Some(text) = self.sources.environment.get(&variable(key)) {
            (read(text), Origin::Environment)
        } else if let Some(given) = self.sources.section.values.get(key) {
            (read(&given.text), Origin::File(given.line))
        } else {
            return None;
        };
        match value {
            Ok(value) => {
                self.note(key, value.to_string(), origin);
                Some(value)
            }
            Err(error) => {
                let (line, shown) = match origin {
                    Origin::File(line) => (Some(line), format!("[{}] {key}", self.role.name())),
                    _ => (None, format!("environment variable {}", variable(key))),
                };
                self.mistakes.push(Mistake { line, message: format!("{shown}: {error}"), advice: None });
                self.wrong.insert(key.to_owned());
                None
            }
        }
    }

    /// Finishes the lookup: all mistakes, or what is used.
    pub fn finish(mut self) -> Result<Used, Mistakes> {
        if !self.mistakes.is_empty() {
            self.mistakes.sort_by_key(|mistake| mistake.line);
            return Err(Mistakes { file: self.sources.file, list: self.mistakes });
        }
        let settings = list::of(self.role).chain([&FEATURE_LEVEL]).filter_map(|setting| {
            let (value, origin) = self.used.get(setting.key)?;
            let is_hidden = setting.key == FEATURE_LEVEL.key && *origin == Origin::Default;
            let unset = setting.unset(self.role).map(|unset| match unset {
                Unset::Value(value) | Unset::Means(value) => value,
            });
            (!is_hidden).then(|| UsedSetting {
                role: self.role,
                key: setting.key,
                value: if is_secret(setting.key) { HIDDEN.to_owned() } else { value.clone() },
                default: unset.filter(|_| !is_secret(setting.key)),
                origin: match origin {
                    Origin::Flag => format!("flag --{}", setting.key),
                    Origin::Environment => format!("environment {}", variable(setting.key)),
                    Origin::File(_) => format!("file {}", self.sources.file),
                    Origin::Default => "default".to_owned(),
                },
                meaning: setting.meaning,
            })
        });
        let settings = settings.collect();
        self.warnings.extend(self.sources.environment.keys().filter_map(|name| unknown_variable(name)));
        Ok(Used { settings, warnings: self.warnings, log: self.log, traces: self.traces })
    }
}

/// Reads the settings of the log. [`Used::apply`] puts them into effect.
pub fn log_settings(settings: &mut Settings, log: Log) {
    let format = settings.pick("log-format", log.log_format, str::parse);
    let file = log.audit_log.map(|path| path.display().to_string());
    let any = |text: &str| Ok::<_, std::convert::Infallible>(text.to_owned());
    let audit_file = settings.pick_optional("audit-log", file, any);
    settings.log = LogSettings { format, audit_file };
}

/// How long a scanner of HBase's clients waits for its next call.
pub fn scanner_lease(settings: &mut Settings, lease: Option<Duration>, serves: bool) -> Duration {
    let is_given = lease.is_some();
    let key = "hbase-scanner-lease";
    let lease = settings.pick(key, lease.map(Time), |text| duration(text).map(Time)).0;
    if !SCANNER_LEASES.contains(&lease) {
        settings.mistake(&[key], format!("must be 1s to 1h, not {}", Time(lease)), None);
    }
    if is_given && !serves {
        settings.warn("note: --hbase-scanner-lease has no effect without --hbase".to_owned());
    }
    lease
}

/// Looks up the settings of traces.
pub fn trace_settings(settings: &mut Settings, traces: Traces) {
    let endpoint = settings.pick_optional("otlp-endpoint", traces.otlp_endpoint, collector);
    let share = settings.pick("trace-share", traces.trace_share, share);
    if share > 0.0 && endpoint.is_none() {
        settings.warn("note: trace-share has no effect without otlp-endpoint".to_owned());
    }
    settings.traces = TraceSettings { endpoint, share };
}

/// A note if no role, test or other part reads a variable that has our prefix.
fn unknown_variable(name: &str) -> Option<String> {
    let settings = list::SETTINGS.iter().chain([&FEATURE_LEVEL]).map(|setting| variable(setting.key));
    let known: Vec<String> = settings.chain(OTHER_VARIABLES.map(str::to_owned)).collect();
    if name.starts_with(TEST_PREFIX) || known.iter().any(|known| known == name) {
        return None;
    }
    let meant = closest(name, known.iter().map(String::as_str));
    let meant = meant.map(|meant| format!("; did you mean {meant}?")).unwrap_or_default();
    Some(format!("note: the environment variable {name} is no setting and has no effect{meant}"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::args::values::{Addresses, Size, address, addresses};

    fn settings(role: Role, environment: &[(&str, &str)], toml: &str) -> Settings {
        let environment = environment.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned()));
        let mut sources = Sources { environment: environment.collect(), ..Sources::default() };
        sources.add_file(role, "t.toml", toml).expect("TOML");
        Settings::new(role, sources)
    }

    fn text(value: &str) -> Result<String, std::convert::Infallible> {
        Ok(value.to_owned())
    }

    #[test]
    fn flags_outrank_environment_file_and_default_in_this_order() {
        let environment = [("TERRANE_CONSOLE", "e:2"), ("TERRANE_LISTEN", "e:1")];
        let toml = "[server]\nlisten = 'f:1'\nconsole = 'f:2'\nzone = 'f'\n[master]\nlisten = 'x:1'";
        let mut settings = settings(Role::Server, &environment, toml);
        let pick = |settings: &mut Settings, key, flag: Option<&str>| settings.pick(key, flag.map(str::to_owned), text);
        assert_eq!(pick(&mut settings, "listen", Some("flag:1")), "flag:1");
        assert_eq!(pick(&mut settings, "console", None), "e:2");
        assert_eq!(settings.pick_optional("zone", None, text).as_deref(), Some("f"));
        assert_eq!(settings.pick_optional("advertise", None, address), None);
        assert_eq!(pick(&mut settings, "data", None), "terrane-server");
        let used = settings.finish().expect("every name is known");
        let origin =
            |key| used.settings.iter().find(|setting| setting.key == key).map(|setting| setting.origin.as_str());
        assert_eq!(origin("listen"), Some("flag --listen"));
        assert_eq!(origin("console"), Some("environment TERRANE_CONSOLE"));
        assert_eq!(origin("zone"), Some("file t.toml"));
        assert_eq!(origin("data"), Some("default"));
        assert_eq!(used.settings[2].to_string(), "advertise        = the listen address  (default)");
        let zone = used.settings.iter().find(|setting| setting.key == "zone").expect("the zone");
        assert_eq!((zone.value.as_str(), zone.default, zone.role), ("f", Some("none"), Role::Server));
        assert!(used.warnings.is_empty(), "{:?}", used.warnings);
    }

    #[test]
    fn lists_numbers_and_flags_of_a_file_are_read_as_on_the_command_line() {
        let mut server =
            settings(Role::Server, &[], "[server]\nmasters = ['a:1', 'b:2']\nlog-limit = '1GiB'\ninsecure = true");
        let masters: Addresses = server.pick("masters", None, addresses);
        assert_eq!(masters.0, ["a:1", "b:2"]);
        assert_eq!(server.pick("log-limit", None, str::parse::<Size>), Size(1 << 30));
        assert!(server.pick("insecure", None, str::parse::<bool>));
        let mut dev = settings(Role::Dev, &[], "[dev]\nservers = 2");
        assert_eq!(dev.pick("servers", None, str::parse::<u32>), 2);
    }

    #[test]
    fn all_mistakes_are_found_and_name_their_place() {
        let toml = "[server]\nlog-limt = '1GiB'\nlog-limit = 'much'\nzone = 'a'\n";
        let mut settings = settings(Role::Server, &[("TERRANE_CACHE_SIZE", "4GB")], toml);
        let limit = settings.pick("log-limit", None, str::parse::<Size>);
        assert_eq!(limit, Size(8 << 30), "the default is used");
        settings.pick("cache-size", None, str::parse::<Size>);
        settings.pick_optional("zone", None, text);
        settings.pick("listen", Some("0.0.0.0:1".to_owned()), text);
        settings.mistake(&["zone"], "is too short", None);
        settings.mistake(&["log-limit", "zone"], "is about a default that is used instead", None);
        settings.mistake(&["listen"], "is open", Some("close it".to_owned()));
        settings.mistake(&["data", "zone"], "has a zone", None);
        let failure = Failure::from(settings.finish().expect_err("mistakes"));
        assert_eq!(failure.exit, crate::failure::Exit::Usage);
        let said = failure.to_string();
        let lines: Vec<&str> = said.lines().map(str::trim).collect();
        assert_eq!(lines[0], "6 mistakes in the settings:");
        assert!(lines[1].starts_with("environment variable TERRANE_CACHE_SIZE: \"4GB\""), "{said}");
        assert_eq!(lines[2], "--listen is open; close it");
        assert_eq!(lines[3], "t.toml:2: [server] has no setting \"log-limt\"; did you mean log-limit?");
        assert!(lines[4].starts_with("t.toml:3: [server] log-limit: \"much\""), "{said}");
        assert_eq!(lines[5], "t.toml:4: [server] zone is too short");
        assert_eq!(lines[6], "t.toml:4: [server] data, which is not set, has a zone");
    }

    #[test]
    fn a_file_that_is_no_toml_is_refused_with_its_line() {
        let mut sources = Sources::default();
        let refused = sources.add_file(Role::Server, "t.toml", "[server]\nzone = a\n").expect_err("no TOML");
        assert!(refused.to_string().starts_with("t.toml:2: "), "{refused}");
    }

    #[test]
    fn secrets_are_hidden_and_nothing_else_is() {
        for key in ["console-password", "join-token", "tls-private-key", "secret"] {
            assert!(is_secret(key), "{key}");
        }
        assert!(list::SETTINGS.iter().all(|setting| !is_secret(setting.key)), "none is a secret yet");
    }

    #[test]
    fn misspelt_variables_are_noted() {
        let known = [("TERRANE_PEERS", "a:1"), ("TERRANE_LOG", "info"), ("TERRANE_TEST_ANYTHING", "1")];
        assert!(settings(Role::Server, &known, "").finish().expect("settings").warnings.is_empty());
        let used = settings(Role::Server, &[("TERRANE_LOG_LIMT", "1GiB"), ("TERRANE_COLOUR", "red")], "").finish();
        let warnings = used.expect("only noted").warnings;
        let limit = "note: the environment variable TERRANE_LOG_LIMT is no setting and has no effect; did you mean \
                     TERRANE_LOG_LIMIT?";
        assert_eq!(warnings, ["note: the environment variable TERRANE_COLOUR is no setting and has no effect", limit]);
    }

    #[test]
    fn every_default_in_the_list_is_a_value_of_its_kind() {
        for role in Role::ALL {
            for setting in list::of(role) {
                if let Some(Unset::Value(default)) = setting.unset(role) {
                    file::check_value(setting.kind, default).unwrap_or_else(|why| panic!("{}: {why}", setting.key));
                }
            }
        }
    }

    /// The mistakes and warnings of these ports of a server.
    fn exposed(listen: &str, console: &str, advertise: Option<&str>, insecure: bool) -> Result<Vec<String>, String> {
        let mut settings = settings(Role::Server, &[], "");
        ports::check_exposure(
            &mut settings,
            &[("listen", listen), ("console", console)],
            ("advertise", advertise),
            insecure,
        );
        settings.finish().map(|used| used.warnings).map_err(|mistakes| mistakes.to_string())
    }

    #[test]
    fn exposure_to_other_machines_must_be_allowed() {
        let check = |listen, advertise, insecure| exposed(listen, "127.0.0.1:7710", advertise, insecure);
        for listen in ["127.0.0.1:1", "localhost:1", "[::1]:1", "127.9.9.9:0"] {
            assert_eq!(check(listen, None, false), Ok(Vec::new()));
        }
        for listen in ["10.0.0.1:1", "node-1:7700"] {
            assert!(check(listen, None, false).expect_err("exposed").contains("no TLS yet"));
            assert!(check(listen, None, true).expect("insisted").concat().contains(listen));
        }
        assert!(check("0.0.0.0:1", None, true).is_err());
        assert!(check("[::]:1", None, true).is_err());
        assert!(check("0.0.0.0:1", Some("0.0.0.0:1"), true).is_err());
        assert!(check("0.0.0.0:1", Some("node-1:1"), false).is_err());
        assert!(check("0.0.0.0:1", Some("node-1:0"), true).is_err(), "no client can connect to it");
        assert!(check("0.0.0.0:1", Some("node-1:1"), true).is_ok());
        assert!(exposed("127.0.0.1:1", "0.0.0.0:2", None, false).is_err());
        let both = check("0.0.0.0:1", None, false).expect_err("two mistakes");
        assert!(both.contains("2 mistakes") && both.contains("--advertise HOST:PORT"), "{both}");
    }

    #[test]
    fn a_port_is_opened_once() {
        let same = |one: &str, other: &str| {
            let mut settings = settings(Role::Server, &[], "");
            ports::check_distinct(&mut settings, &[("listen", one), ("console", other)]);
            settings.finish().is_err()
        };
        for (one, other) in
            [("h:1", "h:1"), ("127.0.0.1:1", "localhost:1"), ("0.0.0.0:1", "h:1"), ("h:1", "[::]:1"), ("H:1", "h:1")]
        {
            assert!(same(one, other), "{one} {other}");
        }
        for (one, other) in [("h:1", "h:2"), ("h:1", "i:1"), ("h:0", "h:0"), ("127.0.0.1:1", "127.0.0.2:1")] {
            assert!(!same(one, other), "{one} {other}");
        }
    }
}
