//! The settings of a master, checked before anything is opened. Values that need no setting are constants where they
//! are used.

use std::path::PathBuf;
use std::time::Duration;

use crate::masters::numbers::check_count;
use terrane_types::Endpoint;
use terrane_types::versions::Levels;

/// How often servers report, and thus how old the master's view of leaders and sizes may be.
pub const REPORT_EVERY_DEFAULT: Duration = Duration::from_millis(500);
/// How long a server may be away by default: longer than a reboot takes.
pub const REPLACE_AFTER_DEFAULT: Duration = Duration::from_secs(5 * 60);
/// For so long no server may have come or gone, by default, before surplus groups are removed: longer than a roll-out rests.
pub const SURPLUS_AFTER_DEFAULT: Duration = Duration::from_secs(10 * 60);
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
    /// The masters that found the cluster together; empty means only this one.
    pub peers: Vec<String>,
    /// Masters of a running cluster that this one is to be added to; empty: it founds one. Read if the directory is new.
    pub join: Vec<String>,
    /// Replicas of each group, fixed when the cluster is created: 1, 3 or 5.
    pub replication: u32,
    /// Groups that each server is to lead.
    pub groups_per_server: usize,
    /// How often servers report.
    pub report_every: Duration,
    /// How long a server may be away before its replicas are replaced.
    pub replace_after: Duration,
    /// How long no server may have come or gone before groups beyond those that the servers need are emptied and removed.
    pub surplus_after: Duration,
    /// Where it serves clients of other protocols, which servers and other masters tell them.
    pub endpoints: Vec<Endpoint>,
    /// The feature levels of clusters that it works in: those of the build, unless a test has it behave as an older one.
    pub levels: Levels,
}

impl Default for MasterConfig {
    fn default() -> Self {
        Self {
            data_dir: PathBuf::from("terrane-master"),
            listen: "127.0.0.1:7600".to_owned(),
            advertise: None,
            peers: Vec::new(),
            join: Vec::new(),
            replication: 3,
            groups_per_server: 4,
            report_every: REPORT_EVERY_DEFAULT,
            replace_after: REPLACE_AFTER_DEFAULT,
            surplus_after: SURPLUS_AFTER_DEFAULT,
            endpoints: Vec::new(),
            levels: Levels::BUILD,
        }
    }
}

impl MasterConfig {
    /// The time without reports after which a server counts as silent.
    pub(crate) fn silent_after(&self) -> Duration {
        self.report_every * REPORTS_MISSED_MAX
    }

    /// Everything that is wrong with the settings, each as the setting's name and the predicate of a sentence about it.
    #[must_use]
    pub fn mistakes(&self) -> Vec<(&'static str, String)> {
        let mut mistakes = Vec::new();
        if ![1, 3, 5].contains(&self.replication) {
            mistakes.push(("replication", format!("must be 1, 3 or 5, not {}", self.replication)));
        }
        if self.groups_per_server == 0 {
            mistakes.push(("groups-per-server", "is 0, but each server must lead at least one group".to_owned()));
        }
        if self.replace_after < self.silent_after() {
            mistakes.push((
                "replace-after",
                format!(
                    "is {:?}, but a server counts as silent only after {:?}; set at least that",
                    self.replace_after,
                    self.silent_after()
                ),
            ));
        }
        let masters = self.sorted_peers().len();
        if let Err(why) = check_count(masters.max(1)) {
            mistakes.push(("peers", format!("names {masters} masters; use 1, 3 or 5: {why}")));
        }
        if !self.peers.is_empty() && !self.join.is_empty() {
            mistakes.push((
                "join",
                "waits to be added to a cluster, and peers founds one; give only one of them".to_owned(),
            ));
        }
        mistakes
    }

