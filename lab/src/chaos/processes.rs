//! What happens to processes: each is killed, stopped or terminated, and runs again after a while.

use std::fmt;
use std::time::{Duration, Instant};

use anyhow::{Context, bail, ensure};
use terrane_lab::{Cluster, Process, Role};

use super::journal::Journal;

/// For a process to end after SIGTERM: it hands over what it leads, and flushes.
const END_MAX: Duration = Duration::from_secs(120);
/// For a process to serve after its start, while others fail.
const READY_MAX: Duration = Duration::from_secs(180);

/// A process.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Target {
    Master(usize),
    Server(usize),
}

impl fmt::Display for Target {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Master(number) => write!(f, "master-{number}"),
            Self::Server(number) => write!(f, "server-{number}"),
        }
    }
}

impl Target {
    fn role(self, cluster: &mut Cluster) -> &mut Role {
        match self {
            Self::Master(number) => &mut cluster.masters[number],
            Self::Server(number) => &mut cluster.servers[number],
        }
    }
}

/// What a process suffers.
struct Harm {
    target: Target,
    state: State,
}

enum State {
    /// Stopped until then.
    Stopped(Instant),
    /// It was told to end at that time, and stays away for so long when it has.
    Ending(Instant, Duration),
    /// It does not run until then.
    Away(Instant),
    /// It was started at that time, and does not serve yet.
    Starting(Instant),
}

/// The processes that do not serve.
#[derive(Default)]
pub struct Processes {
    harmed: Vec<Harm>,
    /// No process stays stopped or away.
    hastened: bool,
}

impl Processes {
    pub fn is_harmed(&self, target: Target) -> bool {
        self.harmed.iter().any(|harm| harm.target == target)
    }

    pub fn are_harmed(&self) -> bool {
        !self.harmed.is_empty()
    }

    pub fn harmed_servers(&self) -> usize {
        self.harmed.iter().filter(|harm| matches!(harm.target, Target::Server(_))).count()
    }

    pub fn is_a_master_harmed(&self) -> bool {
        self.harmed.len() > self.harmed_servers()
    }

    pub fn describe(&self) -> String {
        let state = |harm: &Harm| match harm.state {
            State::Stopped(_) => format!("{} is stopped", harm.target),
            State::Ending(..) => format!("{} is ending", harm.target),
            State::Away(_) => format!("{} does not run", harm.target),
            State::Starting(_) => format!("{} does not serve yet", harm.target),
        };
        self.harmed.iter().map(state).collect::<Vec<_>>().join(", ")
    }

    /// All faults are due to end, and end at once, until told otherwise.
    pub fn hasten(&mut self, hastened: bool) {
        self.hastened = hastened;
    }

    pub fn kill(&mut self, cluster: &mut Cluster, journal: &mut Journal, target: Target, away: Duration) {
        journal.count("kills", &format!("kill -9 {target}, back after {:.1} s", away.as_secs_f64()));
        target.role(cluster).kill();
        self.harmed.push(Harm { target, state: State::Away(Instant::now() + away) });
    }

    /// Kills a server and loses its disk: it starts as a new one.
    pub fn lose_disk(
        &mut self,
        cluster: &mut Cluster,
        journal: &mut Journal,
        server: usize,
        away: Duration,
    ) -> anyhow::Result<()> {
        let target = Target::Server(server);
        let when = format!("back after {:.1} s", away.as_secs_f64());
        journal.count("lost disks", &format!("kill -9 {target}, its directory is removed, {when}"));
        target.role(cluster).kill();
        std::fs::remove_dir_all(cluster.server_directory(server)).context("removing a server's directory")?;
        self.harmed.push(Harm { target, state: State::Away(Instant::now() + away) });
        Ok(())
    }

