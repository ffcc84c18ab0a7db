//! The data path over HBase's protocol: players that write and read in every way through the port for HBase's clients, each of
//! which compares every answer with a plain model of its rows; and a client that splits, moves, flushes and compacts regions
//! meanwhile.
//!
//! A player loses its connection now and then right after a call was sent, and tries again.

use std::cell::RefCell;
use std::rc::Rc;

use terrane_client::{Client, Error, TableSpec};
use terrane_hbase_client::HbaseClient;
use terrane_hbase_client::player::{Bounds, Player, Surroundings};
use terrane_oracle::model::draw::{Draw, FAMILIES, group_start};
use terrane_oracle::model::plain::Model;
use terrane_oracle::model::possible::Possible;
use terrane_types::TableName;

use super::maintenance::maintain;
use super::play::{
    self, CAPTIVE, LAST_PATIENCE, OPERATOR, Play, Scenario, TABLE, below, disks_are_damaged, pause, sized,
};
use crate::context::Context;
use crate::nodes::hbase_address;
use crate::plan::Plan;
use crate::trace;
use crate::verdict::Failure;

/// The hosts of the players.
const HOSTS: [&str; 4] = ["w1", "w2", "r1", CAPTIVE];

const PLAYERS: usize = HOSTS.len();
/// Groups of rows that a player has to itself.
const GROUPS_EACH: usize = 6;
const PAUSE_MS: u64 = 60;
/// One step in this many loses its first answer.
const LOST_ONE_IN: usize = 8;

/// Steps without which a run shows little.
const STEPS_MIN: u64 = 60;

/// The scenario.
#[derive(Clone, Default)]
pub struct HbaseModel {
    /// What the rows of each player have, once it has ended.
    models: Rc<RefCell<Vec<(usize, Possible)>>>,
}

impl Scenario for HbaseModel {
    fn clients(&self, context: &Context) -> Vec<(&'static str, Play)> {
        let shared = self.shared(context);
        let mut clients: Vec<(&'static str, Play)> = Vec::new();
        for (index, host) in HOSTS.into_iter().enumerate() {
            clients.push((host, Box::pin(play(host, index, shared.clone()))));
        }
        let some_row = || group_start(below(PLAYERS * GROUPS_EACH));
        clients.push((OPERATOR, Box::pin(maintain(TABLE, some_row, context.clone()))));
        clients
    }

    fn last_reading(&self, host: &'static str, context: &Context) -> Play {
        Box::pin(read_everything(host, self.shared(context)))
    }

    fn shortfall(&self, context: &Context) -> Option<String> {
        let steps = context.state.acknowledged();
        // While builds are mixed, nonces are not recorded, and players wait.
        (steps < STEPS_MIN).then(|| format!("only {steps} steps were made"))
    }
}

type Shared = play::Shared<HbaseModel>;

fn spec(plan: &Plan) -> Result<TableSpec, Error> {
    let mut spec = TableSpec::new(TABLE)?;
    for (family, versions) in FAMILIES {
        spec = spec.family(family, &[("versions", &versions.to_string())])?;
    }
    sized(spec, plan, PLAYERS * GROUPS_EACH, group_start)
}

/// The rows of a player. Those of the first one have no lower bound, those of the last one no upper bound.
fn bounds(player: usize) -> Bounds {
    let from = if player == 0 { Vec::new() } else { group_start(player * GROUPS_EACH) };
    let to = if player + 1 == PLAYERS { Vec::new() } else { group_start((player + 1) * GROUPS_EACH) };
    (from, to)
}

fn player(index: usize, who: &str, client: HbaseClient, model: Possible) -> Player {
    let groups = index * GROUPS_EACH..(index + 1) * GROUPS_EACH;
    let draw = Draw::new(terrane_env::rand::u64(), groups);
    // A server that finds damage says so, and another one leads soon.
    let passes = |why: &str| why.contains("CorruptHFileException") && disks_are_damaged();
    let around = Surroundings { who: who.to_owned(), passes, note: |what| trace::note(what) };
    Player::new(client, model, draw, bounds(index), around)
}

fn hbase_client(client: &Client, context: &Context) -> Result<HbaseClient, Error> {
    let name: TableName = TABLE.parse().map_err(Error::Invalid)?;
    let servers = context.plan.server_hosts().iter().map(|server| hbase_address(server)).collect();
    Ok(HbaseClient::new(client.clone(), name, servers))
}

async fn play(host: &'static str, index: usize, shared: Shared) -> Result<(), Error> {
    let client = shared.create_table(index, spec).await?;
    let model = Possible::new(Model::new(&FAMILIES));
    let mut player = player(index, host, hbase_client(&client, &shared.context)?, model);
    while !shared.is_over() {
        pause(PAUSE_MS).await;
        if below(LOST_ONE_IN) == 0 {
            player.lose_next_answer();
        }
        judge(&shared.context, host, player.step().await);
        shared.context.state.acknowledge();
    }
    shared.models.borrow_mut().push((index, player.into_model()));
    Ok(())
}

/// Counts a check; a difference fails the run.
fn judge(context: &Context, who: &str, checked: anyhow::Result<()>) {
    context.state.checked();
    if let Err(differs) = checked {
        context.state.fail(Failure { what: format!("{who}: {differs:#}"), about: vec![who.to_owned()] });
    }
}

/// Reads and checks every row after all writes.
async fn read_everything(host: &'static str, shared: Shared) -> Result<(), Error> {
    let client = shared.client(LAST_PATIENCE).await?;
    let models = shared.models.take();
    for (index, model) in models {
        let mut player = player(index, host, hbase_client(&client, &shared.context)?, model);
        judge(&shared.context, host, player.scan_all().await);
        shared.models.borrow_mut().push((index, player.into_model()));
    }
    trace::note(format_args!("{host} read the rows of {PLAYERS} players"));
    Ok(())
}
