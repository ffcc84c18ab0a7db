//! Which servers are alive, judged by their reports and by whether they can be called. Without I/O or a clock of its own; nothing
//! survives a restart.
//!
//! Liveness never enters the log: it changes by the second. Servers report to every master, so each observes it itself,
//! and a new leader knows it at once; a restarted master learns it from the first reports, within a second. Safety does not depend on it: groups elect leaders without the
//! master, and the planner merely prefers live servers.
//!
//! A process counts as live when it reports, which it does when it serves, and when the server itself has answered at the address
//! that it advertises (`crate::servers::callbacks`). A registration alone changes nothing, so a server that fails at every start stays away
//! as long as if it had not been started. A server that reports and cannot be called is unreachable: its peers and clients cannot
//! call it either.

use std::collections::BTreeMap;
use std::time::Duration;

use terrane_types::ServerId;
use terrane_types::states::ServerState;

/// A clock that is off by more than this is a health issue.
pub const CLOCK_OFF_MAX: Duration = Duration::from_millis(500);
/// How long calls to a live server may fail while it reports. A link may be down for a moment.
const FAILING_MAX: Duration = Duration::from_secs(3);
/// When a server that did not answer is called again.
const CALL_AGAIN_AFTER: Duration = Duration::from_millis(500);

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

/// Why a server that was called did not answer itself.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NoAnswer {
    /// As a sentence without a full stop.
    pub why: String,
    /// Another process answered at its address. What the server answered before does not count any more: a report of it may
    /// have been under way for long.
    pub by_another: bool,
}

/// Whether the address of a process leads to it.
#[derive(Clone, Debug, Default)]
struct Calls {
    /// It has answered in this boot.
    has_answered: bool,
    /// An order to it has failed, so that it is called again.
    is_suspect: bool,
    /// Since when it does not answer, and why.
    failing: Option<(Moment, String)>,
    /// When it was called last.
    last: Option<Moment>,
}

#[derive(Clone, Debug)]
struct Seen {
    boot: u64,
    /// This process has reported, and has not announced its stop.
    has_reported: bool,
    /// The last report.
    at: Moment,
    /// The last report while it was live: the time from which its replicas are waited for.
    live_at: Moment,
    /// When it became live the last time.
    live_since: Moment,
    /// When it last lost a leadership in this boot.
    deposed_at: Option<Moment>,
    state: ServerState,
    calls: Calls,
    /// It was called because its report is late, and did not answer.
    unanswered: bool,
    clock_off_ms: i64,
}

impl Seen {
    const fn new(boot: u64, at: Moment) -> Self {
        let calls = Calls { has_answered: false, is_suspect: false, failing: None, last: None };
        Self {
            boot,
            has_reported: false,
            at,
            live_at: at,
            live_since: at,
            deposed_at: None,
            state: ServerState::Silent,
            calls,
            unanswered: false,
            clock_off_ms: 0,
        }
    }

    /// Another process speaks for the server from now on. Nothing is known of its address yet.
    fn begin(&mut self, boot: u64) {
        if self.boot != boot {
            (self.boot, self.calls, self.deposed_at) = (boot, Calls::default(), None);
            self.has_reported = false;
            if self.state != ServerState::Stopped {
                // The former process has ended. This one is live when it serves and has answered.
                self.state = ServerState::Silent;
            }
        }
    }

    /// Whether its reports are not overdue, and it has not announced its stop.
    fn reports(&self, now: Moment, silent_after: Duration) -> bool {
        self.has_reported && now.since(self.at) <= silent_after
    }

    /// Whether calls to it have failed for so long, or since it was started, that it should not be counted on.
    fn is_unreachable(&self, now: Moment) -> bool {
        let patience = if self.calls.has_answered { FAILING_MAX } else { Duration::ZERO };
        self.calls.failing.as_ref().is_some_and(|(since, _)| now.since(*since) >= patience)
    }

    /// It has reported or was called. Returns its former state if it has become live.
    fn judge(&mut self, now: Moment) -> Option<ServerState> {
        let before = self.state;
        if self.is_unreachable(now) {
            self.state = ServerState::Unreachable;
        } else if self.calls.has_answered {
            self.state = ServerState::Live;
        }
        if self.state != ServerState::Live {
            return None;
        }
        self.live_at = self.at;
        (before != ServerState::Live).then(|| {
            self.live_since = now;
            before
        })
    }
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

