//! Bad input is rejected with a message that names the problem and the limit: by the client, and again by the servers
//! for other clients. Nothing of it is written.

use std::time::Duration;

use anyhow::{Context, Result, bail};
use terrane_client::{CellKind, CellRef, Client, Error, Get, KeyRange, LATEST, Put, Scan, Table, TableSpec, unescape};
use terrane_proto::v1::data_client::DataClient;
use terrane_proto::v1::master_client::MasterClient;
use terrane_proto::{MESSAGE_BYTES_MAX, PACKED_FORMAT, hello, v1};
use terrane_tests::cluster::{Cluster, Settings};
use terrane_types::{ClusterId, ServerId, limits};
use tonic::transport::Channel;

use crate::{NEVER_SPLIT, all_rows, plain_table, text_of};

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn bad_input_is_refused_at_the_client_and_at_the_edge() -> Result<()> {
    let mut cluster = Cluster::start(Settings { groups_per_server: 1, ..Settings::default() }).await?;
    let client = cluster.client().await?;
    let table = plain_table(&client, "t", NEVER_SPLIT).await?;
    refused_by_the_client(&client, &table).await.context("client")?;
    refused_by_the_server(&client, &table).await.context("region server")?;
    refused_by_the_master(&cluster, &client).await.context("master")?;
    assert_eq!(table.count(KeyRange::all()).await?, 0, "nothing was written");
    assert_eq!(client.admin().list_tables().await?.len(), 1, "no table was made");
    // Input at the limits is accepted.
    let widest = Put::new(vec![b'r'; limits::ROW_BYTES_MAX]);
    let widest = widest.set("f", vec![b'q'; limits::QUALIFIER_BYTES_MAX], vec![0; limits::VALUE_BYTES_MAX]);
    table.put(widest).await?;
    let row = all_rows(&table, Scan::all()).await?.pop().context("it was put")?;
    assert_eq!(row.cells().map(|cell| cell.value.len()).collect::<Vec<_>>(), [limits::VALUE_BYTES_MAX]);
    cluster.stop_all().await;
    Ok(())
}

fn refusal<T>(what: &str, outcome: Result<T, Error>) -> Result<String> {
    match outcome {
        Err(error @ Error::Invalid(_)) => Ok(error.to_string()),
        Err(other) => bail!("{what}: {}", text_of(&other)),
        Ok(_) => bail!("{what} was taken"),
    }
}

async fn refused_by_the_client(client: &Client, table: &Table) -> Result<()> {
    let puts = [
        ("a row of no bytes", Put::new("").set("f", "q", "v"), "1 to 32767"),
        ("a row of 32,768 bytes", Put::new(vec![b'r'; 32_768]).set("f", "q", "v"), "32768"),
        ("an unknown family", Put::new("r").set("nope", "q", "v"), "no family nope; it has f"),
        ("a long value", Put::new("r").set("f", "q", vec![0; limits::VALUE_BYTES_MAX + 1]), "10485760"),
        ("a long qualifier", Put::new("r").set("f", vec![0; 32_768], "v"), "32767"),
        ("a negative timestamp", Put::new("r").set_at("f", "q", -5, "v"), "timestamp"),
        ("a put of nothing", Put::new("r"), "no cell"),
    ];
    let before = client.counters().requests;
    for (what, put, named) in puts {
        let said = refusal(what, table.put(put.clone()).await)?;
        assert!(said.contains(named), "{what}: {said}");
        refusal(what, table.writer(Default::default()).put(put).await)?;
    }
    for (what, get) in [("a get of no bytes", Get::new("")), ("a get of a family", Get::new("r").family("nope"))] {
        refusal(what, table.get(get).await)?;
    }
    assert_eq!(client.counters().requests, before, "none of it left the client");

    let spec = || TableSpec::new("new").expect("a name");
    let attribute = refusal("an unknown attribute", spec().set("colour", "red").map(drop))?;
    assert!(attribute.contains("colour"), "{attribute}");
    let slip = refusal("a slip of the pen", spec().set("readonly", "true").map(drop))?;
    assert!(slip.contains("did you mean read_only?"), "{slip}");
    let compression = refusal("no such compression", spec().family("f", &[("compression", "gzip")]).map(drop))?;
    assert!(compression.contains("gzip") && compression.contains("zstd"), "{compression}");
    let small = spec().family("f", &[])?.region_size(limits::REGION_SIZE_MIN - 1);
    let small = refusal("a small region", client.admin().create_table(small).await.map(drop))?;
    assert!(small.contains("16") && small.contains("region"), "{small}");
    refusal("a bad name", TableSpec::new("white space").map(drop))?;
    let escape = unescape("row\\x4").expect_err("a bad escape").to_string();
    assert!(escape.contains("\\x4"), "{escape}");
    Ok(())
}

