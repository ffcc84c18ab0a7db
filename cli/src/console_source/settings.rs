//! Settings that change while the cluster runs: those in its catalog, and the log filter of each process. Then those of the
//! process that the console belongs to, which were read at its start.
//!
//! The settings of the process are shown even while the cluster does not answer, which may be because of them.

use std::time::Duration;

use terrane_client::{BalanceMode, Client, LogFilter, SlowThreshold, SlowThresholdChange};
use terrane_console::source::{Failure, Setting, SettingChange};
use terrane_types::health::sentence;

use super::refusal::refused;
use crate::args::values::{Time, duration};
use crate::config::UsedSetting;
use crate::config::list::variable;

const BALANCING: &str = "cluster.balancing";
/// Prefix of the log filter's name; the address of the process follows.
const LOG_FILTER: &str = "log-filter@";
const REPLICATION: &str = "cluster.replication";
const REPLACE_AFTER: &str = "cluster.replace-after";
/// Prefix of the name of a server's threshold; the address of the server follows.
const SLOW_REQUEST: &str = "slow-request@";

pub(super) async fn live(client: &Client) -> Result<Vec<Setting>, Failure> {
    let mut settings = vec![balancing(client).await?, replication(client).await?, replace_after(client).await?];
    let thresholds = client.admin().slow_thresholds(None, SlowThresholdChange::Keep).await.unwrap_or_default();
    settings.extend(thresholds.into_iter().filter_map(slow_request));
    // A process that does not answer has no filter to show.
    let filters = client.admin().log_filters(None, None).await.unwrap_or_default();
    settings.extend(filters.into_iter().filter_map(log_filter));
    Ok(settings)
}

/// The live settings, then those of this process.
pub(super) fn all(live: Result<Vec<Setting>, Failure>, own: &[UsedSetting]) -> Result<Vec<Setting>, Failure> {
    let live = match live {
        // The overview says that the cluster does not answer.
        Err(_) if !own.is_empty() => Vec::new(),
        live => live?,
    };
    Ok(live.into_iter().chain(own.iter().map(read_at_start)).collect())
}

/// The name of a setting of this process: as in a file, with its section.
fn name_of(own: &UsedSetting) -> String {
    format!("{}.{}", own.role.name(), own.key)
}

fn read_at_start(own: &UsedSetting) -> Setting {
    Setting {
        name: name_of(own),
        value: own.value.clone(),
        default: own.default.map(str::to_owned),
        origin: own.origin.clone(),
        live: false,
        help: sentence(own.meaning),
        choices: Vec::new(),
    }
}

/// Why a setting of this process does not change while it runs.
fn refuse(own: &UsedSetting) -> Failure {
    let (key, section) = (own.key, own.role.name());
    Failure::bad_input(
        format!("The setting {} is read when the process starts.", name_of(own)),
        format!("Set --{key}, {} or `{key}` in the section [{section}] of its file, and restart it.", variable(key)),
    )
}

fn log_filter(of: LogFilter) -> Option<Setting> {
    let filter = of.filter.ok()?;
    let help =
        format!("What the {} at {} logs, such as `info,terrane_raft=debug`, until it ends.", of.role, of.address);
    let origin = "the process".to_owned();
    Some(Setting { origin, default: None, ..setting(&format!("{LOG_FILTER}{}", of.address), &filter, "", &[], &help) })
}

async fn balancing(client: &Client) -> Result<Setting, Failure> {
    let plan = client.admin().balance(BalanceMode::DryRun).await.map_err(refused)?;
    Ok(setting(
        BALANCING,
        if plan.on { "on" } else { "off" },
        "on",
        &["on", "off"],
        "Whether the masters spread regions, replicas and leaderships evenly without being asked.",
    ))
}

async fn replication(client: &Client) -> Result<Setting, Failure> {
    let status = client.admin().status().await.map_err(refused)?;
    let help = "How many replicas each log group has.";
    Ok(setting(REPLICATION, &status.replication.to_string(), "3", &["1", "3", "5"], help))
}

async fn replace_after(client: &Client) -> Result<Setting, Failure> {
    let status = client.admin().status().await.map_err(refused)?;
    let value = Time(status.replace_after).to_string();
    let help = "How long a server may be away before its replicas are placed on others.";
    let shown = setting(REPLACE_AFTER, &value, "", &[], help);
    // What the masters were started with is hidden by what is set.
    let default = (!status.replace_after_is_set).then_some(value);
    let origin = if status.replace_after_is_set { shown.origin } else { "the start of the leading master".to_owned() };
    Ok(Setting { default, origin, ..shown })
}

fn slow_request(of: SlowThreshold) -> Option<Setting> {
    let (threshold, started_with) = of.threshold.ok()?;
    let help = format!("Requests that take longer at the server at {} are kept as slow, until it ends.", of.address);
    let name = format!("{SLOW_REQUEST}{}", of.address);
    let shown = setting(&name, &Time(threshold).to_string(), &Time(started_with).to_string(), &[], &help);
    Some(Setting { origin: "the process".to_owned(), ..shown })
}

