//! Clients that create tables and namespaces, use them, and drop them, often under a name that was used before.

use std::time::Duration;

use terrane_client::{Admin, Client, Error, Get, Put, RegionInfo, Scan, Table, TableSpec};
use terrane_oracle::Fate;
use terrane_types::states::TableState;

use super::{NUMBER, Shared};
use crate::scenario::play::{PATIENCE, below, open_table, passed, passes, patiently, pause};
use crate::trace::{self, chain};

const FAMILY: &str = "f";
const PAUSE_MS: u64 = 600;
/// Deadlines that often pass before the answer, and how many calls have one.
const SHORT_MS: u64 = 80;
const SHORT_ONE_IN: usize = 6;
const ROWS: u64 = 3;
const SPLITS_MAX: u64 = 3;
const POLL_EVERY: Duration = Duration::from_millis(100);

/// Creates, uses and drops until the faults are over.
pub async fn create_and_drop_all_the_time(host: &'static str, shared: Shared) -> Result<(), Error> {
    let client = shared.client(PATIENCE).await?;
    let mut owner = Owner { host, client, shared, generation: 0 };
    while !owner.shared.is_over() {
        let done =
            if below(4) == 0 { owner.namespace_comes_and_goes().await } else { owner.table_comes_and_goes().await };
        passed(format_args!("{host} gives up"), done)?;
        pause(PAUSE_MS).await;
    }
    Ok(())
}

/// The only user of its names.
struct Owner {
    host: &'static str,
    client: Client,
    shared: Shared,
    /// Names with another generation are not used again.
    generation: u32,
}

impl Owner {
    fn admin(&self) -> Admin {
        let admin = self.client.admin();
        if below(SHORT_ONE_IN) > 0 {
            return admin;
        }
        admin.with_timeout(Duration::from_millis(terrane_env::rand::range(1..SHORT_MS)))
    }

    fn judge(&self, what: &str, verdict: Result<(), String>) {
        self.shared.judge(self.host, what.as_bytes(), verdict);
    }

    /// A change that nothing else interferes with is never refused because of what its own retry finds.
    fn ended<T>(&mut self, what: &str, name: &str, outcome: Result<T, Error>) -> Fate {
        let ended = match &outcome {
            Ok(_) => Fate::Applied,
            Err(error) if error.is_uncertain() => Fate::Unknown,
            Err(error) if error.is_retry_safe() => Fate::Refused,
            Err(error) => {
                self.judge(name, Err(format!("could not be {what}: {}", chain(error))));
                Fate::Refused
            }
        };
        trace::note(format_args!("{} {what} {name}: {ended:?}", self.host));
        if ended == Fate::Unknown {
            self.generation += 1;
        } else if ended == Fate::Applied {
            self.shared.context.state.acknowledge();
        }
        ended
    }

    async fn table_comes_and_goes(&mut self) -> Result<(), Error> {
        let name = format!("{}-{}-{}", self.host, self.generation, below(2));
        let spec = self.some_spec(&name)?;
        let created = self.admin().create_table(spec.clone()).await;
        if self.ended("created", &name, created) != Fate::Applied {
            return Ok(());
        }
        self.is_as_specified(&name, &spec).await;
        let table = open_table(&self.client, &name).await?;
        self.is_empty(&name, &table).await;
        let mut used = use_table(self.host, &table, &self.shared).await;
        let generation = self.generation;
        match below(3) {
            0 => used = used.and(self.disable_and_enable(&name, &table).await),
            1 => used = used.and(self.truncate(&name, &spec).await),
            _ => {}
        }
        if self.generation != generation {
            // The outcome of the change is unknown for good.
            return used;
        }
        // It has to be dropped in any case, or its name would be taken.
        loop {
            let dropped = self.admin().drop_table(&name).await;
            match self.ended("dropped", &name, dropped) {
                Fate::Applied => break,
                Fate::Unknown => return used,
                Fate::Refused if self.shared.is_over() => return used,
                Fate::Refused => pause(PAUSE_MS).await,
            }
        }
        self.is_gone(&name, &table).await;
        self.shared.tables.set(self.shared.tables.get() + 1);
        used
    }

