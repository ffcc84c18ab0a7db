//! What the web console of a node shows, answered by a client of the cluster: [`ClusterSource`] implements the console's
//! [`Source`] for masters, servers and `dev` alike.
//!
//! The client connects at the first question, so that a node starts without it, and each question ends within [`PATIENCE`]. A
//! console therefore shows the cluster as any client sees it: a server that lost the masters says so on its pages.

mod advice;
mod cluster;
mod heat;
mod keys;
mod lookup;
mod past;
mod refusal;
mod rows;
mod settings;
mod slow;
mod tables;

use std::sync::Arc;
use std::time::Duration;

use terrane_client::Client;
use terrane_console::source::{
    Answer, EventInfo, EventQuery, Failovers, Failure, Group, GroupDetail, Heat, HeatQuery, Overview, Procedure,
    Region, RegionDetail, RegionSelection, RowPage, RowQuery, Setting, SettingChange, SlowQuery, SlowRequests, Source,
    Table, TableDetail,
};
use tokio::sync::OnceCell;

use self::refusal::refused;
use crate::config::UsedSetting;

/// How long a page waits for the cluster.
const PATIENCE: Duration = Duration::from_secs(5);

/// The console's source in one node.
pub struct ClusterSource {
    masters: String,
    seen_from: String,
    settings: Arc<[UsedSetting]>,
    client: OnceCell<Client>,
}

impl ClusterSource {
    /// The source of the node that calls itself `seen_from`, in a process with these settings, in the cluster with these masters
    /// (`HOST:PORT,…`).
    pub fn new(masters: String, seen_from: String, settings: Arc<[UsedSetting]>) -> ClusterSource {
        ClusterSource { masters, seen_from, settings, client: OnceCell::new() }
    }

    async fn client(&self) -> Result<&Client, Failure> {
        let connect = || async {
            Client::builder().masters(&self.masters).timeout(PATIENCE).connect_timeout(PATIENCE).build().await
        };
        self.client.get_or_try_init(connect).await.map_err(refused)
    }
}

/// Answers with the client, in time.
macro_rules! ask {
    ($source:expr, |$client:ident| $answer:expr) => {
        Box::pin(async move {
            let answer = async {
                let $client = $source.client().await?;
                $answer.await
            };
            tokio::time::timeout(PATIENCE, answer).await.unwrap_or_else(|_| Err(refusal::late(PATIENCE)))
        })
    };
}

impl Source for ClusterSource {
    fn overview(&self) -> Answer<'_, Overview> {
        ask!(self, |client| cluster::overview(client, &self.seen_from))
    }

    fn tables(&self) -> Answer<'_, Vec<Table>> {
        ask!(self, |client| tables::list(client))
    }

    fn table<'a>(&'a self, name: &'a str) -> Answer<'a, TableDetail> {
        ask!(self, |client| tables::detail(client, name))
    }

    fn heat(&self, query: HeatQuery) -> Answer<'_, Heat> {
        ask!(self, |client| heat::map(client, query))
    }

    fn regions(&self, selection: RegionSelection) -> Answer<'_, Vec<Region>> {
        ask!(self, |client| cluster::regions(client, &selection))
    }

    fn region(&self, id: u64) -> Answer<'_, RegionDetail> {
        ask!(self, |client| cluster::region(client, id))
    }

    fn groups(&self) -> Answer<'_, Vec<Group>> {
        ask!(self, |client| cluster::groups(client))
    }

    fn group(&self, id: u64) -> Answer<'_, GroupDetail> {
        ask!(self, |client| cluster::group(client, id))
    }

    fn events(&self, query: EventQuery) -> Answer<'_, Vec<EventInfo>> {
        ask!(self, |client| past::events(client, query))
    }

    fn procedures(&self) -> Answer<'_, Vec<Procedure>> {
        ask!(self, |client| past::procedures(client))
    }

    fn slow(&self, query: SlowQuery) -> Answer<'_, SlowRequests> {
        ask!(self, |client| slow::requests(client, query))
    }

    fn rows(&self, query: RowQuery) -> Answer<'_, RowPage> {
        ask!(self, |client| rows::page(client, query))
    }

    fn settings(&self) -> Answer<'_, Vec<Setting>> {
        Box::pin(async move {
            let live: Answer<'_, Vec<Setting>> = ask!(self, |client| settings::live(client));
            settings::all(live.await, &self.settings)
        })
    }

    fn change(&self, change: SettingChange) -> Answer<'_, Setting> {
        ask!(self, |client| settings::change(client, change, &self.settings))
    }

    fn failovers(&self) -> Answer<'_, Failovers> {
        ask!(self, |client| past::failovers(client))
    }
}
