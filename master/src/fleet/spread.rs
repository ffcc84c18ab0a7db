//! Decides which regions move between groups, so that servers have equal shares of them. A pure function from a [`Spread`]
//! to steps, each with its reason.
//!
//! A region counts for the server that leads its group. Compared are, in this order, the number of regions, the requests,
//! the bytes, and the regions of each table. A step takes a region from a server with more than its share to one with less;
//! of all that could go, the one that brings every measure closest to even. Regions of two tables may change places. Zones do
//! not matter: a group has its replicas
//! where the other planner puts them.
//!
//! Invariants: every step makes the whole more even, so a plan ends; no region moves twice in one plan; nothing is planned
//! while servers come or go, or while replicas and leaderships are being spread. Requests and bytes change all the time, so
//! a region that moved rests, or it could go back and forth. The number of regions does not: where more servers have joined
//! a moment after others, regions that rest move too if no other can, or the new servers would wait for their share.

use std::collections::{BTreeMap, BTreeSet};

use terrane_types::{GroupId, RegionEpoch, RegionId, ServerId, TableId};

use super::planner::uneven;
use crate::catalog::moves::MoveReason;

/// Moves of one plan; what is left over is planned again when these have ended.
const MOVES_MAX: usize = 256;
/// Pairs of servers that are looked at for one step.
const PAIRS_MAX: usize = 16;
/// The deviation from the even share, in parts of it, from which requests and bytes are spread.
const DEVIATION_MAX: f64 = 0.1;
/// Below these shares per server, requests (rows and KiB per second) and bytes are not worth a move.
const UNITS_MIN: f64 = 200.0;
const BYTES_MIN: f64 = (64 << 20) as f64;
/// A region with less than this part of a server's share makes no difference.
const PART_MIN: f64 = 0.02;
/// How much the spread of one table counts, compared with all regions.
const TABLE_WEIGHT: f64 = 0.2;
/// The least gain of a step, so that rounding is none.
const GAIN_MIN: f64 = 1e-6;

/// A region.
#[derive(Clone, Debug, PartialEq)]
pub struct RegionShare {
    /// Its table.
    pub table: TableId,
    /// Its epoch.
    pub epoch: RegionEpoch,
    /// Its group; of a region that moves, the new one.
    pub group: GroupId,
    /// Its size.
    pub bytes: u64,
    /// Rows and KiB per second that it is asked for.
    pub units: f64,
    /// Whether it may not move now: it moves, or it has been created, split or merged a moment ago.
    pub pinned: bool,
    /// Whether it has moved a while ago.
    pub rests: bool,
}

/// A group that serves.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct GroupShare {
    /// Its leader.
    pub leader: ServerId,
    /// Whether regions may move into it and out of it now.
    pub ready: bool,
}

/// What is where.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Spread {
    /// The servers that get shares.
    pub servers: Vec<ServerId>,
    /// All groups with a leader.
    pub groups: BTreeMap<GroupId, GroupShare>,
    /// All regions.
    pub regions: BTreeMap<RegionId, RegionShare>,
    /// The names of the tables.
    pub tables: BTreeMap<TableId, String>,
    /// Moves that each server takes part in already.
    pub moving: BTreeMap<ServerId, usize>,
    /// Why nothing may move now.
    pub hold: Option<String>,
}

/// A move of a plan.
#[derive(Clone, Debug, PartialEq)]
pub struct RegionStep {
    /// The region, as of this epoch.
    pub region: RegionId,
    /// Its epoch.
    pub epoch: RegionEpoch,
    /// Its group and that group's leader.
    pub from: (GroupId, ServerId),
    /// The group that it moves to, and that group's leader.
    pub to: (GroupId, ServerId),
    /// The neighbour that it is merged with afterwards.
    pub merge_with: Option<RegionId>,
    /// Why, for people.
    pub why: String,
}

impl RegionStep {
    /// What is done, for people.
    pub fn describe(&self) -> String {
        let (region, (from, left), (to, joined)) = (self.region, self.from, self.to);
        format!("region {region} from group {from} on server {left} to group {to} on server {joined}")
    }