fn setting(name: &str, value: &str, default: &str, choices: &[&str], help: &str) -> Setting {
    Setting {
        name: name.to_owned(),
        value: value.to_owned(),
        default: Some(default.to_owned()),
        origin: "the cluster's catalog".to_owned(),
        live: true,
        help: help.to_owned(),
        choices: choices.iter().map(|choice| (*choice).to_owned()).collect(),
    }
}

pub(super) async fn change(client: &Client, change: SettingChange, own: &[UsedSetting]) -> Result<Setting, Failure> {
    if let Some(own) = own.iter().find(|own| name_of(own) == change.name) {
        return Err(refuse(own));
    }
    match change.name.as_str() {
        BALANCING => {
            let mode = match change.value.as_deref() {
                None | Some("on") => BalanceMode::On,
                Some("off") => BalanceMode::Off,
                Some(other) => return Err(bad_value(BALANCING, other, "on or off")),
            };
            client.admin().balance(mode).await.map_err(refused)?;
            balancing(client).await
        }
        REPLICATION => {
            let text = change.value.as_deref().unwrap_or("3");
            let replicas = text.parse().map_err(|_| bad_value(REPLICATION, text, "1, 3 or 5"))?;
            client.admin().set_replication(replicas).await.map_err(refused)?;
            replication(client).await
        }
        REPLACE_AFTER => {
            let after = change.value.as_deref().map(|text| time(REPLACE_AFTER, text)).transpose()?;
            client.admin().set_replace_after(after).await.map_err(refused)?;
            replace_after(client).await
        }
        other if other.starts_with(SLOW_REQUEST) => {
            let threshold = match change.value.as_deref() {
                Some(text) => SlowThresholdChange::Set(time(other, text)?),
                None => SlowThresholdChange::Reset,
            };
            let address = other.trim_start_matches(SLOW_REQUEST);
            let changed = client.admin().slow_thresholds(Some(address), threshold).await.map_err(refused)?;
            let none = || {
                Failure::not_found(format!("There is no live server at {address}."), "The overview lists all servers.")
            };
            changed.into_iter().find_map(slow_request).ok_or_else(none)
        }
        other if other.starts_with(LOG_FILTER) => {
            let address = other.trim_start_matches(LOG_FILTER);
            let Some(filter) = change.value.as_deref() else {
                return Err(Failure::bad_input(
                    "A log filter has no default here.",
                    "Give the filter, such as `info`.",
                ));
            };
            let changed = client.admin().log_filters(Some(address), Some(filter)).await.map_err(refused)?;
            let why = changed.iter().find_map(|of| of.filter.as_ref().err());
            if let Some(why) = why {
                return Err(Failure::bad_input(sentence(why), "Give a filter such as `info,terrane_raft=debug`."));
            }
            let none = || {
                Failure::not_found(format!("There is no process at {address}."), "The overview lists all processes.")
            };
            changed.into_iter().find_map(log_filter).ok_or_else(none)
        }
        other => {
            let names: Vec<String> = own.iter().map(name_of).collect();
            let known = [BALANCING, REPLICATION, REPLACE_AFTER].into_iter().chain(names.iter().map(String::as_str));
            Err(Failure::unknown("setting", other, known))
        }
    }
}

fn time(name: &str, text: &str) -> Result<Duration, Failure> {
    duration(text).map_err(|_| bad_value(name, text, "a time, such as 30s or 10m"))
}

fn bad_value(name: &str, value: &str, choices: &str) -> Failure {
    Failure::bad_input(format!("The setting {name} cannot be {value:?}."), format!("Give {choices}."))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::list::Role;

    #[test]
    fn a_setting_of_the_process_is_shown_and_says_how_to_change_it() {
        let own = UsedSetting {
            role: Role::Server,
            key: "log-limit",
            value: "1GiB".to_owned(),
            default: Some("8GiB"),
            origin: "environment TERRANE_LOG_LIMIT".to_owned(),
            meaning: "size of a server's log at which writes are rejected until it can be purged",
        };
        let shown = read_at_start(&own);
        assert_eq!(
            (shown.name.as_str(), shown.live, shown.default.as_deref()),
            ("server.log-limit", false, Some("8GiB"))
        );
        assert!(shown.help.starts_with("Size of a server's log") && shown.help.ends_with('.'), "{}", shown.help);
        let late = || Failure::unavailable("late", "try again");
        assert_eq!(all(Err(late()), std::slice::from_ref(&own)), Ok(vec![shown]));
        assert_eq!(all(Err(late()), &[]), Err(late()));
        let refused = refuse(&own);
        assert!(refused.next.contains("--log-limit, TERRANE_LOG_LIMIT or `log-limit`"), "{refused}");
    }
}
