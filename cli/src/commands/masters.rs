//! `admin masters` and `admin set-masters`: lists the masters, and changes which ones the cluster has. The JSON output is part
//! of the grammar.

use std::collections::BTreeSet;
use std::time::Duration;

use serde::Serialize;
use terrane_client::{Admin, MasterInfo, MastersChange};
use terrane_types::states::MasterState;

use super::connect;
use crate::args::client::Connection;
use crate::failure::{During, Failure};
use crate::output::Output;
use crate::question::{ask, asks};

/// How often the change is looked at.
const LOOK_EVERY: Duration = Duration::from_millis(200);
/// The procedure of the change.
const PROCEDURE: &str = "masters";

#[derive(Serialize)]
struct ChangeLine<'a> {
    #[serde(flatten)]
    change: &'a MastersChange,
    changed: bool,
}

pub async fn list(connection: &Connection) -> Result<(), Failure> {
    let status = connect(connection).await?.admin().status().await.during("list the masters")?;
    let mut output = Output::new(connection.json);
    if output.is_json() {
        status.masters.iter().try_for_each(|master| output.object(master))?;
    } else {
        print_masters(&mut output, &status.masters)?;
    }
    output.flush()
}

pub async fn set(masters: &[String], yes: bool, connection: &Connection) -> Result<(), Failure> {
    let admin = connect(connection).await?.admin();
    let described = admin.describe_masters(masters).await.during("change the masters")?;
    let mut output = Output::new(connection.json);
    if described.add.is_empty() && described.remove.is_empty() {
        return said(output, &described, false, "these are the masters already");
    }
    if !output.is_json() {
        print(&mut output, &described)?;
        output.flush()?;
    }
    if !yes && (output.is_json() || !asks() || ask("Type `yes` to change the masters:")? != "yes") {
        return said(output, &described, false, "nothing was changed; `--yes` changes the masters without asking");
    }
    admin.set_masters(masters, &described).await.during("change the masters")?;
    if until_changed(&admin, masters).await? {
        said(output, &described, true, &format!("the masters are {}", masters.join(",")))
    } else {
        Err(Failure::new("the change of the masters was cancelled and undone".to_owned()))
    }
}

fn said(mut output: Output, described: &MastersChange, changed: bool, text: &str) -> Result<(), Failure> {
    if output.is_json() {
        output.object(&ChangeLine { change: described, changed })?;
    } else {
        output.line(text)?;
    }
    output.flush()
}

fn print(output: &mut Output, described: &MastersChange) -> Result<(), Failure> {
    output.line(&format!("masters now: {}", described.before.join(",")))?;
    described.add.iter().try_for_each(|address| output.line(&format!("  add      {address}")))?;
    described.remove.iter().try_for_each(|address| output.line(&format!("  remove   {address}")))
}

/// Waits until the change has ended; it continues without us. Returns whether it was made.
async fn until_changed(admin: &Admin, masters: &[String]) -> Result<bool, Failure> {
    let mut said = String::new();
    loop {
        let procedures = admin.procedures().await.during("look at the change")?;
        let Some(change) = procedures.into_iter().find(|procedure| procedure.id == PROCEDURE) else { break };
        if !change.waits_for.is_empty() && change.waits_for != said {
            eprintln!("waiting for {}", change.waits_for);
            said = change.waits_for;
        }
        tokio::time::sleep(LOOK_EVERY).await;
    }
    let now = admin.status().await.during("look at the masters")?.masters;
    let (now, wanted): (BTreeSet<&str>, BTreeSet<&str>) =
        (now.iter().map(|master| master.address.as_str()).collect(), masters.iter().map(String::as_str).collect());
    Ok(now == wanted)
}

pub(super) fn print_masters(output: &mut Output, masters: &[MasterInfo]) -> Result<(), Failure> {
    let number = |master: &MasterInfo, number: u64| match master.state {
        MasterState::Unreachable => "-".to_owned(),
        _ => number.to_string(),
    };
    let row = |master: &MasterInfo| {
        let (term, lag) = (number(master, master.term), number(master, master.lag));
        vec![master.address.clone(), master.state.to_string(), term, lag]
    };
    output.table(&["master", "state", "term", "lag"], masters.iter().map(row).collect())
}
