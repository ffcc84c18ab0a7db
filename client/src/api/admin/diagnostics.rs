//! Questions to single processes: slow requests and hottest rows of the region servers, and the filters of all logs.
//!
//! Each process is called separately. One that does not answer is a failure among the results; the others answer all the
//! same.

use std::time::Duration;

use futures::future::join_all;
use terrane_types::states::ServerState;

use super::Admin;
use super::hot::HotRegion;
use super::slow::{SlowRequests, SlowThresholdChange};
use crate::error::Error;
use crate::wire::diagnostics;

/// The hottest rows of all regions, or of one table's.
#[derive(Clone, Debug, Default, PartialEq)]
#[non_exhaustive]
pub struct HotRows {
    /// The regions, the busiest first. A server names at most 256 of those that it leads.
    pub regions: Vec<HotRegion>,
    /// Servers that did not answer, a sentence each.
    pub failures: Vec<String>,
}

/// What a process logs.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct LogFilter {
    /// The address of the process.
    pub address: String,
    /// `master` or `server`.
    pub role: String,
    /// The filter in force, in the syntax of `tracing`'s `EnvFilter`; or why the process did not answer.
    pub filter: Result<String, String>,
}

/// The time above which a region server keeps requests as slow.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct SlowThreshold {
    /// The address of the process.
    pub address: String,
    /// The time in force and that of the start, zero: none is kept; or why the process did not answer.
    pub threshold: Result<(Duration, Duration), String>,
}

impl Admin {
    /// The times above which all live region servers, or the one at `address`, keep requests as slow; after the change.
    ///
    /// # Errors
    /// [`Error::NotFound`] when no live region server has that address; [`Error`] when no master lists them. What single
    /// processes refuse is in the result.
    pub async fn slow_thresholds(
        &self,
        address: Option<&str>,
        change: SlowThresholdChange,
    ) -> Result<Vec<SlowThreshold>, Error> {
        let servers = self.servers().await?.into_iter().filter(|server| server.state == ServerState::Live);
        let addresses = servers.map(|server| server.address);
        let asked: Vec<_> = addresses.filter(|found| address.is_none_or(|address| address == found)).collect();
        if let (true, Some(address)) = (asked.is_empty(), address) {
            return Err(Error::NotFound { what: format!("live region server at {address}") });
        }
        let calls = asked.into_iter().map(async |address| {
            let masters = &self.core.router.masters;
            let threshold = diagnostics::slow_threshold(masters, &address, change, self.timeout).await;
            SlowThreshold { address, threshold }
        });
        Ok(join_all(calls).await)
    }

    /// The latest requests that took long, of all live region servers: at most `limit` of them, the newest first. Each server
    /// keeps 256.
    ///
    /// # Errors
    /// [`Error`] when no master lists the servers. Servers that do not answer are in the result.
    pub async fn slow_requests(&self, limit: usize) -> Result<SlowRequests, Error> {
        let servers = self.servers().await?;
        let live: Vec<_> = servers.iter().filter(|server| server.state == ServerState::Live).collect();
        let most = u32::try_from(limit).unwrap_or(u32::MAX);
        let calls = live
            .iter()
            .map(|server| diagnostics::slow_requests(&self.core.router.masters, &server.address, most, self.timeout));
        let mut all = SlowRequests::default();
        for answer in join_all(calls).await {
            match answer {
                Ok(of_server) => {
                    all.requests.extend(of_server.requests);
                    all.total += of_server.total;
                    all.threshold = all.threshold.into_iter().chain(of_server.threshold).min();
                }
                Err(failure) => all.failures.push(failure),
            }
        }
        all.requests.sort_by_key(|slow| std::cmp::Reverse(slow.at_ms));
        all.requests.truncate(limit);
        Ok(all)
    }

    /// The rows that are read and written most, and where to split the regions that hold them: of one table, or of all. At most
    /// `rows_max` rows of each region, for reads and writes each; servers know up to 32.
    ///
    /// ```no_run
    /// # async fn run(admin: terrane_client::Admin) -> Result<(), terrane_client::Error> {
    /// for region in admin.hot_rows(Some("actions"), 5).await?.regions {
    ///     if let Some(at) = region.split_at {
    ///         admin.split(region.region, Some(&at)).await?;
    ///     }
    /// }
    /// # Ok(()) }
    /// ```
    ///
    /// # Errors
    /// [`Error::NotFound`] for an unknown table; [`Error`] when no master lists the servers. Servers that do not answer are in
    /// the result.
    pub async fn hot_rows(&self, table: Option<&str>, rows_max: usize) -> Result<HotRows, Error> {
        let table = match table {
            Some(name) => Some(self.describe_table(name).await?.schema.table),
            None => None,
        };
        let servers = self.servers().await?;
        let live: Vec<_> = servers.iter().filter(|server| server.state == ServerState::Live).collect();
        let most = u32::try_from(rows_max).unwrap_or(u32::MAX);
        let masters = &self.core.router.masters;
        let calls =
            live.iter().map(|server| diagnostics::hot_rows(masters, &server.address, (table, most), self.timeout));
        let mut all = HotRows::default();
        for answer in join_all(calls).await {
            match answer {
                Ok(regions) => all.regions.extend(regions),
                Err(failure) => all.failures.push(failure),
            }
        }
        let load = |region: &HotRegion| region.load.rows_read + region.load.rows_written + region.load.bytes / 1_024;
        all.regions.sort_by_key(|region| (std::cmp::Reverse(load(region)), region.region));
        Ok(all)
    }

    /// The filters of the logs of all masters and live region servers, or of the one at `address`; after `filter`, if there is
    /// one, has replaced them. A replaced filter lasts until the process ends.
    ///
    /// # Errors
    /// [`Error::NotFound`] when no process of the cluster has that address; [`Error`] when no master lists them. What single
    /// processes refuse is in the result.
    pub async fn log_filters(&self, address: Option<&str>, filter: Option<&str>) -> Result<Vec<LogFilter>, Error> {
        let masters = self.status().await?.masters;
        let masters = masters.into_iter().map(|master| (master.address, "master"));
        let servers = self.servers().await?.into_iter().filter(|server| server.state == ServerState::Live);
        let all = masters.chain(servers.map(|server| (server.address, "server")));
        let asked: Vec<_> = all.filter(|(found, _)| address.is_none_or(|address| address == found)).collect();
        if let (true, Some(address)) = (asked.is_empty(), address) {
            return Err(Error::NotFound { what: format!("process at {address}") });
        }
        let calls = asked.into_iter().map(async |(address, role)| {
            let masters = &self.core.router.masters;
            let filter = diagnostics::log_filter(masters, &address, filter.unwrap_or_default(), self.timeout).await;
            LogFilter { address, role: role.to_owned(), filter }
        });
        Ok(join_all(calls).await)
    }
}
