//! Schema changes of tables in use: adding and dropping families, changing limits, and how clients learn of them. Each
//! is checked again after flushes, compactions, splits and restarts, since none of these may change what readers see.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use anyhow::{Context, Result, bail, ensure};
use terrane_client::{Client, Delete, Error, Get, KeyRange, Put, RegionInfo, Scan, Table, TableChange, TableSpec};
use terrane_proto::v1::data_client::DataClient;
use terrane_proto::{PACKED_FORMAT, hello, v1};
use terrane_tests::cluster::{Cluster, Settings};
use terrane_tests::eventually::eventually;
use terrane_types::ServerId;
use terrane_types::states::TableState;

use crate::{NEVER_SPLIT, SOON, all_rows, plain_table, text_of};

const ROWS: [&str; 4] = ["b", "k", "q", "x"];

async fn small_cluster() -> Result<Cluster> {
    Cluster::start(Settings { groups_per_server: 1, ..Settings::default() }).await
}

async fn put(table: &Table, row: &str, family: &str, timestamp: i64) -> Result<()> {
    Ok(table.put(Put::new(row).set_at(family, "q", timestamp, format!("{row}{timestamp}"))).await?)
}

/// The timestamps of a family's cells in a row, newest first.
async fn versions(table: &Table, row: &str, family: &str) -> Result<Vec<i64>> {
    let row = table.get(Get::new(row).family(family).versions(100)).await?;
    Ok(row.map(|row| row.cells().map(|cell| cell.timestamp).collect()).unwrap_or_default())
}

async fn all_versions(table: &Table, family: &str) -> Result<Vec<Vec<i64>>> {
    let mut all = Vec::new();
    for row in ROWS {
        all.push(versions(table, row, family).await?);
    }
    Ok(all)
}

async fn alter(client: &Client, table: &str, change: TableChange) -> Result<()> {
    let altered = client.admin().alter_table(table, change).await?;
    ensure!(altered.state == TableState::Enabled, "{}", altered.state);
    Ok(())
}

async fn flush(client: &Client, table: &str) -> Result<()> {
    client.admin().flush_table(table, |_| {}).await?;
    Ok(())
}

async fn compact(client: &Client, table: &str) -> Result<()> {
    client.admin().compact_table(table, |_| {}).await?;
    Ok(())
}

async fn regions(client: &Client, table: &str) -> Result<Vec<RegionInfo>> {
    Ok(client.admin().regions(Some(table)).await?)
}

async fn split(client: &Client, table: &str, at: &str) -> Result<()> {
    let all = regions(client, table).await?;
    let region =
        all.iter().find(|region| region.descriptor.range.contains(at.as_bytes())).context("keys are covered")?;
    client.admin().split(region.descriptor.region, Some(at.as_bytes())).await?;
    Ok(())
}

