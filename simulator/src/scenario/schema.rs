//! Changes of tables under load: an operator alters every attribute of a table, and drops and adds one of its families while
//! writers put into it; another creates, fills and drops tables and namespaces.
//!
//! A change that succeeded is in force everywhere, and a description shows it ([`terrane_oracle::settings`]). A put is applied
//! as a whole or refused, also when its family is dropped meanwhile ([`terrane_oracle::families`]). A change is never refused
//! because of its own retry. One with an unknown outcome ends in one of the two states, but may still arrive late; its table,
//! namespace or family is therefore replaced by one with another name.

use std::cell::{Cell, RefCell};
use std::rc::Rc;

use terrane_client::{Error, TableSpec};
use terrane_oracle::families::Families;
use terrane_oracle::settings::Settings;

use super::maintenance::maintain;
use super::play::{
    self, CAPTIVE, CAPTIVE_PATIENCE, LAST_PATIENCE, PATIENCE, Play, Scenario, TABLE, below, open_table, patiently,
    sized,
};
use crate::context::Context;
use crate::plan::Plan;

mod alterer;
mod attributes;
mod lifecycle;
mod writer;

/// The families of the table that is altered: one that stays, and one that is only altered.
const KEPT: &str = "kept";
const ALTERED: &str = "altered";
const NUMBER: &str = "n";
const GROUPS: usize = 12;

/// What has to happen in a run, else it shows little.
const ALTERS_MIN: u64 = 3;
const TABLES_MIN: u64 = 1;
const PUTS_MIN: u64 = 100;

/// The scenario.
#[derive(Clone, Default)]
pub struct Schema {
    /// The family that comes and goes, and those that took its place when the outcome of a drop or an add was unknown.
    families: Rc<RefCell<Vec<Families>>>,
    settings: Rc<RefCell<Settings>>,
    alters: Rc<Cell<u64>>,
    tables: Rc<Cell<u64>>,
}

impl Scenario for Schema {
    fn clients(&self, context: &Context) -> Vec<(&'static str, Play)> {
        let shared = self.shared(context);
        vec![
            ("w1", Box::pin(alterer::alter_all_the_time(shared.clone()))),
            ("w2", Box::pin(writer::write_all_the_time(shared.clone()))),
            ("r1", Box::pin(lifecycle::create_and_drop_all_the_time("r1", shared.clone()))),
            ("r2", Box::pin(read_and_maintain("r2", shared.clone()))),
            (CAPTIVE, Box::pin(writer::read_all_the_time(CAPTIVE, CAPTIVE_PATIENCE, shared))),
        ]
    }

    fn last_reading(&self, host: &'static str, context: &Context) -> Play {
        Box::pin(read_everything(host, self.shared(context)))
    }

    fn shortfall(&self, context: &Context) -> Option<String> {
        let there = [self.alters.get(), self.tables.get(), context.state.acknowledged()];
        let wanted = [ALTERS_MIN, TABLES_MIN, PUTS_MIN];
        let enough = there.iter().zip(wanted).all(|(there, wanted)| *there >= wanted);
        (!enough).then(|| format!("alters, dropped tables and operations: only {there:?} of at least {wanted:?}"))
    }
}

type Shared = play::Shared<Schema>;

impl Shared {
    /// The generation of the family that comes and goes.
    fn generation(&self) -> usize {
        self.families.borrow().len() - 1
    }

    fn in_generation<T>(&self, generation: usize, act: impl FnOnce(&mut Families) -> T) -> T {
        act(&mut self.families.borrow_mut()[generation])
    }
}

/// The family that comes and goes.
fn other(generation: usize) -> String {
    format!("other-{generation}")
}

fn row(group: usize, name: &str) -> Vec<u8> {
    let group = u32::try_from(group).expect("few groups");
    [&group.to_be_bytes()[..], name.as_bytes()].concat()
}

fn spec(plan: &Plan) -> Result<TableSpec, Error> {
    let spec = TableSpec::new(TABLE)?
        .family(KEPT, &[])?
        .family(&other(0), &[])?
        .family(ALTERED, &[("versions", "3")])?
        .key("group:u32, what:tail")?
        .set("atomic", "1")?;
    sized(spec, plan, GROUPS, |group| row(group, ""))
}

async fn read_and_maintain(host: &'static str, shared: Shared) -> Result<(), Error> {
    let maintained = maintain(TABLE, || row(1 + below(GROUPS - 1), ""), shared.context.clone());
    let (read, maintained) = futures::join!(writer::read_all_the_time(host, PATIENCE, shared), maintained);
    read.and(maintained)
}

/// Compares the altered table with its description, reads all its rows, and uses every table that exists.
async fn read_everything(host: &'static str, shared: Shared) -> Result<(), Error> {
    let client = shared.context.connect(LAST_PATIENCE).await?;
    alterer::settle(host, &client, &shared).await?;
    let table = open_table(&client, TABLE).await?;
    writer::read_all(host, &table, &shared).await?;
    let admin = client.admin();
    let tables = patiently(async || admin.list_tables().await).await?;
    for table in tables {
        let name = table.schema.name.to_string();
        if name != TABLE {
            lifecycle::use_abandoned(host, &client, &name, &shared).await?;
        }
    }
    Ok(())
}
