//! `admin recover-group`: shows what is left of a group whose majority is lost, or of all such groups, and what the recovery loses,
//! asks, and waits until the groups serve again. The JSON output is part of the grammar.

use std::time::Duration;

use serde::Serialize;
use terrane_client::{Admin, GroupRecovery, ProcedureInfo, ProcedureKind};
use terrane_types::GroupId;
use terrane_types::states::GroupState;

use super::connect;
use crate::args::client::Connection;
use crate::failure::{During, Failure};
use crate::output::{Output, duration_text};
use crate::question::{ask, asks};

/// How often the recovery is looked at.
const LOOK_EVERY: Duration = Duration::from_millis(200);

#[derive(Serialize)]
struct RecoveryLine<'a> {
    #[serde(flatten)]
    described: &'a GroupRecovery,
    recovered: bool,
}

pub async fn run(group: u64, yes: bool, connection: &Connection) -> Result<(), Failure> {
    let admin = connect(connection).await?.admin();
    let described = admin.describe_recovery(GroupId(group)).await.during(format!("recover group {group}"))?;
    let mut output = Output::new(connection.json);
    if !output.is_json() {
        print(&mut output, &described)?;
        output.flush()?;
    }
    let confirmed = yes || (!output.is_json() && asks() && confirmed_by_person(group)?);
    if confirmed {
        admin.recover_group(&described).await.during(format!("recover group {group}"))?;
        until_recovered(&admin, group).await?;
    }
    if output.is_json() {
        output.object(&RecoveryLine { described: &described, recovered: confirmed })?;
    } else if confirmed {
        output.line(&format!("group {group} serves again, from one replica; repair makes the others"))?;
    } else {
        output.line("nothing was changed; `--yes` recovers the group without asking")?;
    }
    output.flush()
}

/// Recovers every group that has lost its majority. What is left and what may be lost is shown for all of them first.
pub async fn run_all(yes: bool, connection: &Connection) -> Result<(), Failure> {
    let admin = connect(connection).await?.admin();
    let groups = admin.groups().await.during("list the groups")?;
    let mut described = Vec::new();
    for group in groups.iter().filter(|group| group.state == GroupState::NoMajority).map(|group| group.group) {
        described.push(admin.describe_recovery(group).await.during(format!("recover group {group}"))?);
    }
    let mut output = Output::new(connection.json);
    if !output.is_json() {
        described.iter().try_for_each(|described| print(&mut output, described))?;
        output.flush()?;
    }
    let confirmed = !described.is_empty() && (yes || (!output.is_json() && asks() && all_confirmed(described.len())?));
    if confirmed {
        // One after another: if one cannot be recovered, those before are, and the next call continues.
        for described in &described {
            let group = described.group;
            admin.recover_group(described).await.during(format!("recover group {group}"))?;
            until_recovered(&admin, group.0).await?;
        }
    }
    if output.is_json() {
        described.iter().try_for_each(|described| output.object(&RecoveryLine { described, recovered: confirmed }))?;
    } else {
        output.line(&match (described.len(), confirmed) {
            (0, _) => "every group has its majority".to_owned(),
            (count, true) => {
                format!("groups that serve again, each from one replica: {count}; repair makes the others")
            }
            (count, false) => {
                format!("nothing was changed; `--yes` recovers the groups without asking, of which there are {count}")
            }
        })?;
    }
    output.flush()
}

fn all_confirmed(count: usize) -> Result<bool, Failure> {
    Ok(ask(&format!("Type the number of groups, {count}, to recover all of them and lose that:"))? == count.to_string())
}

fn confirmed_by_person(group: u64) -> Result<bool, Failure> {
    Ok(ask("Type the group's number to recover it and lose that:")? == group.to_string())
}

/// The recovery continues without us.
async fn until_recovered(admin: &Admin, group: u64) -> Result<(), Failure> {
    let id = format!("members-{group}-");
    let is_it = |one: &ProcedureInfo| one.kind == ProcedureKind::RecoverGroup && one.id.starts_with(&id);
    loop {
        if !admin.procedures().await.during("look at the recovery")?.iter().any(is_it) {
            return Ok(());
        }
        tokio::time::sleep(LOOK_EVERY).await;
    }
}

fn print(output: &mut Output, described: &GroupRecovery) -> Result<(), Failure> {
    output.line(&format!("group {} has lost its majority", described.group))?;
    output.line("")?;
    let survivors = described.survivors.iter().map(|found| {
        let role = if found.replica == described.survivor { "survives" } else { "is copied again" };
        vec![
            found.replica.to_string(),
            found.server.to_string(),
            found.address.clone(),
            found.last_term.to_string(),
            found.last_index.to_string(),
            found.committed.to_string(),
            role.to_owned(),
        ]
    });
    output.table(&["replica", "server", "address", "last term", "last entry", "committed", ""], survivors.collect())?;
    output.line("")?;
    let lost = described.lost.iter().map(|member| {
        let away = duration_text(Duration::from_secs(member.quiet_for.as_secs()));
        vec![member.replica.to_string(), member.server.to_string(), member.address.clone(), away, member.why.clone()]
    });
    output.table(&["lost", "server", "address", "silent for", "answer"], lost.collect())?;
    output.line("")?;
    output.line("What may be lost:")?;
    described.losses.iter().try_for_each(|loss| output.line(&format!("- {loss}")))?;
    output.line("The lost servers must not return with their directories: empty them first.")?;
    output.line("")
}