async fn restart(cluster: &mut Cluster) -> Result<()> {
    cluster.stop_all().await;
    cluster.start_all().await
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_old_limits_hid_stays_hidden() -> Result<()> {
    let mut cluster = small_cluster().await?;
    let client = cluster.client().await?;
    let spec =
        TableSpec::new("t")?.family("v", &[("versions", "3")])?.family("t", &[("versions", "3")])?.split_at(b"m");
    client.admin().create_table(spec).await?;
    let table = client.table("t").await?;
    let now = i64::try_from(terrane_env::time::wall_ms())?;
    for row in ROWS {
        for timestamp in [1, 2, 3] {
            put(&table, row, "v", timestamp).await?;
        }
        put(&table, row, "t", 1).await?;
        put(&table, row, "t", now).await?;
    }
    // Part of it is in files, part in memory.
    split(&client, "t", "f").await?;
    flush(&client, "t").await?;
    for row in ROWS {
        put(&table, row, "v", 4).await?;
    }
    assert_eq!(all_versions(&table, "v").await?, vec![vec![4, 3, 2]; 4]);
    assert_eq!(all_versions(&table, "t").await?, vec![vec![now, 1]; 4]);

    let lower = TableChange::new().family("v", &[("versions", "2")]).family("t", &[("ttl", "1d")]);
    alter(&client, "t", lower).await?;
    assert_eq!(all_versions(&table, "v").await?, vec![vec![4, 3]; 4], "an alter holds when it returns");
    assert_eq!(all_versions(&table, "t").await?, vec![vec![now]; 4]);
    let raise = TableChange::new().family("v", &[("versions", "9")]).family("t", &[("ttl", "none")]);
    alter(&client, "t", raise).await?;

    let check = async |table: &Table, when: &str| -> Result<()> {
        ensure!(all_versions(table, "v").await? == vec![vec![4, 3]; 4], "{when}: versions");
        ensure!(all_versions(table, "t").await? == vec![vec![now]; 4], "{when}: time to live");
        let scanned = all_rows(table, Scan::all().versions(100)).await?;
        ensure!(scanned.iter().all(|row| row.cells().count() == 3), "{when}: {scanned:?}");
        Ok(())
    };
    check(&table, "nothing was written in between").await?;
    split(&client, "t", "r").await?;
    check(&table, "after a split").await?;
    restart(&mut cluster).await?;
    check(&table, "after a restart").await?;
    flush(&client, "t").await?;
    check(&table, "after a flush").await?;
    compact(&client, "t").await?;
    check(&table, "after a compaction").await?;
    restart(&mut cluster).await?;
    check(&cluster.client().await?.table("t").await?, "after another restart").await?;
    // The new limit applies to later writes.
    for row in ROWS {
        put(&table, row, "v", 5).await?;
    }
    assert_eq!(all_versions(&table, "v").await?, vec![vec![5, 4, 3]; 4]);
    cluster.stop_all().await;
    Ok(())
}

/// Writes to family `f` until `over` is set; returns the number of acknowledged writes per row.
async fn write_on(table: Table, over: Arc<AtomicBool>) -> Result<i64> {
    let mut written = 0;
    while !over.load(Ordering::Relaxed) {
        for row in ROWS {
            put(&table, row, "f", written + 1).await.with_context(|| format!("write {} of {row}", written + 1))?;
        }
        written += 1;
    }
    Ok(written)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn families_are_added_and_dropped_during_writes() -> Result<()> {
    let mut cluster = small_cluster().await?;
    let client = cluster.client().await?;
    let spec = TableSpec::new("t")?.family("f", &[])?.split_at(b"m").region_size(NEVER_SPLIT);
    client.admin().create_table(spec).await?;
    let table = client.table("t").await?;
    let over = Arc::new(AtomicBool::new(false));
    let writing = tokio::spawn(write_on(client.table("t").await?, over.clone()));

    let add = || TableChange::new().add_family("g", &[("versions", "5")]);
    let drop = || TableChange::new().drop_family("g");
    alter(&client, "t", add()).await?;
    for (round, timestamp) in (10..14).enumerate() {
        for row in ROWS {
            put(&table, row, "g", timestamp).await?;
        }
        assert_eq!(all_versions(&table, "g").await?, vec![vec![timestamp]; 4], "nothing of an earlier g shows");
        match round {
            1 => flush(&client, "t").await?,
            2 => split(&client, "t", "f").await?,
            _ => {}
        }
        alter(&client, "t", drop()).await?;
        let refused = put(&table, "b", "g", 99).await.expect_err("the family is gone");
        assert!(refused.to_string().contains("no family g"), "{refused}");
        alter(&client, "t", add()).await?;
        assert_eq!(all_versions(&table, "g").await?, vec![Vec::<i64>::new(); 4], "round {round}: it begins empty");
    }
    over.store(true, Ordering::Relaxed);
    let written = writing.await??;
    ensure!(written > 0, "nothing was written meanwhile");
    assert_eq!(all_versions(&table, "f").await?, vec![vec![written]; 4], "every acknowledged write is there");

    put(&table, "b", "g", 20).await?;
    for when in ["restarted", "restarted again"] {
        restart(&mut cluster).await?;
        assert_eq!(all_versions(&table, "g").await?, [vec![20], vec![], vec![], vec![]], "{when}");
        assert_eq!(all_versions(&table, "f").await?, vec![vec![written]; 4], "{when}");
        compact(&client, "t").await?;
        assert_eq!(all_versions(&table, "g").await?, [vec![20], vec![], vec![], vec![]], "{when} and compacted");
    }
    // A count includes rows of all families; cells of the dropped one do not count.
    alter(&client, "t", TableChange::new().drop_family("f")).await?;
    assert_eq!(table.count(KeyRange::all()).await?, 1);
    cluster.stop_all().await;
    Ok(())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn every_attribute_is_altered_online_and_described() -> Result<()> {
    let mut cluster = small_cluster().await?;
    let client = cluster.client().await?;
    let table = plain_table(&client, "t", NEVER_SPLIT).await?;
    table.put(Put::new("a").set("f", "q", "v")).await?;
    let of_table = [
        ("region_size", "1MiB"),
        ("flush_size", "64KiB"),
        ("split_policy", "none"),
        ("history", "60000ms"),
        ("key", "user:tail"),
        ("atomic", "1"),
        ("bloom_prefix", "1"),
        ("read_only", "true"),
        ("meta.owner", "ann and bob"),
    ];
    let of_family = [
        ("versions", "5"),
        ("min_versions", "2"),
        ("ttl", "86400000ms"),
        ("keep_deleted_cells", "true"),
        ("compression", "zstd"),
        ("bloom", "rowcol"),
        ("block_size", "4KiB"),
        ("in_memory", "true"),
        ("meta.unit", "K"),
    ];
    let mut version = 1;
    for (name, value) in of_table {
        // Attributes that count key parts need a declared key, so they are set one by one in this order.
        alter(&client, "t", TableChange::new().set(name, value)).await?;
        version += 1;
    }
    alter(&client, "t", TableChange::new().family("f", &of_family)).await?;
    version += 1;
    for when in ["at once", "after a restart"] {
        let schema = client.admin().describe_table("t").await?.schema;
        assert_eq!(schema.version, version, "{when}");
        for (shown, wanted) in [(schema.attributes(), of_table), (schema.families[0].attributes(), of_family)] {
            for (name, value) in wanted {
                assert_eq!(shown.get(name).map(String::as_str), Some(value), "{name} {when}");
            }
        }
        let refused = table.put(Put::new("a").set("f", "q", "w")).await.expect_err("the table is read-only");
        assert!(matches!(refused, Error::ReadOnly { .. }), "{}", text_of(&refused));
        assert_eq!(table.count(KeyRange::all()).await?, 1, "{when}");
        restart(&mut cluster).await?;
    }
    let emptied = TableChange::new().set("read_only", "false").set("meta.owner", "").family("f", &[("meta.unit", "")]);
    alter(&client, "t", emptied).await?;
    let schema = client.admin().describe_table("t").await?.schema;
    assert!(schema.metadata.is_empty() && schema.families[0].metadata.is_empty());
    table.put(Put::new("a").set("f", "q", "w")).await?;
    for (change, named) in [
        (TableChange::new().set("key", "user:u64"), "user:tail"),
        (TableChange::new().set("colour", "red"), "colour"),
        (TableChange::new().drop_family("f"), "at least one"),
        (TableChange::new().add_family("f", &[]), "f already"),
        (TableChange::new(), "at least one attribute"),
    ] {
        let refused = client.admin().alter_table("t", change).await.expect_err(named);
        assert!(text_of(&refused).contains(named), "{}", text_of(&refused));
    }
    cluster.stop_all().await;
    Ok(())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn without_a_split_policy_regions_split_on_request_only() -> Result<()> {
    let mut cluster = small_cluster().await?;
    let client = cluster.client().await?;
    let spec = TableSpec::new("t")?.family("f", &[])?.set("region_size", "16KiB")?.set("split_policy", "none")?;
    client.admin().create_table(spec).await?;
    let table = client.table("t").await?;
    for row in 0..100 {
        table.put(Put::new(format!("{row:03}")).set("f", "q", "x".repeat(1_000))).await?;
    }
    // Six times its size, and reported as such: the leader has examined it and not split it.
    eventually("the size of the region", SOON, async || {
        let all = regions(&client, "t").await?;
        ensure!(all.iter().map(|region| region.bytes).sum::<u64>() > 90_000, "{all:?}");
        Ok(())
    })
    .await?;
    assert_eq!(regions(&client, "t").await?.len(), 1);
    split(&client, "t", "050").await?;
    assert_eq!(regions(&client, "t").await?.len(), 2);
    alter(&client, "t", TableChange::new().set("split_policy", "size")).await?;
    eventually("splits by size", SOON, async || {
        let count = regions(&client, "t").await?.len();
        ensure!(count >= 4, "{count} regions");
        Ok(())
    })
    .await?;
    assert_eq!(table.count(KeyRange::all()).await?, 100);
    cluster.stop_all().await;
    Ok(())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_alter_continues_when_its_groups_have_leaders_again() -> Result<()> {
    let mut cluster = small_cluster().await?;
    let client = cluster.client().await?;
    let spec = TableSpec::new("t")?.family("f", &[("versions", "3")])?.split_at(b"m");
    client.admin().create_table(spec).await?;
    let table = client.table("t").await?;
    for row in ROWS {
        for timestamp in [1, 2, 3] {
            put(&table, row, "f", timestamp).await?;
        }
    }
    for server in [1, 2] {
        cluster.stop_server(server).await;
    }
    let hasty = client.admin().with_timeout(Duration::from_millis(500));
    let waiting = hasty.alter_table("t", TableChange::new().family("f", &[("versions", "1")])).await;
    ensure!(waiting.is_err(), "no group has a quorum");
    assert_eq!(client.admin().describe_table("t").await?.state, TableState::Altering);
    // The intent is in the catalog.
    cluster.stop_master().await;
    cluster.start_master().await?;
    cluster.start_all().await?;
    eventually("the end of the alter", SOON, async || {
        let described = client.admin().describe_table("t").await?;
        ensure!(described.state == TableState::Enabled && described.schema.version == 2, "{described:?}");
        Ok(())
    })
    .await?;
    assert_eq!(all_versions(&table, "f").await?, vec![vec![3]; 4]);
    cluster.stop_all().await;
    Ok(())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn clients_learn_of_a_newer_schema_and_can_insist_on_theirs() -> Result<()> {
    let mut cluster = small_cluster().await?;
    let (client, other) = (cluster.client().await?, cluster.client().await?);
    let table = plain_table(&client, "t", NEVER_SPLIT).await?;
    put(&table, "b", "f", 1).await?;
    let change = TableChange::new().add_family("h", &[]);
    alter(&other, "t", change).await?;
    put(&other.table("t").await?, "b", "h", 1).await?;
    // Deleting a row deletes all families, even if the client does not know all of them.
    table.delete(Delete::new("b")).await?;
    assert_eq!(table.schema().families.len(), 1, "this client does not know yet");
    assert!(table.get(Get::new("b")).await?.is_none());
    assert_eq!(other.table("t").await?.count(KeyRange::all()).await?, 0);

    // Calls with an older schema succeed unless they insist on it.
    put(&table, "b", "f", 9).await?;
    let region = regions(&client, "t").await?.pop().context("a table has regions")?;
    let get = async |schema_version: u64, exact_schema: bool| -> Result<v1::GetReply> {
        let header = v1::RequestHeader {
            format: PACKED_FORMAT,
            table: region.descriptor.table.0,
            region: region.descriptor.region.0,
            epoch: region.descriptor.epoch.0,
            schema_version,
            exact_schema,
            ..v1::RequestHeader::default()
        };
        let call = v1::GetCall {
            hello: Some(hello::ours(Some(client.cluster_id()), ServerId(0), ServerId(0), 1)),
            header: Some(header),
            body: Some(v1::Get { rows: vec!["b".into()], ..v1::Get::default() }),
        };
        // Find the present leader: the map is only as recent as the last report.
        eventually("an answer of the leader", SOON, async || {
            let leader = regions(&client, "t").await?.pop().context("a table has regions")?.leader;
            match DataClient::new(terrane_env::net::channel(&leader)?).get(call.clone()).await {
                Ok(reply) => Ok(Ok(reply.into_inner())),
                Err(status) => match terrane_proto::error::from_status(&status) {
                    terrane_types::Error::NotLeader { .. } => bail!("{status}"),
                    refused => Ok(Err(refused.into())),
                },
            }
        })
        .await?
    };
    for (version, exact) in [(0, false), (1, false), (2, false), (2, true)] {
        assert!(!get(version, exact).await?.rows.is_empty(), "version {version}, exact: {exact}");
    }
    let refused =
        |outcome: Result<v1::GetReply>| outcome.expect_err("another schema").downcast::<terrane_types::Error>();
    let older = refused(get(1, true).await).map_err(|other| other.context("a typed error"))?;
    assert_eq!(older, terrane_types::Error::SchemaChanged { table: region.descriptor.table, version: 2 });
    let newer = refused(get(3, false).await).map_err(|other| other.context("a typed error"))?;
    assert!(matches!(newer, terrane_types::Error::Unavailable { .. }), "{newer}");
    cluster.stop_all().await;
    Ok(())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn namespaces_contain_tables() -> Result<()> {
    let mut cluster = small_cluster().await?;
    let client = cluster.client().await?;
    let admin = client.admin();
    let spec = || TableSpec::new("ns:t")?.family("f", &[]);
    let refused = admin.create_table(spec()?).await.expect_err("there is no such namespace");
    assert!(text_of(&refused).contains("terrane namespace create ns"), "{}", text_of(&refused));
    admin.create_namespace("ns").await?;
    assert!(matches!(admin.create_namespace("ns").await, Err(Error::AlreadyExists { .. })));
    admin.create_table(spec()?).await?;
    plain_table(&client, "t", NEVER_SPLIT).await?;
    let names = |tables: Vec<terrane_client::TableInfo>| {
        tables.into_iter().map(|table| table.schema.name.to_string()).collect::<Vec<_>>()
    };
    assert_eq!(names(admin.list_tables().await?), ["ns:t", "t"]);
    assert_eq!(names(admin.list_tables_in("ns").await?), ["ns:t"]);
    assert_eq!(names(admin.list_tables_in("default").await?), ["t"]);
    assert!(matches!(admin.list_tables_in("other").await, Err(Error::NotFound { .. })));
    let inside = client.table("ns:t").await?;
    put(&inside, "a", "f", 1).await?;
    assert_eq!(client.table("t").await?.count(KeyRange::all()).await?, 0, "another table of the same name");
    let refused = admin.drop_namespace("ns").await.expect_err("it has a table");
    assert!(text_of(&refused).contains("ns:t"), "{}", text_of(&refused));
    restart(&mut cluster).await?;
    let listed: Vec<String> = admin.list_namespaces().await?.iter().map(ToString::to_string).collect();
    assert_eq!(listed, ["default", "ns"]);
    assert_eq!(versions(&inside, "a", "f").await?, [1]);
    admin.drop_table("ns:t").await?;
    admin.drop_namespace("ns").await?;
    assert!(matches!(admin.drop_namespace("ns").await, Err(Error::NotFound { .. })));
    cluster.stop_all().await;
    Ok(())
}
