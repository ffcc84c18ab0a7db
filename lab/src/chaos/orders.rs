//! What an operator asks for meanwhile: drains, moves, splits and merges, as commands in the background.
//!
//! An order may be refused or fail: a master is down, the region has changed. That is told, and no verdict.

use std::time::{Duration, Instant};

use serde_json::Value;
use terrane_lab::{Cluster, Running};

use super::journal::Journal;
use crate::dice::Dice;

const TABLE: &str = "chaos";
/// Commands at a time.
const RUNNING_MAX: usize = 4;
/// Each command's own timeout, and when it is killed nevertheless.
const TIMEOUT: &str = "30s";
const RUNNING_FOR_MAX: Duration = Duration::from_secs(90);
/// For a list of regions, which the nemesis waits for.
const LIST_TIMEOUT: &str = "2s";
/// Pause between two tries to end a drain, or to remove a lost server.
const TRY_EVERY: Duration = Duration::from_secs(3);

/// A command that runs.
struct Order {
    words: String,
    since: Instant,
    command: Running,
}

/// A server that is drained.
struct Drain {
    address: String,
    until: Instant,
    undrain_tried: Option<Instant>,
}

/// A server number that does not return, since its disk is lost.
struct Lost {
    server: String,
    tried: Instant,
}

/// The commands that run, the drain, and the lost server.
#[derive(Default)]
pub struct Orders {
    running: Vec<Order>,
    drain: Option<Drain>,
    lost: Option<Lost>,
}

impl Orders {
    pub fn are_open(&self) -> bool {
        !self.running.is_empty() || self.drain.is_some() || self.lost.is_some()
    }

    pub fn describe(&self) -> String {
        let drained = self.drain.as_ref().map(|drain| format!("{} is drained", drain.address));
        let lost = self.lost.as_ref().map(|lost| format!("server number {} is lost", lost.server));
        self.running.iter().map(|order| order.words.clone()).chain(drained).chain(lost).collect::<Vec<_>>().join(", ")
    }

    /// The drain is due to end.
    pub fn hasten(&mut self) {
        if let Some(drain) = &mut self.drain {
            drain.until = Instant::now();
        }
    }

    pub fn drain(&mut self, cluster: &Cluster, journal: &mut Journal, dice: &mut Dice) -> anyhow::Result<()> {
        let address = cluster.addresses[dice.below(cluster.addresses.len())].clone();
        let until = Instant::now() + dice.ms(3_000..=25_000);
        if self.drain.is_some() || !self.has_room() {
            return Ok(());
        }
        self.begin(cluster, journal, ("drains", &["drain", &address, "--no-wait"]))?;
        self.drain = Some(Drain { address, until, undrain_tried: None });
        Ok(())
    }

    pub fn move_region(&mut self, cluster: &Cluster, journal: &mut Journal, dice: &mut Dice) -> anyhow::Result<()> {
        let (pick, to) = (dice.below(usize::MAX), &cluster.addresses[dice.below(cluster.addresses.len())]);
        let Some(regions) = self.regions(cluster) else { return Ok(()) };
        let region = &regions[pick % regions.len()];
        self.begin(cluster, journal, ("moves", &["move", &id(region), "--to", to]))
    }

    pub fn split(&mut self, cluster: &Cluster, journal: &mut Journal, dice: &mut Dice) -> anyhow::Result<()> {
        let (pick, at, is_given) = (dice.below(usize::MAX), dice.below(256), dice.one_in(2));
        let Some(regions) = self.regions(cluster) else { return Ok(()) };
        let region = &regions[pick % regions.len()];
        let at = format!("{at:02x}-row-w{}", at % 4);
        let text = |name: &str| region[name].as_str().unwrap_or("");
        let is_inside = *text("start") < *at && (text("stop").is_empty() || *at < *text("stop"));
        let region = id(region);
        let words: &[&str] = if is_given && is_inside { &["split", &region, "--at", &at] } else { &["split", &region] };
        self.begin(cluster, journal, ("splits", words))
    }

    pub fn merge(&mut self, cluster: &Cluster, journal: &mut Journal, dice: &mut Dice) -> anyhow::Result<()> {
        let pick = dice.below(usize::MAX);
        let Some(regions) = self.regions(cluster).filter(|regions| regions.len() > 1) else { return Ok(()) };
        let at = pick % (regions.len() - 1);
        self.begin(cluster, journal, ("merges", &["merge", &id(&regions[at]), &id(&regions[at + 1])]))
    }

