//! The load that the leading master counted: never more than clients sent, and of a known load, most of it.
//!
//! The master adds up rates that servers report twice a second or more often, averaged over some seconds. So it counts rows
//! late, and some of them never: those of the last seconds of a leader that died, of a region that moved, of a master that was
//! late. What it counts too much has three reasons: a rate is rounded to a whole number, and counts until the next look,
//! although it fades meanwhile; and a client that sends a row again counts it twice, as the server does. Hence the allowances.

use std::collections::VecDeque;
use std::time::Duration;

use crate::verdict::Verdict;

/// Of so many rows that were sent,
const OF: u64 = 100;
/// so many may be counted at most,
const MOST: u64 = 125;
/// and so many must be, of a known load that nothing disturbed.
const LEAST: u64 = 70;
/// A rate may be rounded up by half a row per second.
const ROUNDED_PER_SECOND: f64 = 0.5;
/// Rates tell what was sent in this time before.
const REMEMBERED: Duration = Duration::from_secs(30);

/// What was counted, and what was sent.
#[derive(Debug, Default)]
pub struct LoadHistory {
    /// What was sent until each look, oldest first.
    sent: VecDeque<(Duration, u64)>,
    /// The present leading master; when it may have begun; and what was sent long enough before.
    life: Option<(u64, Duration, u64)>,
    /// The most regions since then.
    regions: u64,
}

/// A look at the counts.
#[derive(Clone, Copy, Debug)]
pub struct Look {
    /// The simulated time.
    pub at: Duration,
    /// When the leading master began, which distinguishes it.
    pub life: u64,
    /// Rows of all tables that the master counts as written.
    pub counted: u64,
    /// Rows that clients have sent until now.
    pub sent: u64,
    /// The number of regions.
    pub regions: u64,
}

impl LoadHistory {
    /// What the leading master has counted since it leads.
    ///
    /// # Errors
    /// If it is more than clients sent.
    pub fn look(&mut self, look: Look) -> Verdict {
        if self.life.is_none_or(|(life, ..)| life != look.life) {
            // It began after the last look at another one.
            let since = self.sent.back().map_or(Duration::ZERO, |(at, _)| *at);
            let before = self.sent.iter().take_while(|(at, _)| *at + REMEMBERED <= since).last();
            self.life = Some((look.life, since, before.map_or(0, |(_, sent)| *sent)));
            self.regions = 0;
        }
        self.regions = self.regions.max(look.regions);
        let (_, since, before) = self.life.unwrap_or((look.life, look.at, look.sent));
        self.sent.push_back((look.at, look.sent));
        let rounded = (look.at.saturating_sub(since)).as_secs_f64() * ROUNDED_PER_SECOND * self.regions as f64;
        let sent = look.sent - before;
        let most = sent * MOST / OF + rounded.ceil() as u64;
        if look.counted > most {
            return Err(format!("the load history has {} written rows, and clients sent {sent}", look.counted));
        }
        Ok(())
    }
}

/// A load that was put on a table of its own.
#[derive(Clone, Copy, Debug)]
pub struct Known {
    /// Rows that were acknowledged.
    pub acknowledged: u64,
    /// Rows that clients sent meanwhile.
    pub sent: u64,
    /// What the master counted.
    pub counted: u64,
    /// What the present rates stand for and will be counted yet.
    pub to_come: u64,
    /// For how long.
    pub lasted: Duration,
    /// The most regions that the table had.
    pub regions: u64,
    /// Whether leaders and regions stayed where they were.
    pub undisturbed: bool,
}

/// Judges a known load.
///
/// # Errors
/// If too much was counted, or too little.
pub fn judge(known: Known) -> Verdict {
    let Known { acknowledged, sent, counted, to_come, .. } = known;
    let rounded = (known.lasted.as_secs_f64() * ROUNDED_PER_SECOND * known.regions as f64).ceil() as u64;
    if counted + to_come > sent * MOST / OF + rounded {
        return Err(format!("{counted} rows were counted and {to_come} are to come, of {sent} sent"));
    }
    if known.undisturbed && counted + to_come + rounded < acknowledged * LEAST / OF {
        return Err(format!("{counted} rows were counted and {to_come} are to come, of {acknowledged} acknowledged"));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn look(seconds: u64, life: u64, counted: u64, sent: u64) -> Look {
        Look { at: Duration::from_secs(seconds), life, counted, sent, regions: 2 }
    }

    #[test]
    fn a_master_counts_at_most_what_was_sent_since_it_leads() {
        let mut history = LoadHistory::default();
        history.look(look(10, 1, 900, 1_000)).unwrap();
        history.look(look(60, 1, 4_900, 5_000)).unwrap();
        // Another one: of the rows of the first half minute, no rate tells any more.
        history.look(look(61, 2, 4_000, 5_100)).unwrap();
        assert!(history.look(look(62, 2, 5_300, 5_100)).unwrap_err().contains("clients sent 4100"));
        assert!(LoadHistory::default().look(look(10, 1, 2_000, 1_000)).unwrap_err().contains("clients sent 1000"));
    }

    #[test]
    fn a_known_load_is_counted_about_once() {
        let known = |counted, to_come, undisturbed| Known {
            acknowledged: 1_000,
            sent: 1_000,
            counted,
            to_come,
            lasted: Duration::from_secs(8),
            regions: 2,
            undisturbed,
        };
        judge(known(1_000, 0, true)).unwrap();
        judge(known(500, 450, true)).unwrap();
        judge(known(300, 0, false)).unwrap();
        assert!(judge(known(300, 0, true)).unwrap_err().contains("of 1000 acknowledged"));
        assert!(judge(known(2_000, 0, false)).unwrap_err().contains("of 1000 sent"));
        assert!(judge(known(700, 700, true)).unwrap_err().contains("of 1000 sent"));
    }
}
