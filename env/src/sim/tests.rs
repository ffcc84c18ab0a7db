//! The controls of the simulation, on hosts of a simulated network. Which disks and clocks a test steers is in its file.

use std::cell::RefCell;
use std::future::Future;
use std::path::{Path, PathBuf};
use std::rc::Rc;
use std::time::Duration;

use super::{random_bytes, seed};

mod clocks;
mod disks;
mod exits;

fn simulation(from: u64) -> turmoil::Sim<'static> {
    seed(from);
    let mut builder = turmoil::Builder::new();
    builder.rng_seed(from).simulation_duration(Duration::from_secs(600));
    builder.build()
}

/// Adds a host whose software runs once per start, registered.
fn add_host<F>(run: &mut turmoil::Sim<'static>, name: &'static str, software: impl Fn() -> F + 'static)
where
    F: Future<Output = turmoil::Result> + 'static,
{
    run.host(name, move || super::process(name, software()));
}

fn run_for(run: &mut turmoil::Sim<'static>, time: Duration) {
    let end = run.elapsed() + time;
    while run.elapsed() < end {
        run.step().unwrap();
    }
}

/// What hosts noted, for the test to look at.
#[derive(Clone, Default)]
struct Notes(Rc<RefCell<Vec<String>>>);

impl Notes {
    fn add(&self, line: impl Into<String>) {
        self.0.borrow_mut().push(line.into());
    }

    fn take(&self) -> Vec<String> {
        self.0.take()
    }
}

fn at(name: &str) -> PathBuf {
    Path::new("/data").join(name)
}

#[test]
fn a_seed_gives_the_same_draws_twice() {
    let draws = |from| {
        seed(from);
        random_bytes::<32>()
    };
    assert_eq!(draws(7), draws(7));
    assert_ne!(draws(7), draws(8));
}
