//! A catalog that is rebuilt from what region servers have, after all masters were lost.
//!
//! Regions come from the groups' own logs. Of two claims on a range, the one with the higher epoch wins: the other is a region
//! that was split, merged or moved away since. Every id that is handed out from now on has a new incarnation, so none of the
//! lost catalog is repeated.
//!
//! Invariants: the regions of each table cover all keys, or the catalog is refused, unless the table is to be dropped.

use std::collections::{BTreeMap, BTreeSet};

use bytes::Bytes;
use terrane_types::{GroupId, KeyRange, RegionDescriptor, ServerId, TableId, TableSchema};

use super::checkpoint::Checkpoint;
use super::groups::GroupEntry;
use super::namespaces::Namespaces;
use super::regions::overlaps;
use super::servers::Registration;
use super::tables::{TableEntry, TableState};
use super::{Bootstrap, Catalog, Outcome, Refusal};
use crate::ids::Ids;

/// What region servers have.
#[derive(Clone, Debug)]
pub struct Found {
    /// The cluster, its new masters and its replication.
    pub bootstrap: Bootstrap,
    /// Above that of every id that was found.
    pub incarnation: u16,
    /// The servers.
    pub servers: BTreeMap<ServerId, Registration>,
    /// The groups.
    pub groups: BTreeMap<GroupId, GroupEntry>,
    /// The schemas of regions, also older versions.
    pub schemas: Vec<TableSchema>,
    /// The regions as each group's log has them.
    pub claims: Vec<RegionDescriptor>,
    /// Names of tables to drop.
    pub drop: BTreeSet<String>,
}

impl Catalog {
    /// The catalog of what was found.
    ///
    /// # Errors
    /// What is missing, a sentence each.
    pub fn rebuilt(found: Found) -> Result<Self, Vec<String>> {
        let mut catalog =
            Self { bootstrap: Some(found.bootstrap), ids: Ids::new(found.incarnation), ..Self::default() };
        found.servers.into_iter().for_each(|(server, known)| catalog.servers.add(server, known));
        found.groups.into_iter().for_each(|(group, entry)| catalog.groups.add(group, entry));
        let mut claims = found.claims;
        claims.sort_by_key(|claim| (std::cmp::Reverse(claim.epoch), claim.region));
        let mut placed: Vec<RegionDescriptor> = Vec::new();
        for claim in claims {
            let is_taken = |other: &RegionDescriptor| {
                other.region == claim.region || other.table == claim.table && overlaps(&other.range, &claim.range)
            };
            if !placed.iter().any(is_taken) {
                placed.push(claim);
            }
        }
        let mut missing = Vec::new();
        for (table, schema) in newest(&found.schemas) {
            let regions: Vec<RegionDescriptor> = placed.iter().filter(|claim| claim.table == table).cloned().collect();
            let is_altering = regions.iter().any(|region| region.schema_version < schema.version);
            regions.into_iter().for_each(|region| catalog.regions.insert(region, 0));
            let name = schema.name.to_string();
            let state = match (found.drop.contains(&name), is_altering) {
                (true, _) => TableState::Dropping,
                (false, true) => TableState::Altering,
                (false, false) => TableState::Enabled,
            };
            if state != TableState::Dropping && !catalog.regions.covers_all_keys(table) {
                missing.push(format!("regions of table {name} are on none of the servers: {}", gaps(&catalog, table)));
            }
            if catalog.tables.named(&name).is_some() {
                missing.push(format!("two tables are named {name}: one of them was being dropped"));
                continue;
            }
            catalog.tables.add(TableEntry { schema, state });
        }
        catalog.namespaces = Namespaces::implied_by(&catalog.tables);
        if missing.is_empty() { Ok(catalog) } else { Err(missing) }
    }

    /// Begins with a rebuilt catalog, unless an earlier leader has.
    pub(super) fn begin_rebuilt(&mut self, checkpoint: &[u8]) -> Result<Outcome, Refusal> {
        let rebuilt = Checkpoint::decode(checkpoint).map_err(|error| Refusal::Invalid(error.to_string()))?.catalog;
        match &self.bootstrap {
            None => *self = rebuilt,
            Some(known) if Some(known) == rebuilt.bootstrap.as_ref() => {}
            Some(known) => return Err(Refusal::AlreadyExists(format!("cluster {}", known.cluster))),
        }
        Ok(Outcome::Done)
    }

    /// The first edit of a cluster with this catalog.
    pub fn as_edit(&self) -> Bytes {
        Checkpoint { catalog: self.clone(), ..Checkpoint::default() }.encode().into()
    }
}

fn newest(schemas: &[TableSchema]) -> BTreeMap<TableId, TableSchema> {
    let mut newest: BTreeMap<TableId, TableSchema> = BTreeMap::new();
    for schema in schemas {
        let known = newest.entry(schema.table).or_insert_with(|| schema.clone());
        if schema.version > known.version {
            *known = schema.clone();
        }
    }
    newest
}

