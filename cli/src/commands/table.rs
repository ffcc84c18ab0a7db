//! `table`: create, alter, list, describe, drop.

use std::collections::BTreeMap;

use serde::Serialize;
use terrane_client::{Error, FamilySchema, TableChange, TableInfo, TableSpec};
use terrane_types::{NamespaceName, escape};

use super::connect;
use crate::args::client::{AlterTable, Connection, CreateTable, TableCommand};
use crate::args::values::FamilySpec;
use crate::failure::{During, Failure};
use crate::output::{Output, bytes_rounded};

pub async fn run(command: TableCommand) -> Result<(), Failure> {
    match command {
        TableCommand::Create(args) => create(args).await,
        TableCommand::Alter(args) => alter(args).await,
        TableCommand::List { namespace, connection } => list(namespace, connection).await,
        TableCommand::Describe { name, connection } => {
            let described = connect(&connection).await?.admin().describe_table(&name.to_string()).await;
            print_table(&connection, &described.during(format!("describe table {name}"))?)
        }
        TableCommand::Drop { name, connection } => {
            let dropped = connect(&connection).await?.admin().drop_table(&name.to_string()).await;
            dropped.during(format!("drop table {name}"))?;
            eprintln!("dropped table {name}");
            Ok(())
        }
    }
}

async fn create(args: CreateTable) -> Result<(), Failure> {
    let during = || format!("create table {}", args.name);
    let spec = spec_of(&args).during(during())?;
    let admin = connect(&args.connection).await?.admin();
    let namespace = args.name.namespace_name();
    if !namespace.is_default() {
        // Scripts that are older than the command `namespace` create a namespace by creating a table in it.
        match admin.create_namespace(namespace.as_str()).await {
            Ok(()) => eprintln!("created namespace {namespace}"),
            Err(Error::AlreadyExists { .. }) => {}
            Err(error) => return Err(error).during(format!("create namespace {namespace}")),
        }
    }
    let created = admin.create_table(spec).await.during(during())?;
    let regions = if created.regions == 1 { "region" } else { "regions" };
    eprintln!("created table {} with {} {regions}", args.name, created.regions);
    if args.connection.json { print_table(&args.connection, &created) } else { Ok(()) }
}

fn spec_of(args: &CreateTable) -> Result<TableSpec, Failure> {
    let mut spec = TableSpec::new(&args.name.to_string())?;
    for family in &args.family {
        spec = spec.family(family.name.as_str(), &attributes(family))?;
    }
    if let Some(key) = &args.key {
        spec = spec.key(key)?;
    }
    if let Some(size) = args.region_size {
        spec = spec.set("region_size", &size.to_string())?;
    }
    for (attribute, value) in &args.set {
        spec = spec.set(attribute, value)?;
    }
    for key in &args.split_at {
        spec = spec.split_at(&key.0);
    }
    Ok(spec)
}

async fn alter(args: AlterTable) -> Result<(), Failure> {
    let change = args.set.iter().fold(TableChange::new(), |change, (name, value)| change.set(name, value));
    let change =
        args.family.iter().fold(change, |change, family| change.family(family.name.as_str(), &attributes(family)));
    let change = args
        .add_family
        .iter()
        .fold(change, |change, family| change.add_family(family.name.as_str(), &attributes(family)));
    let change = args.drop_family.iter().fold(change, |change, family| change.drop_family(family.as_str()));
    let altered = connect(&args.connection).await?.admin().alter_table(&args.name.to_string(), change).await;
    let altered = altered.during(format!("alter table {}", args.name))?;
    eprintln!("altered table {}", args.name);
    if args.connection.json { print_table(&args.connection, &altered) } else { Ok(()) }
}

fn attributes(family: &FamilySpec) -> Vec<(&str, &str)> {
    family.attributes.iter().map(|(name, value)| (name.as_str(), value.as_str())).collect()
}

async fn list(namespace: Option<NamespaceName>, connection: Connection) -> Result<(), Failure> {
    let admin = connect(&connection).await?.admin();
    let tables = match &namespace {
        Some(namespace) => admin.list_tables_in(namespace.as_str()).await,
        None => admin.list_tables().await,
    };
    let tables = tables.during("list the tables")?;
    let mut output = Output::new(connection.json);
    if output.is_json() {
        tables.iter().try_for_each(|table| output.object(&TableLine::from(table)))?;
        return output.flush();
    }
    let rows = tables.iter().map(|table| {
        let families: Vec<&str> = table.schema.families.iter().map(|family| family.name.as_str()).collect();
        vec![
            table.schema.name.to_string(),
            families.join(","),
            table.regions.to_string(),
            bytes_rounded(table.bytes),
            table.state.clone(),
        ]
    });
    output.table(&["name", "families", "regions", "size", "state"], rows.collect())?;
    output.flush()
}

#[derive(Serialize)]
struct TableLine {
    name: String,
    state: String,
    regions: u32,
    bytes: u64,
    schema_version: u64,
    families: Vec<FamilyLine>,
    attributes: BTreeMap<String, String>,
}

