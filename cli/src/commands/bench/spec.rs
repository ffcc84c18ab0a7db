//! The mixes: what their tables hold, which calls they make, in what shares, and over which rows.
//!
//! One table has them all. A to F are YCSB's core workloads with its defaults. `counters` to `timeseries` are the uses that
//! the data model is made for: counters, a feed that is read in pages, the newest row of each of many series, and the ingest
//! of time series. The others are commands of their own, such as `bench put`: one operation on numbered rows. Three layouts
//! serve them all; `layout` has their keys.

use std::fmt;

use crate::args::bench::BenchFlags;
use crate::args::bench::run::{BenchRun, Distribution, Known, Mix, Operation};
use crate::failure::Failure;
use crate::random::Random;

/// Calls in flight by default.
const IN_FLIGHT_DEFAULT: usize = 64;
/// The same in an open loop, where a call that is due waits while all of them are busy.
const IN_FLIGHT_OPEN: usize = 1_024;

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
    /// Rows whose keys are their numbers, with a column for each kind of call. Any table with the family may hold them.
    Numbered,
}

/// A mix with all that its calls need.
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
    /// Most rows of a scan, rows of a page, series of a latest call.
    pub scan_rows: u64,
    /// Rows of a read, an update, an increment, an ingest or a load.
    pub batch: u64,
    pub in_flight: usize,
    pub seed: u64,
    /// Regions of a new table.
    pub regions: u32,
    /// Rows that a page of numbered rows skips.
    pub offset: u64,
    /// Whether scans of numbered rows read from the last row to the first.
    pub reverse: bool,
    /// Whether a full scan is repeated until the time is over.
    pub repeats: bool,
}

impl Spec {
    /// The table of all mixes, with their defaults.
    pub fn of(known: Known) -> Spec {
        use Distribution::{Latest, Uniform, Zipfian};
        use Operation as Op;
        let mix = |kind, shares: &[(Operation, u32)], distribution| Spec {
            known,
            kind,
            mix: Mix(shares.to_vec()),
            distribution,
            rows: 100_000,
            fields: 1,
            field_bytes: 100,
            scan_rows: 100,
            batch: 1,
            in_flight: IN_FLIGHT_DEFAULT,
            seed: 1,
            regions: 12,
            offset: 0,
            reverse: false,
            repeats: false,
        };
        let records = |shares, distribution| Spec { fields: 10, ..mix(Kind::Records, shares, distribution) };
        let series = |points, shares, distribution| Spec {
            field_bytes: 16,
            batch: 100,
            ..mix(Kind::Series { points }, shares, distribution)
        };
        let rows = |operation, batch, in_flight| Spec {
            batch,
            scan_rows: batch,
            in_flight,
            ..mix(Kind::Numbered, &[(operation, 1)], Uniform)
        };
        match known {
            Known::A => records(&[(Op::Read, 50), (Op::Update, 50)], Zipfian),
            Known::B => records(&[(Op::Read, 95), (Op::Update, 5)], Zipfian),
            Known::C => records(&[(Op::Read, 100)], Zipfian),
            Known::D => records(&[(Op::Read, 95), (Op::Insert, 5)], Latest),
            Known::E => records(&[(Op::Scan, 95), (Op::Insert, 5)], Zipfian),
            Known::F => records(&[(Op::Read, 50), (Op::ReadModifyWrite, 50)], Zipfian),
            Known::Counters => mix(Kind::Counters, &[(Op::Increment, 90), (Op::Read, 10)], Zipfian),
            Known::Pages => {
                Spec { field_bytes: 200, scan_rows: 20, ..series(100, &[(Op::Page, 95), (Op::Insert, 5)], Zipfian) }
            }
            Known::Latest => series(1_000, &[(Op::Latest, 50), (Op::Insert, 50)], Uniform),
            Known::Timeseries => series(1_000, &[(Op::Ingest, 95), (Op::Scan, 5)], Uniform),
            Known::Put => rows(Op::Update, 1, IN_FLIGHT_DEFAULT),
            Known::Get => rows(Op::Read, 1, IN_FLIGHT_DEFAULT),
            Known::Scan => rows(Op::Scan, 100, IN_FLIGHT_DEFAULT),
            Known::FullScan => rows(Op::FullScan, 1, 1),
            Known::Load => rows(Op::Load, 1_000, 8),
            Known::Incr => rows(Op::Increment, 1, IN_FLIGHT_DEFAULT),
            Known::Cas => rows(Op::CompareAndSet, 1, IN_FLIGHT_DEFAULT),
            Known::Page => rows(Op::Page, 10, 1),
            Known::Count => rows(Op::Count, 1, 1),
            Known::Sum => rows(Op::Sum, 1, 1),
            Known::First => rows(Op::First, 1, IN_FLIGHT_DEFAULT),
            Known::Last => rows(Op::Last, 1, IN_FLIGHT_DEFAULT),
            Known::Floor => rows(Op::Floor, 1, IN_FLIGHT_DEFAULT),
            Known::Ceiling => rows(Op::Ceiling, 1, IN_FLIGHT_DEFAULT),
        }
    }

