//! Which servers are alive, judged by their reports. Without I/O or a clock of its own; nothing survives a restart.
//!
//! Liveness never enters the log: it changes by the second. Servers report to every master, so each observes it itself,
//! and a new leader knows it at once; a restarted master learns it from the first reports, within a second. Safety does not depend on it: groups elect leaders without the
//! master, and the planner merely prefers live servers.

use std::collections::BTreeMap;
use std::time::Duration;

use terrane_types::ServerId;

/// A clock that is off by more than this is a health issue.
pub const CLOCK_OFF_MAX: Duration = Duration::from_millis(500);

/// The state of a server.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum ServerState {
    /// It has reported recently.
    Live,
    /// It has not reported for some time, or not since this master started.
    Silent,
    /// It has announced its stop.
    Stopped,
}

impl ServerState {
    /// Its name in output; scripts rely on it.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Live => "live",
            Self::Silent => "silent",
            Self::Stopped => "stopped",
        }
    }
}

/// A time on the master's monotonic clock, in milliseconds.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Moment(pub u64);

impl Moment {
    /// The time since `earlier`.
    pub const fn since(self, earlier: Self) -> Duration {
        Duration::from_millis(self.0.saturating_sub(earlier.0))
    }
}

/// The process was replaced by a newer process of the same server.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Replaced {
    /// The boot number of the newer process.
    pub by_boot: u64,
}

#[derive(Clone, Copy, Debug)]
struct Seen {
    boot: u64,
    at: Moment,
    /// When it became live the last time.
    live_since: Moment,
    /// When it last lost a leadership in this boot.
    deposed_at: Option<Moment>,
    state: ServerState,
    /// It was called because its report is late, and did not answer.
    unreachable: bool,
    clock_off_ms: i64,
}

/// The servers that have reported.
#[derive(Debug)]
pub struct Liveness {
    silent_after: Duration,
    started: Moment,
    seen: BTreeMap<ServerId, Seen>,
}

impl Liveness {
    /// No server has reported yet.
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
        let before = known.map_or(ServerState::Silent, |known| known.state);
        let stays = known.filter(|known| before == ServerState::Live && known.boot == boot);
        let live_since = stays.map_or(now, |known| known.live_since);
        let deposed_at = known.filter(|known| known.boot == boot).and_then(|known| known.deposed_at);
        self.seen.insert(
            server,
            Seen { boot, at: now, live_since, deposed_at, state: ServerState::Live, unreachable: false, clock_off_ms },
        );
        Ok((before != ServerState::Live).then_some(before))
    }

    /// This master begins to lead: all servers get the time to report to it. Before, their reports may have reached others only.
    pub fn lead(&mut self, now: Moment) {
        self.started = now;
        for seen in self.seen.values_mut().filter(|seen| seen.state != ServerState::Stopped) {
            seen.at = seen.at.max(now);
        }
    }

    /// Records by how much a server's clock is ahead of the master's.
    pub fn clock(&mut self, server: ServerId, off_ms: i64) {
        if let Some(seen) = self.seen.get_mut(&server) {
            seen.clock_off_ms = off_ms;
        }
    }

    /// A server has announced its stop.
    pub fn stopped(&mut self, server: ServerId) {
        if let Some(seen) = self.seen.get_mut(&server) {
            seen.state = ServerState::Stopped;
        }
    }

    /// Another server has a server's address now: nothing more will come from it. Returns whether it was live.
    pub fn displaced(&mut self, server: ServerId) -> bool {
        let seen = self.seen.get_mut(&server).filter(|seen| seen.state == ServerState::Live);
        seen.map(|seen| seen.state = ServerState::Silent).is_some()
    }

    /// The live servers without a report for this long.
    pub fn quiet(&self, now: Moment, longer_than: Duration) -> Vec<ServerId> {
        let is_quiet = |seen: &Seen| seen.state == ServerState::Live && now.since(seen.at) > longer_than;
        self.seen.iter().filter(|(_, seen)| is_quiet(seen)).map(|(server, _)| *server).collect()
    }

    /// A server whose report is late does not answer either. What it reports from now on makes it live again.
    pub fn unreachable(&mut self, server: ServerId, now: Moment, longer_than: Duration) {
        let still_quiet = |seen: &&mut Seen| seen.state == ServerState::Live && now.since(seen.at) > longer_than;
        if let Some(seen) = self.seen.get_mut(&server).filter(still_quiet) {
            seen.state = ServerState::Silent;
            seen.unreachable = true;
        }
    }

    /// Marks servers silent whose reports are overdue; returns each of them once.
    pub fn tick(&mut self, now: Moment) -> Vec<ServerId> {
        let overdue = |seen: &Seen| seen.state == ServerState::Live && now.since(seen.at) > self.silent_after;
        let mut silent = Vec::new();
        for (server, seen) in self.seen.iter_mut().filter(|(_, seen)| overdue(seen)) {
            seen.state = ServerState::Silent;
            silent.push(*server);
        }
        silent
    }

    /// The state of a server.
    pub fn state(&self, server: ServerId) -> ServerState {
        self.seen.get(&server).map_or(ServerState::Silent, |seen| seen.state)
    }

    /// Whether it is live.
    pub fn is_live(&self, server: ServerId) -> bool {
        self.state(server) == ServerState::Live
    }

    /// For how long it has been live; `None` if it is not.
    pub fn live_for(&self, server: ServerId, now: Moment) -> Option<Duration> {
        let seen = self.seen.get(&server).filter(|seen| seen.state == ServerState::Live)?;
        Some(now.since(seen.live_since))
    }

    /// A server has lost the leadership of a group, or given it up: because it stops, or its clock or disk is wrong.
    pub fn deposed(&mut self, server: ServerId, now: Moment) {
        if let Some(seen) = self.seen.get_mut(&server) {
            seen.deposed_at = Some(now);
        }
    }

    /// For how long a server has lost no leadership in its present boot; `None` if it never has.
    pub fn undeposed_for(&self, server: ServerId, now: Moment) -> Option<Duration> {
        self.seen.get(&server)?.deposed_at.map(|at| now.since(at))
    }

    /// Its present boot number; 0 if it has not reported.
    pub fn boot(&self, server: ServerId) -> u64 {
        self.seen.get(&server).map_or(0, |seen| seen.boot)
    }

    /// The time since its last report, or since this master started or began to lead, if that was later.
    pub fn quiet_for(&self, server: ServerId, now: Moment) -> Duration {
        now.since(self.seen.get(&server).map_or(self.started, |seen| seen.at))
    }

    /// Whether a silent server is a health issue: not right after the master's start, before servers could report.
    pub fn is_missed(&self, server: ServerId, now: Moment) -> bool {
        let unreachable = self.seen.get(&server).is_some_and(|seen| seen.unreachable);
        self.state(server) == ServerState::Silent && (unreachable || self.quiet_for(server, now) > self.silent_after)
    }

    /// By how much its clock is off, if that is a health issue.
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
            "lead" => liveness.lead(at()),
            "stopped" => liveness.stopped(server()),
            "quiet" => {
                let quiet = liveness.quiet(at(), Duration::from_millis(number(line.words[1])));
                writeln!(out, "quiet: {quiet:?}").unwrap();
            }
            "unreachable" => liveness.unreachable(server(), at(), Duration::from_millis(600)),
            "displaced" => writeln!(out, "was live: {}", liveness.displaced(server())).unwrap(),
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