    /// A server is starting. That says nothing of whether it will serve: its state and the time for which it has been away stay
    /// as they are. `is_new`: it has just joined, so that it is waited for from now on.
    pub fn registered(&mut self, server: ServerId, boot: u64, is_new: bool, now: Moment) -> Result<(), Replaced> {
        self.check_boot(server, boot)?;
        let first = if is_new { now } else { self.started };
        let seen = self.seen.entry(server).or_insert_with(|| Seen::new(boot, first));
        seen.begin(boot);
        if terrane_env::planted!("a start counts as being back") {
            seen.live_at = now;
        }
        Ok(())
    }

    /// A server has reported. Returns its former state if that has made it live.
    pub fn heard(&mut self, server: ServerId, boot: u64, now: Moment) -> Result<Option<ServerState>, Replaced> {
        self.check_boot(server, boot)?;
        let started = self.started;
        let seen = self.seen.entry(server).or_insert_with(|| Seen { live_at: started, ..Seen::new(boot, now) });
        seen.begin(boot);
        (seen.has_reported, seen.at, seen.unanswered) = (true, now, false);
        if terrane_env::planted!("a server is live without being called back") {
            seen.calls.has_answered = true;
        }
        Ok(seen.judge(now))
    }

    /// The servers to call now, with the boot numbers that are expected to answer: those that report and have not answered since
    /// they were started, or to which an order has failed.
    pub fn due(&self, now: Moment) -> Vec<(ServerId, u64)> {
        let is_due = |seen: &Seen| {
            let calls = &seen.calls;
            let wanted = !calls.has_answered || calls.is_suspect || calls.failing.is_some();
            wanted
                && seen.reports(now, self.silent_after)
                && calls.last.is_none_or(|last| now.since(last) >= CALL_AGAIN_AFTER)
        };
        self.seen.iter().filter(|(_, seen)| is_due(seen)).map(|(server, seen)| (*server, seen.boot)).collect()
    }

    /// An order to a server has failed: it is called, to see whether it can be reached at all.
    pub fn suspect(&mut self, server: ServerId) {
        if let Some(seen) = self.seen.get_mut(&server) {
            seen.calls.is_suspect = true;
        }
    }

    /// A server was called in this boot: it answered itself, or why not. Returns its former state if that has made it live.
    pub fn called(
        &mut self,
        server: ServerId,
        boot: u64,
        answer: Result<(), NoAnswer>,
        now: Moment,
    ) -> Option<ServerState> {
        let silent_after = self.silent_after;
        let seen = self.seen.get_mut(&server).filter(|seen| seen.boot == boot)?;
        seen.calls.last = Some(now);
        seen.calls.is_suspect = false;
        match answer {
            Ok(()) => (seen.calls.has_answered, seen.calls.failing) = (true, None),
            Err(NoAnswer { why, by_another }) => {
                seen.calls.has_answered &= !by_another;
                let since = seen.calls.failing.as_ref().map_or(now, |(since, _)| *since);
                seen.calls.failing = Some((since, why));
            }
        }
        if seen.reports(now, silent_after) { seen.judge(now) } else { None }
    }

    /// Why a server that reports cannot be reached.
    pub fn unreachable_because(&self, server: ServerId) -> Option<&str> {
        let seen = self.seen.get(&server).filter(|seen| seen.state == ServerState::Unreachable)?;
        seen.calls.failing.as_ref().map(|(_, why)| why.as_str())
    }

    /// This master begins to lead: all servers get the time to report to it. Before, their reports may have reached others only.
    pub fn lead(&mut self, now: Moment) {
        self.started = now;
        for seen in self.seen.values_mut().filter(|seen| seen.state != ServerState::Stopped) {
            (seen.at, seen.live_at) = (seen.at.max(now), seen.live_at.max(now));
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
            (seen.state, seen.has_reported) = (ServerState::Stopped, false);
        }
    }

    /// Another server has a server's address now: nothing more will come from it. Returns whether it was live.
    pub fn displaced(&mut self, server: ServerId) -> bool {
        let Some(seen) = self.seen.get_mut(&server) else { return false };
        // If it reports again, it has to answer at its address before it counts.
        seen.calls = Calls::default();
        let was_live = seen.state == ServerState::Live;
        if was_live {
            seen.state = ServerState::Silent;
        }
        was_live
    }

    /// A server was removed from the cluster.
    pub fn forget(&mut self, server: ServerId) {
        self.seen.remove(&server);
    }

    /// The live servers without a report for this long.
    pub fn quiet(&self, now: Moment, longer_than: Duration) -> Vec<ServerId> {
        let is_quiet = |seen: &Seen| seen.state == ServerState::Live && now.since(seen.at) > longer_than;
        self.seen.iter().filter(|(_, seen)| is_quiet(seen)).map(|(server, _)| *server).collect()
    }