    /// This number does not return: it is removed when its replicas have been replaced.
    pub fn lose(&mut self, server: String) {
        self.lost = Some(Lost { server, tried: Instant::now() });
    }

    fn has_room(&self) -> bool {
        self.running.len() < RUNNING_MAX
    }

    /// The regions of the table, if there is room for a command and a master answers.
    fn regions(&self, cluster: &Cluster) -> Option<Vec<Value>> {
        if !self.has_room() {
            return None;
        }
        let regions = cluster.json_lines(&["admin", "regions", TABLE, "--timeout", LIST_TIMEOUT]).ok()?;
        (!regions.is_empty()).then_some(regions)
    }

    fn begin(
        &mut self,
        cluster: &Cluster,
        journal: &mut Journal,
        (kind, words): (&'static str, &[&str]),
    ) -> anyhow::Result<()> {
        let command = Running::start(
            &mut cluster.command(&[&["admin"], words, &["--timeout", TIMEOUT]].concat()),
            2 * RUNNING_FOR_MAX,
        )?;
        let words = words.join(" ");
        journal.count(kind, &words);
        self.running.push(Order { words, since: Instant::now(), command });
        Ok(())
    }

    /// Tells of commands that ended, and ends the drain when it is due.
    pub fn look(&mut self, cluster: &Cluster, journal: &mut Journal) -> anyhow::Result<()> {
        let mut still = Vec::new();
        for mut order in std::mem::take(&mut self.running) {
            if order.command.has_ended() {
                tell_end(order, journal)?;
            } else if order.since.elapsed() > RUNNING_FOR_MAX {
                journal.tell(&format!("{}: killed after {} s", order.words, RUNNING_FOR_MAX.as_secs()));
            } else {
                still.push(order);
            }
        }
        self.running = still;
        self.undrain(cluster, journal)?;
        self.decommission(cluster, journal)
    }

    /// Removes the number of a lost server, which is refused until its replicas have been replaced.
    fn decommission(&mut self, cluster: &Cluster, journal: &mut Journal) -> anyhow::Result<()> {
        let Some(lost) = self.lost.as_mut().filter(|lost| lost.tried.elapsed() >= TRY_EVERY) else { return Ok(()) };
        lost.tried = Instant::now();
        let output = cluster.run(&["admin", "decommission", &lost.server, "--timeout", LIST_TIMEOUT])?;
        let errors = String::from_utf8_lossy(&output.stderr);
        // An earlier answer may be lost.
        if output.status.success() || errors.contains("does not exist") {
            journal.tell(&format!("server number {} is replaced and removed", lost.server));
            self.lost = None;
        }
        Ok(())
    }

    fn undrain(&mut self, cluster: &Cluster, journal: &mut Journal) -> anyhow::Result<()> {
        let Some(drain) = &mut self.drain else { return Ok(()) };
        let is_tried = drain.undrain_tried.is_some_and(|at| at.elapsed() < TRY_EVERY);
        if Instant::now() < drain.until || is_tried {
            return Ok(());
        }
        drain.undrain_tried = Some(Instant::now());
        let output = cluster.run(&["admin", "undrain", &drain.address, "--timeout", LIST_TIMEOUT])?;
        let errors = String::from_utf8_lossy(&output.stderr);
        journal.tell(&format!("undrain {}: {}", drain.address, outcome(output.status.success(), &errors)));
        // The drain was refused, or an earlier answer was lost.
        if output.status.success() || errors.contains("is not being drained") {
            self.drain = None;
        }
        Ok(())
    }
}

fn id(region: &Value) -> String {
    region["region"].to_string()
}

fn tell_end(order: Order, journal: &mut Journal) -> anyhow::Result<()> {
    let took = order.since.elapsed().as_secs_f64();
    let output = order.command.finish()?;
    let errors = String::from_utf8_lossy(&output.stderr);
    journal.tell(&format!("{}: {} ({took:.1} s)", order.words, outcome(output.status.success(), &errors)));
    Ok(())
}

/// How a command ended, in one line.
fn outcome(well: bool, errors: &str) -> String {
    if well { "done".to_owned() } else { format!("refused: {}", errors.lines().next().unwrap_or("")) }
}
