//! The data model across several regions: put, get, scan, delete, versions, time ranges and pages, before and after a
//! restart of all nodes.

use anyhow::{Context, Result};
use terrane_client::{Client, Delete, Get, KeyRange, Put, RowMutation, Scan, Table, TableSpec};
use terrane_regionserver::BackendKind;
use terrane_tests::cluster::Cluster;
use terrane_types::states::TableState;

use crate::{all_rows, keys, range, with_engine};

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_data_model_holds_on_lsm() -> Result<()> {
    the_data_model_holds(BackendKind::Lsm).await
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_data_model_holds_on_memory() -> Result<()> {
    the_data_model_holds(BackendKind::Memory).await
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_data_model_holds_on_sled() -> Result<()> {
    the_data_model_holds(BackendKind::Sled).await
}

async fn the_data_model_holds(engine: BackendKind) -> Result<()> {
    let mut cluster = Cluster::start(with_engine(engine)).await?;
    let client = cluster.client().await?;
    let table = make_table(&client).await?;
    write_cells(&table).await?;
    check_versions(&table).await.context("versions")?;
    check_deletes(&table).await.context("deletes")?;
    check_scans(&table).await.context("scans")?;
    check_pages(&table).await.context("pages")?;
    check_stamps(&table).await.context("stamps")?;

    let before = all_rows(&table, Scan::all().versions(10)).await?;
    for index in 0..3 {
        cluster.stop_server(index).await;
        cluster.start_server(index).await?;
        cluster.wait_for_leaders().await?;
        assert_eq!(all_rows(&table, Scan::all().versions(10)).await?, before, "server {index} was restarted");
    }
    cluster.stop_all().await;
    cluster.start_all().await?;
    // The same client, and a new one.
    assert_eq!(all_rows(&table, Scan::all().versions(10)).await?, before, "everything was restarted");
    let fresh = cluster.client().await?.table("cells").await?;
    assert_eq!(all_rows(&fresh, Scan::all().versions(10)).await?, before, "everything was restarted");
    cluster.stop_all().await;
    Ok(())
}

async fn make_table(client: &Client) -> Result<Table> {
    let spec =
        TableSpec::new("cells")?.family("a", &[("versions", "3")])?.family("b", &[])?.split_at(b"g").split_at(b"p");
    let made = client.admin().create_table(spec).await?;
    assert_eq!((made.state, made.regions), (TableState::Enabled, 3));
    // Usable by every client once `create` returns.
    let table = client.table("cells").await?;
    assert_eq!(table.count(KeyRange::all()).await?, 0);
    let ranges: Vec<KeyRange> =
        client.admin().regions(Some("cells")).await?.into_iter().map(|region| region.descriptor.range).collect();
    assert_eq!(ranges, [range("", "g"), range("g", "p"), range("p", "")]);
    Ok(table)
}

async fn write_cells(table: &Table) -> Result<()> {
    for key in ["c", "h", "k", "t"] {
        for timestamp in [10, 20, 30, 40] {
            table.put(Put::new(key).set_at("a", "v", timestamp, format!("{key}{timestamp}"))).await?;
        }
        table.put(Put::new(key).set_at("b", "x", 5, "bx").set_at("b", "y", 6, "by")).await?;
    }
    Ok(())
}

fn history(row: Option<terrane_client::RowData>) -> Vec<(i64, String)> {
    let Some(row) = row else { return Vec::new() };
    row.versions("a", b"v").map(|(timestamp, value)| (timestamp, String::from_utf8_lossy(value).into_owned())).collect()
}

async fn versions_of(table: &Table, key: &str) -> Result<Vec<i64>> {
    Ok(history(table.get(Get::new(key).versions(10)).await?).into_iter().map(|(timestamp, _)| timestamp).collect())
}

async fn check_versions(table: &Table) -> Result<()> {
    let newest = table.get(Get::new("c")).await?.expect("was put");
    assert_eq!(newest.value("a", "v"), Some(&b"c40"[..]));
    assert_eq!(newest.cells().count(), 3, "one version of each column");
    let all = history(table.get(Get::new("c").versions(10)).await?);
    let expected = [(40, "c40"), (30, "c30"), (20, "c20")].map(|(timestamp, value)| (timestamp, value.to_owned()));
    assert_eq!(all, expected, "the fourth was pushed out");
    let between = history(table.get(Get::new("c").time_range(20, 40)).await?);
    assert_eq!(between, [(30, "c30".to_owned())]);
    let between = history(table.get(Get::new("c").time_range(20, 40).versions(10)).await?);
    assert_eq!(between.len(), 2);
    assert!(table.get(Get::new("c").time_range(100, 200)).await?.is_none());
    let column = table.get(Get::new("c").column("b", "y")).await?.expect("was put");
    assert_eq!((column.cells().count(), column.value("b", "y")), (1, Some(&b"by"[..])));
    assert!(table.get(Get::new("c").column("b", "z")).await?.is_none());
    assert!(table.get(Get::new("absent")).await?.is_none());
    let many = table.get_many(["t", "absent", "c"].map(Get::new).to_vec()).await?;
    assert_eq!(many.iter().map(Option::is_some).collect::<Vec<_>>(), [true, false, true]);
    Ok(())
}

async fn check_deletes(table: &Table) -> Result<()> {
    table.delete(Delete::new("h").version("a", "v", 30)).await?;
    assert_eq!(versions_of(table, "h").await?, [40, 20], "what was pushed out stays out");
    table.delete(Delete::new("h").column_until("a", "v", 20)).await?;
    assert_eq!(versions_of(table, "h").await?, [40]);
    table.put(Put::new("h").set_at("a", "v", 15, "later")).await?;
    assert_eq!(versions_of(table, "h").await?, [40, 15], "a delete hides what was written before it");
    table.delete(Delete::new("h").column("b", "x")).await?;
    let row = table.get(Get::new("h")).await?.expect("has cells left");
    assert_eq!((row.value("b", "x"), row.value("b", "y")), (None, Some(&b"by"[..])));
    table.delete(Delete::new("h").family_version("b", 6)).await?;
    assert!(table.get(Get::new("h").family("b")).await?.is_none());
    table.delete(Delete::new("h").family("a")).await?;
    assert!(table.get(Get::new("h")).await?.is_none());
    // Deletes and puts in one mutation are one write: the delete only hides older cells.
    let swap = RowMutation::new("k").delete(Delete::new("k").family("a")).put(Put::new("k").set_at("a", "v", 7, "new"));
    table.mutate(swap).await?;
    assert_eq!(versions_of(table, "k").await?, [7]);
    table.delete(Delete::new("t")).await?;
    assert!(table.get(Get::new("t").versions(10)).await?.is_none(), "the whole row");
    table.put(Put::new("t").set("b", "x", "again")).await?;
    assert_eq!(table.get(Get::new("t")).await?.expect("was put again").cells().count(), 1);
    Ok(())
}

async fn check_scans(table: &Table) -> Result<()> {
    assert_eq!(keys(&all_rows(table, Scan::all()).await?), ["c", "k", "t"], "h has no cells");
    assert_eq!(keys(&all_rows(table, Scan::all().reverse()).await?), ["t", "k", "c"]);
    for key in ["a", "cc", "gg", "m", "p", "pp", "z"] {
        table.put(Put::new(key).set("b", "x", key)).await?;
    }
    let every = ["a", "c", "cc", "gg", "k", "m", "p", "pp", "t", "z"];
    assert_eq!(keys(&all_rows(table, Scan::all()).await?), every);
    assert_eq!(keys(&all_rows(table, Scan::range(range("c", "p"))).await?), every[1..6]);
    let back = all_rows(table, Scan::range(range("c", "p")).reverse()).await?;
    assert_eq!(keys(&back), ["m", "k", "gg", "cc", "c"]);
    let some = all_rows(table, Scan::all().offset(3).limit(4)).await?;
    assert_eq!(keys(&some), every[3..7], "offset and limit over region borders");
    let some = all_rows(table, Scan::all().reverse().offset(2).limit(3)).await?;
    assert_eq!(keys(&some), ["pp", "p", "m"]);
    assert_eq!(keys(&all_rows(table, Scan::prefix("c")).await?), ["c", "cc"]);
    let column = all_rows(table, Scan::all().column("a", "v")).await?;
    assert_eq!(keys(&column), ["c", "k"], "rows without the column are not returned");
    assert_eq!(table.count(KeyRange::all()).await?, every.len() as u64);
    assert_eq!(table.count(range("d", "q")).await?, 5);
    let ends = (table.first(KeyRange::all()).await?, table.last(KeyRange::all()).await?);
    assert_eq!(keys(&[ends.0.expect("there is one"), ends.1.expect("there is one")]), ["a", "z"]);
    assert_eq!(keys(&[table.last(range("", "p")).await?.expect("there is one")]), ["m"]);
    assert!(table.first(range("pq", "t")).await?.is_none());
    Ok(())
}

async fn check_pages(table: &Table) -> Result<()> {
    for reverse in [false, true] {
        let scan = || if reverse { Scan::all().reverse() } else { Scan::all() };
        let (mut paged, mut next, mut pages) = (Vec::new(), None, 0);
        loop {
            let page = scan().limit(3);
            let page = table.page(next.map_or(page.clone(), |token| page.after(token))).await?;
            pages += 1;
            paged.extend(page.rows);
            match page.next {
                // Pass it as text, as a browser does.
                Some(token) => next = Some(token.to_string().parse()?),
                None => break,
            }
        }
        assert_eq!((pages, &paged), (4, &all_rows(table, scan()).await?), "reverse {reverse}");
    }
    Ok(())
}

/// Cells without a timestamp get one from the server, which follows the clock and never goes back.
async fn check_stamps(table: &Table) -> Result<()> {
    let before = i64::try_from(terrane_env::time::wall_ms())?;
    table.put(Put::new("stamp").set("a", "v", "1")).await?;
    table.put(Put::new("stamp").set("a", "v", "2")).await?;
    let after = i64::try_from(terrane_env::time::wall_ms())?;
    let stamps = history(table.get(Get::new("stamp").versions(10)).await?);
    assert_eq!(stamps[0].1, "2", "the later write is the newer version");
    assert!(stamps.iter().all(|(stamp, _)| (before..=after).contains(stamp)), "{stamps:?} in {before}..={after}");
    assert!(stamps.windows(2).all(|pair| pair[0].0 >= pair[1].0));
    Ok(())
}
