//! What a master is told when it starts, checked before anything is opened. What nobody has had to change is a constant
//! where it acts.

use std::path::PathBuf;
use std::time::Duration;

/// How often servers report, and so how old the master's picture of leaders and sizes may be.
pub const REPORT_EVERY_DEFAULT: Duration = Duration::from_millis(500);
/// Reports that may be missing before a server is called silent.
const REPORTS_MISSED_MAX: u32 = 6;

/// How a [`crate::Master`] is started.
#[derive(Clone, Debug)]
pub struct MasterConfig {
    /// Everything this master keeps; made when absent, locked while it runs.
    pub data_dir: PathBuf,
    /// Where it listens; port 0 takes a free one.
    pub listen: String,
    /// What others are told; `None`: the listen address.
    pub advertise: Option<String>,
    /// All masters of the cluster, fixed by its first start. Empty: this one alone.
    pub peers: Vec<String>,
    /// Replicas of each group, fixed by the cluster's first start: 1, 3 or 5.
    pub replication: u32,
    /// Groups that each server is to lead.
    pub groups_per_server: usize,
    /// How often servers are asked to report.
    pub report_every: Duration,
}

impl Default for MasterConfig {
    fn default() -> Self {
        Self {
            data_dir: PathBuf::from("terrane-master"),
            listen: "127.0.0.1:7600".to_owned(),
            advertise: None,
            peers: Vec::new(),
            replication: 3,
            groups_per_server: 4,
            report_every: REPORT_EVERY_DEFAULT,
        }
    }
}

impl MasterConfig {
    /// How long a server may say nothing before it is called silent.
    pub(crate) fn silent_after(&self) -> Duration {
        self.report_every * REPORTS_MISSED_MAX
    }

    /// Refuses what cannot work, in words for whoever typed it.
    pub(crate) fn check(&self) -> Result<(), String> {
        if ![1, 3, 5].contains(&self.replication) {
            return Err(format!("replication is 1, 3 or 5, not {}", self.replication));
        }
        if self.groups_per_server == 0 {
            return Err("each server leads at least one group; groups_per_server is 0".into());
        }
        if self.peers.len() > 1 {
            return Err(format!(
                "--peers names {} masters, but clusters with more than one are not built yet; name one or leave it out",
                self.peers.len()
            ));
        }
        if self.advertise.is_none() && is_wildcard(&self.listen) {
            return Err(format!(
                "{} is not an address others can reach; say which one is with --advertise",
                self.listen
            ));
        }
        Ok(())
    }

    /// What others are told. A name of this host is only in what was configured, a port that was free only in what was bound.
    pub(crate) fn advertised(&self, bound_port: u16) -> String {
        let host = self.listen.rsplit_once(':').map_or("", |(host, _)| host);
        self.advertise.clone().unwrap_or_else(|| format!("{host}:{bound_port}"))
    }

    /// The masters as the catalog keeps them: sorted, each once. A list of this master alone says the same as none.
    pub(crate) fn bootstrap_peers(&self, own: &str) -> Vec<String> {
        let mut peers = self.peers.clone();
        peers.sort();
        peers.dedup();
        if peers.len() == 1 && peers[0] == own { Vec::new() } else { peers }
    }
}

fn is_wildcard(address: &str) -> bool {
    address.rsplit_once(':').is_some_and(|(host, _)| ["0.0.0.0", "[::]", "*", ""].contains(&host))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_defaults_hold() {
        assert_eq!(MasterConfig::default().check(), Ok(()));
    }

    #[test]
    fn settings_that_cannot_work_are_refused_in_words() {
        let refused = |change: fn(&mut MasterConfig)| {
            let mut config = MasterConfig::default();
            change(&mut config);
            config.check().unwrap_err()
        };
        assert!(refused(|config| config.replication = 2).contains("1, 3 or 5"));
        assert!(refused(|config| config.groups_per_server = 0).contains("at least one"));
        assert!(refused(|config| config.listen = "0.0.0.0:7600".into()).contains("--advertise"));
        assert!(refused(|config| config.peers = vec!["a:1".into(), "b:1".into()]).contains("--peers"));
    }

    #[test]
    fn the_port_that_was_bound_is_told() {
        let mut config = MasterConfig { listen: "localhost:0".into(), ..MasterConfig::default() };
        assert_eq!(config.advertised(4_711), "localhost:4711");
        config.advertise = Some("m.example:7600".into());
        assert_eq!(config.advertised(4_711), "m.example:7600");
    }

    #[test]
    fn a_list_of_this_master_alone_is_no_list() {
        let config = MasterConfig { peers: vec!["a:1".into()], ..MasterConfig::default() };
        assert_eq!(config.bootstrap_peers("a:1"), Vec::<String>::new());
        assert_eq!(config.bootstrap_peers("b:1"), ["a:1"]);
    }
}
