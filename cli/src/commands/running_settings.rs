//! `admin set`: the settings that change while the cluster runs. Those of the cluster are in its catalog; those of processes last
//! until the process ends. The JSON output is part of the grammar.

use std::time::Duration;

use serde::Serialize;
use terrane_client::{Admin, BalanceMode, ClusterStatus, SlowThresholdChange};

use super::connect;
use crate::args::client::{Connection, RunningSetting};
use crate::args::values::{Time, duration};
use crate::failure::{During, Failure};
use crate::output::Output;

/// The value that takes a change back.
const DEFAULT: &str = "default";

/// A setting as it is in force.
#[derive(Serialize)]
struct SettingLine {
    setting: &'static str,
    /// The process that has it; null: the cluster.
    process: Option<String>,
    value: String,
    /// What it is without a change while the cluster runs, if that is known.
    default: Option<String>,
}

impl RunningSetting {
    const ALL: [Self; 5] = [Self::ReplaceAfter, Self::Replication, Self::Balancing, Self::SlowRequest, Self::LogFilter];

    const fn name(self) -> &'static str {
        match self {
            Self::ReplaceAfter => "replace-after",
            Self::Replication => "replication",
            Self::Balancing => "balancing",
            Self::SlowRequest => "slow-request",
            Self::LogFilter => "log-filter",
        }
    }

    /// Whether each process has its own.
    const fn is_of_processes(self) -> bool {
        matches!(self, Self::SlowRequest | Self::LogFilter)
    }

    /// Changes it, or only reads it. Processes that did not answer are failures, a sentence each.
    async fn look(
        self,
        admin: &Admin,
        value: Option<&str>,
        server: Option<&str>,
    ) -> Result<(Vec<SettingLine>, Vec<String>), Failure> {
        Ok(match self {
            Self::ReplaceAfter => (vec![replace_after(admin, value).await?], Vec::new()),
            Self::Replication => (vec![replication(admin, value).await?], Vec::new()),
            Self::Balancing => (vec![balancing(admin, value).await?], Vec::new()),
            Self::SlowRequest => slow_request(admin, value, server).await?,
            Self::LogFilter => log_filter(admin, value, server).await?,
        })
    }

    fn line(self, process: Option<String>, value: impl ToString, default: Option<String>) -> SettingLine {
        SettingLine { setting: self.name(), process, value: value.to_string(), default }
    }

    fn bad_value(self, value: &str, choices: &str) -> Failure {
        Failure::usage(format!("{} cannot be {value:?}", self.name())).advise(format!("give {choices}"))
    }
}

pub async fn run(
    name: Option<RunningSetting>,
    value: Option<&str>,
    server: Option<&str>,
    connection: &Connection,
) -> Result<(), Failure> {
    if let (Some(setting), Some(_)) = (name.filter(|setting| !setting.is_of_processes()), server) {
        return Err(Failure::usage(format!("{} is a setting of the whole cluster", setting.name()))
            .advise("leave out --server"));
    }
    let admin = connect(connection).await?.admin();
    let asked = RunningSetting::ALL.into_iter().filter(|setting| match name {
        Some(name) => name == *setting,
        None => server.is_none() || setting.is_of_processes(),
    });
    let (mut lines, mut failures) = (Vec::new(), Vec::new());
    for setting in asked {
        // A master has no slow requests.
        let (found, failed) = match setting.look(&admin, value, server).await {
            Err(_) if name.is_none() && setting == RunningSetting::SlowRequest && server.is_some() => continue,
            looked => looked.during(format!("setting {}", setting.name()))?,
        };
        lines.extend(found);
        failures.extend(failed);
    }
    let mut output = Output::new(connection.json);
    if output.is_json() {
        lines.iter().try_for_each(|line| output.object(line))?;
    } else {
        let row = |line: SettingLine| {
            let process = line.process.unwrap_or_else(|| "cluster".to_owned());
            vec![line.setting.to_owned(), process, line.value, line.default.unwrap_or_else(|| "-".to_owned())]
        };
        output.table(&["setting", "of", "value", "default"], lines.into_iter().map(row).collect())?;
    }
    output.flush()?;
    if failures.is_empty() { Ok(()) } else { Err(Failure::new(failures.join("; "))) }
}

