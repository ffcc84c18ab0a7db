//! Settings of servers. Flags override the environment, which overrides a TOML file, which overrides defaults.
//!
//! Every setting has one name in three spellings (`--memtable-budget`, `TERRANE_MEMTABLE_BUDGET`, `memtable-budget =
//! "…"` in the role's section of the file), one parser, and one entry in [`list`], which has its default. Its origin is
//! recorded, so that a server prints at startup which values it uses and where they come from. An unknown name in the file
//! is an error: a misspelled setting that is silently ignored would only be noticed when it does damage. An unknown
//! variable is noted only, since it may belong to another program.

pub mod file;
pub mod list;

use std::collections::BTreeMap;
use std::fmt::{self, Display};
use std::net::IpAddr;
use std::ops::RangeInclusive;
use std::path::Path;
use std::time::Duration;

use terrane_env::trace::Tracer;
use terrane_types::closest;

use crate::args::roles::{Log, Traces};
use crate::args::values::{Time, address_parts, collector, duration, share};
use crate::failure::{During, Failure};
use crate::logging::{self, LogFormat};
use crate::trace_export;
use list::{FEATURE_LEVEL, Role, Setting, Unset, variable};

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
    /// What the role's section of the file has, as text.
    section: BTreeMap<String, String>,
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
            sources.file = path.display().to_string();
            let text = read(path).await?;
            sources.section =
                file::section(role, &text).during(format!("read the configuration {}", path.display()))?;
        }
        Ok(sources)
    }

    /// A section of a file alone, without the environment of this process.
    pub fn of_section(file: &str, section: BTreeMap<String, String>) -> Sources {
        Sources { file: file.to_owned(), section, environment: BTreeMap::new() }
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
    used: BTreeMap<&'static str, (String, String)>,
    warnings: Vec<String>,
    log: LogSettings,
    traces: TraceSettings,
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
    /// Prints the settings and the warnings on standard error.
    pub fn print(&self) {
        self.settings.iter().for_each(|setting| eprintln!("{setting}"));
        self.warnings.iter().for_each(|warning| eprintln!("{warning}"));
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
    pub fn new(role: Role, sources: Sources) -> Settings {
        Settings {
            role,
            sources,
            used: BTreeMap::new(),
            warnings: Vec::new(),
            log: LogSettings::default(),
            traces: TraceSettings::default(),
        }
    }

    /// The setting `key`, or its default if it is not set.
    pub fn pick<T: Display, E: Display>(
        &mut self,
        key: &'static str,
        flag: Option<T>,
        read: impl Fn(&str) -> Result<T, E>,
    ) -> Result<T, Failure> {
        let (setting, unset) = self.setting(key);
        if let Some(value) = self.find(setting, flag, &read)? {
            return Ok(value);
        }
        let Unset::Value(default) = unset else { panic!("{key} has no default: it is optional") };
        let value = read(default).map_err(|error| Failure::new(format!("the default of {key}: {error}")))?;
        self.note(key, value.to_string(), "default".to_owned());
        Ok(value)
    }

    /// The setting `key`, if it is set.
    pub fn pick_optional<T: Display, E: Display>(
        &mut self,
        key: &'static str,
        flag: Option<T>,
        read: impl Fn(&str) -> Result<T, E>,
    ) -> Result<Option<T>, Failure> {
        let (setting, unset) = self.setting(key);
        let found = self.find(setting, flag, &read)?;
        if let (None, Unset::Means(default)) = (&found, unset) {
            self.note(key, default.to_owned(), "default".to_owned());
        }
        Ok(found)
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

    fn note(&mut self, key: &'static str, value: String, origin: String) {
        self.used.insert(key, (value, origin));
    }

    fn find<T: Display, E: Display>(
        &mut self,
        setting: &'static Setting,
        flag: Option<T>,
        read: impl Fn(&str) -> Result<T, E>,
    ) -> Result<Option<T>, Failure> {
        let key = setting.key;
        // Removed from the section even if a flag overrides it, so that only unknown names remain at the end.
        let in_file = self.sources.section.remove(key);
        let variable = variable(key);
        let (value, origin) = if let Some(value) = flag {
            (value, format!("flag --{key}"))
        } else if let Some(text) = self.sources.environment.get(&variable) {
            let value =
                read(text).map_err(|error| Failure::usage(format!("environment variable {variable}: {error}")))?;
            (value, format!("environment {variable}"))
        } else if let Some(text) = in_file {
            let origin = format!("file {}", self.sources.file);
            let place = || format!("{origin}, [{}] {key}", self.role.name());
            let value = read(&text).map_err(|error| Failure::usage(format!("{}: {error}", place())))?;
            (value, origin)
        } else {
            return Ok(None);
        };
        self.note(key, value.to_string(), origin);
        Ok(Some(value))
    }

    /// Finishes the lookup: rejects unknown names in the file, and says what is used.
    pub fn finish(mut self) -> Result<Used, Failure> {
        if let Some(key) = self.sources.section.keys().next() {
            let keys: Vec<&str> = list::of(self.role).map(|setting| setting.key).collect();
            return Err(Failure::usage(format!("{}: {}", self.sources.file, file::unknown_key(self.role, key)))
                .advise(format!("known settings: {}", keys.join(", "))));
        }
        let settings = list::of(self.role).chain([&FEATURE_LEVEL]).filter_map(|setting| {
            let (value, origin) = self.used.get(setting.key)?;
            let is_hidden = setting.key == FEATURE_LEVEL.key && origin == "default";
            let unset = setting.unset(self.role).map(|unset| match unset {
                Unset::Value(value) | Unset::Means(value) => value,
            });
            (!is_hidden).then(|| UsedSetting {
                role: self.role,
                key: setting.key,
                value: if is_secret(setting.key) { HIDDEN.to_owned() } else { value.clone() },
                default: unset.filter(|_| !is_secret(setting.key)),
                origin: origin.clone(),
                meaning: setting.meaning,
            })
        });
        let settings = settings.collect();
        self.warnings.extend(self.sources.environment.keys().filter_map(|name| unknown_variable(name)));
        Ok(Used { settings, warnings: self.warnings, log: self.log, traces: self.traces })
    }
}

/// Reads the settings of the log. [`Used::apply`] puts them into effect.
pub fn log_settings(settings: &mut Settings, log: Log) -> Result<(), Failure> {
    let format = settings.pick("log-format", log.log_format, str::parse)?;
    let file = log.audit_log.map(|path| path.display().to_string());
    let any = |text: &str| Ok::<_, std::convert::Infallible>(text.to_owned());
    let audit_file = settings.pick_optional("audit-log", file, any)?;
    settings.log = LogSettings { format, audit_file };
    Ok(())
}

/// How long a scanner of HBase's clients waits for its next call.
pub fn scanner_lease(settings: &mut Settings, lease: Option<Duration>, serves: bool) -> Result<Duration, Failure> {
    let is_given = lease.is_some();
    let lease = settings.pick("hbase-scanner-lease", lease.map(Time), |text| duration(text).map(Time))?.0;
    if !SCANNER_LEASES.contains(&lease) {
        return Err(Failure::usage(format!("--hbase-scanner-lease must be 1s to 1h, not {}", Time(lease))));
    }
    if is_given && !serves {
        settings.warn("note: --hbase-scanner-lease has no effect without --hbase".to_owned());
    }
    Ok(lease)
}

/// Looks up the settings of traces.
pub fn trace_settings(settings: &mut Settings, traces: Traces) -> Result<(), Failure> {
    let endpoint = settings.pick_optional("otlp-endpoint", traces.otlp_endpoint, collector)?;
    let share = settings.pick("trace-share", traces.trace_share, share)?;
    if share > 0.0 && endpoint.is_none() {
        settings.warn("note: trace-share has no effect without otlp-endpoint".to_owned());
    }
    settings.traces = TraceSettings { endpoint, share };
    Ok(())
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

/// Whether an address is every address of the machine.
pub fn is_wildcard(address: &str) -> bool {
    reach(address).is_ok_and(|reach| reach == Reach::Wildcard)
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
    use crate::args::values::{Addresses, Size, address, addresses};

    fn settings(role: Role, environment: &[(&str, &str)], toml: &str) -> Settings {
        let section = file::section(role, toml).expect("a section");
        let environment = environment.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned()));
        Settings::new(role, Sources { file: "t.toml".to_owned(), section, environment: environment.collect() })
    }

    fn text(value: &str) -> Result<String, std::convert::Infallible> {
        Ok(value.to_owned())
    }

    #[test]
    fn flags_outrank_environment_file_and_default_in_this_order() {
        let environment = [("TERRANE_CONSOLE", "e:2"), ("TERRANE_LISTEN", "e:1")];
        let toml = "[server]\nlisten = 'f:1'\nconsole = 'f:2'\nzone = 'f'\n[master]\nlisten = 'x:1'";
        let mut settings = settings(Role::Server, &environment, toml);
        let pick = |settings: &mut Settings, key, flag: Option<&str>| {
            settings.pick(key, flag.map(str::to_owned), text).expect("a value")
        };
        assert_eq!(pick(&mut settings, "listen", Some("flag:1")), "flag:1");
        assert_eq!(pick(&mut settings, "console", None), "e:2");
        assert_eq!(settings.pick_optional("zone", None, text).expect("a value").as_deref(), Some("f"));
        assert_eq!(settings.pick_optional("advertise", None, address).expect("no value"), None);
        assert_eq!(pick(&mut settings, "data", None), "terrane-server");
        let origin = |key| settings.used[key].1.as_str();
        assert_eq!(origin("listen"), "flag --listen");
        assert_eq!(origin("console"), "environment TERRANE_CONSOLE");
        assert_eq!(origin("zone"), "file t.toml");
        assert_eq!(origin("data"), "default");
        let used = settings.finish().expect("every name is known");
        assert_eq!(used.settings[2].to_string(), "advertise        = the listen address  (default)");
        let zone = used.settings.iter().find(|setting| setting.key == "zone").expect("the zone");
        assert_eq!((zone.value.as_str(), zone.default, zone.role), ("f", Some("none"), Role::Server));
        assert!(used.warnings.is_empty(), "{:?}", used.warnings);
    }

    #[test]
    fn lists_numbers_and_flags_of_a_file_are_read_as_on_the_command_line() {
        let mut server =
            settings(Role::Server, &[], "[server]\nmasters = ['a:1', 'b:2']\nlog-limit = '1GiB'\ninsecure = true");
        let masters: Addresses = server.pick("masters", None, addresses).expect("masters");
        assert_eq!(masters.0, ["a:1", "b:2"]);
        assert_eq!(server.pick("log-limit", None, str::parse::<Size>).expect("a size"), Size(1 << 30));
        assert!(server.pick("insecure", None, str::parse::<bool>).expect("a flag"));
        let mut dev = settings(Role::Dev, &[], "[dev]\nservers = 2");
        assert_eq!(dev.pick("servers", None, str::parse::<u32>).expect("a number"), 2);
    }

    #[test]
    fn errors_in_a_file_name_their_place() {
        let unknown = settings(Role::Server, &[], "[server]\nlog-limt = '1GiB'");
        let unknown = unknown.finish().expect_err("misspelt");
        assert!(unknown.to_string().contains("\"log-limt\"; did you mean log-limit?"), "{unknown}");
        let mut settings = settings(Role::Server, &[], "[server]\nlog-limit = 'much'");
        let bad = settings.pick("log-limit", None, str::parse::<Size>).expect_err("not a size");
        assert!(bad.to_string().contains("t.toml, [server] log-limit"), "{bad}");
        assert_eq!(bad.exit, crate::failure::Exit::Usage);
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
