//! Settings of the invented cluster.

use terrane_console::source::{Failure, Setting, SettingChange};

pub fn all() -> Vec<Setting> {
    vec![
        setting(
            "log.level",
            "info",
            "info",
            "default",
            true,
            "What is logged to standard error.",
            &["error", "warn", "info", "debug"],
        ),
        setting(
            "server.compaction_rate",
            "64MiB",
            "128MiB",
            "set at run time",
            true,
            "Bytes that compactions write per second at most.",
            &[],
        ),
        setting(
            "server.slow_request_ms",
            "250",
            "250",
            "default",
            true,
            "From how many milliseconds on a request is kept as slow.",
            &[],
        ),
        setting(
            "master.replace_after",
            "5m",
            "5m",
            "default",
            true,
            "How long a silent server keeps its replicas.",
            &[],
        ),
        setting(
            "server.block_cache",
            "4GiB",
            "1GiB",
            "file /etc/terrane/server.toml",
            false,
            "Bytes of decoded blocks kept in memory.",
            &[],
        ),
        setting(
            "server.zone",
            "fra-b",
            "",
            "flag",
            false,
            "The zone of the server; replicas of a group are in different ones.",
            &[],
        ),
        setting(
            "server.listen",
            "10.0.0.12:7700",
            "127.0.0.1:7700",
            "environment",
            false,
            "The address at which the server listens.",
            &[],
        ),
    ]
}

fn setting(name: &str, value: &str, default: &str, origin: &str, live: bool, help: &str, choices: &[&str]) -> Setting {
    Setting {
        name: name.to_owned(),
        value: value.to_owned(),
        default: Some(default.to_owned()),
        origin: origin.to_owned(),
        live,
        help: help.to_owned(),
        choices: choices.iter().map(|choice| (*choice).to_owned()).collect(),
    }
}

pub fn change(settings: &mut [Setting], change: SettingChange) -> Result<Setting, Failure> {
    let names: Vec<String> = settings.iter().map(|setting| setting.name.clone()).collect();
    let Some(setting) = settings.iter_mut().find(|setting| setting.name == change.name) else {
        return Err(Failure::unknown("setting", &change.name, names.iter().map(String::as_str)));
    };
    if !setting.live {
        return Err(Failure::bad_input(
            format!("The setting {} is read at start.", setting.name),
            "Change it in the configuration file and restart the process.",
        ));
    }
    let value = change.value.or_else(|| setting.default.clone()).unwrap_or_default();
    if setting.name == "server.slow_request_ms" && value.parse::<u64>().is_err() {
        return Err(Failure::bad_input(
            format!("{value:?} is not a number of milliseconds."),
            "Give a whole number, as 250.",
        ));
    }
    setting.origin = if Some(&value) == setting.default.as_ref() { "default" } else { "set at run time" }.to_owned();
    setting.value = value;
    Ok(setting.clone())
}
