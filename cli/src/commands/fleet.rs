//! `admin` commands about servers, replicas and where regions are: moves, drain, balance, replication, procedures, and checks. The JSON output is
//! part of the grammar.

use std::time::Duration;

use serde::Serialize;
use terrane_client::{
    Admin, BalanceMode, BalancePlan, ClusterStatus, EndedProcedure, MoveState, ProcedureInfo, RegionDescriptor,
    RegionId, ServerChange, ServerInfo,
};
use tokio::time::Instant;

use super::{comparisons, connect, repair};
use crate::args::client::{BalanceWord, Connection};
use crate::failure::{During, Failure};
use crate::output::{Output, bytes_rounded, duration_text};
use crate::progress::Progress;

/// How often a drain is looked at.
const LOOK_EVERY: Duration = Duration::from_millis(500);
/// How often a move is looked at: a small region moves in a fraction of a second.
const LOOK_AT_MOVE_EVERY: Duration = Duration::from_millis(100);

/// How often a server that is about to stop is looked at.
const RESTART_CHECK_EVERY: Duration = Duration::from_secs(1);

pub async fn procedures(connection: &Connection) -> Result<(), Failure> {
    let admin = connect(connection).await?.admin();
    let procedures = admin.procedures().await.during("list the procedures")?;
    let mut output = Output::new(connection.json);
    // How all of them together get on; the list is worth showing without it.
    if !output.is_json()
        && let Ok(ClusterStatus { repair: Some(progress), .. }) = admin.status().await
    {
        output.line(&repair::text(&progress))?;
        output.line("")?;
    }
    print_procedures(&mut output, &procedures)?;
    output.flush()
}

pub async fn ended_procedures(connection: &Connection) -> Result<(), Failure> {
    let ended = connect(connection).await?.admin().ended_procedures().await.during("list the ended procedures")?;
    let mut output = Output::new(connection.json);
    if output.is_json() {
        ended.iter().try_for_each(|ended| output.object(ended))?;
    } else if ended.is_empty() {
        output.line("no procedure has ended since the leading master leads")?;
    } else {
        let now_ms = terrane_env::time::wall_ms();
        let rows = ended.iter().map(|ended| ended_row(ended, now_ms)).collect();
        output.table(&["id", "kind", "subject", "ended", "took", "reason", "outcome"], rows)?;
    }
    output.flush()
}

fn ended_row(ended: &EndedProcedure, now_ms: u64) -> Vec<String> {
    let lasted = |from_ms: u64, to_ms: u64| duration_text(Duration::from_millis(to_ms.saturating_sub(from_ms)));
    vec![
        ended.id.clone(),
        ended.kind.to_string(),
        ended.subject.clone(),
        format!("{} ago", lasted(ended.ended_ms, now_ms)),
        lasted(ended.started_ms, ended.ended_ms),
        ended.reason.clone(),
        ended.outcome.clone(),
    ]
}

fn print_procedures(output: &mut Output, procedures: &[ProcedureInfo]) -> Result<(), Failure> {
    if output.is_json() {
        return procedures.iter().try_for_each(|procedure| output.object(procedure));
    }
    if procedures.is_empty() {
        return output.line("no unfinished procedures");
    }
    let row = |procedure: &ProcedureInfo| {
        let steps = match procedure.steps {
            _ if procedure.bytes > 0 => {
                format!("{} of {}", bytes_rounded(procedure.copied_bytes), bytes_rounded(procedure.bytes))
            }
            0 => String::new(),
            steps => format!("{} of {steps}", procedure.steps_done),
        };
        vec![
            procedure.id.clone(),
            procedure.kind.to_string(),
            procedure.subject.clone(),
            procedure.owner.clone(),
            procedure.state.to_string(),
            steps,
            since_text(procedure.since),
            procedure.reason.clone(),
            procedure.waits_for.clone(),
        ]
    };
    let heading = ["id", "kind", "subject", "owner", "state", "steps", "since", "reason", "waits for"];
    output.table(&heading, procedures.iter().map(row).collect())
}

