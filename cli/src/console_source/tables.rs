//! The pages of tables.

use std::collections::BTreeMap;

use terrane_client::{Client, RegionLoad, TableInfo};
use terrane_console::source::{Attribute, Failure, Family, KeyPart, RegionSelection, Table, TableDetail};
use terrane_types::{FamilyName, FamilySchema, TableName, TableSchema, escape};

use super::cluster;
use super::lookup::describe;
use super::refusal::refused;

pub(super) async fn list(client: &Client) -> Result<Vec<Table>, Failure> {
    let regions = client.admin().regions(None).await.map_err(refused)?;
    let mut loads: BTreeMap<&str, Vec<RegionLoad>> = BTreeMap::new();
    regions.iter().for_each(|region| loads.entry(&region.table).or_default().push(region.load));
    let load = |name: &str| loads.get(name).into_iter().flatten().copied().sum();
    let tables = client.admin().list_tables().await.map_err(refused)?;
    Ok(tables.iter().map(|table| shown(table, load(&table.schema.name.to_string()))).collect())
}

fn shown(table: &TableInfo, load: RegionLoad) -> Table {
    Table {
        name: table.schema.name.to_string(),
        families: table.schema.families.iter().map(|family| family.name.to_string()).collect(),
        key: table.schema.key.as_ref().map(ToString::to_string),
        regions: u64::from(table.regions),
        bytes: table.bytes,
        disabled: table.schema.disabled,
        load,
    }
}

pub(super) async fn detail(client: &Client, name: &str) -> Result<TableDetail, Failure> {
    let described = describe(client, name).await?;
    let selection = RegionSelection { table: Some(name.to_owned()), ..RegionSelection::default() };
    let regions = cluster::regions(client, &selection).await?;
    let schema = &described.schema;
    let parts = schema.key.iter().flat_map(|key| key.parts());
    let defaults = TableName::new("t").map(|name| TableSchema::new(name).attributes()).unwrap_or_default();
    Ok(TableDetail {
        table: shown(&described, regions.iter().map(|region| region.load).sum()),
        key_parts: parts.map(|part| KeyPart { name: part.name.clone(), kind: part.kind.to_string() }).collect(),
        attributes: attributes(schema.attributes(), &defaults),
        family_details: schema.families.iter().map(family).collect(),
        create_command: None,
        regions,
    })
}

fn attributes(set: BTreeMap<String, String>, defaults: &BTreeMap<String, String>) -> Vec<Attribute> {
    let attribute =
        |(name, value): (String, String)| Attribute { default: defaults.get(&name) == Some(&value), name, value };
    set.into_iter().map(attribute).collect()
}

fn family(family: &FamilySchema) -> Family {
    let defaults = FamilyName::new("f").map(|name| FamilySchema::new(name).attributes()).unwrap_or_default();
    let columns = family.types.iter().map(|(qualifier, kind)| (escape(qualifier), kind.to_string()));
    Family {
        name: family.name.to_string(),
        attributes: attributes(family.attributes(), &defaults),
        columns: columns.collect(),
    }
}
