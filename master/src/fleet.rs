//! Keeps the replicas and leaderships of groups where they belong: repair, drain, replication, balance.
//!
//! `world` is what the planner looks at, `planner` decides, and the loop here begins what it decided: changes of members as
//! journaled intents (`crate::procedures`), transfers of leadership as orders. When nothing is left to do about groups,
//! `spread` decides which regions move between them, from what `shares` and `loads` tell, and `merges` which small neighbours
//! are brought together. `surplus` groups are emptied and removed. `strays` are replicas that no catalog lists, `successors`
//! servers that have taken over the address of one that is gone.
//! `intents` are an administrator's changes, `region_moves` those of where a region is; `listing`, `restart`, `copies` and `check`
//! answer questions.
//! `repair` says how far that is. `recovery` brings back a group that lost its majority. `levels` raises the feature level of the cluster.
//!
//! A plan is made from the present and forgotten: after each change of the catalog or of what is observed, another one is
//! made. Nothing but the journaled intents survives a master.

pub mod check;
pub mod copies;
pub mod intents;
pub mod levels;
pub mod listing;
pub mod loads;
pub mod masters;
pub mod merges;
pub mod planner;
pub mod recovery;
pub mod region_moves;
pub mod repair;
pub mod restart;
pub mod shares;
pub mod spread;
pub mod strays;
pub mod successors;
pub mod surplus;
pub mod world;

use std::collections::BTreeMap;
use std::time::Duration;

use terrane_types::{Error, GroupId, RegionId};

use self::planner::{Action, Step};
use self::spread::{RegionStep, Spread};
use self::strays::Stray;
use self::surplus::{Next, Sight, Surplus};
use self::world::World;
use crate::catalog::CatalogEdit;
use crate::catalog::changes::ChangePlan;
use crate::catalog::moves::MovePlan;
use crate::context::MasterContext;
use crate::history::chronicle;
use crate::servers::liveness::Moment;
use crate::servers::observed::now;

/// How often the loop looks. Grace times pass without any event.
const LOOK_EVERY: Duration = Duration::from_millis(500);
/// Transfers of leadership for an even spread in one look.
const SPREAD_TRANSFERS_MAX: usize = 4;
/// How long a group that refused to hand over its leadership is left alone.
const REFUSED_FOR: Duration = Duration::from_secs(10);
/// Moves of regions in the whole cluster at a time.
const MOVES_MAX: usize = 16;
/// Orders to remove strays in one look.
const STRAYS_MAX: usize = 16;

/// The world as of now.
pub fn world(context: &MasterContext) -> World {
    context.journal.read(|catalog| {
        let replace_after = context.fleet.replace_after(catalog);
        context.observed.with(|seen| World::of(catalog, seen, now(), replace_after))
    })
}

/// Plans and begins steps while this master leads. Never returns.
pub async fn drive(context: &MasterContext) {
    let mut looks = tokio::time::interval(LOOK_EVERY);
    looks.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
    let (mut refused, mut unmerged) = (BTreeMap::new(), BTreeMap::new());
    loop {
        looks.tick().await;
        watch_loads(context);
        watch_repair(context);
        if context.leadership.confirm().await.is_err() {
            continue;
        }
        levels::raise(context).await;
        let balance = context.journal.read(|catalog| catalog.is_balancing());
        remove_strays(context).await;
        remove_succeeded(context).await;
        hand_over(context, balance, &mut refused).await;
        begin_changes(context, balance).await;
        merge_neighbours(context, &mut unmerged).await;
        if balance {
            shrink(context).await;
            begin_moves(context).await;
        } else {
            *context.surplus.lock() = Surplus::default();
        }
    }
}

/// Begins a plan with balancing at once.
pub async fn balance_now(context: &MasterContext) {
    hand_over(context, true, &mut BTreeMap::new()).await;
    begin_changes(context, true).await;
    begin_moves(context).await;
}

/// Hands over leaderships. A group that refused is left alone for a while, so that it does not keep others waiting.
async fn hand_over(context: &MasterContext, balance: bool, refused: &mut BTreeMap<GroupId, Moment>) {
    let mut present = world(context);
    refused.retain(|_, at| now().since(*at) < REFUSED_FOR);
    present.groups.retain(|group, _| !refused.contains_key(group));
    for step in planner::transfers(&present, balance, SPREAD_TRANSFERS_MAX) {
        terrane_env::buggify_pause!("a leadership is handed over late").await;
        if let Err(error) = transfer(context, &present, &step).await {
            tracing::warn!(group = %step.group, %error, "a leadership was not handed over; it is planned again");
            refused.insert(step.group, now());
        }
    }
}