/// Masters tell whole seconds.
fn since_text(since: Duration) -> String {
    match since.as_secs() {
        seconds if seconds < 60 => format!("{seconds} s"),
        seconds => format!("{} min {} s", seconds / 60, seconds % 60),
    }
}

pub async fn cancel(procedure: &str, connection: &Connection) -> Result<(), Failure> {
    let cancelled = connect(connection).await?.admin().cancel(procedure).await;
    cancelled.during(format!("cancel {procedure}"))?;
    said(connection, &format!("{procedure} is being undone"), &Done { done: "cancel", procedure })
}

#[derive(Serialize)]
struct Done<'a> {
    done: &'a str,
    procedure: &'a str,
}

#[derive(Serialize)]
struct ServerLine<'a> {
    done: &'a str,
    server: u64,
    address: &'a str,
    replicas: u32,
}

/// Prints one result, as a line or as an object.
fn said(connection: &Connection, text: &str, object: &impl Serialize) -> Result<(), Failure> {
    let mut output = Output::new(connection.json);
    if output.is_json() {
        output.object(object)?;
    } else {
        output.line(text)?;
    }
    output.flush()
}

pub async fn drain(server: &str, no_wait: bool, connection: &Connection) -> Result<(), Failure> {
    let admin = connect(connection).await?.admin();
    let changed = admin.change_server(server, ServerChange::Drain).await.during(format!("drain server {server}"))?;
    let (id, address) = (changed.server.0, changed.address.as_str());
    let left = if no_wait { changed.replicas } else { until_drained(&admin, id, changed.replicas).await? };
    let done = if no_wait { "draining" } else { "drained" };
    let text = match left {
        0 => format!("server {id} ({address}) is drained: it has no replicas"),
        left => format!("server {id} ({address}) is draining: {left} replicas to move"),
    };
    said(connection, &text, &ServerLine { done, server: id, address, replicas: left })
}

/// Shows the drain's progress until the server has neither replicas nor leaderships. The drain continues without us.
async fn until_drained(admin: &Admin, server: u64, replicas: u32) -> Result<u32, Failure> {
    let mut progress = Progress::with_unknown_total(&format!("draining server {server}"));
    loop {
        let servers = admin.servers().await.during("look at the drain")?;
        let Some(now) = servers.iter().find(|info| info.server.0 == server) else {
            return Err(Failure::new(format!("server {server} is no longer part of the cluster")));
        };
        let (left, all) = (now.replicas, replicas.max(now.replicas));
        if now.drain.is_none() {
            return Err(Failure::new(format!("the drain of server {server} was ended with {left} replicas left")));
        }
        if left == 0 {
            progress.finish();
            return Ok(0);
        }
        progress.work(u64::from(all - left), u64::from(all), &drain_message(now, all));
        tokio::time::sleep(LOOK_EVERY).await;
    }
}

fn drain_message(server: &ServerInfo, all: u32) -> String {
    format!("{} of {all} replicas moved, {} leaderships left", all - server.replicas, server.leaders)
}

pub async fn undrain(server: &str, connection: &Connection) -> Result<(), Failure> {
    let admin = connect(connection).await?.admin();
    let changed =
        admin.change_server(server, ServerChange::Undrain).await.during(format!("undrain server {server}"))?;
    let (id, address, replicas) = (changed.server.0, changed.address.as_str(), changed.replicas);
    let text = format!("server {id} ({address}) gets replicas again; it has {replicas}");
    said(connection, &text, &ServerLine { done: "undrained", server: id, address, replicas })
}

pub async fn decommission(server: &str, connection: &Connection) -> Result<(), Failure> {
    let admin = connect(connection).await?.admin();
    let changed = admin.change_server(server, ServerChange::Decommission).await;
    let changed = changed.during(format!("decommission server {server}"))?;
    let (id, address) = (changed.server.0, changed.address.as_str());
    let text = format!("server {id} ({address}) has left the cluster; stop its process");
    said(connection, &text, &ServerLine { done: "decommissioned", server: id, address, replicas: 0 })
}

