//! `table`: create, alter, list, describe, disable, enable, truncate, drop.

use std::collections::BTreeMap;
use std::sync::Arc;

use serde::Serialize;
use terrane_client::{Client, Error, FamilySchema, TableChange, TableInfo, TableSpec};
use terrane_types::states::TableState;
use terrane_types::{NamespaceName, TableName, escape, parse_duration_ms};

use super::{connect, no_table};
use crate::args::client::{AlterTable, Connection, CreateTable, TableCommand};
use crate::args::values::{ColumnType, FamilySpec};
use crate::failure::{During, Failure};
use crate::output::{Output, bytes_rounded};
use crate::question::confirms_loss;
use crate::table_text::TableText;

pub async fn run(command: TableCommand) -> Result<(), Failure> {
    match command {
        TableCommand::Create(args) => create(args).await,
        TableCommand::Alter(args) => alter(args).await,
        TableCommand::List { namespace, connection } => list(namespace, connection).await,
        TableCommand::Describe { name, connection } => {
            let described = connect(&connection).await?.admin().describe_table(&name.to_string()).await;
            print_table(&connection, &described.during(format!("describe table {name}"))?)
        }
        TableCommand::Disable { name, connection } => {
            let disabled = connect(&connection).await?.admin().disable_table(&name.to_string()).await;
            changed(&connection, &name, "disable", disabled)
        }
        TableCommand::Enable { name, connection } => {
            let enabled = connect(&connection).await?.admin().enable_table(&name.to_string()).await;
            changed(&connection, &name, "enable", enabled)
        }
        TableCommand::Truncate { name, yes, connection } => {
            let client = existing(&connection, &name, "truncate").await?;
            let loss = format!("All rows of table {name} will be removed.");
            if !confirms_loss(yes, connection.json, &loss, &name.to_string())? {
                return Err(Failure::new("nothing was removed"));
            }
            changed(&connection, &name, "truncate", client.admin().truncate_table(&name.to_string()).await)
        }
        TableCommand::Drop { name, yes, connection } => {
            let client = existing(&connection, &name, "drop").await?;
            let loss = format!("Table {name} and all its rows will be removed.");
            if !confirms_loss(yes, connection.json, &loss, &name.to_string())? {
                return Err(Failure::new("nothing was dropped"));
            }
            let dropped = client.admin().drop_table(&name.to_string()).await;
            dropped.during(format!("drop table {name}"))?;
            eprintln!("dropped table {name}");
            Ok(())
        }
    }
}

/// A client for a change of a table that exists: no person is asked about the loss of another.
async fn existing(connection: &Connection, name: &TableName, verb: &str) -> Result<Client, Failure> {
    let client = connect(connection).await?;
    match client.admin().describe_table(&name.to_string()).await {
        Ok(_) => Ok(client),
        Err(Error::NotFound { .. }) => {
            Err(no_table(&client, &name.to_string()).await.during(format!("{verb} table {name}")))
        }
        Err(error) => Err(error).during(format!("{verb} table {name}")),
    }
}

/// Reports a change of a table: `disabled table t`.
fn changed(
    connection: &Connection,
    name: &TableName,
    verb: &str,
    done: Result<TableInfo, Error>,
) -> Result<(), Failure> {
    let info = done.during(format!("{verb} table {name}"))?;
    eprintln!("{verb}d table {name}");
    if connection.json { print_table(connection, &info) } else { Ok(()) }
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

/// What a command line asks for.
pub fn spec_of(args: &CreateTable) -> Result<TableSpec, Failure> {
    let mut spec = TableSpec::new(&args.name.to_string())?;
    for family in &args.family {
        let mut attributes = attributes(family);
        attributes.extend(types_of(&args.column, family.name.as_str()));
        spec = spec.family(family.name.as_str(), &attributes)?;
    }
    for column in &args.column {
        if !args.family.iter().any(|family| family.name == column.family) {
            return Err(Failure::usage(format!(
                "--column declares a type in family {}, which --family does not name",
                column.family
            )));
        }
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
    let text = TableText::new(Arc::new(spec.schema.clone()), args.raw.raw);
    for key in &args.split_at {
        spec = spec.split_at(&text.boundary(key)?);
    }
    Ok(spec)
}

/// The attributes that declare the types of the family's columns.
fn types_of<'a>(columns: &'a [ColumnType], family: &'a str) -> impl Iterator<Item = (&'a str, &'a str)> {
    let of_family = columns.iter().filter(move |column| column.family.as_str() == family);
    of_family.map(|column| (column.attribute.as_str(), column.value_type.as_str()))
}

async fn alter(args: AlterTable) -> Result<(), Failure> {
    let changes =
        args.set.len() + args.family.len() + args.add_family.len() + args.drop_family.len() + args.column.len();
    if changes == 0 {
        let what = "say what to change: --set, --family, --column, --add-family or --drop-family";
        return Err(Failure::usage(format!("alter table {}: {what}", args.name)));
    }
    let change = args.set.iter().fold(TableChange::new(), |change, (name, value)| change.set(name, value));
    let change =
        args.family.iter().fold(change, |change, family| change.family(family.name.as_str(), &attributes(family)));
    let change = args.column.iter().fold(change, |change, column| {
        change.family(column.family.as_str(), &[(column.attribute.as_str(), column.value_type.as_str())])
    });
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
        let families: Vec<String> = table.schema.families.iter().map(|family| family.name.to_string()).collect();
        vec![
            table.schema.name.to_string(),
            families.join(","),
            table.regions.to_string(),
            bytes_rounded(table.bytes),
            table.state.to_string(),
        ]
    });
    output.table(&["name", "families", "regions", "size", "state"], rows.collect())?;
    output.flush()
}

#[derive(Serialize)]
struct TableLine {
    name: String,
    state: TableState,
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
            state: info.state,
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

/// A value on one line, since metadata may be any text. People read spans of time in the largest unit that is exact; JSON keeps
/// the milliseconds that scripts expect.
fn shown(name: &str, value: &str) -> String {
    if matches!(name, "ttl" | "history")
        && let Ok(ms) = parse_duration_ms(value)
    {
        let units = [("d", 86_400_000), ("h", 3_600_000), ("m", 60_000), ("s", 1_000)];
        return match units.into_iter().find(|(_, length)| ms.is_multiple_of(*length)) {
            Some((unit, length)) => format!("{}{unit}", ms / length),
            None => value.to_owned(),
        };
    }
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
        output.line(&format!("  {name} = {}", shown(name, value)))?;
    }
    for family in &line.families {
        let attributes: Vec<String> =
            family.attributes.iter().map(|(name, value)| format!("{name}={}", shown(name, value))).collect();
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
            "--raw",
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
        let info = TableInfo { schema: spec.schema.clone(), state: TableState::Enabled, regions: 3, bytes: 0 };
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
    fn spans_of_time_are_shown_in_their_largest_exact_unit() {
        for (name, value, text) in [
            ("ttl", "86400000ms", "1d"),
            ("ttl", "90000ms", "90s"),
            ("history", "5400000ms", "90m"),
            ("ttl", "1ms", "1ms"),
            ("ttl", "none", "none"),
            ("meta.note", "60000ms", "60000ms"),
        ] {
            assert_eq!(shown(name, value), text, "{name}={value}");
        }
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