    /// What asks for it.
    pub const fn reason(&self) -> MoveReason {
        if self.merge_with.is_some() { MoveReason::Merge } else { MoveReason::Balance }
    }
}

/// What is compared.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Measure {
    Regions,
    Units,
    Bytes,
    Table(TableId),
}

/// What a server has.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct ServerShare {
    /// Regions.
    pub regions: usize,
    /// Bytes of its regions.
    pub bytes: u64,
    /// Rows and KiB per second that its regions are asked for.
    pub units: f64,
    by_table: BTreeMap<TableId, usize>,
}

impl ServerShare {
    /// What its regions are asked for, in whole units.
    #[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "it is for output, and not negative")]
    pub fn rounded_units(&self) -> u64 {
        self.units.round().max(0.0) as u64
    }

    fn add(&mut self, region: &RegionShare) {
        self.regions += 1;
        self.bytes += region.bytes;
        self.units += region.units;
        *self.by_table.entry(region.table).or_default() += 1;
    }

    fn remove(&mut self, region: &RegionShare) {
        self.regions -= 1;
        self.bytes -= region.bytes;
        self.units -= region.units;
        self.by_table.entry(region.table).and_modify(|count| *count -= 1);
    }
}

impl Spread {
    /// What each server has, including those that get no share.
    pub fn shares(&self) -> BTreeMap<ServerId, ServerShare> {
        let mut shares: BTreeMap<ServerId, ServerShare> =
            self.servers.iter().map(|server| (*server, ServerShare::default())).collect();
        for region in self.regions.values() {
            if let Some(group) = self.groups.get(&region.group) {
                shares.entry(group.leader).or_default().add(region);
            }
        }
        shares
    }
}

/// The moves that even out a spread, and the spread that they lead to.
pub fn plan(spread: &Spread) -> (Vec<RegionStep>, Spread) {
    let mut planning = Planning::of(spread);
    let mut steps = Vec::new();
    while spread.hold.is_none() && steps.len() < MOVES_MAX {
        let next = planning.next();
        if next.is_empty() {
            break;
        }
        next.iter().for_each(|step| planning.apply(step));
        steps.extend(next);
    }
    (steps, planning.spread)
}

/// The moves of a plan that may begin now: on each server at most `per_server`, as the source or as the target of a copy.
pub fn admitted(spread: &Spread, steps: &[RegionStep], per_server: usize) -> Vec<RegionStep> {
    let mut moving = spread.moving.clone();
    let mut admitted = Vec::new();
    for step in steps {
        let involved = BTreeSet::from([step.from.1, step.to.1]);
        if involved.iter().all(|server| moving.get(server).copied().unwrap_or(0) < per_server) {
            involved.into_iter().for_each(|server| *moving.entry(server).or_default() += 1);
            admitted.push(step.clone());
        }
    }
    admitted
}

/// The even shares.
#[derive(Clone, Debug)]
struct Even {
    regions: f64,
    bytes: f64,
    units: f64,
    by_table: BTreeMap<TableId, f64>,
}

/// A plan in the making.
struct Planning {
    spread: Spread,
    shares: BTreeMap<ServerId, ServerShare>,
    even: Even,
}

fn float(number: usize) -> f64 {
    f64::from(u32::try_from(number).unwrap_or(u32::MAX))
}

#[allow(clippy::cast_precision_loss, reason = "shares are compared, not added up")]
const fn size(bytes: u64) -> f64 {
    bytes as f64
}

impl Planning {
    fn of(spread: &Spread) -> Self {
        let servers = float(spread.servers.len().max(1));
        let mut by_table: BTreeMap<TableId, f64> = BTreeMap::new();
        spread.regions.values().for_each(|region| *by_table.entry(region.table).or_default() += 1.0 / servers);
        let even = Even {
            regions: float(spread.regions.len()) / servers,
            bytes: spread.regions.values().map(|region| size(region.bytes)).sum::<f64>() / servers,
            units: spread.regions.values().map(|region| region.units).sum::<f64>() / servers,
            by_table,
        };
        Self { spread: spread.clone(), shares: spread.shares(), even }
    }

