//! The data path as HBase's clients see it: what `terrane_hbase_client::player` plays, while regions split, flush and
//! compact.

use anyhow::{Context, Result};
use terrane_client::{Admin, Client, TableSpec};
use terrane_hbase_client::HbaseClient;
use terrane_hbase_client::player::{Player, Surroundings};
use terrane_oracle::model::draw::{Draw, FAMILIES, GROUPS, group_start};
use terrane_oracle::model::plain::Model;
use terrane_oracle::model::possible::Possible;
use terrane_regionserver::BackendKind;
use terrane_tests::cluster::Cluster;
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;

use super::{meddle, with_seeds};
use crate::hbase::serve_hbase;
use crate::with_engine;

const SEEDS: std::ops::Range<u64> = 0..2;
const STEPS: usize = 300;
const BESIDE_ONE_IN: usize = 12;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn every_answer_over_hbases_protocol_equals_the_plain_models_while_regions_split() -> Result<()> {
    with_seeds(SEEDS, async |seed| {
        let mut cluster = Cluster::start(with_engine(BackendKind::Lsm)).await?;
        let stop = CancellationToken::new();
        let servers = serve_hbase(&cluster, &stop).await?;
        let client = cluster.client().await?;
        let mut player = player(&client, servers, seed).await?;
        // Beside the player, so with draws of its own.
        let (mut beside, mut draw) = (JoinSet::new(), Draw::new(!seed, 0..GROUPS));
        for step in 0..STEPS {
            if draw.one_in(BESIDE_ONE_IN) {
                let (admin, choice, at): (Admin, _, _) = (client.admin(), draw.below(3), group_start(draw.group()));
                beside.spawn(async move { meddle(&admin, choice, &at).await });
            }
            player.step().await.with_context(|| format!("step {step}"))?;
        }
        while beside.join_next().await.is_some() {}
        player.scan_all().await.context("at the end")?;
        stop.cancel();
        cluster.stop_all().await;
        Ok(())
    })
    .await
}

/// A player with a new table, all of which is its own.
async fn player(client: &Client, servers: Vec<String>, seed: u64) -> Result<Player> {
    let mut spec = TableSpec::new("model")?;
    for (family, versions) in FAMILIES {
        spec = spec.family(family, &[("versions", &versions.to_string())])?;
    }
    client.admin().create_table(spec.split_at(&group_start(GROUPS / 2))).await?;
    let hbase = HbaseClient::new(client.clone(), "model".parse()?, servers);
    let around = Surroundings { who: String::new(), passes: |_| false, note: |_| {} };
    let model = Possible::new(Model::new(&FAMILIES));
    Ok(Player::new(hbase, model, Draw::new(seed, 0..GROUPS), Default::default(), around))
}