async fn status(admin: &Admin) -> Result<ClusterStatus, Failure> {
    admin.status().await.during("get the status")
}

async fn replace_after(admin: &Admin, value: Option<&str>) -> Result<SettingLine, Failure> {
    let setting = RunningSetting::ReplaceAfter;
    if let Some(value) = value {
        let choices = "a time, such as 10m, or `default` for what each master was started with";
        let after = match value {
            DEFAULT => None,
            value => Some(duration(value).map_err(|_| setting.bad_value(value, choices))?),
        };
        admin.set_replace_after(after).await?;
    }
    let status = status(admin).await?;
    let value = Time(status.replace_after);
    // What the leading master was started with is hidden by what is set.
    let default = (!status.replace_after_is_set).then(|| value.to_string());
    Ok(setting.line(None, value, default))
}

async fn replication(admin: &Admin, value: Option<&str>) -> Result<SettingLine, Failure> {
    let setting = RunningSetting::Replication;
    if let Some(value) = value {
        let replicas = value.parse().map_err(|_| setting.bad_value(value, "1, 3 or 5"))?;
        admin.set_replication(replicas).await?;
    }
    Ok(setting.line(None, status(admin).await?.replication, None))
}

async fn balancing(admin: &Admin, value: Option<&str>) -> Result<SettingLine, Failure> {
    let setting = RunningSetting::Balancing;
    let mode = match value {
        None => BalanceMode::DryRun,
        Some("on" | DEFAULT) => BalanceMode::On,
        Some("off") => BalanceMode::Off,
        Some(other) => return Err(setting.bad_value(other, "on or off")),
    };
    let on = admin.balance(mode).await?.on;
    Ok(setting.line(None, if on { "on" } else { "off" }, Some("on".to_owned())))
}

async fn slow_request(
    admin: &Admin,
    value: Option<&str>,
    server: Option<&str>,
) -> Result<(Vec<SettingLine>, Vec<String>), Failure> {
    let setting = RunningSetting::SlowRequest;
    let choices = "a time, such as 200ms, or `default` for what each server was started with";
    let change = match value {
        None => SlowThresholdChange::Keep,
        Some(DEFAULT) => SlowThresholdChange::Reset,
        Some(value) => SlowThresholdChange::Set(duration(value).map_err(|_| setting.bad_value(value, choices))?),
    };
    let (mut lines, mut failures) = (Vec::new(), Vec::new());
    for of in admin.slow_thresholds(server, change).await? {
        match of.threshold {
            Ok((threshold, started_with)) => {
                let default = Some(threshold_text(started_with));
                lines.push(setting.line(Some(of.address), threshold_text(threshold), default));
            }
            Err(failure) => failures.push(failure),
        }
    }
    Ok((lines, failures))
}

/// Thresholds of tests and of engineers may be shorter than a millisecond.
fn threshold_text(threshold: Duration) -> String {
    if threshold.subsec_nanos().is_multiple_of(1_000_000) {
        Time(threshold).to_string()
    } else {
        format!("{threshold:?}")
    }
}

async fn log_filter(
    admin: &Admin,
    value: Option<&str>,
    server: Option<&str>,
) -> Result<(Vec<SettingLine>, Vec<String>), Failure> {
    let setting = RunningSetting::LogFilter;
    if value == Some(DEFAULT) {
        return Err(setting.bad_value(DEFAULT, "the filter, such as `warn,openraft=off,audit=info`"));
    }
    let (mut lines, mut failures) = (Vec::new(), Vec::new());
    for of in admin.log_filters(server, value).await? {
        match of.filter {
            Ok(filter) => lines.push(setting.line(Some(of.address), filter, None)),
            Err(failure) => failures.push(failure),
        }
    }
    Ok((lines, failures))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_threshold_is_shown_as_it_is_written() {
        for text in ["500ms", "2s", "1m"] {
            assert_eq!(threshold_text(duration(text).expect("a time")), text);
        }
        assert_eq!(threshold_text(Duration::from_micros(250)), "250µs");
    }
}
