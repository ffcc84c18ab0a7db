//! The audit stream: administrative calls with who, what and the outcome.

use anyhow::{Result, ensure};
use terrane_client::{ServerChange, TableChange, TableSpec};
use terrane_tests::cluster::{Cluster, Settings};
use terrane_tests::log_lines::audited;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn administrative_calls_are_in_the_audit_stream_and_reads_are_not() -> Result<()> {
    let mut cluster = Cluster::start(Settings::default()).await?;
    let admin = cluster.client().await?.admin();
    admin.create_namespace("n").await?;
    admin.create_table(TableSpec::new("n:t")?.family("f", &[])?).await?;
    admin.alter_table("n:t", TableChange::new().set("read_only", "true")).await?;
    admin.list_tables().await?;
    admin.flush_table("n:t", |_| {}).await?;
    let region = admin.regions(Some("n:t")).await?[0].descriptor.region;
    admin.split(region, Some(b"m")).await?;
    admin.truncate_table("n:t").await?;
    admin.drop_table("n:t").await?;
    ensure!(admin.drop_table("n:t").await.is_err(), "it is gone");
    let server = admin.servers().await?[0].server.to_string();
    ensure!(admin.change_server(&server, ServerChange::Drain).await.is_err(), "three copies need three servers");
    ensure!(admin.change_server(&server, ServerChange::Undrain).await.is_err(), "it is not being drained");
    let lines = audited();
    for (action, subject, outcome) in [
        ("create namespace", "n", "done"),
        ("create table", "n:t", "done"),
        ("alter table", "n:t: read_only=true", "done"),
        ("flush table", "", "begun"),
        ("split region", &region.to_string(), "done"),
        ("truncate table", "n:t", "done"),
        ("drop table", "n:t", "done"),
        ("drop table", "n:t", "does not exist"),
        ("change server", &server, "would leave 2 live servers"),
        ("change server", &server, "is not being drained"),
    ] {
        let is_it = |line: &&String| {
            line.starts_with(&format!("audit action={action} subject={subject}"))
                && line.contains("peer=127.0.0.1:")
                && line.contains(" outcome=")
                && line.contains(outcome)
        };
        ensure!(lines.iter().any(|line| is_it(&line)), "{action} {subject} {outcome} is missing: {lines:#?}");
    }
    ensure!(!lines.iter().any(|line| line.contains("list")), "a read is no administrative call: {lines:#?}");
    cluster.stop_all().await;
    Ok(())
}