fn packed(cells: &[CellRef<'_>]) -> Vec<u8> {
    let mut bytes = Vec::new();
    cells.iter().for_each(|cell| terrane_types::cell::pack(&mut bytes, *cell));
    bytes
}

fn put_cell<'a>(family: &'a str, qualifier: &'a [u8], value: &'a [u8]) -> CellRef<'a> {
    CellRef { family: family.as_bytes(), qualifier, timestamp: LATEST, kind: CellKind::Put, tags: &[], value }
}

/// The data service of the region's leader, and a valid request header.
struct Edge {
    service: DataClient<Channel>,
    hello: v1::Hello,
    header: v1::RequestHeader,
}

impl Edge {
    async fn open(client: &Client, table: &Table) -> Result<Edge> {
        let regions = client.admin().regions(Some("t")).await?;
        let region = regions.first().context("the table has a region")?;
        let service = DataClient::new(terrane_env::net::channel(&region.leader)?)
            .max_encoding_message_size(MESSAGE_BYTES_MAX * 2)
            .max_decoding_message_size(MESSAGE_BYTES_MAX);
        let hello = hello::ours(Some(client.cluster_id()), ServerId(0), ServerId(0), 1);
        let header = v1::RequestHeader {
            format: PACKED_FORMAT,
            table: table.id().0,
            region: region.descriptor.region.0,
            epoch: region.descriptor.epoch.0,
            deadline_ms: u32::try_from(Duration::from_secs(10).as_millis())?,
            ..v1::RequestHeader::default()
        };
        Ok(Edge { service, hello, header })
    }

    async fn mutate(&self, row: Vec<u8>, cells: Vec<u8>) -> Result<(), terrane_types::Error> {
        self.mutate_as(self.hello.clone(), self.header.clone(), row, cells).await
    }

    async fn mutate_as(
        &self,
        hello: v1::Hello,
        header: v1::RequestHeader,
        row: Vec<u8>,
        cells: Vec<u8>,
    ) -> Result<(), terrane_types::Error> {
        let row = v1::RowMutation { row: row.into(), cells: cells.into(), ..v1::RowMutation::default() };
        let body = Some(v1::Mutate { rows: vec![row], atomic: false });
        let call = v1::MutateCall { hello: Some(hello), header: Some(header), body };
        let reply =
            self.service.clone().mutate(call).await.map_err(|status| terrane_proto::error::from_status(&status))?;
        match reply.into_inner().errors.pop() {
            Some(failed) => Err(terrane_proto::error::from_detail(failed.error.unwrap_or_default())),
            None => Ok(()),
        }
    }
}

async fn refused_by_the_server(client: &Client, table: &Table) -> Result<()> {
    use terrane_types::Error as Wire;
    let edge = Edge::open(client, table).await?;
    let fine = packed(&[put_cell("f", b"q", b"v")]);
    let long_value = vec![0; limits::VALUE_BYTES_MAX + 1];
    let long_qualifier = vec![b'q'; limits::QUALIFIER_BYTES_MAX + 1];
    let mut cut_short = fine.clone();
    cut_short.pop();
    let mut no_kind = fine.clone();
    no_kind[17] = 99;
    let rows = [
        ("a row of no bytes", b"".to_vec(), fine.clone(), "1 to 32767"),
        ("a row of 32,768 bytes", vec![b'r'; 32_768], fine.clone(), "32768"),
        ("an unknown family", b"r".to_vec(), packed(&[put_cell("nope", b"q", b"v")]), "no family nope; it has f"),
        ("a long value", b"r".to_vec(), packed(&[put_cell("f", b"q", &long_value)]), "10485760"),
        ("a long qualifier", b"r".to_vec(), packed(&[put_cell("f", &long_qualifier, b"v")]), "32767"),
        ("no cells", b"r".to_vec(), Vec::new(), "no cell"),
        ("half a cell", b"r".to_vec(), cut_short, "cell"),
        ("a kind of cell that is none", b"r".to_vec(), no_kind, "kind"),
    ];
    for (what, row, cells, named) in rows {
        match edge.mutate(row, cells).await {
            Err(Wire::Invalid(invalid)) => assert!(invalid.what.contains(named), "{what}: {}", invalid.what),
            other => bail!("{what}: {other:?}"),
        }
    }

    let header = || edge.header.clone();
    let headers = [
        ("an unknown required feature", v1::RequestHeader { required_features: vec![77], ..header() }, "77"),
        ("an unknown format", v1::RequestHeader { format: 9, ..header() }, "format 9"),
    ];
    for (what, header, named) in headers {
        match edge.mutate_as(edge.hello.clone(), header, b"r".to_vec(), fine.clone()).await {
            Err(Wire::Unsupported { feature }) => assert!(feature.contains(named), "{what}: {feature}"),
            other => bail!("{what}: {other:?}"),
        }
    }
    let old = v1::RequestHeader { epoch: edge.header.epoch + 7, ..header() };
    match edge.mutate_as(edge.hello.clone(), old, b"r".to_vec(), fine.clone()).await {
        Err(Wire::StaleEpoch { .. } | Wire::Unavailable { .. }) => {}
        other => bail!("another epoch: {other:?}"),
    }
    let stranger = hello::ours(Some(ClusterId([9; 16])), ServerId(0), ServerId(0), 1);
    match edge.mutate_as(stranger, header(), b"r".to_vec(), fine.clone()).await {
        Err(Wire::WrongCluster { .. }) => {}
        other => bail!("another cluster: {other:?}"),
    }
    match edge.mutate_as(v1::Hello::default(), header(), b"r".to_vec(), fine).await {
        Err(Wire::Invalid(invalid)) => assert!(invalid.what.contains("cluster"), "{}", invalid.what),
        other => bail!("no cluster: {other:?}"),
    }
    Ok(())
}