    /// A server whose report is late does not answer either. What it reports from now on makes it live again.
    pub fn unanswered(&mut self, server: ServerId, now: Moment, longer_than: Duration) {
        let still_quiet = |seen: &&mut Seen| seen.state == ServerState::Live && now.since(seen.at) > longer_than;
        if let Some(seen) = self.seen.get_mut(&server).filter(still_quiet) {
            seen.state = ServerState::Silent;
            seen.unanswered = true;
        }
    }

    /// Marks servers silent whose reports are overdue; returns each of them once.
    pub fn tick(&mut self, now: Moment) -> Vec<ServerId> {
        let is_heard = |state| matches!(state, ServerState::Live | ServerState::Unreachable);
        let overdue = |seen: &Seen| is_heard(seen.state) && now.since(seen.at) > self.silent_after;
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

    /// The time since it was last live, or since this master started or began to lead, if that was later. Neither a start nor a
    /// report of a server that cannot be reached shortens it.
    pub fn away_for(&self, server: ServerId, now: Moment) -> Duration {
        now.since(self.seen.get(&server).map_or(self.started, |seen| seen.live_at))
    }

    /// Whether a silent server is a health issue: not right after the master's start, before servers could report.
    pub fn is_missed(&self, server: ServerId, now: Moment) -> bool {
        let unanswered = self.seen.get(&server).is_some_and(|seen| seen.unanswered);
        self.state(server) == ServerState::Silent && (unanswered || self.quiet_for(server, now) > self.silent_after)
    }

    /// By how much its clock is off, if that is a health issue.
    pub fn clock_issue(&self, server: ServerId) -> Option<i64> {
        let off_ms = self.seen.get(&server)?.clock_off_ms;
        (u128::from(off_ms.unsigned_abs()) > CLOCK_OFF_MAX.as_millis()).then_some(off_ms)
    }
}

#[cfg(test)]
impl Liveness {
    /// A server has reported, and answers at its address.
    pub fn live(&mut self, server: ServerId, boot: u64, now: Moment) -> Result<Option<ServerState>, Replaced> {
        let known = self.heard(server, boot, now)?;
        Ok(known.or_else(|| self.called(server, boot, Ok(()), now)))
    }
}

#[cfg(test)]
mod tests {
    use std::fmt::Write as _;

    use super::*;
    use crate::catalog::scripts::{Line, number};

    #[test]
    fn states_of_servers() {
        terrane_testscript::check_scripts(
            concat!(env!("CARGO_MANIFEST_DIR"), "/src/servers/liveness/testdata"),
            || {
                let mut liveness = Liveness::new(Duration::from_secs(3), Moment(0));
                move |text, out| command(&mut liveness, &Line::of(text), out)
            },
        );
    }

    fn command(liveness: &mut Liveness, line: &Line<'_>, out: &mut String) {
        let server = || ServerId(line.number(1));
        let at = || Moment(number(line.argument("at").expect("at=MS")));
        match line.words[0] {
            "heard" => match liveness.live(server(), number(line.argument("boot").expect("boot=NUMBER")), at()) {
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
            "registered" => {
                let boot = number(line.argument("boot").expect("boot=NUMBER"));
                liveness.registered(server(), boot, line.words.contains(&"new"), at()).unwrap();
            }
            "reported" => {
                let boot = number(line.argument("boot").expect("boot=NUMBER"));
                if let Some(before) = liveness.heard(server(), boot, at()).unwrap() {
                    writeln!(out, "live, was {}", before.name()).unwrap();
                }
            }
            "answered" | "failed" | "another" => {
                let by_another = line.words[0] == "another";
                let no_answer = || NoAnswer { why: "nothing answers".to_owned(), by_another };
                let answer = if line.words[0] == "answered" { Ok(()) } else { Err(no_answer()) };
                if let Some(before) = liveness.called(server(), liveness.boot(server()), answer, at()) {
                    writeln!(out, "live, was {}", before.name()).unwrap();
                }
            }
            "suspect" => liveness.suspect(server()),
            "due" => writeln!(out, "due: {:?}", liveness.due(at())).unwrap(),
            "unanswered" => liveness.unanswered(server(), at(), Duration::from_millis(600)),
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
                let away = liveness.away_for(server, now).as_millis();
                let away = if away == quiet { String::new() } else { format!(" away={away}") };
                let why = liveness.unreachable_because(server).map_or_else(String::new, |why| format!(": {why}"));
                writeln!(out, "s{server} {state} boot={boot} quiet={quiet}{away} missed={missed}{clock}{why}").unwrap();
            }
            other => panic!("no such command: {other}"),
        }
    }
}