    /// The next move, or two of which only both together are of use; none if nothing can be made more even.
    fn next(&self) -> Vec<RegionStep> {
        let measures = [Measure::Regions, Measure::Units, Measure::Bytes];
        let tables = self.even.by_table.keys().map(|table| Measure::Table(*table));
        let found = measures.into_iter().chain(tables).find_map(|measure| {
            self.pairs(measure).into_iter().take(PAIRS_MAX).find_map(|(from, to)| {
                let (gain, step) = self.step(measure, from, to)?;
                if gain > GAIN_MIN { Some(vec![step]) } else { self.exchange(measure, step) }
            })
        });
        found.unwrap_or_default()
    }

    /// A move of one table's region, and one of another table's region in return.
    fn exchange(&self, measure: Measure, step: RegionStep) -> Option<Vec<RegionStep>> {
        let Measure::Table(table) = measure else { return None };
        let mut after = Self { spread: self.spread.clone(), shares: self.shares.clone(), even: self.even.clone() };
        after.apply(&step);
        let (from, to) = (step.from.1, step.to.1);
        let others = self.even.by_table.keys().filter(|other| **other != table);
        let returned = others.filter_map(|other| after.step(Measure::Table(*other), to, from));
        let (_, back) = returned.max_by(|a, b| a.0.total_cmp(&b.0))?;
        after.apply(&back);
        (self.total() - after.total() > GAIN_MIN).then(|| vec![step, back])
    }

    /// How uneven everything is.
    fn total(&self) -> f64 {
        let of_tables = |share: &ServerShare| {
            self.even.by_table.keys().map(|table| self.unevenness_of_table(share, *table)).sum::<f64>()
        };
        self.shares.values().map(|share| self.unevenness(share) + of_tables(share)).sum()
    }

    /// The pairs of servers of which one has too much and the other too little, the most uneven first.
    fn pairs(&self, measure: Measure) -> Vec<(ServerId, ServerId)> {
        let among = &self.spread.servers;
        let (even, least) = match measure {
            Measure::Regions | Measure::Table(_) => {
                let count = |server: &ServerId| (*server, self.count(*server, measure));
                return uneven(&among.iter().map(count).collect(), among);
            }
            Measure::Units => (self.even.units, UNITS_MIN),
            Measure::Bytes => (self.even.bytes, BYTES_MIN),
        };
        if even < least {
            return Vec::new();
        }
        let of = |server: ServerId| self.amount(server, measure);
        let is_far = |amount: f64| (amount - even).abs() > even * DEVIATION_MAX;
        let pairs = among.iter().flat_map(|more| among.iter().map(move |less| (*more, *less)));
        let mut pairs: Vec<_> =
            pairs.filter(|(more, less)| of(*more) > of(*less) && (is_far(of(*more)) || is_far(of(*less)))).collect();
        pairs.sort_by(|a, b| (of(b.0) - of(b.1)).total_cmp(&(of(a.0) - of(a.1))));
        pairs
    }

    fn count(&self, server: ServerId, measure: Measure) -> usize {
        let Some(share) = self.shares.get(&server) else { return 0 };
        match measure {
            Measure::Table(table) => share.by_table.get(&table).copied().unwrap_or(0),
            _ => share.regions,
        }
    }

    fn amount(&self, server: ServerId, measure: Measure) -> f64 {
        let share = self.shares.get(&server);
        match measure {
            Measure::Units => share.map_or(0.0, |share| share.units),
            _ => share.map_or(0.0, |share| size(share.bytes)),
        }
    }