#[derive(Serialize)]
struct FamilyLine {
    name: String,
    #[serde(flatten)]
    attributes: BTreeMap<String, String>,
}

impl From<&TableInfo> for TableLine {
    fn from(info: &TableInfo) -> TableLine {
        TableLine {
            name: info.schema.name.to_string(),
            state: info.state.clone(),
            regions: info.regions,
            bytes: info.bytes,
            schema_version: info.schema.version,
            families: info.schema.families.iter().map(FamilyLine::from).collect(),
            attributes: info.schema.attributes(),
        }
    }
}

impl From<&FamilySchema> for FamilyLine {
    fn from(family: &FamilySchema) -> FamilyLine {
        FamilyLine { name: family.name.to_string(), attributes: family.attributes() }
    }
}

/// A value on one line, since metadata may be any text.
fn shown(value: &str) -> String {
    if value.contains(char::is_control) { escape(value.as_bytes()) } else { value.to_owned() }
}

fn print_table(connection: &Connection, info: &TableInfo) -> Result<(), Failure> {
    let mut output = Output::new(connection.json);
    let line = TableLine::from(info);
    if output.is_json() {
        output.object(&line)?;
        return output.flush();
    }
    let size = bytes_rounded(info.bytes);
    let regions = if line.regions == 1 { "1 region".to_owned() } else { format!("{} regions", line.regions) };
    output.line(&format!(
        "table {}: {}, {regions}, {size}, schema version {}",
        line.name, line.state, line.schema_version
    ))?;
    for (name, value) in &line.attributes {
        output.line(&format!("  {name} = {}", shown(value)))?;
    }
    for family in &line.families {
        let attributes: Vec<String> =
            family.attributes.iter().map(|(name, value)| format!("{name}={}", shown(value))).collect();
        output.line(&format!("  family {}: {}", family.name, attributes.join(", ")))?;
    }
    output.flush()
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::*;
    use crate::args::{Cli, Command};
    use crate::failure::Exit;

    fn spec(line: &[&str]) -> Result<TableSpec, Failure> {
        let words = ["terrane", "table", "create"].iter().chain(line);
        match Cli::try_parse_from(words).expect("a good command line").command {
            Command::Table(TableCommand::Create(create)) => spec_of(&create),
            other => panic!("not a create: {other:?}"),
        }
    }

    #[test]
    fn every_flag_reaches_the_schema() {
        let spec = spec(&[
            "n:t",
            "--family",
            "a:versions=3,ttl=1d,compression=zstd,block_size=64KiB,meta.unit=K",
            "b",
            "--split-at",
            r"k\x00",
            "m",
            "--region-size",
            "16KiB",
            "--key",
            "user:u64, time:desc i64",
            "--set",
            "atomic=1",
            "bloom_prefix=2",
            "split_policy=none",
            "history=1h",
            "meta.owner=me",
        ])
        .expect("a table");
        let info = TableInfo { schema: spec.schema.clone(), state: "enabled".to_owned(), regions: 3, bytes: 0 };
        let line = serde_json::to_string(&TableLine::from(&info)).expect("JSON");
        for part in [
            r#""name":"n:t""#,
            r#"{"name":"a","block_size":"64KiB","bloom":"row","compression":"zstd","in_memory":"false","#,
            r#""keep_deleted_cells":"false","meta.unit":"K","min_versions":"0","ttl":"86400000ms","versions":"3"}"#,
            r#""split_policy":"none""#,
            r#""history":"3600000ms""#,
            r#""region_size":"16KiB""#,
            r#""key":"user:u64, time:desc i64""#,
            r#""atomic":"1""#,
            r#""bloom_prefix":"2""#,
            r#""meta.owner":"me""#,
        ] {
            assert!(line.contains(part), "{part} in {line}");
        }
        assert_eq!(spec.split_at, [&b"k\0"[..], b"m"]);
    }

    #[test]
    fn invalid_attributes_are_rejected_before_anything_is_sent() {
        for (line, named) in [
            (&["t", "--family", "f:versoins=3"][..], "versoins"),
            (&["t", "--family", "f:compression=gzip"], "compression=gzip"),
            (&["t", "--family", "f", "--set", "split_policy=load"], "split_policy=load"),
            (&["t", "--family", "f", "--set", "readonly=true"], "did you mean read_only?"),
            (&["t", "--family", "f", "--set", "versions=3"], "it is one of a family"),
            (&["t", "--family", "f", "--region-size", "16383B"], "16KiB"),
            (&["t", "--family", "f", "--set", "colour=red"], "colour"),
            (&["t", "--family", "f", "--key", "user:int"], "int"),
            (&["t", "--family", "f", "f"], "f"),
        ] {
            let failure = spec(line).expect_err(named);
            assert_eq!(failure.exit, Exit::Failed, "{named}");
            assert!(failure.to_string().contains(named), "{failure}");
        }
    }
}
