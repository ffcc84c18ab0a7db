//! Draws faults from the seed, and undoes each after a while.
//!
//! One thread: it never waits for a process or a command, but looks at all of them every few milliseconds. So a fault that
//! is due to end, ends, whatever else hangs.
//!
//! Of the masters one fails at a time, of the servers up to two: then some groups have no majority for a while, which may
//! cost time but no data. Now and then everything is killed at once.

use std::time::{Duration, Instant};

use anyhow::{Context, ensure};
use terrane_lab::{Cluster, eventually_within, let_it_run};

use super::journal::Journal;
use super::orders::Orders;
use super::processes::{Processes, Target};
use crate::dice::Dice;

const LOOK_EVERY: Duration = Duration::from_millis(50);
/// Pause between two faults, in milliseconds.
const PAUSE_MS: std::ops::RangeInclusive<u64> = 200..=2_500;
/// Servers that fail at a time.
const SERVERS_MAX: usize = 2;
/// For the cluster to become healthy, with a clean check, after the last fault. On a busy machine it takes a minute.
const HEALTHY_MAX: Duration = Duration::from_secs(300);
/// For processes and orders to end after the last fault.
const HEAL_MAX: Duration = Duration::from_secs(240);

pub struct Nemesis<'a> {
    cluster: &'a mut Cluster,
    journal: &'a mut Journal,
    dice: Dice,
    processes: Processes,
    orders: Orders,
}

impl<'a> Nemesis<'a> {
    pub fn new(cluster: &'a mut Cluster, journal: &'a mut Journal, seed: u64) -> Self {
        Self { cluster, journal, dice: Dice::new(seed), processes: Processes::default(), orders: Orders::default() }
    }

    /// Torments the cluster for so long.
    pub fn torment(&mut self, length: Duration, mut check: impl FnMut() -> anyhow::Result<()>) -> anyhow::Result<()> {
        let end = Instant::now() + length;
        let mut next = Instant::now() + self.dice.ms(PAUSE_MS);
        while Instant::now() < end {
            check()?;
            self.look()?;
            if Instant::now() >= next {
                self.strike()?;
                next = Instant::now() + self.dice.ms(PAUSE_MS);
            }
            let_it_run(LOOK_EVERY);
        }
        Ok(())
    }

    /// Ends all faults, and waits until every process runs, no order is open, and the cluster is healthy.
    pub fn heal(&mut self) -> anyhow::Result<()> {
        self.processes.hasten(true);
        self.orders.hasten();
        let deadline = Instant::now() + HEAL_MAX;
        while self.processes.are_harmed() || self.orders.are_open() {
            let waits = || format!("{} {}", self.processes.describe(), self.orders.describe());
            ensure!(Instant::now() < deadline, "not over after {} s: {}", HEAL_MAX.as_secs(), waits());
            self.look()?;
            let_it_run(LOOK_EVERY);
        }
        self.processes.hasten(false);
        self.journal.tell("the faults are over; waiting for a healthy cluster");
        self.cluster.wait_until_well_within(HEALTHY_MAX)?;
        let check = || self.cluster.succeed(&["admin", "check"]);
        eventually_within(HEALTHY_MAX, "`admin check` finds nothing wrong", check)?;
        self.journal.tell("healthy");
        Ok(())
    }

    /// A server of the healthy cluster loses its disk: what two of three lost disks had would be lost rightly.
    pub fn lose_disk(&mut self) -> anyhow::Result<()> {
        let (server, away) = (self.dice.below(self.cluster.servers.len()), self.dice.ms(0..=6_000));
        let servers = self.cluster.json_lines(&["admin", "servers"])?;
        let listed = servers.iter().find(|listed| listed["address"] == self.cluster.addresses[server]);
        let number = listed.context("every server is listed")?["server"].to_string();
        self.processes.lose_disk(self.cluster, self.journal, server, away)?;
        self.orders.lose(number);
        Ok(())
    }

    fn look(&mut self) -> anyhow::Result<()> {
        self.processes.look(self.cluster, self.journal)?;
        self.orders.look(self.cluster, self.journal)
    }

    fn strike(&mut self) -> anyhow::Result<()> {
        match self.dice.below(30) {
            0..=4 => self.kill_server(),
            5..=7 => self.stop_server(),
            8..=10 => self.terminate_server(),
            11..=13 => self.strike_master(),
            14 => self.kill_all(),
            15 | 16 => self.orders.drain(self.cluster, self.journal, &mut self.dice),
            17..=21 => self.orders.move_region(self.cluster, self.journal, &mut self.dice),
            22..=26 => self.orders.split(self.cluster, self.journal, &mut self.dice),
            _ => self.orders.merge(self.cluster, self.journal, &mut self.dice),
        }
    }

    /// A server that runs, unless enough others fail already.
    fn some_server(&mut self) -> Option<Target> {
        let server = Target::Server(self.dice.below(self.cluster.servers.len()));
        let harmed = self.processes.harmed_servers();
        (harmed < SERVERS_MAX && !self.processes.is_harmed(server)).then_some(server)
    }

    fn kill_server(&mut self) -> anyhow::Result<()> {
        // Once in a while so long that its replicas are replaced.
        let away = if self.dice.one_in(4) { self.dice.ms(14_000..=22_000) } else { self.dice.ms(0..=6_000) };
        if let Some(server) = self.some_server() {
            self.processes.kill(self.cluster, self.journal, server, away);
        }
        Ok(())
    }

    fn stop_server(&mut self) -> anyhow::Result<()> {
        let away = self.dice.ms(300..=8_000);
        self.some_server().map_or(Ok(()), |server| self.processes.stop(self.cluster, self.journal, server, away))
    }

    fn terminate_server(&mut self) -> anyhow::Result<()> {
        let away = self.dice.ms(0..=4_000);
        self.some_server().map_or(Ok(()), |server| self.processes.terminate(self.cluster, self.journal, server, away))
    }

    fn strike_master(&mut self) -> anyhow::Result<()> {
        let master = Target::Master(self.dice.below(self.cluster.masters.len()));
        let (how, away) = (self.dice.below(3), self.dice.ms(300..=6_000));
        if self.processes.is_a_master_harmed() {
            return Ok(());
        }
        match how {
            0 => self.processes.stop(self.cluster, self.journal, master, away)?,
            1 => self.processes.terminate(self.cluster, self.journal, master, away)?,
            _ => self.processes.kill(self.cluster, self.journal, master, away),
        }
        Ok(())
    }

    /// Kills what runs, masters and servers, at once.
    fn kill_all(&mut self) -> anyhow::Result<()> {
        let away = self.dice.ms(0..=2_000);
        if !self.processes.are_harmed() {
            self.processes.kill_all(self.cluster, self.journal, away);
        }
        Ok(())
    }
}