    /// A disabled table refuses reads and writes in all regions, and takes them again once it is enabled.
    async fn disable_and_enable(&mut self, name: &str, table: &Table) -> Result<(), Error> {
        let disabled = self.admin().disable_table(name).await;
        match self.ended("disabled", name, disabled) {
            Fate::Applied => {}
            Fate::Refused | Fate::Unknown => return Ok(()),
        }
        for number in 0..ROWS {
            let row = row_of(number);
            let refused = |error: &Error| matches!(error, Error::Disabled { .. }) || passes(error);
            let got = table.get(Get::new(row)).await.map(drop);
            let put = table.put(Put::new(row).set(FAMILY, NUMBER, row)).await;
            for (what, outcome) in [("get", got), ("put", put)] {
                let right = outcome.as_ref().is_err_and(refused);
                let wrong = || Err(format!("is disabled, and a {what} ends with {outcome:?}"));
                self.judge(name, if right { Ok(()) } else { wrong() });
            }
        }
        loop {
            let enabled = self.admin().enable_table(name).await;
            match self.ended("enabled", name, enabled) {
                Fate::Applied => break,
                Fate::Unknown => return Ok(()),
                Fate::Refused if self.shared.is_over() => return Ok(()),
                Fate::Refused => pause(PAUSE_MS).await,
            }
        }
        use_table(self.host, table, &self.shared).await
    }

    /// A truncated table has its regions and no rows.
    async fn truncate(&mut self, name: &str, spec: &TableSpec) -> Result<(), Error> {
        let truncated = self.admin().truncate_table(name).await;
        if self.ended("truncated", name, truncated) != Fate::Applied {
            return Ok(());
        }
        self.is_as_specified(name, spec).await;
        let table = open_table(&self.client, name).await?;
        self.is_empty(name, &table).await;
        use_table(self.host, &table, &self.shared).await
    }

    fn some_spec(&self, name: &str) -> Result<TableSpec, Error> {
        let versions = (1 + below(4)).to_string();
        let spec = TableSpec::new(name)?.family(FAMILY, &[("versions", &versions)])?.set("meta.owner", self.host)?;
        let splits = terrane_env::rand::range(0..SPLITS_MAX + 1);
        Ok((1..=splits).fold(spec, |spec, split| spec.split_at(&(u64::MAX / (splits + 1) * split).to_be_bytes())))
    }

    async fn is_as_specified(&self, name: &str, spec: &TableSpec) {
        let admin = self.client.admin();
        let (Ok(described), Ok(regions)) = (admin.describe_table(name).await, admin.regions(Some(name)).await) else {
            return;
        };
        let families = |schema: &terrane_client::TableSchema| -> Vec<_> {
            schema.families.iter().map(|family| (family.name.to_string(), family.attributes())).collect()
        };
        let same = described.schema.attributes() == spec.schema.attributes()
            && families(&described.schema) == families(&spec.schema);
        self.judge(name, if same { Ok(()) } else { Err(format!("is described as {:?}", described.schema)) });
        self.judge(name, tiles(&regions));
        let least = spec.split_at.len() + 1;
        let enough = regions.len() >= least;
        self.judge(name, if enough { Ok(()) } else { Err(format!("has {} regions, not {least}", regions.len())) });
    }

    /// Nothing of an earlier table of the same name is there.
    async fn is_empty(&self, name: &str, table: &Table) {
        if let Ok(counted) = table.count(Scan::all()).await {
            self.judge(name, if counted == 0 { Ok(()) } else { Err(format!("is new and has {counted} rows")) });
        }
    }

    async fn is_gone(&self, name: &str, old: &Table) {
        let described = self.client.admin().describe_table(name).await;
        let got = old.get(Get::new(0u64.to_be_bytes())).await;
        let is_gone = |error: &Error| error.is_not_found() || passes(error);
        let verdict = match (described, got) {
            (Err(error), Err(other)) if is_gone(&error) && is_gone(&other) => Ok(()),
            (described, got) => Err(format!("was dropped, and is described as {described:?}; a get returns {got:?}")),
        };
        self.judge(name, verdict);
    }

