//! In what a table differs from another of the same name.

use std::collections::BTreeMap;

use super::TableSchema;
use crate::key::KeyDeclaration;

impl TableSchema {
    /// In what this table differs from the `wanted` one: one sentence for each attribute, family and key. Empty if they are
    /// the same; names, ids and versions do not count, nor does `time` in the place of `i64`, which are the same bytes.
    ///
    /// ```
    /// # use terrane_types::{FamilySchema, TableName, TableSchema};
    /// let mut wanted = TableSchema::new(TableName::new("t")?);
    /// wanted.add_family(FamilySchema::new("data".parse()?))?;
    /// let mut found = wanted.clone();
    /// found.families[0].set_attribute("versions", "3")?;
    /// assert_eq!(found.differences(&wanted), ["family data: versions is 3, not 1"]);
    /// # Ok::<(), terrane_types::Invalid>(())
    /// ```
    #[must_use]
    pub fn differences(&self, wanted: &Self) -> Vec<String> {
        let (mut ours, mut theirs) = (self.attributes(), wanted.attributes());
        if self.key.is_some() != wanted.key.is_some() {
            // They count parts of the key, so the key is the difference.
            for attribute in ["atomic", "bloom_prefix"] {
                ours.remove(attribute);
                theirs.remove(attribute);
            }
        }
        if self.key.as_ref().map(KeyDeclaration::as_stored) == wanted.key.as_ref().map(KeyDeclaration::as_stored) {
            ours.remove("key");
            theirs.remove("key");
        }
        let mut found = of_attributes(&ours, &theirs);
        for family in &wanted.families {
            let Some(there) = self.family(family.name.as_bytes()) else {
                found.push(format!("family {} does not exist", family.name));
                continue;
            };
            let mut wanted = family.clone();
            for (qualifier, read_as) in &mut wanted.types {
                if let Some(known) = there.types.get(qualifier).filter(|known| known.as_stored() == read_as.as_stored())
                {
                    *read_as = *known;
                }
            }
            let of_family = of_attributes(&there.attributes(), &wanted.attributes());
            found.extend(of_family.into_iter().map(|difference| format!("family {}: {difference}", family.name)));
        }
        let more = self.families.iter().filter(|family| wanted.family(family.name.as_bytes()).is_none());
        found.extend(more.map(|family| format!("family {} is not specified", family.name)));
        found
    }
}

fn of_attributes(found: &BTreeMap<String, String>, wanted: &BTreeMap<String, String>) -> Vec<String> {
    let changed = wanted.iter().filter_map(|(name, wanted)| match found.get(name) {
        Some(found) if found == wanted => None,
        Some(found) => Some(format!("{name} is {found}, not {wanted}")),
        None => Some(format!("{name} is not set, instead of {wanted}")),
    });
    let more = found.iter().filter(|(name, _)| !wanted.contains_key(*name));
    changed.chain(more.map(|(name, found)| format!("{name} is {found}, which is not specified"))).collect()
}

#[cfg(test)]
mod tests {
    use crate::name::TableName;
    use crate::schema::{FamilySchema, TableSchema};

    fn table() -> TableSchema {
        let mut table = TableSchema::new(TableName::new("t").unwrap());
        table.add_family(FamilySchema::new("data".parse().unwrap())).unwrap();
        table
    }

    #[test]
    fn every_difference_is_named() {
        let mut wanted = table();
        wanted.set_attribute("key", "user:u64").unwrap();
        wanted.add_family(FamilySchema::new("more".parse().unwrap())).unwrap();
        wanted.families[0].set_attribute("type.n", "i64").unwrap();
        let mut found = table();
        found.set_attribute("region_size", "16MiB").unwrap();
        found.set_attribute("meta.owner", "ann").unwrap();
        found.families[0].set_attribute("ttl", "1d").unwrap();
        found.add_family(FamilySchema::new("old".parse().unwrap())).unwrap();
        assert_eq!(
            found.differences(&wanted),
            [
                "key is not set, instead of user:u64",
                "region_size is 16MiB, not 256MiB",
                "meta.owner is ann, which is not specified",
                "family data: ttl is 86400000ms, not none",
                "family data: type.n is not set, instead of i64",
                "family more does not exist",
                "family old is not specified",
            ]
        );
    }

    #[test]
    fn times_and_their_numbers_are_the_same() {
        let with = |key: &str, read_as: &str| {
            let mut table = table();
            table.set_attribute("key", key).unwrap();
            table.families[0].set_attribute("type.seen", read_as).unwrap();
            table
        };
        let (dates, numbers) = (with("user:u64, time:desc time", "time"), with("user:u64, time:desc i64", "i64"));
        assert!(dates.differences(&numbers).is_empty() && numbers.differences(&dates).is_empty());
        let other = with("user:u64, time:time", "u64");
        assert_eq!(
            dates.differences(&other),
            ["key is user:u64, time:desc time, not user:u64, time:time", "family data: type.seen is time, not u64"]
        );
    }

    #[test]
    fn what_the_catalog_assigns_is_no_difference() {
        let wanted = table();
        let mut found = table();
        (found.table, found.version) = (crate::TableId(7), 3);
        assert!(found.differences(&wanted).is_empty());
    }
}
