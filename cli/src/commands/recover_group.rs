//! `admin recover-group`: shows what is left of a group whose majority is lost, or of all such groups, and what the recovery loses,
//! asks, and waits until the groups serve again. The JSON output is part of the grammar.

use std::collections::BTreeSet;
use std::time::Duration;

use serde::Serialize;
use terrane_client::{Admin, GroupRecovery, GroupSurvivor, ProcedureInfo, ProcedureKind};
use terrane_types::GroupId;
use terrane_types::states::GroupState;

use super::connect;
use crate::args::client::Connection;
use crate::failure::{During, Failure};
use crate::output::{Output, duration_text};
use crate::progress::Progress;
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

/// A lost group whose recovery could not be planned or begun.
#[derive(Serialize)]
struct FailureLine<'a> {
    group: u64,
    recovered: bool,
    failure: &'a str,
}

/// Recovers every group that has lost its majority, by one plan: what survives and what may be lost is shown for all of them, and
/// asked for once. A group that cannot be recovered does not keep the others waiting.
pub async fn run_all(yes: bool, connection: &Connection) -> Result<(), Failure> {
    let admin = connect(connection).await?.admin();
    let groups = admin.groups().await.during("list the groups")?;
    let mut plan = Plan { groups: groups.len(), ..Plan::default() };
    for group in groups.iter().filter(|group| group.state == GroupState::NoMajority).map(|group| group.group) {
        match admin.describe_recovery(group).await {
            Ok(described) => plan.described.push(described),
            Err(error) => plan.failures.push((group, Failure::from(error).to_string())),
        }
    }
    let mut output = Output::new(connection.json);
    if !output.is_json() {
        plan.print(&mut output)?;
        output.flush()?;
    }
    let count = plan.described.len();
    let confirmed = count > 0 && (yes || (!output.is_json() && asks() && all_confirmed(count)?));
    let recovered = if confirmed { plan.carry_out(&admin).await? } else { BTreeSet::new() };
    if output.is_json() {
        for described in plan.described.iter().filter(|described| !plan.has_failed(described.group)) {
            output.object(&RecoveryLine { described, recovered: recovered.contains(&described.group) })?;
        }
        for (group, failure) in &plan.failures {
            output.object(&FailureLine { group: group.0, recovered: false, failure })?;
        }
    } else if confirmed {
        let (count, serve) = (recovered.len(), if recovered.len() == 1 { "group serves" } else { "groups serve" });
        output.line(&format!(
            "{count} {serve} again, each from one replica; `terrane admin repair --wait 30m` shows how repair makes the others"
        ))?;
    } else if count > 0 {
        output.line("nothing was changed; `--yes` recovers these groups without asking")?;
    } else if plan.failures.is_empty() {
        output.line("every group has its majority")?;
    }
    output.flush()?;
    let said: Vec<String> = plan.failures.iter().map(|(group, failure)| format!("group {group}: {failure}")).collect();
    if said.is_empty() { Ok(()) } else { Err(Failure::new(said.join("; ")).during("recover all lost groups")) }
}

/// What the recovery of all lost groups does.
#[derive(Default)]
struct Plan {
    /// All groups of the cluster.
    groups: usize,
    described: Vec<GroupRecovery>,
    /// The groups that cannot be recovered, and why.
    failures: Vec<(GroupId, String)>,
}

impl Plan {
    fn has_failed(&self, group: GroupId) -> bool {
        self.failures.iter().any(|(failed, _)| *failed == group)
    }

    /// Begins all recoveries, so that the groups come back together, and waits until they have ended.
    async fn carry_out(&mut self, admin: &Admin) -> Result<BTreeSet<GroupId>, Failure> {
        let mut begun = BTreeSet::new();
        for described in &self.described {
            match admin.recover_group(described).await {
                Ok(_) => _ = begun.insert(described.group),
                Err(error) => self.failures.push((described.group, Failure::from(error).to_string())),
            }
        }
        let mut progress = Progress::with_unknown_total("recovering");
        loop {
            let listed = admin.procedures().await.during("look at the recoveries")?;
            let left = begun.iter().filter(|group| listed.iter().any(|one| is_recovery_of(one, **group))).count();
            if left == 0 {
                progress.finish();
                return Ok(begun);
            }
            let done = begun.len() - left;
            let message = format!("{done} of {} groups serve again", begun.len());
            progress.work(u64::try_from(done).unwrap_or(0), u64::try_from(begun.len()).unwrap_or(0), &message);
            tokio::time::sleep(LOOK_EVERY).await;
        }
    }

