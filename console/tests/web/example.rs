//! An invented cluster, complete enough that each page has something to show: four servers of which one is silent, a hot
//! range, a failover with its events, slow requests, and cells that try to be markup.

mod history;
mod load;
mod places;
mod rows;
mod settings;

use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use terrane_console::source::{
    Answer, EventInfo, EventQuery, Failovers, Failure, Group, GroupDetail, Heat, HeatQuery, Overview, Procedure,
    Region, RegionDetail, RegionSelection, RowPage, RowQuery, Setting, SettingChange, SlowQuery, SlowRequests, Source,
    Table, TableDetail,
};

/// The time of the invented cluster: 21 November 2026, 14:00 UTC.
pub const NOW_MS: u64 = 1_795_269_600_000;

/// The source of the tests.
pub struct ExampleCluster {
    settings: Mutex<Vec<Setting>>,
    gone: AtomicBool,
    asked: AtomicUsize,
}

impl ExampleCluster {
    pub fn new() -> ExampleCluster {
        let settings = Mutex::new(settings::all());
        ExampleCluster { settings, gone: AtomicBool::new(false), asked: AtomicUsize::new(0) }
    }

    /// Whether the cluster answers from now on.
    pub fn set_gone(&self, gone: bool) {
        self.gone.store(gone, Ordering::SeqCst);
    }

    /// How many questions it was asked.
    pub fn asked(&self) -> usize {
        self.asked.load(Ordering::SeqCst)
    }

    fn answer<'a, T: Send + 'a>(&'a self, answer: impl FnOnce() -> Result<T, Failure>) -> Answer<'a, T> {
        self.asked.fetch_add(1, Ordering::SeqCst);
        let answer = if self.gone.load(Ordering::SeqCst) {
            Err(Failure::unavailable(
                "No master answers.",
                "Start one, or wait until the masters have elected a leader.",
            ))
        } else {
            answer()
        };
        Box::pin(std::future::ready(answer))
    }
}

impl Source for ExampleCluster {
    fn overview(&self) -> Answer<'_, Overview> {
        self.answer(|| Ok(places::overview()))
    }

    fn tables(&self) -> Answer<'_, Vec<Table>> {
        self.answer(|| Ok(places::tables()))
    }

    fn table<'a>(&'a self, name: &'a str) -> Answer<'a, TableDetail> {
        self.answer(|| places::table(name))
    }

    fn heat(&self, query: HeatQuery) -> Answer<'_, Heat> {
        self.answer(|| load::heat(&query))
    }

    fn regions(&self, selection: RegionSelection) -> Answer<'_, Vec<Region>> {
        self.answer(|| places::regions(&selection))
    }

    fn region(&self, id: u64) -> Answer<'_, RegionDetail> {
        self.answer(|| places::region(id))
    }

    fn groups(&self) -> Answer<'_, Vec<Group>> {
        self.answer(|| Ok(places::groups()))
    }

    fn group(&self, id: u64) -> Answer<'_, GroupDetail> {
        self.answer(|| places::group(id))
    }

    fn events(&self, query: EventQuery) -> Answer<'_, Vec<EventInfo>> {
        self.answer(|| Ok(history::events(&query)))
    }

    fn procedures(&self) -> Answer<'_, Vec<Procedure>> {
        self.answer(|| Ok(history::procedures()))
    }

    fn slow(&self, query: SlowQuery) -> Answer<'_, SlowRequests> {
        self.answer(|| Ok(history::slow(&query)))
    }

    fn rows(&self, query: RowQuery) -> Answer<'_, RowPage> {
        self.answer(|| rows::page(&query))
    }

    fn settings(&self) -> Answer<'_, Vec<Setting>> {
        self.answer(|| Ok(self.settings.lock().unwrap().clone()))
    }

    fn change(&self, change: SettingChange) -> Answer<'_, Setting> {
        self.answer(|| settings::change(&mut self.settings.lock().unwrap(), change))
    }

    fn failovers(&self) -> Answer<'_, Failovers> {
        self.answer(|| Ok(history::failovers()))
    }
}

/// A number from 0 to 999 that looks random and is the same in each run.
fn noise(a: u64, b: u64) -> u64 {
    let mixed = (a.wrapping_mul(0x9E37_79B9_7F4A_7C15) ^ b.wrapping_mul(0xC2B2_AE3D_27D4_EB4F)).rotate_left(29);
    (mixed.wrapping_mul(0x1656_67B1_9E37_79F9) >> 33) % 1_000
}
