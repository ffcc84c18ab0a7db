//! How far the repair of groups is: how many have all their copies, since when not all do, and how long it takes at this rate.
//!
//! Repair itself is the planner's, one change of members at a time. An administrator who has lost a server wants one line about all
//! of them, so the leading master remembers when the first group began to lack a copy. Copies count as in `super::copies`.
//!
//! Nothing of this is durable: the next leader counts from when it began to lead.

use std::time::Duration;

use terrane_proto::v1;

use super::copies;
use super::world::{Condition, condition};
use crate::catalog::Catalog;
use crate::servers::liveness::Moment;
use crate::servers::observed::Observations;

/// What is seen at one moment.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Sight {
    /// The groups that are open.
    pub groups: usize,
    /// Those of them that lack a copy.
    pub lacking: usize,
    /// The size of the copies that they receive.
    pub bytes: u64,
    /// What is received of these.
    pub copied_bytes: u64,
    /// What no repair can go on without; it may go on elsewhere.
    pub waits_for: Option<String>,
}

/// Since groups lack copies.
#[derive(Clone, Copy, Debug)]
struct Episode {
    since: Moment,
    /// The most that lacked one while it made progress, and since when none has joined them.
    most: usize,
    most_since: Moment,
}

/// What the leading master remembers of the repair.
#[derive(Debug, Default)]
pub struct Repair(Option<Episode>);

impl Sight {
    /// What is seen now, while so many groups have lost their majority.
    pub fn of(catalog: &Catalog, observed: &Observations, now: Moment, replace_after: Duration, lost: usize) -> Self {
        let lacking: Vec<_> = copies::short(catalog, observed, now).into_values().flatten().collect();
        let views = lacking.iter().filter_map(|group| observed.inventory.group(*group));
        let (bytes, copied_bytes) = views
            .flat_map(|view| &view.members)
            .filter(|member| member.copied_bytes < member.copy_bytes)
            .fold((0, 0), |(bytes, copied), member| (bytes + member.copy_bytes, copied + member.copied_bytes));
        let mut waits_for = None;
        if lost > 0 {
            let groups = if lost == 1 { "a group has" } else { "groups have" };
            waits_for = Some(format!(
                "{groups} lost the majority: start the servers again, or see `terrane admin recover-group --all-lost`"
            ));
        }
        for (server, known) in catalog.servers().iter() {
            let is_member =
                |group| catalog.groups().get(group).is_some_and(|entry| entry.members.values().any(|of| *of == server));
            if let Condition::Away(left) = condition(catalog, &observed.liveness, server, now, replace_after)
                && waits_for.is_none()
                && lacking.iter().any(|group| is_member(*group))
            {
                let (address, left) = (&known.address, left.as_secs());
                waits_for = Some(format!("server {server} ({address}) is away, and is replaced in {left} s"));
            }
        }
        let groups = catalog.groups().iter().filter(|(_, entry)| entry.is_open()).count();
        Self { groups, lacking: lacking.len(), bytes, copied_bytes, waits_for }
    }
}

impl Repair {
    /// Notes what is seen.
    pub fn look(&mut self, sight: &Sight, now: Moment) {
        let lacking = sight.lacking;
        if lacking == 0 {
            self.0 = None;
            return;
        }
        let episode = self.0.get_or_insert(Episode { since: now, most: lacking, most_since: now });
        // The time for which it waits says nothing about its rate.
        if lacking > episode.most || sight.waits_for.is_some() {
            (episode.most, episode.most_since) = (lacking, now);
        }
    }

    /// How far it is; `None`: every group is whole. The obstacles are those of the planner.
    pub fn info(&self, sight: &Sight, obstacles: &[String], now: Moment) -> Option<v1::RepairInfo> {
        if sight.lacking == 0 {
            return None;
        }
        let count = |number: usize| u32::try_from(number).unwrap_or(u32::MAX);
        let millis = |time: Duration| u64::try_from(time.as_millis()).unwrap_or(u64::MAX);
        let waits_for = sight.waits_for.as_ref().or(obstacles.first()).cloned().unwrap_or_default();
        let left = self.0.filter(|_| waits_for.is_empty()).and_then(|episode| episode.left(sight.lacking, now));
        Some(v1::RepairInfo {
            whole: count(sight.groups.saturating_sub(sight.lacking)),
            groups: count(sight.groups),
            since_ms: self.0.map_or(0, |episode| millis(now.since(episode.since))),
            left_ms: left.map_or(0, millis),
            bytes: sight.bytes,
            copied_bytes: sight.copied_bytes,
            waits_for,
        })
    }
}

impl Episode {
    /// How long the rest takes at the rate so far, once a group has become whole.
    fn left(&self, lacking: usize, now: Moment) -> Option<Duration> {
        let made = u32::try_from(self.most.saturating_sub(lacking)).ok().filter(|made| *made > 0)?;
        Some(now.since(self.most_since) / made * u32::try_from(lacking).ok()?)
    }
}