    /// One table of the groups, then each sentence about losses once, with the groups that it holds for.
    fn print(&self, output: &mut Output) -> Result<(), Failure> {
        if let [described] = self.described.as_slice() {
            return print(output, described);
        }
        if self.described.is_empty() {
            return Ok(());
        }
        output.line(&format!("{} of {} groups have lost their majority", self.described.len(), self.groups))?;
        output.line("")?;
        let rows = self.described.iter().map(row).collect();
        let heading = ["group", "survives", "last entry", "committed", "copied again", "lost"];
        output.table(&heading, rows)?;
        output.line("")?;
        output.line("What may be lost:")?;
        for (loss, groups) in self.losses() {
            output.line(&format!("- {}: {loss}", named(&groups)))?;
        }
        output.line(EMPTY_FIRST)?;
        output.line("")
    }

    /// What may be lost, in the order of the groups.
    fn losses(&self) -> Vec<(&str, Vec<GroupId>)> {
        let mut losses: Vec<(&str, Vec<GroupId>)> = Vec::new();
        for described in &self.described {
            for loss in &described.losses {
                match losses.iter_mut().find(|(known, _)| *known == loss.as_str()) {
                    Some((_, groups)) => groups.push(described.group),
                    None => losses.push((loss, vec![described.group])),
                }
            }
        }
        losses
    }
}

fn named(groups: &[GroupId]) -> String {
    let numbers: Vec<String> = groups.iter().map(ToString::to_string).collect();
    format!("group{} {}", if groups.len() == 1 { "" } else { "s" }, numbers.join(", "))
}

/// A group in the plan: each server by its number and address.
fn row(described: &GroupRecovery) -> Vec<String> {
    let (survives, copied): (Vec<&GroupSurvivor>, Vec<_>) =
        described.survivors.iter().partition(|found| found.replica == described.survivor);
    let servers = |found: &[&GroupSurvivor]| {
        let texts: Vec<String> = found.iter().map(|found| format!("{} ({})", found.server, found.address)).collect();
        texts.join(", ")
    };
    let lost: Vec<String> = described.lost.iter().map(|lost| format!("{} ({})", lost.server, lost.address)).collect();
    let of_best =
        |of: fn(&GroupSurvivor) -> u64| survives.first().map_or_else(String::new, |best| of(best).to_string());
    vec![
        described.group.to_string(),
        servers(&survives),
        of_best(|best| best.last_index),
        of_best(|best| best.committed),
        servers(&copied),
        lost.join(", "),
    ]
}

fn all_confirmed(count: usize) -> Result<bool, Failure> {
    Ok(ask(&format!("Type the number of groups, {count}, to recover all of them and lose that:"))? == count.to_string())
}

fn confirmed_by_person(group: u64) -> Result<bool, Failure> {
    Ok(ask("Type the group's number to recover it and lose that:")? == group.to_string())
}

/// The recovery continues without us.
async fn until_recovered(admin: &Admin, group: u64) -> Result<(), Failure> {
    loop {
        let listed = admin.procedures().await.during("look at the recovery")?;
        if !listed.iter().any(|one| is_recovery_of(one, GroupId(group))) {
            return Ok(());
        }
        tokio::time::sleep(LOOK_EVERY).await;
    }
}

fn is_recovery_of(one: &ProcedureInfo, group: GroupId) -> bool {
    one.kind == ProcedureKind::RecoverGroup && one.id.starts_with(&format!("members-{group}-"))
}

const EMPTY_FIRST: &str = "The lost servers must not return with their directories: empty them first.";

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
    output.line(EMPTY_FIRST)?;
    output.line("")
}

#[cfg(test)]
mod tests {
    use terrane_client::LostMember;
    use terrane_types::{ReplicaId, ServerId};

    use super::*;

    fn described(group: u64, losses: &[&str]) -> GroupRecovery {
        let survivor = |replica: u64, last_index| GroupSurvivor {
            replica: ReplicaId(replica),
            server: ServerId(replica),
            address: format!("h:{replica}"),
            last_term: 2,
            last_index,
            committed: last_index - 1,
            applied: last_index - 1,
        };
        let lost = LostMember {
            replica: ReplicaId(3),
            server: ServerId(3),
            address: "h:3".to_owned(),
            quiet_for: Duration::from_secs(60),
            why: "it does not answer".to_owned(),
        };
        GroupRecovery {
            group: GroupId(group),
            version: 0,
            survivor: ReplicaId(1),
            survivors: vec![survivor(1, 9), survivor(2, 8)],
            lost: vec![lost],
            losses: losses.iter().map(|loss| (*loss).to_owned()).collect(),
            begun: false,
        }
    }

    #[test]
    fn one_plan_says_each_loss_once_with_the_groups_that_it_holds_for() {
        let described = vec![described(3, &["writes", "copies"]), described(7, &["copies"])];
        let plan = Plan { groups: 44, described, failures: Vec::new() };
        assert_eq!(row(&plan.described[0]), ["3", "1 (h:1)", "9", "8", "2 (h:2)", "3 (h:3)"]);
        let losses = plan.losses().into_iter().map(|(loss, groups)| format!("{}: {loss}", named(&groups)));
        assert_eq!(losses.collect::<Vec<_>>(), ["group 3: writes", "groups 3, 7: copies"]);
    }
}
