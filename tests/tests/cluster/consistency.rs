//! Reads from any member of a group, at the level of the wire protocol.

use std::collections::BTreeMap;
use std::net::SocketAddr;

use anyhow::{Context, Result, bail, ensure};
use terrane_client::{Put, Table};
use terrane_env::net;
use terrane_proto::v1::data_client::DataClient;
use terrane_proto::v1::master_client::MasterClient;
use terrane_proto::{error, hello, v1};
use terrane_regionserver::BackendKind;
use terrane_tests::cluster::Cluster;
use terrane_tests::eventually::eventually;
use terrane_types::{ClusterId, Error, PackedRows, ServerId};
use tonic::transport::Channel;

use crate::{NEVER_SPLIT, SOON, plain_table, with_engine};

/// A region, and a connection to each server with a replica.
pub(crate) struct Lines {
    header: v1::RequestHeader,
    hello: v1::Hello,
    servers: BTreeMap<SocketAddr, DataClient<Channel>>,
    pub(crate) leader: SocketAddr,
}

impl Lines {
    pub(crate) async fn open(cluster: &Cluster) -> Result<Lines> {
        let mut master = MasterClient::new(net::channel(cluster.masters())?);
        let known = master.identify(hello::ours(None, ServerId(0), ServerId(0), 1)).await?.into_inner();
        let id = ClusterId(known.cluster_id.as_ref().try_into()?);
        let hello = hello::ours(Some(id), ServerId(0), ServerId(0), 1);
        let ask = v1::ListRegionsRequest { hello: Some(hello.clone()), table: String::new() };
        let regions = master.list_regions(ask).await?.into_inner().regions;
        let [region] = &regions[..] else { bail!("{regions:?}") };
        let descriptor = region.descriptor.clone().context("a region has a descriptor")?;
        let header = v1::RequestHeader {
            format: 1,
            table: descriptor.table,
            region: descriptor.region,
            epoch: descriptor.epoch,
            ..Default::default()
        };
        let mut servers = BTreeMap::new();
        for address in &region.servers {
            servers.insert(address.parse()?, DataClient::new(net::channel(address)?));
        }
        Ok(Lines { header, hello, servers, leader: region.leader.parse()? })
    }

    fn followers(&self) -> Vec<SocketAddr> {
        self.servers.keys().copied().filter(|address| *address != self.leader).collect()
    }

    /// The values of a row on this server, and as of when.
    pub(crate) async fn get(
        &mut self,
        server: SocketAddr,
        row: &'static str,
        how: v1::Consistency,
    ) -> Result<(Vec<String>, u64), Error> {
        let header = v1::RequestHeader { consistency: how.into(), ..self.header.clone() };
        let body = v1::Get { rows: vec![row.into()], ..Default::default() };
        let call = v1::GetCall { hello: Some(self.hello.clone()), header: Some(header), body: Some(body) };
        let line = self.servers.get_mut(&server).expect("only replicas are asked");
        let reply = line.get(call).await.map_err(|status| error::from_status(&status))?.into_inner();
        let text = |cell: terrane_types::CellRef<'_>| String::from_utf8_lossy(cell.value).into_owned();
        let mut values = Vec::new();
        for row in PackedRows::new(reply.rows) {
            values.extend(row?.cells.iter().map(text));
        }
        Ok((values, reply.as_of_ms))
    }
}

async fn write(table: &Table, value: &str) -> Result<u64> {
    table.put(Put::new("row").set("f", "q", value)).await?;
    Ok(terrane_env::time::wall_ms())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn followers_serve_stale_reads_with_an_advancing_bound() -> Result<()> {
    let mut cluster = Cluster::start(with_engine(BackendKind::Memory)).await?;
    let client = cluster.client().await?;
    let table = plain_table(&client, "t", NEVER_SPLIT).await?;
    write(&table, "0").await?;
    let mut lines = Lines::open(&cluster).await?;
    ensure!(lines.servers.len() == 3, "three replicas");
    for number in 1..=5u32 {
        let acknowledged = write(&table, &number.to_string()).await?;
        for follower in lines.followers() {
            // It responds at any time. Once its result is complete as of now, it includes what was acknowledged.
            eventually("a bound beyond the write", SOON, async || {
                let (values, as_of) = lines.get(follower, "row", v1::Consistency::Stale).await?;
                ensure!(as_of > acknowledged, "complete up to {as_of}, written at {acknowledged}");
                assert_eq!(values, [number.to_string()], "as of {as_of}, written at {acknowledged}");
                Ok(())
            })
            .await?;
        }
    }
    let leader = lines.leader;
    assert_eq!(lines.get(leader, "row", v1::Consistency::Strict).await?.0, ["5"]);
    for follower in lines.followers() {
        for how in [v1::Consistency::Strict, v1::Consistency::Linearizable] {
            let refused = lines.get(follower, "row", how).await.expect_err("followers do not answer for the present");
            assert!(matches!(refused, Error::NotLeader { .. }), "{refused}");
        }
    }
    cluster.stop_all().await;
    Ok(())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_member_without_a_quorum_still_serves_stale_reads() -> Result<()> {
    let mut cluster = Cluster::start(with_engine(BackendKind::Memory)).await?;
    let client = cluster.client().await?;
    let table = plain_table(&client, "t", NEVER_SPLIT).await?;
    let acknowledged = write(&table, "kept").await?;
    let mut lines = Lines::open(&cluster).await?;
    let last = lines.followers()[0];
    eventually("the last one has the write", SOON, async || {
        let (_, as_of) = lines.get(last, "row", v1::Consistency::Stale).await?;
        ensure!(as_of > acknowledged, "complete up to {as_of}");
        Ok(())
    })
    .await?;
    let others: Vec<usize> = (0..3).filter(|index| cluster.server_address(*index) != last).collect();
    for index in others {
        cluster.stop_server(index).await;
    }
    // If it led last, it serves up-to-date reads until its lease expires. Then its bound no longer advances.
    eventually("its bound stops advancing", SOON, async || {
        let (values, as_of) = lines.get(last, "row", v1::Consistency::Stale).await?;
        assert_eq!(values, ["kept"]);
        let now = terrane_env::time::wall_ms();
        ensure!(as_of + 1_500 < now, "as of {as_of}, and it is {now}");
        Ok(())
    })
    .await?;
    lines.get(last, "row", v1::Consistency::Strict).await.expect_err("there is no quorum");
    cluster.stop_all().await;
    Ok(())
}
