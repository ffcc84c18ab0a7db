//! Settings that change while the cluster runs: those in its catalog, and the log filter of each process.

use terrane_client::{BalanceMode, Client, LogFilter};
use terrane_console::source::{Failure, Setting, SettingChange};

use super::refusal::{refused, sentence};

const BALANCING: &str = "cluster.balancing";
/// Prefix of the log filter's name; the address of the process follows.
const LOG_FILTER: &str = "log-filter@";
const REPLICATION: &str = "cluster.replication";

pub(super) async fn list(client: &Client) -> Result<Vec<Setting>, Failure> {
    let mut settings = vec![balancing(client).await?, replication(client).await?];
    // A process that does not answer has no filter to show.
    let filters = client.admin().log_filters(None, None).await.unwrap_or_default();
    settings.extend(filters.into_iter().filter_map(log_filter));
    Ok(settings)
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

pub(super) async fn change(client: &Client, change: SettingChange) -> Result<Setting, Failure> {
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
        other => Err(Failure::unknown("setting", other, [BALANCING, REPLICATION])),
    }
}

fn bad_value(name: &str, value: &str, choices: &str) -> Failure {
    Failure::bad_input(format!("The setting {name} cannot be {value:?}."), format!("Give {choices}."))
}
