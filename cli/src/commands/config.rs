//! `config list` shows the settings. `config check` reads a configuration file as the roles would, and says everything that is wrong with it.
//!
//! Mistakes make it fail: a role would not start. Notes do not, because they are about this machine and this moment, and
//! the file may be for another one: a port in use, a name that does not resolve. Each role's own checks run on its section,
//! so that a file without mistakes is a file that the role accepts. The environment of this process does not count.

use std::collections::BTreeMap;

use serde::Serialize;
use terrane_types::Invalid;

use super::{dev, role};
use crate::args::config::{Check, Config, ConfigRole, List};
use crate::args::roles::{Dev, Master, Server};
use crate::args::values::addresses;
use crate::config::file::{Examined, examine};
use crate::config::list::{self, Role, Unset};
use crate::config::{Sources, is_wildcard, read};
use crate::failure::Failure;
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
    let Examined { sections, mistakes } = examine(&text, &roles);
    let mut found: Vec<(Option<usize>, String)> =
        mistakes.into_iter().map(|mistake| (Some(mistake.line), mistake.message)).collect();
    let mut notes = Vec::new();
    // Values that cannot be read would be reported twice.
    if found.is_empty() {
        for (role, values) in &sections {
            match judge(*role, &file, values.clone()).await {
                Ok(said) => notes.extend(said),
                Err(failure) => found.push((None, format!("[{}]: {}", role.name(), failure.with_advice()))),
            }
        }
    }
    if let Some(role) = args.role.map(role_of).filter(|role| sections.iter().all(|(there, _)| there != role)) {
        notes.push(format!("there is no section [{}]: the role starts with its defaults", role.name()));
    }
    let mut output = Output::new(args.json);
    for (line, message) in &found {
        say(&mut output, "mistake", &file, *line, message)?;
    }
    if found.is_empty() {
        for (role, values) in &sections {
            let (section, settings) = (role.name(), values.len());
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

/// What the role itself says of its section: an error that would end its start, or notes.
async fn judge(role: Role, file: &str, values: BTreeMap<String, String>) -> Result<Vec<String>, Failure> {
    let mut given = values.clone();
    let wildcard = values.get("listen").filter(|listen| is_wildcard(listen) && !values.contains_key("advertise"));
    // One file is for many machines: each then has its address from a flag or the environment.
    let elsewhere = wildcard.map(|listen| {
        given.insert("advertise".to_owned(), NAMED_AT_THE_START.to_owned());
        format!("[{}] others cannot connect to {listen}: start with --advertise or TERRANE_ADVERTISE", role.name())
    });
    let sources = Sources::of_section(file, given);
    let (mut notes, binds) = match role {
        Role::Master => {
            let ((config, _), console, used) = role::master_config(Master::default(), sources)?;
            config.check().map_err(Invalid::new)?;
            (used.warnings, vec![config.listen, console])
        }
        Role::Server => {
            let ((config, _), used) = role::server_config(Server::default(), sources)?;
            (used.warnings, [Some(config.listen), config.console].into_iter().flatten().collect())
        }
        Role::Dev => {
            let (plan, used) = dev::plan(Dev::default(), sources)?;
            (used.warnings, plan.addresses())
        }
    };
    notes.extend(elsewhere);
    let section = role.name();
    for address in binds {
        if let Err(why) = terrane_env::net::listen(&address).await {
            notes.push(format!("[{section}] {why}"));
        }
    }
    for setting in list::of(role).filter(|setting| ["advertise", "peers", "join", "masters"].contains(&setting.key)) {
        let Some(text) = values.get(setting.key) else { continue };
        for address in addresses(text)?.0 {
            if let Err(why) = terrane_env::net::resolve(&address).await {
                notes.push(format!("[{section}] {}: {address} cannot be resolved on this machine: {why}", setting.key));
            }
        }
    }
    Ok(notes)
}