#[derive(Serialize)]
struct MovedLine<'a> {
    done: &'a str,
    region: u64,
    epoch: u64,
    group: u64,
    server: u64,
    address: &'a str,
}

pub async fn move_region(region: u64, server: &str, connection: &Connection) -> Result<(), Failure> {
    let admin = connect(connection).await?.admin();
    let what = || format!("move region {region} to server {server}");
    let begun = admin.begin_move(RegionId(region), server).await.during(what())?;
    let moved = until_moved(&admin, begun.id, region).await.map_err(|failure| failure.during(what()))?;
    let (id, address, group, epoch) = (begun.server.0, begun.address.as_str(), moved.group.0, moved.epoch.0);
    let text = format!("region {region} is on server {id} ({address}), in group {group}, epoch {epoch}");
    said(connection, &text, &MovedLine { done: "moved", region, epoch, group, server: id, address })
}

/// Shows the progress of a move until it has ended. The move continues without us.
async fn until_moved(admin: &Admin, id: u64, region: u64) -> Result<RegionDescriptor, Failure> {
    let mut progress = Progress::with_unknown_total(&format!("moving region {region}"));
    loop {
        match admin.follow_move(id).await.during(format!("look at move-{id}"))? {
            MoveState::Moved(region) => {
                progress.finish();
                return Ok(region);
            }
            MoveState::Undone { why } => return Err(Failure::new(why)),
            MoveState::UnderWay { detail, bytes, copied_bytes, .. } => {
                let copied = format!("{} of {} copied", bytes_rounded(copied_bytes), bytes_rounded(bytes));
                let message = if detail.is_empty() { copied } else { format!("{copied}, {detail}") };
                progress.work(copied_bytes, bytes, &message);
            }
            _ => {}
        }
        tokio::time::sleep(LOOK_AT_MOVE_EVERY).await;
    }
}

#[derive(Serialize)]
struct VerdictLine<'a> {
    server: u64,
    address: &'a str,
    safe: bool,
    obstacles: &'a [String],
}

/// The server, or the one whose stop hook runs this: a container without a shell cannot write its own address.
fn server_or_self(server: &str) -> Result<String, Failure> {
    if server != "self" {
        return Ok(server.to_owned());
    }
    let own = ["TERRANE_ADVERTISE", "TERRANE_LISTEN"].into_iter().find_map(|name| std::env::var(name).ok());
    own.ok_or_else(|| {
        Failure::usage("`self` is the server that TERRANE_ADVERTISE or TERRANE_LISTEN names, and neither is set")
            .advise("name the server by its number or address; `terrane admin servers` lists them")
    })
}

pub async fn restart_check(
    server: Option<&str>,
    wait: Option<Duration>,
    connection: &Connection,
) -> Result<(), Failure> {
    let server = server.map(server_or_self).transpose()?;
    let client = connect(connection).await?;
    let deadline = Instant::now() + wait.unwrap_or_default();
    let verdicts = loop {
        let verdicts = client.admin().restart_check(server.as_deref()).await;
        let verdicts = verdicts.during("check whether servers can be stopped")?;
        if Instant::now() >= deadline || verdicts.iter().all(|verdict| verdict.obstacles.is_empty()) {
            break verdicts;
        }
        // No call waits for this; a check is cheap.
        tokio::time::sleep(RESTART_CHECK_EVERY).await;
    };
    let mut output = Output::new(connection.json);
    for verdict in &verdicts {
        let (id, address, safe) = (verdict.server.0, verdict.address.as_str(), verdict.obstacles.is_empty());
        if output.is_json() {
            output.object(&VerdictLine { server: id, address, safe, obstacles: &verdict.obstacles })?;
        } else if safe {
            output.line(&format!("server {id} ({address}) can be stopped"))?;
        } else {
            output.line(&format!("server {id} ({address}) must not be stopped now:"))?;
            verdict.obstacles.iter().try_for_each(|obstacle| output.line(&format!("- {obstacle}")))?;
        }
    }
    output.flush()?;
    let unsafe_ids: Vec<String> = verdicts
        .iter()
        .filter(|verdict| !verdict.obstacles.is_empty())
        .map(|verdict| verdict.server.to_string())
        .collect();
    if unsafe_ids.is_empty() {
        return Ok(());
    }
    Err(Failure::new(format!("stopping server {} now would make data unavailable", unsafe_ids.join(" or "))))
}

