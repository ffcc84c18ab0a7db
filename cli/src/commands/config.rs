//! `config list` shows the settings. `config check` reads a configuration file as the roles would, and says everything that is wrong with it.
//!
//! Mistakes make it fail: a role would not start. Notes do not, because they are about this machine and this moment, and
//! the file may be for another one: a port in use, a name that does not resolve. Each role looks up its section as at a start, so
//! that a file without mistakes is a file that the role accepts. The environment of this process does not count.

use std::path::Path;

use serde::Serialize;

use super::{dev, role};
use crate::args::config::{Check, Config, ConfigRole, List};
use crate::args::roles::{Dev, Master, Server};
use crate::args::values::addresses;
use crate::config::file::{Examined, FileValue, Section, examine};
use crate::config::list::{self, Role, Unset};
use crate::config::ports::is_wildcard;
use crate::config::{Mistakes, Sources, read};
use crate::failure::Failure;
use crate::hbase_ports::HbasePorts;
use crate::output::Output;

/// A mistake or a note.
#[derive(Serialize)]
struct FindingLine<'a> {
    kind: &'a str,
    file: &'a str,
    line: Option<usize>,
    message: &'a str,
}

/// A section without mistakes.
#[derive(Serialize)]
struct SectionLine<'a> {
    kind: &'a str,
    file: &'a str,
    section: &'a str,
    settings: usize,
}

pub async fn run(command: Config) -> Result<(), Failure> {
    match command {
        Config::Check(args) => check(args).await,
        Config::List(args) => list_settings(&args),
    }
}

/// A setting of a role.
#[derive(Serialize)]
struct SettingLine<'a> {
    role: &'a str,
    key: &'a str,
    #[serde(rename = "type")]
    kind: &'a str,
    /// Null if the setting has no value unless it is set; `unset` says what that means.
    default: Option<&'a str>,
    unset: Option<&'a str>,
    variable: &'a str,
    meaning: &'a str,
}

fn list_settings(args: &List) -> Result<(), Failure> {
    let mut output = Output::new(args.json);
    let mut rows = Vec::new();
    for role in roles_of(args.role) {
        for setting in list::of(role) {
            let (variable, kind, meaning) = (list::variable(setting.key), setting.kind.name(), setting.meaning);
            let (default, unset) = match setting.unset(role) {
                Some(Unset::Value(default)) => (Some(default), None),
                Some(Unset::Means(means)) => (None, Some(means)),
                None => (None, None),
            };
            let (role, key) = (role.name(), setting.key);
            if output.is_json() {
                let variable = variable.as_str();
                output.object(&SettingLine { role, key, kind, default, unset, variable, meaning })?;
            } else {
                let default = default.or(unset).unwrap_or_default();
                rows.push([role, key, kind, default, meaning].map(str::to_owned).to_vec());
            }
        }
    }
    if !output.is_json() {
        output.table(&["role", "key", "type", "default", "meaning"], rows)?;
    }
    output.flush()
}

fn roles_of(role: Option<ConfigRole>) -> Vec<Role> {
    role.map_or_else(|| Role::ALL.to_vec(), |role| vec![role_of(role)])
}

async fn check(args: Check) -> Result<(), Failure> {
    let text = read(&args.file).await?;
    let file = args.file.display().to_string();
    let roles = roles_of(args.role);
    let Examined { sections, mistakes, is_unreadable } = examine(&text, &roles);
    let mut found: Vec<(Option<usize>, String)> =
        mistakes.into_iter().map(|mistake| (Some(mistake.line), mistake.message)).collect();
    let mut notes = Vec::new();
    // What values mean together shows only once all of them are known.
    for (role, section) in sections.iter().filter(|_| !is_unreadable) {
        match judge(*role, &file, section).await? {
            // With values that cannot be read, they would be about defaults.
            Ok(said) => notes.extend(said.into_iter().filter(|_| section.wrong.is_empty())),
            Err(mistakes) => {
                found.extend(mistakes.list.iter().map(|mistake| (mistake.line, mistake.with_advice())));
            }
        }
    }
    found.sort_by_key(|(line, _)| *line);
    let named = args.role.map(role_of).filter(|_| !is_unreadable);
    if let Some(role) = named.filter(|role| sections.iter().all(|(there, _)| there != role)) {
        notes.push(format!("there is no section [{}]: the role starts with its defaults", role.name()));
    }
    let mut output = Output::new(args.json);
    for (line, message) in &found {
        say(&mut output, "mistake", &file, *line, message)?;
    }
    if found.is_empty() {
        for (role, section) in &sections {
            let (section, settings) = (role.name(), section.values.len());
            if output.is_json() {
                output.object(&SectionLine { kind: "section", file: &file, section, settings })?;
            } else {
                let noun = if settings == 1 { "setting" } else { "settings" };
                output.line(&format!("{file}: [{section}] has {settings} {noun} and no mistake"))?;
            }
        }
    }
    notes.iter().try_for_each(|note| say(&mut output, "note", &file, None, note))?;
    output.flush()?;
    match found.len() {
        0 => Ok(()),
        1 => Err(Failure::new(format!("{file} has a mistake")).advise(ADVICE)),
        many => Err(Failure::new(format!("{file} has {many} mistakes")).advise(ADVICE)),
    }
}

