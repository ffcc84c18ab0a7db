//! What this server knows about its peers' clocks, and what follows for its own clock.
//!
//! Servers read each other's wall clocks over the peer links: with each hello, and periodically from then on (`probe.rs`). A
//! reading is an interval, not a number: the peer read its clock at some moment between question and answer. It is stored
//! relative to a local clock that cannot be set ([`elapsed_ms`]), so a jump of this server's wall clock does not change what
//! is known about the others, and what was known about an absent peer stays known. An interval widens as it ages
//! ([`DRIFT_PER`]).
//!
//! The time of a group is the **median** of its members' clocks: no minority of wrong clocks moves it beyond the right
//! ones. For each group, the readings give:
//! - [`Clocks::bounds`]: the lowest and highest time that this server's clock may give. Stamps are taken within these
//!   bounds, and reads expire cells by the same time, so no single clock makes cells expire.
//! - [`Clocks::floor_ms`]: a time that the median has certainly reached. Promises of followers are measured by it.
//! - [`Clocks::off_ms`]: how far this server's clock is certainly off the median. A server whose clock is off by more than
//!   [`CLOCK_OFF_MAX_MS`] leads nothing (`abstain.rs`).
//!
//! A group of one has no other clock to compare with. Its server compares the clock with its own past ([`SteadyClock`]). It
//! follows a jump forward only where most of the servers that it reaches show the same time, or once it is restarted.

use std::collections::BTreeMap;
use std::sync::Arc;

use parking_lot::Mutex;
use terrane_env::time::WallClock;
use terrane_types::ServerId;

/// A server whose clock is further off the median leads nothing.
pub const CLOCK_OFF_MAX_MS: i64 = 500;

/// A server that leads nothing because of its clock may lead again once it is no further off than this: a clock at the limit
/// must not move leaderships back and forth.
const CLOCK_BACK_MS: i64 = 400;

/// A peer whose last reading is older than this, twenty times the interval of readings, is absent.
const LATELY_MS: i64 = 10_000;

/// Clocks of two machines drift apart by less than one millisecond in this many.
const DRIFT_PER: i64 = 2_000;

/// Milliseconds on a local clock that cannot be set.
pub(crate) fn elapsed_ms() -> i64 {
    i64::try_from(terrane_env::time::elapsed_ns() / 1_000_000).unwrap_or(i64::MAX)
}

/// How far a wall clock is ahead of the local [`elapsed_ms`]: between `low` and `high`, as of `at`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct ClockOffset {
    low: i64,
    high: i64,
    at: i64,
}

impl ClockOffset {
    /// The peer's clock showed `told` at some moment from `asked` to `answered`.
    fn reading(asked: i64, answered: i64, told: u64) -> ClockOffset {
        let told = i64::try_from(told).unwrap_or(i64::MAX);
        // All three are whole milliseconds of finer clocks.
        ClockOffset {
            low: told.saturating_sub(answered + 1),
            high: told.saturating_add(1).saturating_sub(asked),
            at: answered,
        }
    }

    fn drifted(self, now: i64) -> ClockOffset {
        let drift = (now - self.at).max(0) / DRIFT_PER;
        ClockOffset { low: self.low.saturating_sub(drift), high: self.high.saturating_add(drift), at: now }
    }

    /// What is known when `newer` is read after `self`: both hold, unless the clock was set in between.
    fn refined(self, newer: ClockOffset) -> ClockOffset {
        let older = self.drifted(newer.at + DRIFT_PER - 1);
        let (low, high) = (older.low.max(newer.low), older.high.min(newer.high));
        if low <= high { ClockOffset { low, high, at: newer.at } } else { newer }
    }
}

/// What is known about a peer.
#[derive(Clone, Copy, Debug, Default)]
struct Peer {
    clock: Option<ClockOffset>,
    /// It has a reason not to lead.
    abstains: bool,
}

/// The clocks of this server and its peers.
pub(crate) struct Clocks {
    wall: WallClock,
    own: ServerId,
    peers: Mutex<BTreeMap<ServerId, Peer>>,
    steady: Mutex<SteadyClock>,
}

