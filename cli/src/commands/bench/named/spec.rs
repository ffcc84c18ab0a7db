//! The workloads of `bench run`: what they store, which calls they make, and in what shares.
//!
//! A to F are YCSB's core workloads with its defaults. The others are the uses that the data model is made for: counters,
//! a feed that is read in pages, the newest row of each of many series, and the ingest of time series. Two layouts serve
//! them all; `layout` has their keys.

use std::fmt;

use crate::args::bench::run::{BenchRun, Distribution, Known, Mix, Operation};
use crate::failure::Failure;
use crate::random::Random;

/// Calls in flight by default, in a closed loop.
const IN_FLIGHT_DEFAULT: u32 = 64;
/// The same in an open loop, where a call that is due waits while all of them are busy.
const IN_FLIGHT_OPEN: u32 = 1_024;

/// What a table holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// YCSB's rows: a hashed key, and columns of random bytes.
    Records,
    /// Rows of YCSB's keys with a counter each.
    Counters,
    /// Series of points in time, the newest first: `series:u64, time:desc i64`.
    Series {
        /// Points of each series in a new table.
        points: u64,
    },
}

/// A workload with all that its calls need.
#[derive(Clone, Debug, PartialEq)]
pub struct Spec {
    pub known: Known,
    pub kind: Kind,
    pub mix: Mix,
    pub distribution: Distribution,
    /// Rows of a new table.
    pub rows: u64,
    pub fields: u32,
    pub field_bytes: usize,
    pub scan_rows: u64,
    pub batch: u64,
    pub in_flight: usize,
    pub seed: u64,
}

impl Spec {
    /// The workload that the arguments ask for.
    pub fn new(args: &BenchRun) -> Result<Spec, Failure> {
        let known = args.workload.0;
        let kind = kind(known);
        let (mix, distribution) = defaults(known);
        let mix = match &args.mix {
            Some(mix) => mix.clone(),
            None => Mix(mix.to_vec()),
        };
        if let Some((operation, _)) = mix.0.iter().find(|(operation, _)| !kind.operations().contains(operation)) {
            let known: Vec<&str> = kind.operations().iter().map(|operation| operation.name()).collect();
            let what = format!("workload {} has no operation {operation}", args.workload.0);
            return Err(Failure::usage(what).advise(format!("its operations are {}", known.join(", "))));
        }
        let is_series = matches!(kind, Kind::Series { .. });
        let field_bytes = args.field_bytes.unwrap_or(match known {
            Known::Pages => 200,
            _ if is_series => 16,
            _ => 100,
        });
        let in_flight = args.in_flight.unwrap_or(if args.rate.is_some() { IN_FLIGHT_OPEN } else { IN_FLIGHT_DEFAULT });
        Ok(Spec {
            known,
            kind,
            mix,
            distribution: args.distribution.unwrap_or(distribution),
            rows: args.rows,
            fields: args.fields.unwrap_or(if kind == Kind::Records { 10 } else { 1 }),
            field_bytes: usize::try_from(field_bytes).expect("32 bits fit a length"),
            scan_rows: u64::from(args.scan_rows.unwrap_or(if known == Known::Pages { 20 } else { 100 })),
            batch: u64::from(args.batch),
            in_flight: usize::try_from(in_flight).expect("32 bits fit a length"),
            seed: args.seed,
        })
    }

    /// The name in reports.
    pub fn name(&self) -> String {
        if self.kind == Kind::Records { format!("ycsb-{}", self.known) } else { self.known.name().to_owned() }
    }

    /// The table's name by default. Workloads that share a layout share the table.
    pub fn table_default(known: Known) -> &'static str {
        match known {
            Known::Counters => "bench-counters",
            Known::Pages => "bench-pages",
            Known::Latest | Known::Timeseries => "bench-series",
            _ => "ycsb",
        }
    }

    /// How many series the rows make up; 1 at least.
    pub fn series(&self) -> u64 {
        match self.kind {
            Kind::Series { points } => (self.rows / points).max(1),
            Kind::Records | Kind::Counters => 0,
        }
    }

    /// The things that a call chooses among: rows or series.
    pub fn choices(&self) -> u64 {
        if matches!(self.kind, Kind::Series { .. }) { self.series() } else { self.rows }
    }

    /// What distinguishes a table filled for this workload from others.
    pub fn shape(&self) -> Shape {
        Shape { kind: self.kind, rows: self.rows, fields: self.fields, field_bytes: self.field_bytes }
    }
}

impl Kind {
    /// What can be done with such a table.
    pub fn operations(self) -> &'static [Operation] {
        match self {
            Kind::Records => {
                &[Operation::Read, Operation::Update, Operation::Insert, Operation::Scan, Operation::ReadModifyWrite]
            }
            Kind::Counters => &[Operation::Increment, Operation::Read],
            Kind::Series { .. } => {
                &[Operation::Insert, Operation::Ingest, Operation::Scan, Operation::Page, Operation::Latest]
            }
        }
    }
}

/// How a table was filled. It is kept in the table, as free metadata of its family.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Shape {
    kind: Kind,
    rows: u64,
    fields: u32,
    field_bytes: usize,
}