    /// Rejects invalid settings, with a message for the user.
    ///
    /// # Errors
    /// What is wrong, and what would be right.
    pub fn check(&self) -> Result<(), String> {
        let mut mistakes: Vec<String> =
            self.mistakes().into_iter().map(|(setting, why)| format!("--{setting} {why}")).collect();
        if self.advertise.is_none() && is_wildcard(&self.listen) {
            mistakes
                .push(format!("{} is a wildcard address that others cannot connect to; set --advertise", self.listen));
        }
        if mistakes.is_empty() { Ok(()) } else { Err(mistakes.join("; ")) }
    }

    /// The address that others use: the configured host, since a host name is lost when binding, with the bound port.
    pub(crate) fn advertised(&self, bound_port: u16) -> String {
        let host = self.listen.rsplit_once(':').map_or("", |(host, _)| host);
        self.advertise.clone().unwrap_or_else(|| format!("{host}:{bound_port}"))
    }

    /// The masters as recorded in the catalog: sorted, without duplicates. A list of only this master counts as empty.
    pub(crate) fn bootstrap_peers(&self, own: &str) -> Vec<String> {
        let peers = self.sorted_peers();
        if peers.len() == 1 && peers[0] == own { Vec::new() } else { peers }
    }

    pub(crate) fn sorted_peers(&self) -> Vec<String> {
        let mut peers = self.peers.clone();
        peers.sort();
        peers.dedup();
        peers
    }

    /// All masters, sorted, and this one's place among them, if there are several.
    ///
    /// # Errors
    /// The list does not name this master, whose address is `own`.
    pub fn place_among(&self, own: &str) -> Result<Option<(Vec<String>, usize)>, String> {
        let peers = self.sorted_peers();
        if peers.len() < 2 {
            return Ok(None);
        }
        match peers.iter().position(|peer| peer == own) {
            Some(place) => Ok(Some((peers, place))),
            None => Err(format!(
                "--peers {} does not name this master, which others reach at {own}; name it in exactly this form, or set \
                 --advertise",
                peers.join(",")
            )),
        }
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
        let peers = |names: &[&str]| names.iter().map(|name| format!("{name}:1")).collect::<Vec<_>>();
        let even = MasterConfig { peers: peers(&["a", "b"]), ..MasterConfig::default() }.check().unwrap_err();
        assert!(even.contains("names 2 masters; use 1, 3 or 5: an even number"), "{even}");
        let many = ["a", "b", "c", "d", "e", "f", "g"];
        assert!(MasterConfig { peers: peers(&many), ..MasterConfig::default() }.check().is_err());
        assert_eq!(MasterConfig { peers: peers(&many[..3]), ..MasterConfig::default() }.check(), Ok(()));
        assert_eq!(MasterConfig { peers: peers(&many[..5]), ..MasterConfig::default() }.check(), Ok(()));
    }

    #[test]
    fn the_bound_port_is_advertised() {
        let mut config = MasterConfig { listen: "localhost:0".into(), ..MasterConfig::default() };
        assert_eq!(config.advertised(4_711), "localhost:4711");
        config.advertise = Some("m.example:7600".into());
        assert_eq!(config.advertised(4_711), "m.example:7600");
    }

    #[test]
    fn a_list_of_several_names_this_master() {
        let peers = ["c:1", "a:1", "b:1", "a:1"].map(str::to_owned).to_vec();
        let config = MasterConfig { peers, ..MasterConfig::default() };
        let (sorted, place) = config.place_among("b:1").unwrap().unwrap();
        assert_eq!((sorted.join(","), place), ("a:1,b:1,c:1".to_owned(), 1));
        assert!(config.place_among("127.0.0.1:1").unwrap_err().contains("does not name this master"));
    }

    #[test]
    fn a_list_of_only_this_master_counts_as_empty() {
        let config = MasterConfig { peers: vec!["a:1".into()], ..MasterConfig::default() };
        assert_eq!(config.bootstrap_peers("a:1"), Vec::<String>::new());
        assert_eq!(config.bootstrap_peers("b:1"), ["a:1"]);
    }
}