    /// The mix that `bench run` is asked for.
    pub fn of_run(args: &BenchRun) -> Result<Spec, Failure> {
        let spec = Spec::of(args.workload.0);
        let mix = args.mix.clone().unwrap_or_else(|| spec.mix.clone());
        let operations = spec.kind.operations();
        if let Some((operation, _)) = mix.0.iter().find(|(operation, _)| !operations.contains(operation)) {
            let known: Vec<&str> = operations.iter().map(|operation| operation.name()).collect();
            let what = format!("workload {} has no operation {operation}", spec.known);
            return Err(Failure::usage(what).advise(format!("its operations are {}", known.join(", "))));
        }
        let in_flight = if args.rate.is_some() { IN_FLIGHT_OPEN } else { spec.in_flight };
        Ok(Spec {
            mix,
            distribution: args.distribution.unwrap_or(spec.distribution),
            rows: args.rows,
            fields: args.fields.unwrap_or(spec.fields),
            field_bytes: args.field_bytes.map_or(spec.field_bytes, length),
            scan_rows: args.scan_rows.map_or(spec.scan_rows, u64::from),
            // Only an ingest has a batch.
            batch: if matches!(spec.kind, Kind::Series { .. }) { u64::from(args.batch) } else { 1 },
            in_flight: args.in_flight.map_or(in_flight, length),
            seed: args.seed,
            regions: args.regions,
            ..spec
        })
    }

    /// The mix of a command of its own.
    pub fn of_rows(known: Known, flags: &BenchFlags) -> Spec {
        let spec = Spec::of(known);
        Spec {
            rows: flags.rows,
            field_bytes: length(flags.value_bytes),
            scan_rows: flags.batch.map_or(spec.scan_rows, u64::from),
            batch: flags.batch.map_or(spec.batch, u64::from),
            in_flight: flags.in_flight.map_or(spec.in_flight, length),
            regions: flags.regions,
            repeats: flags.seconds.is_some(),
            ..spec
        }
    }

    /// The name in reports.
    pub fn name(&self) -> String {
        if self.kind == Kind::Records { format!("ycsb-{}", self.known) } else { self.known.name().to_owned() }
    }

    /// The operations, in the order of the mix.
    pub fn operations(&self) -> Vec<Operation> {
        self.mix.0.iter().map(|(operation, _)| *operation).collect()
    }

    /// The name of the table of `bench run` by default. Workloads that share a layout share the table.
    pub fn table_default(&self) -> &'static str {
        match self.known {
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
            Kind::Records | Kind::Counters | Kind::Numbered => 0,
        }
    }

    /// The things that a call chooses among: rows or series.
    pub fn choices(&self) -> u64 {
        if matches!(self.kind, Kind::Series { .. }) { self.series() } else { self.rows }
    }

    /// Whether it ends by itself, and the measurement with it, unless a duration is given.
    pub fn ends(&self) -> bool {
        matches!(self.known, Known::Load | Known::FullScan)
    }

    /// Whether the table is checked against the answers afterwards, so that every call has to be answered.
    pub fn is_checked(&self) -> bool {
        matches!(self.known, Known::Incr | Known::Cas)
    }

    /// Whether each call reads or writes one row, whose number says where in the table it is.
    pub fn is_of_one_row(&self) -> bool {
        self.batch == 1 && matches!(self.known, Known::Put | Known::Get | Known::Incr)
    }

    /// What distinguishes a table filled for this workload from others.
    pub fn shape(&self) -> Shape {
        Shape { kind: self.kind, rows: self.rows, fields: self.fields, field_bytes: self.field_bytes }
    }
}

/// A length or a number of workers.
fn length(number: u32) -> usize {
    usize::try_from(number).expect("32 bits fit a length")
}

impl Kind {
    /// What a mix of `bench run` can do with such a table.
    fn operations(self) -> &'static [Operation] {
        match self {
            Kind::Records => {
                &[Operation::Read, Operation::Update, Operation::Insert, Operation::Scan, Operation::ReadModifyWrite]
            }
            Kind::Counters => &[Operation::Increment, Operation::Read],
            Kind::Series { .. } => {
                &[Operation::Insert, Operation::Ingest, Operation::Scan, Operation::Page, Operation::Latest]
            }
            Kind::Numbered => &[],
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
            Kind::Numbered => write!(f, "{rows} rows of {field_bytes} bytes"),
        }
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
            Command::Bench(Bench::Run(args)) => Spec::of_run(&args),
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