impl Clocks {
    pub(crate) fn new(own: ServerId, wall: WallClock) -> Arc<Clocks> {
        let steady = Mutex::new(SteadyClock::new(ahead_now(&wall)));
        Arc::new(Clocks { wall, own, peers: Mutex::default(), steady })
    }

    /// This server's wall clock.
    pub(crate) fn wall_ms(&self) -> u64 {
        self.wall.ms()
    }

    /// Records that a peer, asked at `asked`, answered that its clock shows `told`.
    pub(crate) fn note(&self, server: ServerId, asked: i64, told: u64) {
        let reading = ClockOffset::reading(asked, elapsed_ms(), told);
        let mut peers = self.peers.lock();
        let peer = peers.entry(server).or_default();
        peer.clock = Some(peer.clock.map_or(reading, |known| known.refined(reading)));
    }

    /// Records whether a peer has a reason not to lead.
    pub(crate) fn note_abstains(&self, server: ServerId, abstains: bool) {
        self.peers.lock().entry(server).or_default().abstains = abstains;
    }

    /// Whether a peer is willing to lead: its clock is not known to be off the median of `members`, and it has announced no
    /// other reason.
    pub(crate) fn is_willing(&self, server: ServerId, members: &[ServerId]) -> bool {
        if self.peers.lock().get(&server).is_some_and(|peer| peer.abstains) {
            return false;
        }
        let now = elapsed_ms();
        let known = self.known_recently(members, now);
        let at = members.iter().position(|member| *member == server);
        let clock = at.and_then(|at| known.get(at).copied().flatten());
        clock.is_none_or(|clock| off(clock, &known).is_none_or(|off| off.abs() <= CLOCK_OFF_MAX_MS))
    }

    /// What is known about the members' clocks.
    fn known(&self, members: &[ServerId], now: i64) -> Vec<Option<ClockOffset>> {
        let own = ahead_now(&self.wall);
        let peers = self.peers.lock();
        let known = |server: &ServerId| match *server == self.own {
            true => Some(ClockOffset { low: own, high: own, at: now }),
            false => peers.get(server).and_then(|peer| peer.clock).map(|clock| clock.drifted(now)),
        };
        members.iter().map(known).collect()
    }

    /// Like [`Clocks::known`], without the readings of absent peers: the clock of an absent member must not decide which
    /// member may lead, or two live members whose clocks differ would both wait for a third that is lost.
    fn known_recently(&self, members: &[ServerId], now: i64) -> Vec<Option<ClockOffset>> {
        let peers = self.peers.lock();
        let is_late = |server: &ServerId| {
            let clock = peers.get(server).and_then(|peer| peer.clock);
            *server != self.own && clock.is_none_or(|clock| now - clock.at > LATELY_MS)
        };
        let late: Vec<bool> = members.iter().map(is_late).collect();
        drop(peers);
        let known = self.known(members, now);
        known.into_iter().zip(late).map(|(clock, is_late)| clock.filter(|_| !is_late)).collect()
    }

    /// The bounds of the time of a group of `members`. `None` while too few of their clocks are known.
    pub(crate) fn bounds(&self, members: &[ServerId]) -> Option<TimeBounds> {
        if members.iter().all(|member| *member == self.own) {
            let high = self.estimated_offset(ahead_now(&self.wall));
            return Some(TimeBounds { low: i64::MIN, high });
        }
        let known = self.known(members, elapsed_ms());
        let high = ceiling(&known)?;
        let low = median(&known).0.map_or(i64::MIN, |median| median.saturating_sub(CLOCK_OFF_MAX_MS));
        Some(TimeBounds { low: low.min(high), high })
    }

    /// This server's wall clock, clamped to `bounds`.
    pub(crate) fn within(&self, bounds: TimeBounds) -> u64 {
        if terrane_env::planted!("a stamp follows one clock") {
            return self.wall_ms();
        }
        let now = elapsed_ms();
        self.wall_ms().clamp(time(bounds.low, now), time(bounds.high, now))
    }

    /// A time that both the median of the members' clocks and this server's clock have reached. 0 while too few are known.
    pub(crate) fn floor_ms(&self, members: &[ServerId]) -> u64 {
        let now = elapsed_ms();
        let floor = median(&self.known(members, now)).0;
        floor.map_or(0, |floor| time(floor, now).min(self.wall_ms()))
    }