const ADVICE: &str = "docs/configuration.md lists every setting of every role, with its type and default";

fn say(output: &mut Output, kind: &str, file: &str, line: Option<usize>, message: &str) -> Result<(), Failure> {
    if output.is_json() {
        return output.object(&FindingLine { kind, file, line, message });
    }
    let place = line.map(|line| format!(":{line}")).unwrap_or_default();
    match kind {
        "note" => output.line(&format!("{file}: note: {}", message.trim_start_matches("warning: "))),
        _ => output.line(&format!("{file}{place}: {message}")),
    }
}

fn role_of(role: ConfigRole) -> Role {
    match role {
        ConfigRole::Master => Role::Master,
        ConfigRole::Server => Role::Server,
        ConfigRole::Dev => Role::Dev,
    }
}

/// An address in place of one that the file leaves to the start of a process.
const NAMED_AT_THE_START: &str = "named-at-the-start:1";

/// What the role itself says of its section: the mistakes that would end its start, or notes.
async fn judge(role: Role, file: &str, section: &Section) -> Result<Result<Vec<String>, Mistakes>, Failure> {
    let values = &section.values;
    let (mut notes, binds) = match judged(role, Sources::of_section(file, with_own_address(role, section.clone()))) {
        Ok(judged) => judged,
        Err(mistakes) => return Ok(Err(mistakes)),
    };
    let name = role.name();
    if let (Some(listen), None) = (values.get("listen"), values.get("advertise"))
        && is_wildcard(&listen.text)
    {
        let listen = &listen.text;
        notes.push(format!("[{name}] others cannot connect to {listen}: start with --advertise or TERRANE_ADVERTISE"));
    }
    for address in binds {
        if let Err(why) = terrane_env::net::listen(&address).await {
            notes.push(format!("[{name}] {why}"));
        }
    }
    for setting in list::of(role).filter(|setting| ["advertise", "peers", "join", "masters"].contains(&setting.key)) {
        let Some(given) = values.get(setting.key) else { continue };
        for address in addresses(&given.text)?.0 {
            if let Err(why) = terrane_env::net::resolve(&address).await {
                notes.push(format!("[{name}] {}: {address} cannot be resolved on this machine: {why}", setting.key));
            }
        }
    }
    if let Some(audit) = values.get("audit-log").map(|given| Path::new(&given.text))
        && let Some(folder) = audit.parent().filter(|folder| !folder.as_os_str().is_empty())
        && !terrane_env::fs::exists(folder).await.unwrap_or(false)
    {
        notes.push(format!("[{name}] audit-log: there is no directory {} on this machine", folder.display()));
    }
    Ok(Ok(notes))
}

/// One file is for many machines: each then has its address from a flag or the environment, which cannot be judged here.
fn with_own_address(role: Role, mut section: Section) -> Section {
    let values = &mut section.values;
    let listens_everywhere = values.get("listen").is_some_and(|listen| is_wildcard(&listen.text));
    if listens_everywhere && !values.contains_key("advertise") {
        values.insert("advertise".to_owned(), FileValue { text: NAMED_AT_THE_START.to_owned(), line: 0 });
    }
    // A list of masters names the own address, too.
    let is_named = values.get("advertise").is_some_and(|advertise| advertise.text != NAMED_AT_THE_START)
        || (values.contains_key("listen") && !listens_everywhere);
    if role == Role::Master
        && !is_named
        && let Some(own) = values.get("peers").and_then(|peers| peers.text.split(',').next().map(str::to_owned))
    {
        values.insert("advertise".to_owned(), FileValue { text: own, line: 0 });
    }
    section
}

/// The notes of a role, and the addresses that it would listen on.
fn judged(role: Role, sources: Sources) -> Result<(Vec<String>, Vec<String>), Mistakes> {
    let of_hbase = |ports: Option<HbasePorts>| {
        ports.into_iter().flat_map(|ports| [Some(ports.listen), ports.zookeeper]).flatten().collect::<Vec<_>>()
    };
    Ok(match role {
        Role::Master => {
            let ((config, hbase), console, used) = role::master_config(Master::default(), sources)?;
            (used.warnings, [vec![config.listen, console], of_hbase(hbase)].concat())
        }
        Role::Server => {
            let ((config, hbase), used) = role::server_config(Server::default(), sources)?;
            let own = [Some(config.listen), config.console].into_iter().flatten().collect();
            (used.warnings, [own, of_hbase(hbase)].concat())
        }
        Role::Dev => {
            let (plan, used) = dev::plan(Dev::default(), sources)?;
            (used.warnings, [plan.addresses(), plan.hbase_addresses()].concat())
        }
    })
}