/// Records the changes of members that may begin now.
async fn begin_changes(context: &MasterContext, balance: bool) {
    let present = world(context);
    let (steps, _) = planner::plan(&present, balance);
    for step in planner::admitted(&present, &steps, context.fleet.changes_per_server) {
        let Some(plan) = change_plan(&present, &step) else { continue };
        let edit = CatalogEdit::BeginMembers(plan);
        match context.journal.record(&edit).await {
            Ok(_) => tracing::info!(group = %step.group, what = step.describe(), why = step.why, "members change"),
            // The catalog has changed since: the next look plans with what it is now.
            Err(error) => tracing::info!(group = %step.group, %error, "a change of members was not begun"),
        }
    }
}

/// Notes what regions are asked for at present.
fn watch_loads(context: &MasterContext) {
    context.journal.read(|catalog| {
        context.observed.with(|observed| context.loads.lock().look(catalog, observed));
    });
}

/// Notes how many groups lack copies at present.
fn watch_repair(context: &MasterContext) {
    context.journal.read(|catalog| {
        let replace_after = context.fleet.replace_after(catalog);
        context.observed.with(|observed| {
            let now = now();
            let lost = recovery::without_majority(catalog, observed, now).len();
            let sight = repair::Sight::of(catalog, observed, now, replace_after, lost);
            context.repair.lock().look(&sight, now);
        });
    });
}

/// The plan of moves for a world: those that even out the shares of servers, or one for a merge. Nothing moves while groups
/// still do.
pub fn plan_moves(context: &MasterContext, world: &World) -> (Vec<RegionStep>, Spread, Spread) {
    let wall_ms = terrane_env::time::wall_ms();
    context.journal.read(|catalog| {
        context.observed.with(|observed| {
            let mut spread = shares::spread(catalog, observed, &context.loads.lock(), world, wall_ms);
            // A group that is being emptied gets no regions, and its own leave for that reason.
            let retiring = context.surplus.lock().retiring();
            if let Some(share) = retiring.and_then(|retiring| spread.groups.get_mut(&retiring.group)) {
                share.ready = false;
            }
            let (mut steps, after) = spread::plan(&spread);
            if steps.is_empty() {
                steps.extend(merges::plan(catalog, observed, &spread, wall_ms));
            }
            (steps, spread, after)
        })
    })
}

/// Empties and removes groups that are surplus. A move that fails is tried again after its region has rested.
async fn shrink(context: &MasterContext) {
    let present = world(context);
    if !planner::plan(&present, true).0.is_empty() {
        return;
    }
    let mixed_builds = levels::has_mixed_builds(context);
    let (next, spread) = context.journal.read(|catalog| {
        context.observed.with(|observed| {
            let wall_ms = terrane_env::time::wall_ms();
            let spread = shares::spread(catalog, observed, &context.loads.lock(), &present, wall_ms);
            let (each, calm) = (context.groups_per_server, context.fleet.surplus_after);
            let sight = Sight { catalog, observed, world: &present, spread: &spread, each, calm, mixed_builds };
            (context.surplus.lock().look(&sight, now()), spread)
        })
    });
    match next {
        Next::Nothing => {}
        Next::Move(steps) => record_moves(context, &spread, &steps).await,
        Next::Remove(group) => match context.journal.record(&CatalogEdit::RemoveGroup { group }).await {
            Ok(_) => tracing::info!(%group, "a surplus group is removed: it is empty"),
            // It has changed since: the next look decides with what it is now.
            Err(error) => tracing::info!(%group, %error, "a surplus group was not removed"),
        },
    }
}

/// Records the moves that may begin now.
async fn begin_moves(context: &MasterContext) {
    let present = world(context);
    if !planner::plan(&present, true).0.is_empty() {
        return;
    }
    let (steps, spread, _) = plan_moves(context, &present);
    record_moves(context, &spread, &steps).await;
}

async fn record_moves(context: &MasterContext, spread: &Spread, steps: &[RegionStep]) {
    let room = MOVES_MAX.saturating_sub(context.journal.read(|catalog| catalog.moves().iter().len()));
    for step in spread::admitted(spread, steps, context.fleet.changes_per_server).into_iter().take(room) {
        let (why, reason) = (step.why.clone(), step.reason());
        let (region, epoch, to, merge_with) = (step.region, step.epoch, step.to.0, step.merge_with);
        let plan = MovePlan { region, epoch, to, lead: None, reason, why, merge_with };
        match region_moves::record(context, &plan).await {
            Ok(id) => tracing::info!(%region, %id, what = step.describe(), why = step.why, "a region moves"),
            // It has changed since: the next look plans with what it is now.
            Err(error) => tracing::info!(%region, %error, "a move of a region was not begun"),
        }
    }
}

