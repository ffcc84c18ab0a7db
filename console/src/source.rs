//! What the console shows, as plain data, and the door through which it gets it: the trait [`Source`].
//!
//! The console knows neither a client nor a master. The command implements [`Source`] for the process it runs (a
//! master, a server, a development cluster), tests implement it with invented data, and the pages and the JSON API show
//! what it answers. The types here are therefore the shapes of the API, described in `docs/console.md`.
//!
//! Conventions, so that no field needs a unit in the reader's head:
//! - times end in `_ms`: milliseconds since 1970, UTC; durations end in `_us` or `_ms`;
//! - sizes end in `bytes`, rates in `_per_second`;
//! - a row key is a [`Key`]: its bytes, and its parts as text where the table declares them;
//! - `None` means "not known here", never zero;
//! - sentences for people start with a capital letter and end with a full stop; names and reasons in tables do not.

mod cluster;
mod failure;
mod heat;
mod history;
mod key;
mod rows;
mod setting;
mod table;

use std::pin::Pin;

pub use cluster::{Group, GroupDetail, Master, Member, Overview, Region, RegionDetail, RegionSelection, Server};
pub use failure::{Failure, Status};
pub use heat::{Advice, AdviceKind, Heat, HeatQuery, HeatRow, Hotspot};
pub use history::{Bucket, EventQuery, Failovers, Procedure, STAGES, SlowQuery, SlowRequest, SlowRequests, Stage};
pub use key::{Bound, Key};
pub use rows::{Cell, Row, RowPage, RowQuery};
pub use setting::{Setting, SettingChange};
pub use table::{Attribute, Family, KeyPart, Table, TableDetail};
pub use terrane_types::admin::cluster::RegionLoad;
pub use terrane_types::admin::past::{EventInfo, EventKind, Failover, LoadMeasure, LoadMinute};
pub use terrane_types::{Issue, IssueKind, Place, Severity};

/// The future of an answer. Boxed, so that a source is an object.
pub type Answer<'a, T> = Pin<Box<dyn Future<Output = Result<T, Failure>> + Send + 'a>>;

/// Where the console gets what it shows.
///
/// Each method answers one page. A source bounds its own work: it neither waits longer than a person does (about 5 s, then
/// [`Failure::unavailable`]) nor answers more than the query's limits. It may be called by several viewers at once, each of
/// them every few seconds.
pub trait Source: Send + Sync {
    /// The state of the cluster at a glance.
    fn overview(&self) -> Answer<'_, Overview>;

    /// All tables, by name.
    fn tables(&self) -> Answer<'_, Vec<Table>>;

    /// One table. An unknown name is [`Failure::unknown`] with the names there are.
    fn table<'a>(&'a self, name: &'a str) -> Answer<'a, TableDetail>;

    /// The load of one table by time and key range.
    fn heat(&self, query: HeatQuery) -> Answer<'_, Heat>;

    /// Regions in the order of table and key, those of `selection`.
    fn regions(&self, selection: RegionSelection) -> Answer<'_, Vec<Region>>;

    /// One region, by its id.
    fn region(&self, id: u64) -> Answer<'_, RegionDetail>;

    /// All log groups, by id.
    fn groups(&self) -> Answer<'_, Vec<Group>>;

    /// One log group, by its id.
    fn group(&self, id: u64) -> Answer<'_, GroupDetail>;

    /// Events, newest first.
    fn events(&self, query: EventQuery) -> Answer<'_, Vec<EventInfo>>;

    /// Procedures: running ones first, then completed ones, newest first.
    fn procedures(&self) -> Answer<'_, Vec<Procedure>>;

    /// The slowest or latest slow requests, as the query orders them.
    fn slow(&self, query: SlowQuery) -> Answer<'_, SlowRequests>;

    /// One page of a table's rows.
    fn rows(&self, query: RowQuery) -> Answer<'_, RowPage>;

    /// All settings, those that can be changed now first.
    fn settings(&self) -> Answer<'_, Vec<Setting>>;

    /// Changes one setting and answers what it is now. A setting that is read at start only is [`Failure::bad_input`] with
    /// how to change it.
    fn change(&self, change: SettingChange) -> Answer<'_, Setting>;

    /// The failovers of the recent past and how long groups were without a leader.
    fn failovers(&self) -> Answer<'_, Failovers>;
}