    /// The best move from one server to another, and by how much it makes the whole more even.
    fn step(&self, measure: Measure, from: ServerId, to: ServerId) -> Option<(f64, RegionStep)> {
        let to_group = self.group_on(to)?;
        let difference = self.amount(from, measure) - self.amount(to, measure);
        let fits = |region: &RegionShare| match measure {
            Measure::Regions => true,
            Measure::Table(table) => region.table == table,
            Measure::Units => (self.even.units * PART_MIN..difference).contains(&region.units),
            Measure::Bytes => (self.even.bytes * PART_MIN..difference).contains(&size(region.bytes)),
        };
        let may_move = |region: &RegionShare| {
            let group = self.spread.groups.get(&region.group);
            let may_go = !region.pinned && (!region.rests || measure == Measure::Regions);
            may_go && group.is_some_and(|group| group.leader == from && group.ready)
        };
        let candidates = self.spread.regions.iter().filter(|(_, region)| may_move(region) && fits(region));
        let gains = candidates.map(|(id, region)| (!region.rests, self.gain(region, from, to), *id, region));
        let best = gains.max_by(|a, b| a.0.cmp(&b.0).then(a.1.total_cmp(&b.1)).then(b.2.cmp(&a.2)));
        let (_, gain, id, region) = best?;
        let (from, to) = ((region.group, from), (to_group, to));
        let why = self.why(measure, from.1, to.1);
        Some((gain, RegionStep { region: id, epoch: region.epoch, from, to, merge_with: None, why }))
    }

    /// The group on a server that gets the next region: the one with the fewest.
    fn group_on(&self, server: ServerId) -> Option<GroupId> {
        let led = self.spread.groups.iter().filter(|(_, group)| group.leader == server && group.ready);
        let regions = |group: GroupId| self.spread.regions.values().filter(|region| region.group == group).count();
        led.map(|(group, _)| *group).min_by_key(|group| (regions(*group), *group))
    }

    /// By how much a move makes the two servers more even.
    fn gain(&self, region: &RegionShare, from: ServerId, to: ServerId) -> f64 {
        let (mut less, mut more) = (self.share(from), self.share(to));
        let of = |share: &ServerShare| self.unevenness(share) + self.unevenness_of_table(share, region.table);
        let before = of(&less) + of(&more);
        less.remove(region);
        more.add(region);
        before - of(&less) - of(&more)
    }

    fn share(&self, server: ServerId) -> ServerShare {
        self.shares.get(&server).cloned().unwrap_or_default()
    }

    /// How far a server is from its even share: the squares of the deviations, in parts of the share.
    fn unevenness(&self, share: &ServerShare) -> f64 {
        let square = |have: f64, even: f64, least: f64| if even < least { 0.0 } else { ((have - even) / even).powi(2) };
        square(float(share.regions), self.even.regions.max(f64::MIN_POSITIVE), 0.0)
            + square(share.units, self.even.units, UNITS_MIN)
            + square(size(share.bytes), self.even.bytes, BYTES_MIN)
    }

    /// The same for the regions of one table, in parts of the share of all regions.
    fn unevenness_of_table(&self, share: &ServerShare, table: TableId) -> f64 {
        let have = share.by_table.get(&table).map_or(0.0, |count| float(*count));
        let even = self.even.by_table.get(&table).copied().unwrap_or(0.0);
        TABLE_WEIGHT * ((have - even) / self.even.regions.max(1.0)).powi(2)
    }

    fn why(&self, measure: Measure, from: ServerId, to: ServerId) -> String {
        let (have, has) = (self.share(from), self.share(to));
        match measure {
            Measure::Regions => format!("server {from} serves {} regions, server {to} {}", have.regions, has.regions),
            Measure::Units => format!(
                "server {from} is asked for {:.0} rows and KiB per second, server {to} for {:.0}",
                have.units, has.units
            ),
            Measure::Bytes => {
                format!("server {from} serves {} MiB, server {to} {} MiB", have.bytes >> 20, has.bytes >> 20)
            }
            Measure::Table(table) => {
                let name = self.spread.tables.get(&table).map_or("", String::as_str);
                let (have, has) = (self.count(from, measure), self.count(to, measure));
                format!("server {from} serves {have} regions of table {name}, server {to} {has}")
            }
        }
    }

    fn apply(&mut self, step: &RegionStep) {
        let Some(region) = self.spread.regions.get_mut(&step.region) else { return };
        self.shares.entry(step.from.1).or_default().remove(region);
        self.shares.entry(step.to.1).or_default().add(region);
        region.group = step.to.0;
        region.pinned = true;
    }
}

#[cfg(test)]
mod tests;