/// Merges the neighbours that were brought together for it. A pair that refuses is left alone for a while.
async fn merge_neighbours(context: &MasterContext, refused: &mut BTreeMap<RegionId, Moment>) {
    refused.retain(|_, at| now().since(*at) < REFUSED_FOR);
    let wall_ms = terrane_env::time::wall_ms();
    let due: Vec<_> = context.journal.read(|catalog| merges::due(catalog, wall_ms).collect());
    for (one, other) in due {
        if refused.contains_key(&one.region) {
            continue;
        }
        tracing::info!(one = %one.region, other = %other.region, "two small regions that are now in one group are merged");
        if let Err(error) = context.orders.merge(&one, &other).await {
            tracing::info!(one = %one.region, other = %other.region, %error, "two regions were not merged");
        }
        // Also after a merge: its report changes the map a moment later.
        refused.insert(one.region, now());
    }
}

fn change_plan(world: &World, step: &Step) -> Option<ChangePlan> {
    let Action::Members { add, remove, reason } = step.action else { return None };
    let group = world.groups.get(&step.group)?;
    let replica = |server| group.members.get(&server).copied().flatten();
    let version = group.version;
    Some(ChangePlan { group: step.group, version, add, remove: remove.and_then(replica), reason })
}

async fn transfer(context: &MasterContext, world: &World, step: &Step) -> Result<(), Error> {
    let Action::Transfer { to, .. } = step.action else { return Ok(()) };
    let group = world.groups.get(&step.group);
    let Some(replica) = group.and_then(|group| group.members.get(&to).copied().flatten()) else { return Ok(()) };
    tracing::info!(group = %step.group, what = step.describe(), why = step.why, "a leadership is handed over");
    chronicle::hands_over(context, step.group, to, &step.why);
    context.orders.transfer_leader(step.group, replica).await?;
    chronicle::handed_over(context, step.group, to);
    Ok(())
}

async fn remove_strays(context: &MasterContext) {
    let strays = context.journal.read(|catalog| {
        context.observed.with(|seen| {
            let mut strays = strays::find(catalog, seen, now());
            // Leaders last: members of a removed group elect none meanwhile.
            strays.sort_by_key(|stray| {
                matches!(stray, Stray::Replica { group, server, .. } if seen.inventory.leader(*group) == Some(*server))
            });
            strays
        })
    });
    for stray in strays.into_iter().take(STRAYS_MAX) {
        let removed = match stray {
            Stray::Replica { group, replica, server } => {
                tracing::info!(%group, %replica, %server, "removing a replica that is no longer a member of its group");
                let removed = context.orders.remove_replica(server, group, replica).await;
                if removed.is_ok() {
                    context.observed.with(|observed| observed.inventory.forget_replica(server, group));
                }
                removed
            }
            Stray::Member { group, replica } => {
                tracing::info!(%group, %replica, "removing a member that the catalog does not have");
                context.orders.change_voters(group, None, Some(replica)).await.map(drop)
            }
            Stray::Group { group } => abandon(context, group).await,
        };
        if let Err(error) = removed {
            tracing::debug!(?stray, %error, "a stray was not removed; it is tried again");
        }
    }
}

/// Removes servers that others have succeeded at their addresses.
async fn remove_succeeded(context: &MasterContext) {
    let gone = context.journal.read(|catalog| {
        let replace_after = context.fleet.replace_after(catalog);
        context.observed.with(|seen| successors::find(catalog, &seen.liveness, now(), replace_after))
    });
    for server in gone {
        match context.journal.record(&CatalogEdit::RemoveServer { server }).await {
            Ok(_) => {
                tracing::info!(%server, "a server is removed: it has been away for the grace time, and another one has its address")
            }
            Err(error) => tracing::info!(%server, %error, "a server was not removed; it is tried again"),
        }
    }
}

async fn abandon(context: &MasterContext, group: GroupId) -> Result<(), Error> {
    tracing::info!(%group, "a new group is abandoned: a server that was to be a member does not report");
    context.journal.record(&CatalogEdit::AbandonGroup { group }).await.map(drop)
}

#[cfg(test)]
mod tests;