    /// How far this server's clock is ahead of the median of the members' clocks, if that is certainly too far. `was_off`: it
    /// was too far at the last check.
    pub(crate) fn off_ms(&self, members: &[ServerId], was_off: bool) -> Option<i64> {
        let limit = if was_off { CLOCK_BACK_MS } else { CLOCK_OFF_MAX_MS };
        self.error_ms(members).filter(|off| off.abs() > limit)
    }

    /// How far this server's clock is ahead of the median of the members' clocks, as far as that is certain.
    pub(crate) fn error_ms(&self, members: &[ServerId]) -> Option<i64> {
        let (own, now) = (ahead_now(&self.wall), elapsed_ms());
        off(ClockOffset { low: own, high: own, at: now }, &self.known_recently(members, now))
    }

    /// How far this server's clock was set while the process ran, for servers without other clocks to compare with.
    pub(crate) fn jumped_ms(&self) -> Option<i64> {
        let own = ahead_now(&self.wall);
        self.estimated_offset(own);
        Some(own - self.steady.lock().ahead).filter(|jump| jump.abs() > CLOCK_OFF_MAX_MS)
    }

    /// The believed distance of this server's clock, for a group that has no other.
    fn estimated_offset(&self, own: i64) -> i64 {
        let is_confirmed = self.is_confirmed(own);
        let mut steady = self.steady.lock();
        if is_confirmed {
            steady.ahead = own;
        }
        steady.look(own)
    }

    /// Whether most of this server and the peers that it reaches show this server's time, and not this server alone.
    fn is_confirmed(&self, own: i64) -> bool {
        let now = elapsed_ms();
        let peers: Vec<ServerId> = self.peers.lock().keys().copied().filter(|peer| *peer != self.own).collect();
        let known: Vec<_> = self.known_recently(&peers, now).into_iter().flatten().collect();
        let agrees = |clock: &&ClockOffset| {
            clock.low - CLOCK_OFF_MAX_MS <= own && own <= clock.high.saturating_add(CLOCK_OFF_MAX_MS)
        };
        let agreeing = known.iter().filter(agrees).count();
        agreeing > 0 && agreeing + 1 >= majority(known.len() + 1)
    }
}

/// TimeBounds of a time, as distances from [`elapsed_ms`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct TimeBounds {
    low: i64,
    high: i64,
}

fn ahead_now(wall: &WallClock) -> i64 {
    i64::try_from(wall.ms()).unwrap_or(i64::MAX).saturating_sub(elapsed_ms())
}

fn time(ahead: i64, now: i64) -> u64 {
    u64::try_from(ahead.saturating_add(now)).unwrap_or(0)
}

/// The size of a majority of so many members.
fn majority(members: usize) -> usize {
    members / 2 + 1
}

/// The highest time that a majority of the members have reached, plus how far a correct clock may be ahead of it. An unknown
/// clock counts as one that lags.
fn ceiling(known: &[Option<ClockOffset>]) -> Option<i64> {
    let mut lows: Vec<i64> = known.iter().flatten().map(|clock| clock.low).collect();
    lows.sort_unstable_by(|a, b| b.cmp(a));
    lows.get(majority(known.len()) - 1).map(|low| low.saturating_add(CLOCK_OFF_MAX_MS))
}

/// Bounds of the median; `None` where there is no bound because unknown clocks could show anything. With an even number of
/// clocks, the two in the middle are both medians.
fn median(known: &[Option<ClockOffset>]) -> (Option<i64>, Option<i64>) {
    let members = known.len();
    let mut lows: Vec<_> = known.iter().map(|clock| clock.map(|clock| clock.low)).collect();
    // `None` sorts before all others: it could be arbitrarily low.
    lows.sort_unstable();
    let mut highs: Vec<_> = known.iter().map(|clock| clock.map_or(i64::MAX, |clock| clock.high)).collect();
    highs.sort_unstable();
    let low = lows.get(members.saturating_sub(1) / 2).copied().flatten();
    let high = highs.get(members / 2).copied().filter(|high| *high != i64::MAX);
    (low, high)
}