async fn refused_by_the_master(cluster: &Cluster, client: &Client) -> Result<()> {
    let mut master = MasterClient::new(terrane_env::net::channel(cluster.masters())?);
    let hello = Some(hello::ours(Some(client.cluster_id()), ServerId(0), ServerId(0), 1));
    let family = |name: &str| v1::FamilySchema { name: name.to_owned(), versions: 1, ..v1::FamilySchema::default() };
    let schema = |name: &str| v1::TableSchema {
        name: name.to_owned(),
        families: vec![family("f")],
        region_size: limits::REGION_SIZE_DEFAULT,
        flush_size: limits::FLUSH_SIZE_DEFAULT,
        ..v1::TableSchema::default()
    };
    let one = |family| v1::TableSchema { families: vec![family], ..schema("new") };
    let schemas = [
        ("a region of one byte", v1::TableSchema { region_size: 1, ..schema("new") }, "region"),
        ("a table without families", v1::TableSchema { families: Vec::new(), ..schema("new") }, "famil"),
        ("a family twice", v1::TableSchema { families: vec![family("f"), family("f")], ..schema("new") }, "f"),
        ("a bad family name", v1::TableSchema { families: vec![family("f:g")], ..schema("new") }, "f:g"),
        ("a compression that is none", one(v1::FamilySchema { compression: 9, ..family("f") }), "compression 9"),
        ("a bloom filter that is none", one(v1::FamilySchema { bloom: -1, ..family("f") }), "bloom -1"),
        ("a block of one byte", one(v1::FamilySchema { block_size: 1, ..family("f") }), "block_size"),
        ("a bloom prefix of no key", v1::TableSchema { bloom_prefix: 1, ..schema("new") }, "bloom_prefix"),
        ("a bad name", schema("white space"), "white space"),
        ("the reserved name", schema("meta"), "meta"),
        ("a key that is none", v1::TableSchema { key: "user:u63".to_owned(), ..schema("new") }, "u63"),
    ];
    for (what, schema, named) in schemas {
        let request =
            v1::CreateTableRequest { hello: hello.clone(), schema: Some(schema), ..v1::CreateTableRequest::default() };
        said_invalid(what, named, master.create_table(request).await)?;
    }
    let attributes =
        [("colour", "red", "colour"), ("region_size", "1B", "region"), ("split_policy", "x", "split_policy")];
    for (attribute, value, named) in attributes {
        let set = [(attribute.to_owned(), value.to_owned())].into();
        let request = v1::AlterTableRequest {
            hello: hello.clone(),
            name: "t".to_owned(),
            set,
            ..v1::AlterTableRequest::default()
        };
        said_invalid(attribute, named, master.alter_table(request).await)?;
    }
    for length in [limits::ROW_BYTES_MAX + 1, 40_000, 70_000] {
        let at = bytes::Bytes::from(vec![b'k'; length]);
        let named = format!("this one has {length}");
        let request = v1::SplitRegionRequest { hello: hello.clone(), region: 1, at: at.clone() };
        said_invalid("a boundary longer than a row", &named, master.split_region(request).await)?;
        let request = v1::CreateTableRequest {
            hello: hello.clone(),
            schema: Some(schema("new")),
            split_at: vec![at],
            ..v1::CreateTableRequest::default()
        };
        said_invalid("a split point longer than a row", &named, master.create_table(request).await)?;
    }
    Ok(())
}

fn said_invalid<T>(what: &str, named: &str, outcome: Result<T, tonic::Status>) -> Result<()> {
    let Err(status) = outcome else { bail!("{what} was taken") };
    match terrane_proto::error::from_status(&status) {
        terrane_types::Error::Invalid(invalid) => assert!(invalid.what.contains(named), "{what}: {}", invalid.what),
        other => bail!("{what}: {other:?}"),
    }
    Ok(())
}