    async fn namespace_comes_and_goes(&mut self) -> Result<(), Error> {
        let name = format!("n-{}-{}", self.host, self.generation);
        let created = self.admin().create_namespace(&name).await;
        if self.ended("created", &name, created) != Fate::Applied {
            return Ok(());
        }
        let table = format!("{name}:t");
        let spec = self.some_spec(&table)?;
        let created = self.admin().create_table(spec).await;
        match self.ended("created", &table, created) {
            Fate::Applied => {
                let refused = self.client.admin().drop_namespace(&name).await;
                let right = refused.as_ref().is_err_and(|error| error.is_invalid() || passes(error));
                self.judge(
                    &name,
                    if right { Ok(()) } else { Err(format!("has a table, and is dropped: {refused:?}")) },
                );
                if !self.drop_patiently(&table, false).await {
                    return Ok(());
                }
            }
            Fate::Refused => {}
            Fate::Unknown => return Ok(()),
        }
        self.drop_patiently(&name, true).await;
        Ok(())
    }

    /// Drops a table or a namespace until the outcome is known, or unknown for good. Returns whether it was dropped.
    async fn drop_patiently(&mut self, name: &str, is_namespace: bool) -> bool {
        let generation = self.generation;
        while self.generation == generation {
            let admin = self.admin();
            let dropped = if is_namespace { admin.drop_namespace(name).await } else { admin.drop_table(name).await };
            if self.ended("dropped", name, dropped) == Fate::Applied {
                return true;
            }
            if self.shared.is_over() {
                // Its name is not used again either.
                self.generation += 1;
            }
        }
        false
    }
}

/// Whether regions cover all keys without gap or overlap.
fn tiles(regions: &[RegionInfo]) -> Result<(), String> {
    let mut ranges: Vec<_> = regions.iter().map(|region| &region.descriptor.range).collect();
    ranges.sort_by(|one, other| one.start.cmp(&other.start));
    let whole = ranges.first().is_some_and(|first| first.start.is_empty())
        && ranges.last().is_some_and(|last| last.end.is_empty())
        && ranges.windows(2).all(|pair| pair[0].end == pair[1].start);
    if whole { Ok(()) } else { Err(format!("has regions with gaps or overlaps: {ranges:?}")) }
}

/// One of the rows all over a table.
fn row_of(number: u64) -> [u8; 8] {
    (u64::MAX / ROWS * number).to_be_bytes()
}

/// Puts some rows all over a table and reads them.
async fn use_table(who: &str, table: &Table, shared: &Shared) -> Result<(), Error> {
    for number in 0..ROWS {
        let row = row_of(number);
        patiently(async || table.put(Put::new(row).set(FAMILY, NUMBER, row)).await).await?;
        let found = patiently(async || table.get(Get::new(row)).await).await?;
        let right = found.as_ref().is_some_and(|found| found.value(FAMILY, NUMBER) == Some(&row[..]));
        let name = table.name();
        let wrong = || Err(format!("of {name} was put, and reads {found:?}"));
        shared.judge(who, &row, if right { Ok(()) } else { wrong() });
    }
    Ok(())
}

/// A table that is left, perhaps by a change with an unknown outcome: its change ends, and if it exists it is usable.
pub async fn use_abandoned(who: &str, client: &Client, name: &str, shared: &Shared) -> Result<(), Error> {
    let admin = client.admin();
    loop {
        match patiently(async || admin.describe_table(name).await).await {
            Ok(described) if described.state == TableState::Enabled => break,
            // Its owner did not come to enable it.
            Ok(described) if described.state == TableState::Disabled => {
                patiently(async || admin.enable_table(name).await).await?;
            }
            Ok(_) => tokio::time::sleep(POLL_EVERY).await,
            Err(error) if error.is_not_found() => return Ok(()),
            Err(error) => return Err(error),
        }
    }
    let regions = patiently(async || admin.regions(Some(name)).await).await?;
    shared.judge(who, name.as_bytes(), tiles(&regions));
    let table = open_table(client, name).await?;
    use_table(who, &table, shared).await
}
