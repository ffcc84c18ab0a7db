//! The operator that alters the table: every attribute of table and families, and a family that is dropped and added. After
//! each alter it compares the table's description, and tests by writes that every region obeys.

use std::time::Duration;

use futures::future::join_all;
use terrane_client::{Admin, Client, Error, Put, Table};
use terrane_oracle::Fate;
use terrane_oracle::families::Families;
use terrane_types::states::TableState;

use super::attributes::{Alter, settings_of};
use super::{GROUPS, KEPT, Shared, other, row, spec};
use crate::scenario::play::{PATIENCE, TABLE, below, create_table, open_table, passes, patiently, pause};
use crate::trace::{self, chain};

const WHO: &str = "w1";
const PAUSE_MS: u64 = 500;
/// How long the table stays read-only, or without the family.
const READ_ONLY_MS: u64 = 200;
/// Deadlines that often pass before the answer.
const SHORT_MS: u64 = 60;
const PROBE_MAX: Duration = Duration::from_secs(2);
const POLL_EVERY: Duration = Duration::from_millis(100);
const READ_ONLY: &str = "read_only";
/// Set under short deadlines only: each value once, so that an unknown outcome does not excuse a later one.
const MARK: &str = "meta.mark";
/// How late a request of an alter with an unknown outcome may arrive after everything is healed.
const LATE: Duration = Duration::from_secs(2);
/// Families that take the place of one another.
const GENERATIONS_MAX: usize = 8;

/// Creates the table, and alters it until the faults are over.
pub async fn alter_all_the_time(shared: Shared) -> Result<(), Error> {
    let client = shared.context.connect(PATIENCE).await?;
    let spec = spec(&shared.context.plan)?;
    create_table(&client, &spec).await?;
    for (name, value) in settings_of(&spec.schema) {
        shared.settings.borrow_mut().end(&name, Some(value), Fate::Applied);
    }
    shared.families.borrow_mut().push(Families::default());
    shared.context.state.ready();
    let table = open_table(&client, TABLE).await?.with_timeout(PROBE_MAX);
    let mut alterer = Alterer { admin: client.admin().with_timeout(PATIENCE), table, shared, marks: 0 };
    while !alterer.shared.is_over() {
        alterer.alter_something().await?;
        pause(PAUSE_MS).await;
    }
    if !alterer.is_certain(READ_ONLY) {
        tokio::time::sleep(LATE).await;
        alterer.be_writable().await?;
    }
    Ok(())
}

/// Waits until no change is in progress and compares the description.
pub async fn settle(who: &str, client: &Client, shared: &Shared) -> Result<(), Error> {
    let admin = client.admin();
    loop {
        let described = patiently(async || admin.describe_table(TABLE).await).await?;
        if described.state == TableState::Enabled {
            shared.judge(who, b"the table's", shared.settings.borrow().shown(&settings_of(&described.schema)));
            return Ok(());
        }
        tokio::time::sleep(POLL_EVERY).await;
    }
}

struct Alterer {
    admin: Admin,
    table: Table,
    shared: Shared,
    marks: u64,
}

impl Alterer {
    async fn alter_something(&mut self) -> Result<(), Error> {
        match below(10) {
            0..=2 => self.alter(Alter::some_attributes(&self.table.schema()), PATIENCE).await.map(drop),
            3 => self.alter_in_a_hurry().await,
            4 | 5 => self.be_read_only().await,
            _ => self.drop_and_add_family().await,
        }
    }

    /// Alters under a deadline that often passes before the answer: the alter takes effect or not.
    async fn alter_in_a_hurry(&mut self) -> Result<(), Error> {
        self.marks += 1;
        let value = self.marks.to_string();
        let alter = Alter::of_table(&self.table.schema(), (MARK, &value));
        let short = Duration::from_millis(terrane_env::rand::range(1..SHORT_MS));
        self.alter(alter, short).await.map(drop)
    }

    async fn alter(&self, alter: Alter, deadline: Duration) -> Result<Fate, Error> {
        let Alter { change, values } = alter;
        trace::note(format_args!("{WHO} begins to alter {values:?}"));
        let outcome = self.admin.clone().with_timeout(deadline).alter_table(TABLE, change).await;
        let shown = outcome.as_ref().map_or_else(|error| chain(error), |_| "done".to_owned());
        trace::note(format_args!("{WHO} alters {values:?}: {shown}"));
        let fate = match outcome {
            Ok(_) => Fate::Applied,
            Err(error) if error.is_uncertain() => Fate::Unknown,
            Err(error) if error.is_retry_safe() => Fate::Refused,
            Err(error) => return Err(error),
        };
        values.into_iter().for_each(|(name, value)| self.shared.settings.borrow_mut().end(&name, value, fate));
        if fate == Fate::Applied {
            self.shared.alters.set(self.shared.alters.get() + 1);
            self.compare().await?;
        }
        Ok(fate)
    }

