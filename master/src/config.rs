//! The settings of a master, checked before anything is opened. Values that need no setting are constants where they
//! are used.

use std::path::PathBuf;
use std::time::Duration;

/// How often servers report, and thus how old the master's view of leaders and sizes may be.
pub const REPORT_EVERY_DEFAULT: Duration = Duration::from_millis(500);
/// Missed reports after which a server counts as silent.
const REPORTS_MISSED_MAX: u32 = 6;

/// The settings of a [`crate::Master`].
#[derive(Clone, Debug)]
pub struct MasterConfig {
    /// The data directory; created if missing, locked while the master runs.
    pub data_dir: PathBuf,
    /// The address to listen on; port 0 takes a free port.
    pub listen: String,
    /// The address that others use; `None` means the listen address.
    pub advertise: Option<String>,
    /// All masters of the cluster, fixed when it is created; empty means only this one.
    pub peers: Vec<String>,
    /// Replicas of each group, fixed when the cluster is created: 1, 3 or 5.
    pub replication: u32,
    /// Groups that each server is to lead.
    pub groups_per_server: usize,
    /// How often servers report.
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
    /// The time without reports after which a server counts as silent.
    pub(crate) fn silent_after(&self) -> Duration {
        self.report_every * REPORTS_MISSED_MAX
    }

    /// Rejects invalid settings, with a message for the user.
    pub(crate) fn check(&self) -> Result<(), String> {
        if ![1, 3, 5].contains(&self.replication) {
            return Err(format!("replication must be 1, 3 or 5, not {}", self.replication));
        }
        if self.groups_per_server == 0 {
            return Err("groups_per_server is 0, but each server must lead at least one group".into());
        }
        if self.peers.len() > 1 {
            return Err(format!(
                "--peers names {} masters, but more than one master is not supported yet; name one or omit the flag",
                self.peers.len()
            ));
        }
        if self.advertise.is_none() && is_wildcard(&self.listen) {
            return Err(format!(
                "{} is a wildcard address that others cannot connect to; set --advertise",
                self.listen
            ));
        }
        Ok(())
    }

    /// The address that others use: the configured host, since a host name is lost when binding, with the bound port.
    pub(crate) fn advertised(&self, bound_port: u16) -> String {
        let host = self.listen.rsplit_once(':').map_or("", |(host, _)| host);
        self.advertise.clone().unwrap_or_else(|| format!("{host}:{bound_port}"))
    }

    /// The masters as recorded in the catalog: sorted, without duplicates. A list of only this master counts as empty.
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
    fn the_defaults_are_valid() {
        assert_eq!(MasterConfig::default().check(), Ok(()));
    }

    #[test]
    fn invalid_settings_are_rejected() {
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
    fn the_bound_port_is_advertised() {
        let mut config = MasterConfig { listen: "localhost:0".into(), ..MasterConfig::default() };
        assert_eq!(config.advertised(4_711), "localhost:4711");
        config.advertise = Some("m.example:7600".into());
        assert_eq!(config.advertised(4_711), "m.example:7600");
    }

    #[test]
    fn a_list_of_only_this_master_counts_as_empty() {
        let config = MasterConfig { peers: vec!["a:1".into()], ..MasterConfig::default() };
        assert_eq!(config.bootstrap_peers("a:1"), Vec::<String>::new());
        assert_eq!(config.bootstrap_peers("b:1"), ["a:1"]);
    }
}