/// The ranges of a table that no region covers, for people.
fn gaps(catalog: &Catalog, table: TableId) -> String {
    let mut next = Some(Bytes::new());
    let mut gaps = Vec::new();
    let mut gap = |start: Bytes, end: Bytes| gaps.extend(KeyRange::new(start, end).ok().map(|range| range.to_string()));
    for range in catalog.regions.of_table(table).map(|entry| &entry.descriptor.range) {
        if let Some(start) = next.filter(|start| *start < range.start) {
            gap(start, range.start.clone());
        }
        next = (!range.end.is_empty()).then(|| range.end.clone());
    }
    if let Some(start) = next {
        gap(start, Bytes::new());
    }
    gaps.join(", ")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::catalog::CatalogEdit;
    use crate::catalog::scripts;
    use crate::catalog::tests::descriptor;

    /// A cluster with tables `t`, split at `m`, and `ns:u`.
    fn lost() -> Catalog {
        let mut catalog = Catalog::default();
        for edit in [
            "bootstrap",
            "add-server a:1",
            "add-groups first=g1 s1",
            "open-group g1",
            "create-namespace ns",
            "create-table t split=m",
            "enable-table t1",
            "create-table ns:u",
            "enable-table t2",
        ] {
            scripts::must_apply(&mut catalog, edit);
        }
        catalog
    }

    fn found(of: &Catalog) -> Found {
        Found {
            bootstrap: of.bootstrap.clone().expect("bootstrapped"),
            incarnation: 1,
            servers: of.servers.iter().map(|(server, known)| (server, known.clone())).collect(),
            groups: of.groups.iter().map(|(group, entry)| (group, entry.clone())).collect(),
            schemas: of.tables.iter().map(|entry| entry.schema.clone()).collect(),
            claims: of.regions.iter().map(|entry| entry.descriptor.clone()).collect(),
            drop: BTreeSet::new(),
        }
    }

    #[test]
    fn what_servers_have_gives_the_catalog_back_and_no_id_twice() {
        let lost = lost();
        let mut rebuilt = Catalog::rebuilt(found(&lost)).unwrap();
        assert_eq!((&rebuilt.servers, &rebuilt.groups, &rebuilt.tables), (&lost.servers, &lost.groups, &lost.tables));
        assert_eq!(rebuilt.namespaces, lost.namespaces);
        let regions =
            |catalog: &Catalog| catalog.regions.iter().map(|entry| entry.descriptor.clone()).collect::<Vec<_>>();
        assert_eq!(regions(&rebuilt), regions(&lost));
        let Outcome::RegionIds(first) = rebuilt.apply(&CatalogEdit::TakeRegionIds { count: 1 }, 1) else { panic!() };
        assert_eq!(first.0 >> 48, 1);
    }

    #[test]
    fn the_higher_epoch_wins() {
        let mut found = found(&lost());
        // A replica that is behind still has the region from before its split.
        let before = RegionDescriptor { epoch: terrane_types::RegionEpoch(1), ..descriptor(900, "", "", 1) };
        found.claims.iter_mut().for_each(|claim| claim.epoch = terrane_types::RegionEpoch(2));
        found.claims.insert(0, before);
        let rebuilt = Catalog::rebuilt(found).unwrap();
        assert!(rebuilt.regions.get(terrane_types::RegionId(900)).is_none());
        assert!(rebuilt.regions.covers_all_keys(TableId(1)));
    }

    #[test]
    fn a_table_with_a_gap_is_named_and_can_be_dropped() {
        let mut found = found(&lost());
        found.claims.retain(|claim| claim.range.start != "m");
        let missing = Catalog::rebuilt(found.clone()).unwrap_err();
        assert_eq!(missing, ["regions of table t are on none of the servers: [m,)"]);
        found.drop.insert("t".to_owned());
        let rebuilt = Catalog::rebuilt(found).unwrap();
        assert_eq!(rebuilt.tables.named("t").unwrap().state, TableState::Dropping);
    }

    #[test]
    fn the_first_leader_records_it_and_later_ones_change_nothing() {
        let lost = lost();
        let edit = CatalogEdit::Rebuild { checkpoint: lost.as_edit() };
        assert_eq!(CatalogEdit::decode(&edit.encode()), Ok(edit.clone()));
        let mut fresh = Catalog::default();
        assert_eq!(fresh.apply(&edit, 1), Outcome::Done);
        assert_eq!(fresh, lost);
        fresh.apply(&CatalogEdit::TakeRegionIds { count: 1 }, 1);
        let later = fresh.clone();
        assert_eq!(fresh.apply(&edit, 1), Outcome::Done);
        assert_eq!(fresh, later);
    }
}