impl fmt::Display for Shape {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Shape { kind, rows, fields, field_bytes } = self;
        match kind {
            Kind::Records => write!(f, "{rows} records of {fields} x {field_bytes} bytes"),
            Kind::Counters => write!(f, "{rows} counters"),
            Kind::Series { points } => {
                write!(f, "{rows} points of {fields} x {field_bytes} bytes, {points} per series")
            }
        }
    }
}

fn kind(known: Known) -> Kind {
    match known {
        Known::A | Known::B | Known::C | Known::D | Known::E | Known::F => Kind::Records,
        Known::Counters => Kind::Counters,
        Known::Pages => Kind::Series { points: 100 },
        Known::Latest | Known::Timeseries => Kind::Series { points: 1_000 },
    }
}

/// The shares of operations and the distribution of each workload. Those of A to F are YCSB's.
fn defaults(known: Known) -> (&'static [(Operation, u32)], Distribution) {
    use Distribution::{Latest, Uniform, Zipfian};
    match known {
        Known::A => (&[(Operation::Read, 50), (Operation::Update, 50)], Zipfian),
        Known::B => (&[(Operation::Read, 95), (Operation::Update, 5)], Zipfian),
        Known::C => (&[(Operation::Read, 100)], Zipfian),
        Known::D => (&[(Operation::Read, 95), (Operation::Insert, 5)], Latest),
        Known::E => (&[(Operation::Scan, 95), (Operation::Insert, 5)], Zipfian),
        Known::F => (&[(Operation::Read, 50), (Operation::ReadModifyWrite, 50)], Zipfian),
        Known::Counters => (&[(Operation::Increment, 90), (Operation::Read, 10)], Zipfian),
        Known::Pages => (&[(Operation::Page, 95), (Operation::Insert, 5)], Zipfian),
        Known::Latest => (&[(Operation::Latest, 50), (Operation::Insert, 50)], Uniform),
        Known::Timeseries => (&[(Operation::Ingest, 95), (Operation::Scan, 5)], Uniform),
    }
}

/// Draws operations in their shares.
#[derive(Clone, Debug)]
pub struct Operations {
    /// Each with the sum of the shares up to it.
    below: Vec<(u64, Operation)>,
    total: u64,
}

impl Operations {
    pub fn new(mix: &Mix) -> Operations {
        let mut total = 0;
        let below = mix.0.iter().map(|(operation, share)| {
            total += u64::from(*share);
            (total, *operation)
        });
        Operations { below: below.collect(), total }
    }

    /// The next operation.
    pub fn draw(&self, random: &mut Random) -> Operation {
        let (last, rest) = self.below.split_last().expect("a mix has an operation");
        if rest.is_empty() {
            return last.1;
        }
        let drawn = random.below(self.total);
        rest.iter().find(|(below, _)| drawn < *below).unwrap_or(last).1
    }
}

#[cfg(test)]
mod tests {
    use clap::Parser as _;

    use super::*;
    use crate::args::bench::Bench;
    use crate::args::{Cli, Command};

    fn spec(line: &str) -> Result<Spec, Failure> {
        let words = ["terrane", "bench", "run"].into_iter().chain(line.split(' '));
        match Cli::parse_from(words).command {
            Command::Bench(Bench::Run(args)) => Spec::new(&args),
            command => panic!("{command:?}"),
        }
    }

    #[test]
    fn the_workloads_of_ycsb_have_its_defaults() {
        let a = spec("a").expect("a workload");
        assert_eq!((a.name().as_str(), a.mix.to_string().as_str()), ("ycsb-a", "read=50,update=50"));
        assert_eq!((a.fields, a.field_bytes, a.scan_rows, a.in_flight), (10, 100, 100, 64));
        assert_eq!((a.distribution, spec("d").expect("d").distribution), (Distribution::Zipfian, Distribution::Latest));
        assert_eq!(a.shape().to_string(), "100000 records of 10 x 100 bytes");
        assert_eq!(spec("a --rate 10/s").expect("a").in_flight, 1_024);
    }

    #[test]
    fn every_workload_has_only_operations_of_its_table() {
        for known in Known::ALL {
            let spec = spec(known.name()).unwrap_or_else(|failure| panic!("{known}: {failure}"));
            let shares: u32 = spec.mix.0.iter().map(|(_, share)| share).sum();
            assert_eq!(shares, 100, "{known}");
            assert!(spec.choices() > 0, "{known}");
        }
        let refused = spec("counters --mix page=1").expect_err("no pages of counters");
        assert!(refused.to_string().contains("workload counters has no operation page"), "{refused}");
    }

    #[test]
    fn operations_are_drawn_in_their_shares() {
        let seed = 7;
        println!("seed {seed}");
        let (operations, mut random) =
            (Operations::new(&"read=70,update=25,scan=5".parse().expect("a mix")), Random::new(seed));
        let mut counts = [0u32; 3];
        for _ in 0..100_000 {
            match operations.draw(&mut random) {
                Operation::Read => counts[0] += 1,
                Operation::Update => counts[1] += 1,
                Operation::Scan => counts[2] += 1,
                other => panic!("{other}"),
            }
        }
        // Five standard deviations of a share of a quarter are 700.
        assert!(
            counts.iter().zip([70_000u32, 25_000, 5_000]).all(|(found, law)| found.abs_diff(law) < 800),
            "{counts:?}"
        );
    }
}
