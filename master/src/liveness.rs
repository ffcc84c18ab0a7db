//! Which servers are alive, as their reports tell it. No I/O, no clock of its own, nothing kept over a restart.
//!
//! Liveness never enters the log: it changes by the second, every master sees it for itself, and a master that starts
//! knows nobody until the first reports come, within a second. Nothing unsafe hangs on it: a group elects its leader
//! without the master, and the planner only prefers servers that answer.

use std::collections::BTreeMap;
use std::time::Duration;

use terrane_types::ServerId;

/// A clock further off than this is a trouble worth telling.
pub const CLOCK_OFF_MAX: Duration = Duration::from_millis(500);

/// What a server is to the rest of the cluster.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum ServerState {
    /// It reported lately.
    Live,
    /// It has not reported for a while, or not since this master started.
    Silent,
    /// It said that it stops.
    Stopped,
}

impl ServerState {
    /// As people and scripts read it.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Live => "live",
            Self::Silent => "silent",
            Self::Stopped => "stopped",
        }
    }
}

/// A moment on the master's own clock that never goes back, in milliseconds.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Moment(pub u64);

impl Moment {
    /// The time that passed since `earlier`.
    pub const fn since(self, earlier: Self) -> Duration {
        Duration::from_millis(self.0.saturating_sub(earlier.0))
    }
}

/// A report from a process that another start of the same server has replaced.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Replaced {
    /// The boot number of the newer process.
    pub by_boot: u64,
}

#[derive(Clone, Copy, Debug)]
struct Seen {
    boot: u64,
    at: Moment,
    state: ServerState,
    clock_off_ms: i64,
}

/// The servers that were heard of.
#[derive(Debug)]
pub struct Liveness {
    silent_after: Duration,
    started: Moment,
    seen: BTreeMap<ServerId, Seen>,
}

impl Liveness {
    /// Nobody was heard of yet.
    pub const fn new(silent_after: Duration, started: Moment) -> Self {
        Self { silent_after, started, seen: BTreeMap::new() }
    }

    /// Refuses a process that another start of the same server has replaced.
    pub fn check_boot(&self, server: ServerId, boot: u64) -> Result<(), Replaced> {
        match self.seen.get(&server) {
            Some(known) if known.boot > boot => Err(Replaced { by_boot: known.boot }),
            Some(_) | None => Ok(()),
        }
    }

    /// A server registered or reported. Returns its former state if it was not live.
    pub fn heard(&mut self, server: ServerId, boot: u64, now: Moment) -> Result<Option<ServerState>, Replaced> {
        self.check_boot(server, boot)?;
        let known = self.seen.get(&server).copied();
        let clock_off_ms = known.map_or(0, |known| known.clock_off_ms);
        self.seen.insert(server, Seen { boot, at: now, state: ServerState::Live, clock_off_ms });
        let before = known.map_or(ServerState::Silent, |known| known.state);
        Ok((before != ServerState::Live).then_some(before))
    }

    /// Notes by how much a server's clock is ahead of the master's.
    pub fn clock(&mut self, server: ServerId, off_ms: i64) {
        if let Some(seen) = self.seen.get_mut(&server) {
            seen.clock_off_ms = off_ms;
        }
    }

    /// A server said that it stops.
    pub fn stopped(&mut self, server: ServerId) {
        if let Some(seen) = self.seen.get_mut(&server) {
            seen.state = ServerState::Stopped;
        }
    }

    /// Time passed; answers the servers that fell silent by it, each once.
    pub fn tick(&mut self, now: Moment) -> Vec<ServerId> {
        let overdue = |seen: &Seen| seen.state == ServerState::Live && now.since(seen.at) > self.silent_after;
        let mut fallen = Vec::new();
        for (server, seen) in self.seen.iter_mut().filter(|(_, seen)| overdue(seen)) {
            seen.state = ServerState::Silent;
            fallen.push(*server);
        }
        fallen
    }

    /// The state of a server.
    pub fn state(&self, server: ServerId) -> ServerState {
        self.seen.get(&server).map_or(ServerState::Silent, |seen| seen.state)
    }

    /// Whether it reported lately.
    pub fn is_live(&self, server: ServerId) -> bool {
        self.state(server) == ServerState::Live
    }

    /// The number of its present start; 0 when it was not heard of.
    pub fn boot(&self, server: ServerId) -> u64 {
        self.seen.get(&server).map_or(0, |seen| seen.boot)
    }

    /// How long it has said nothing; since the master's start for one that was not heard of.
    pub fn quiet_for(&self, server: ServerId, now: Moment) -> Duration {
        now.since(self.seen.get(&server).map_or(self.started, |seen| seen.at))
    }

    /// Whether a silent server is worth a word: not in the first moments of a master, when nobody has reported yet.
    pub fn is_missed(&self, server: ServerId, now: Moment) -> bool {
        self.state(server) == ServerState::Silent && self.quiet_for(server, now) > self.silent_after
    }

    /// By how much its clock is off, when that is a trouble.
    pub fn clock_issue(&self, server: ServerId) -> Option<i64> {
        let off_ms = self.seen.get(&server)?.clock_off_ms;
        (u128::from(off_ms.unsigned_abs()) > CLOCK_OFF_MAX.as_millis()).then_some(off_ms)
    }
}

#[cfg(test)]
mod tests {
    use std::fmt::Write as _;

    use super::*;
    use crate::catalog::scripts::{Line, number};

    #[test]
    fn states_of_servers() {
        terrane_testscript::check_scripts(concat!(env!("CARGO_MANIFEST_DIR"), "/src/liveness/testdata"), || {
            let mut liveness = Liveness::new(Duration::from_secs(3), Moment(0));
            move |text, out| command(&mut liveness, &Line::of(text), out)
        });
    }

    fn command(liveness: &mut Liveness, line: &Line<'_>, out: &mut String) {
        let server = || ServerId(line.number(1));
        let at = || Moment(number(line.argument("at").expect("at=MS")));
        match line.words[0] {
            "heard" => match liveness.heard(server(), number(line.argument("boot").expect("boot=NUMBER")), at()) {
                Ok(Some(before)) => writeln!(out, "live, was {}", before.name()).unwrap(),
                Ok(None) => {}
                Err(Replaced { by_boot }) => writeln!(out, "replaced by boot {by_boot}").unwrap(),
            },
            "clock" => liveness.clock(server(), line.words[2].parse().unwrap()),
            "stopped" => liveness.stopped(server()),
            "tick" => {
                let silent: Vec<_> = liveness.tick(Moment(line.number(1))).iter().map(ToString::to_string).collect();
                writeln!(out, "silent: {}", if silent.is_empty() { "none".into() } else { silent.join(" ") }).unwrap();
            }
            "show" => {
                let (server, now) = (server(), at());
                let (state, boot, missed) =
                    (liveness.state(server).name(), liveness.boot(server), liveness.is_missed(server, now));
                let (quiet, clock) = (liveness.quiet_for(server, now).as_millis(), liveness.clock_issue(server));
                let clock = clock.map_or_else(String::new, |off| format!(" clock {off} ms off"));
                writeln!(out, "s{server} {state} boot={boot} quiet={quiet} missed={missed}{clock}").unwrap();
            }
            other => panic!("no such command: {other}"),
        }
    }
}