pub async fn balance(mode: Option<BalanceWord>, dry_run: bool, connection: &Connection) -> Result<(), Failure> {
    let mode = match (mode, dry_run) {
        (_, true) => BalanceMode::DryRun,
        (Some(BalanceWord::On), _) => BalanceMode::On,
        (Some(BalanceWord::Off), _) => BalanceMode::Off,
        (Some(BalanceWord::Now) | None, _) => BalanceMode::Now,
    };
    let plan = connect(connection).await?.admin().balance(mode).await.during("balance the cluster")?;
    let mut output = Output::new(connection.json);
    if output.is_json() {
        output.object(&plan)?;
    } else {
        print_plan(&mut output, &plan, mode)?;
    }
    output.flush()
}

fn print_plan(output: &mut Output, plan: &BalancePlan, mode: BalanceMode) -> Result<(), Failure> {
    output.line(if plan.on { "automatic balancing is on" } else { "automatic balancing is off" })?;
    if plan.steps.is_empty() {
        output.line("nothing to move")?;
    } else {
        let what = if mode == BalanceMode::DryRun { "would follow" } else { "follow" };
        output.line(&format!("{} steps {what}:", plan.steps.len()))?;
        for step in &plan.steps {
            output.line(&format!("- {}: {}", step.action, step.reason))?;
        }
    }
    plan.obstacles.iter().try_for_each(|obstacle| output.line(&format!("! {obstacle}")))?;
    output.line("")?;
    let change = |before: String, after: String| if before == after { before } else { format!("{before} -> {after}") };
    let share = |before: u32, after: u32| change(before.to_string(), after.to_string());
    let rows = plan.shares.iter().map(|of| {
        vec![
            of.server.to_string(),
            of.address.clone(),
            share(of.leaders, of.leaders_after),
            share(of.replicas, of.replicas_after),
            share(of.regions, of.regions_after),
            change(bytes_rounded(of.bytes), bytes_rounded(of.bytes_after)),
            change(of.load.to_string(), of.load_after.to_string()),
        ]
    });
    output.table(&["server", "address", "leaders", "replicas", "regions", "size", "load/s"], rows.collect())
}

#[derive(Serialize)]
struct ReplicationLine {
    before: u32,
    replication: u32,
}

pub async fn replication(replicas: u32, connection: &Connection) -> Result<(), Failure> {
    let before = connect(connection).await?.admin().set_replication(replicas).await;
    let before = before.during(format!("change the replication to {replicas}"))?;
    let text = if before == replicas {
        format!("the replication is {replicas} already")
    } else {
        format!("the replication changes from {before} to {replicas}; `terrane admin procedures` shows the progress")
    };
    said(connection, &text, &ReplicationLine { before, replication: replicas })
}

pub async fn check(connection: &Connection) -> Result<(), Failure> {
    let client = connect(connection).await?;
    let check = client.admin().check().await.during("check the cluster")?;
    let groups = client.admin().groups().await.during("list the groups")?;
    let mut output = Output::new(connection.json);
    for finding in &check.findings {
        if output.is_json() {
            output.object(finding)?;
        } else {
            output.line(&format!("{}: {}", finding.kind, finding.what))?;
        }
    }
    if check.findings.is_empty() && !output.is_json() {
        output.line(&format!(
            "no findings: {} tables, {} regions, {} groups and {} servers agree",
            check.tables, check.regions, check.groups, check.servers
        ))?;
    }
    if let Some(compared) = comparisons::of_all(&groups, terrane_env::time::wall_ms())
        && !output.is_json()
    {
        output.line(&compared)?;
    }
    output.flush()?;
    match check.findings.len() {
        0 => Ok(()),
        1 => Err(Failure::new("the check has 1 finding")),
        count => Err(Failure::new(format!("the check has {count} findings"))),
    }
}