/// How far a clock is certainly ahead of the median (negative: behind it); `None` if it may be right.
fn off(clock: ClockOffset, known: &[Option<ClockOffset>]) -> Option<i64> {
    let (low, high) = median(known);
    match (low, high) {
        (_, Some(high)) if clock.low > high => Some(clock.low - high),
        (Some(low), _) if clock.high < low => Some(clock.high - low),
        _ => None,
    }
}

/// The believed distance of this server's wall clock from a clock that cannot be set.
struct SteadyClock {
    ahead: i64,
}

impl SteadyClock {
    fn new(ahead: i64) -> SteadyClock {
        SteadyClock { ahead }
    }

    /// The believed distance now. Follows small corrections but not a jump forward. It also follows a jump back, but measures
    /// the next jump forward from where the clock was before.
    fn look(&mut self, ahead: i64) -> i64 {
        if (ahead - self.ahead).abs() <= CLOCK_OFF_MAX_MS {
            self.ahead = ahead;
        }
        self.ahead.min(ahead)
    }
}

#[cfg(test)]
mod tests {
    use std::fmt::Write as _;

    use super::*;
    use crate::script::{Line, check, or_dash};

    const DAY: i64 = 86_400_000;

    /// `5..9`, `7` for exactly that, `?` for a clock that is not known.
    fn offset(word: &str) -> Option<ClockOffset> {
        let (low, high) = word.split_once("..").unwrap_or((word, word));
        (word != "?").then(|| ClockOffset { low: low.parse().unwrap(), high: high.parse().unwrap(), at: 0 })
    }

    /// - `clocks OWN OTHER...`: what follows for a group whose members' clocks are known so far.
    /// - `reading asked=MS answered=MS told=MS`: a peer told its clock; prints what is known of it after all readings.
    /// - `alone MS`: the clock of a server that is alone in its group; the first one is where it starts.
    fn start() -> impl FnMut(&str, &mut String) {
        let mut known: Option<ClockOffset> = None;
        let mut alone: Option<SteadyClock> = None;
        move |line, out| {
            let line = Line::new(line);
            match line.command() {
                "clocks" => {
                    let clocks: Vec<_> = line.words().map(offset).collect();
                    let (low, high) = median(&clocks);
                    let off = off(clocks[0].expect("the own clock is known"), &clocks);
                    let (ceiling, off) = (or_dash(ceiling(&clocks)), or_dash(off));
                    writeln!(out, "median {}..{} ceiling {ceiling} off {off}", or_dash(low), or_dash(high)).unwrap();
                }
                "reading" => {
                    let read = ClockOffset::reading(line.need("asked"), line.need("answered"), line.need("told"));
                    let now = known.map_or(read, |known| known.refined(read));
                    known = Some(now);
                    writeln!(out, "ahead by {}..{}", now.low, now.high).unwrap();
                }
                "alone" => {
                    let ahead = line.word(0);
                    let believed = alone.get_or_insert_with(|| SteadyClock::new(ahead)).look(ahead);
                    writeln!(out, "believed {believed}").unwrap();
                }
                other => panic!("unknown command {other}"),
            }
        }
    }

    #[test]
    fn scripts() {
        check("time/clock", start);
    }

    #[test]
    fn a_group_of_one_follows_a_clock_that_was_set_right_by_the_other_servers() {
        let set = WallClock::default();
        set.set_skew_ms(-10_000);
        let clocks = Clocks::new(ServerId(1), set.clone());
        let alone = [ServerId(1)];
        let time = || clocks.within(clocks.bounds(&alone).expect("its own clock is known"));
        set.set_skew_ms(0);
        assert!(time() <= clocks.wall_ms() - 9_000, "a clock alone may be wrong when it jumps forward");
        assert!(clocks.jumped_ms().is_some());
        clocks.note(ServerId(2), elapsed_ms(), clocks.wall_ms() - 10_000);
        clocks.note(ServerId(3), elapsed_ms(), clocks.wall_ms() - 10_000);
        assert!(time() <= clocks.wall_ms() - 9_000, "the others say that it was right before");
        clocks.note(ServerId(2), elapsed_ms(), clocks.wall_ms());
        assert!(time() > clocks.wall_ms() - 1_000, "most of the three show its time");
        assert_eq!(clocks.jumped_ms(), None);
    }