    pub fn kill_all(&mut self, cluster: &mut Cluster, journal: &mut Journal, away: Duration) {
        journal
            .count("kills of everything", &format!("kill -9 of every process, back after {:.1} s", away.as_secs_f64()));
        cluster.kill_all();
        let masters = (0..cluster.masters.len()).map(Target::Master);
        let back = Instant::now() + away;
        let all = masters.chain((0..cluster.servers.len()).map(Target::Server));
        self.harmed.extend(all.map(|target| Harm { target, state: State::Away(back) }));
    }

    pub fn stop(
        &mut self,
        cluster: &mut Cluster,
        journal: &mut Journal,
        target: Target,
        away: Duration,
    ) -> anyhow::Result<()> {
        journal.count("stops", &format!("SIGSTOP {target} for {:.1} s", away.as_secs_f64()));
        target.role(cluster).signal("STOP")?;
        self.harmed.push(Harm { target, state: State::Stopped(Instant::now() + away) });
        Ok(())
    }

    pub fn terminate(
        &mut self,
        cluster: &mut Cluster,
        journal: &mut Journal,
        target: Target,
        away: Duration,
    ) -> anyhow::Result<()> {
        journal.count("terminations", &format!("SIGTERM {target}, started {:.1} s after its end", away.as_secs_f64()));
        target.role(cluster).signal("TERM")?;
        self.harmed.push(Harm { target, state: State::Ending(Instant::now(), away) });
        Ok(())
    }

    /// Ends what is due; an error if a process ended by itself, does not end, or does not start.
    pub fn look(&mut self, cluster: &mut Cluster, journal: &mut Journal) -> anyhow::Result<()> {
        self.check_ended(cluster)?;
        for harm in std::mem::take(&mut self.harmed) {
            if let Some(state) = self.next(&harm, cluster, journal)? {
                self.harmed.push(Harm { target: harm.target, state });
            }
        }
        Ok(())
    }

    /// Processes that nothing harms still run.
    fn check_ended(&self, cluster: &mut Cluster) -> anyhow::Result<()> {
        let masters = (0..cluster.masters.len()).map(Target::Master);
        let targets: Vec<Target> = masters.chain((0..cluster.servers.len()).map(Target::Server)).collect();
        for target in targets.into_iter().filter(|target| !self.is_harmed(*target)) {
            let role = target.role(cluster);
            ensure!(!role.has_ended(), "{target} ended by itself: {}", role.messages());
        }
        Ok(())
    }

    /// The next state of a process; `None` when it serves.
    fn next(&self, harm: &Harm, cluster: &mut Cluster, journal: &mut Journal) -> anyhow::Result<Option<State>> {
        let (target, now) = (harm.target, Instant::now());
        let role = target.role(cluster);
        let is_due = |until: Instant| self.hastened || now >= until;
        Ok(match harm.state {
            State::Stopped(until) if is_due(until) => {
                role.signal("CONT")?;
                journal.tell(&format!("SIGCONT {target}"));
                None
            }
            State::Stopped(until) => Some(State::Stopped(until)),
            State::Ending(since, away) => {
                if role.has_ended() {
                    journal.tell(&format!("{target} ended after {:.1} s", since.elapsed().as_secs_f64()));
                    role.kill();
                    Some(State::Away(now + away))
                } else {
                    ensure!(since.elapsed() < END_MAX, "{target} does not end after SIGTERM: {}", role.messages());
                    Some(State::Ending(since, away))
                }
            }
            State::Away(until) if is_due(until) => {
                journal.tell(&format!("start {target}"));
                role.spawn()?;
                Some(State::Starting(now))
            }
            State::Away(until) => Some(State::Away(until)),
            State::Starting(since) => match role.process.as_mut().and_then(Process::serves) {
                Some(true) => {
                    journal.tell(&format!("{target} serves after {:.1} s", since.elapsed().as_secs_f64()));
                    None
                }
                None if since.elapsed() < READY_MAX => Some(State::Starting(since)),
                _ => bail!("{target} does not serve after its start: {}", role.messages()),
            },
        })
    }
}