    /// Compares the description with what was set.
    async fn compare(&self) -> Result<(), Error> {
        match self.admin.describe_table(TABLE).await {
            Ok(described) => {
                let verdict = self.shared.settings.borrow().shown(&settings_of(&described.schema));
                self.shared.judge(WHO, b"the table's", verdict);
                Ok(())
            }
            Err(error) if passes(&error) => Ok(()),
            Err(error) => Err(error),
        }
    }

    /// Whether no alter of this setting has an unknown outcome.
    fn is_certain(&self, name: &str) -> bool {
        self.shared.settings.borrow().certain(name).is_some()
    }

    /// Makes the table read-only for a moment.
    async fn be_read_only(&self) -> Result<(), Error> {
        let alter = Alter::of_table(&self.table.schema(), (READ_ONLY, "true"));
        let put = |group| Put::new(row(group, "probe")).set(KEPT, "probe", b"p");
        if self.alter(alter, PATIENCE).await? == Fate::Applied && self.is_certain(READ_ONLY) {
            self.probe("a read-only table", put, |outcome| matches!(outcome, Err(Error::ReadOnly { .. }))).await;
        }
        pause(READ_ONLY_MS).await;
        self.be_writable().await?;
        if self.is_certain(READ_ONLY) {
            self.probe("a table that is not read-only", put, Result::is_ok).await;
        }
        Ok(())
    }

    async fn be_writable(&self) -> Result<(), Error> {
        loop {
            let alter = Alter::of_table(&self.table.schema(), (READ_ONLY, "false"));
            if self.alter(alter, PATIENCE).await? == Fate::Applied {
                return Ok(());
            }
        }
    }

    /// Drops the family that comes and goes, if it is there, and adds it.
    async fn drop_and_add_family(&self) -> Result<(), Error> {
        let generation = self.shared.generation();
        let family = other(generation);
        if !self.is_certain(&family) {
            return Ok(());
        }
        let dropped = match self.is_absent() {
            true => Fate::Applied,
            false => self.drop_family(generation, &family).await?,
        };
        let added = match dropped {
            Fate::Applied => self.add_family(generation, &family).await?,
            ended => ended,
        };
        if added == Fate::Unknown {
            self.shared.in_generation(generation, Families::doubt);
            self.replace_family(generation).await?;
        }
        Ok(())
    }

    fn is_absent(&self) -> bool {
        self.shared.in_generation(self.shared.generation(), |families| families.is_absent())
    }

    async fn drop_family(&self, generation: usize, family: &str) -> Result<Fate, Error> {
        self.shared.in_generation(generation, Families::attempt_drop);
        let ended = self.alter(Alter::drop_family(family), PATIENCE).await;
        let is_dropped = ended.as_ref().is_ok_and(|ended| *ended == Fate::Applied);
        self.shared.in_generation(generation, |families| families.end_drop(is_dropped));
        if is_dropped {
            let is_refused = |outcome: &Result<(), Error>| outcome.as_ref().is_err_and(Error::is_invalid);
            self.probe("a dropped family", put_into(family), is_refused).await;
            pause(READ_ONLY_MS).await;
        }
        ended
    }

    async fn add_family(&self, generation: usize, family: &str) -> Result<Fate, Error> {
        self.shared.in_generation(generation, Families::attempt_add);
        let ended = self.alter(Alter::add_family(family), PATIENCE).await?;
        match ended {
            Fate::Applied => {
                self.shared.in_generation(generation, Families::end_add);
                self.probe("an added family", put_into(family), Result::is_ok).await;
            }
            Fate::Refused => self.shared.in_generation(generation, Families::refuse_add),
            Fate::Unknown => {}
        }
        Ok(ended)
    }

    /// Adds another family in place of one whose existence is unknown for good.
    async fn replace_family(&self, generation: usize) -> Result<(), Error> {
        for next in generation + 1..GENERATIONS_MAX {
            // Its name is not used again either if it fails.
            let ended = self.alter(Alter::add_family(&other(next)), PATIENCE).await?;
            self.shared.families.borrow_mut().push(Families::default());
            match ended {
                Fate::Applied => break,
                Fate::Refused | Fate::Unknown => self.shared.in_generation(next, Families::doubt),
            }
        }
        Ok(())
    }

    /// Puts into all regions at once; each put must have the outcome, or a transient error.
    async fn probe(&self, of: &str, put: impl Fn(usize) -> Put, is_right: impl Fn(&Result<(), Error>) -> bool) {
        let puts = (0..GROUPS).map(|group| self.table.put(put(group)).into_future());
        for (group, outcome) in join_all(puts).await.into_iter().enumerate() {
            let row = row(group, "probe");
            if is_right(&outcome) || outcome.as_ref().is_err_and(passes) {
                self.shared.judge(WHO, &row, Ok(()));
                continue;
            }
            let outcome = outcome.map_or_else(|error| chain(&error), |()| "success".to_owned());
            self.shared.judge(WHO, &row, Err(format!("a put into {of} ended with: {outcome}")));
        }
    }
}

fn put_into(family: &str) -> impl Fn(usize) -> Put {
    move |group| Put::new(row(group, "probe")).set(family, "probe", b"p").set(KEPT, "probe", b"p")
}