    #[test]
    fn an_old_reading_grows_uncertain() {
        let reading = ClockOffset::reading(0, 0, 0).drifted(3_600_000);
        assert!(reading.high - reading.low > 3_000, "{reading:?}");
    }

    #[test]
    fn the_clock_of_an_absent_member_does_not_decide_who_may_lead() {
        let clocks = Clocks::new(ServerId(1), WallClock::default());
        let members = [ServerId(1), ServerId(2), ServerId(3)];
        let now = clocks.wall_ms();
        // The median is the clock of server 2: those of 1 and 3 are both a second off.
        clocks.note(ServerId(2), elapsed_ms(), now + 1_000);
        clocks.note(ServerId(3), elapsed_ms(), now + 2_000);
        assert!(clocks.off_ms(&members, false).is_some() && !clocks.is_willing(ServerId(3), &members));
        // Server 2 is lost: neither of the other two counts as wrong, so one of them leads.
        clocks.peers.lock().get_mut(&ServerId(2)).unwrap().clock.as_mut().unwrap().at -= LATELY_MS + 1;
        assert!(clocks.off_ms(&members, true).is_none() && clocks.is_willing(ServerId(3), &members));
    }

    #[test]
    fn a_peer_is_willing_unless_its_clock_is_wrong_or_it_abstains() {
        let clocks = Clocks::new(ServerId(1), WallClock::default());
        let members = [ServerId(1), ServerId(2), ServerId(3)];
        let now = clocks.wall_ms();
        clocks.note(ServerId(2), elapsed_ms(), now);
        assert!(clocks.is_willing(ServerId(3), &members), "nothing is known about it");
        clocks.note(ServerId(3), elapsed_ms(), now + 86_400_000);
        assert!(clocks.is_willing(ServerId(2), &members) && !clocks.is_willing(ServerId(3), &members));
        clocks.note_abstains(ServerId(2), true);
        assert!(!clocks.is_willing(ServerId(2), &members));
        clocks.note_abstains(ServerId(2), false);
        clocks.note(ServerId(3), elapsed_ms(), now);
        assert!(clocks.is_willing(ServerId(2), &members) && clocks.is_willing(ServerId(3), &members));
    }

    #[test]
    fn a_jump_of_the_own_clock_does_not_change_what_is_known_about_the_others() {
        let wall = WallClock::default();
        let clocks = Clocks::new(ServerId(1), wall.clone());
        let members = [ServerId(1), ServerId(2), ServerId(3)];
        let time = || clocks.bounds(&members).map(|bounds| clocks.within(bounds));
        assert_eq!(time(), None);
        let before = clocks.wall_ms();
        clocks.note(ServerId(2), elapsed_ms(), before);
        clocks.note(ServerId(3), elapsed_ms(), before);
        wall.set_skew_ms(DAY);
        assert!(time().unwrap() < before + 60_000, "the jump does not count");
        assert!(clocks.off_ms(&members, false).is_some_and(|off| off > DAY / 2));
        assert!(clocks.floor_ms(&members) + 1_000 >= before && clocks.floor_ms(&members) < before + 60_000);
        wall.set_skew_ms(-DAY);
        assert!(clocks.off_ms(&members, false).is_some_and(|off| off < -DAY / 2));
        assert!(time().unwrap() > before - 60_000, "nor does the jump back");
        wall.set_skew_ms(0);
        assert_eq!(clocks.off_ms(&members, true), None);
    }

    #[test]
    fn a_server_alone_does_not_follow_a_jump_of_its_clock() {
        let wall = WallClock::default();
        let clocks = Clocks::new(ServerId(1), wall.clone());
        let before = clocks.wall_ms();
        wall.set_skew_ms(DAY);
        let time = || clocks.bounds(&[ServerId(1)]).map(|bounds| clocks.within(bounds)).unwrap();
        assert!(time() < before + 60_000);
        assert!(clocks.jumped_ms().is_some_and(|jump| jump > DAY / 2));
        wall.set_skew_ms(0);
        assert_eq!(clocks.jumped_ms(), None);
        assert!(time() >= before);
    }
}
