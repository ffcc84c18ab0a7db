//! The arguments of `bench run` and `bench compare`, and the values that only they take.
//!
//! The names of workloads, operations and distributions are a part of reports, so they do not change.

use std::fmt;
use std::path::{Path, PathBuf};
use std::str::FromStr;
use std::time::Duration;

use clap::Args;
use terrane_types::{Invalid, TableName, closest};

use crate::args::client::Connection;
use crate::args::values::{Time, duration};

/// Most calls per second that can be asked for.
const RATE_MAX: f64 = 10_000_000.0;
const WARM_UP_DEFAULT: Duration = Duration::from_secs(3);
const SECONDS_DEFAULT: Duration = Duration::from_secs(30);

#[derive(Clone, Debug, Args)]
pub struct BenchRun {
    /// a, b, c, d, e or f (of YCSB), counters, pages, latest or timeseries.
    #[arg(value_name = "WORKLOAD")]
    pub workload: NamedWorkload,
    /// The table's name, or `namespace:name`; created and filled if missing (default: ycsb, or bench-WORKLOAD).
    #[arg(long, value_name = "NAME")]
    pub table: Option<TableName>,
    /// Number of rows that a new table is filled with.
    #[arg(long, value_name = "N", default_value_t = 100_000, value_parser = clap::value_parser!(u64).range(1..=1_000_000_000_000))]
    pub rows: u64,
    /// Columns of a row (default: 10; pages, latest and timeseries: 1).
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=1_000))]
    pub fields: Option<u32>,
    /// Size of each value in bytes (default: 100; pages: 200; latest and timeseries: 16).
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(0..=1_048_576))]
    pub field_bytes: Option<u32>,
    /// How rows are chosen: zipfian, latest or uniform (default: that of the workload).
    #[arg(long, value_name = "NAME")]
    pub distribution: Option<Distribution>,
    /// Shares of the operations, such as read=50,update=50 (default: that of the workload).
    #[arg(long, value_name = "NAME=N,...")]
    pub mix: Option<Mix>,
    /// Most rows of a scan, rows of a page, series of a latest call (default: 100; pages: 20).
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=100_000))]
    pub scan_rows: Option<u32>,
    /// Rows per call of ingest.
    #[arg(long, value_name = "N", default_value_t = 100, value_parser = clap::value_parser!(u32).range(1..=10_000))]
    pub batch: u32,
    /// Calls per second at fixed times; latencies count from the time that a call was due (default: closed loop).
    #[arg(long, value_name = "N/s")]
    pub rate: Option<Rate>,
    /// Most concurrent calls (default: 64; with --rate: 1024).
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=100_000))]
    pub in_flight: Option<u32>,
    /// How long the load runs before it is measured.
    #[arg(long, value_name = "S", default_value_t = Time(WARM_UP_DEFAULT), value_parser = time_or_none)]
    pub warm_up: Time,
    /// How long to measure.
    #[arg(long, value_name = "S", default_value_t = Time(SECONDS_DEFAULT), value_parser = time)]
    pub seconds: Time,
    /// Number of regions of a new table.
    #[arg(long, value_name = "N", default_value_t = 12, value_parser = clap::value_parser!(u32).range(1..=10_000))]
    pub regions: u32,
    /// Threads of the load generator (default: half of the processors).
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u16).range(1..=1_024))]
    pub threads: Option<u16>,
    /// The seed of all choices.
    #[arg(long, value_name = "N", default_value_t = 1)]
    pub seed: u64,
    /// Create and fill the table, then stop.
    #[arg(long, conflicts_with_all = ["rate", "mix", "distribution", "report"])]
    pub load_only: bool,
    /// Drop the table first, and fill a new one.
    #[arg(long)]
    pub recreate: bool,
    /// Do not ask before the table is dropped.
    #[arg(long, requires = "recreate")]
    pub yes: bool,
    /// Also write a report: FILE.html to look at, FILE.json for `bench compare`; may be repeated.
    #[arg(long, value_name = "FILE", action = clap::ArgAction::Append)]
    pub report: Vec<ReportFile>,
    #[command(flatten)]
    pub connection: Connection,
}

#[derive(Clone, Debug, Args)]
pub struct BenchCompare {
    /// The report to compare with, FILE.json or FILE.html.
    #[arg(value_name = "BEFORE")]
    pub before: ReportFile,
    /// The report to compare.
    #[arg(value_name = "AFTER")]
    pub after: ReportFile,
    /// Also write both reports and their differences as a page.
    #[arg(long, value_name = "FILE.html", value_parser = page_file)]
    pub report: Option<PathBuf>,
    /// Print one JSON object per line on standard output, and nothing else.
    #[arg(long)]
    pub json: bool,
}

impl BenchRun {
    /// Threads that make the calls. Fewer threads take less CPU per call, since tasks wake each other without a system
    /// call; the other half of the processors is left to servers on the same machine and to the kernel.
    pub fn threads(&self) -> usize {
        let half = || std::thread::available_parallelism().map_or(1, |processors| processors.get().div_ceil(2));
        self.threads.map_or_else(half, usize::from)
    }
}

/// A value that is chosen by its name. Those in the second braces belong to commands of their own, and are not chosen.
macro_rules! named {
    (
        $(#[$doc:meta])* $type:ident, $what:literal, { $($variant:ident = $name:literal),+ $(,)? }
        $({ $($apart:ident = $apart_name:literal),+ $(,)? })?
    ) => {
        $(#[$doc])*
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
        pub enum $type {
            $($variant),+
            $(, $($apart),+)?
        }

        impl $type {
            /// All that can be chosen, in the order of the documentation.
            pub const ALL: &[$type] = &[$($type::$variant),+];

            /// The name on the command line and in reports.
            pub const fn name(self) -> &'static str {
                match self {
                    $($type::$variant => $name),+
                    $(, $($type::$apart => $apart_name),+)?
                }
            }
        }

        impl FromStr for $type {
            type Err = Invalid;

            fn from_str(text: &str) -> Result<$type, Invalid> {
                let names = || $type::ALL.iter().map(|known| known.name());
                if let Some(known) = $type::ALL.iter().find(|known| known.name() == text) {
                    return Ok(*known);
                }
                let shortened = || names().find(|name| text.len() > 1 && name.starts_with(text));
                let meant = closest(text, names()).or_else(shortened);
                let meant = meant.map_or_else(String::new, |name| format!("; did you mean {name}?"));
                let known = names().collect::<Vec<_>>().join(", ");
                Err(Invalid::new(format!(concat!("there is no ", $what, " {:?}{} (known: {})"), text, meant, known)))
            }
        }

        impl fmt::Display for $type {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str(self.name())
            }
        }
    };
}

named! {
    /// A mix of operations: a workload of `bench run`, or a command of its own.
    Known, "workload", {
        A = "a",
        B = "b",
        C = "c",
        D = "d",
        E = "e",
        F = "f",
        Counters = "counters",
        Pages = "pages",
        Latest = "latest",
        Timeseries = "timeseries",
    } {
        Put = "put",
        Get = "get",
        Scan = "scan",
        FullScan = "fullscan",
        Load = "load",
        Incr = "incr",
        Cas = "cas",
        Page = "page",
        Count = "count",
        Sum = "sum",
        First = "first",
        Last = "last",
        Floor = "floor",
        Ceiling = "ceiling",
    }
}

named! {
    /// What a call does.
    Operation, "operation", {
        Read = "read",
        Update = "update",
        Insert = "insert",
        Scan = "scan",
        ReadModifyWrite = "rmw",
        Increment = "increment",
        Page = "page",
        Latest = "latest",
        Ingest = "ingest",
    } {
        FullScan = "fullscan",
        Load = "load",
        CompareAndSet = "cas",
        Count = "count",
        Sum = "sum",
        First = "first",
        Last = "last",
        Floor = "floor",
        Ceiling = "ceiling",
    }
}

named! {
    /// How rows are chosen.
    Distribution, "distribution", {
        Zipfian = "zipfian",
        Latest = "latest",
        Uniform = "uniform",
    }
}

/// A workload as typed: `a`, `A`, `ycsb-a`, `workloada` (the name of YCSB's file), or `counters`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NamedWorkload(pub Known);

impl FromStr for NamedWorkload {
    type Err = Invalid;

    fn from_str(text: &str) -> Result<NamedWorkload, Invalid> {
        let lower = text.to_ascii_lowercase();
        let letter = ["ycsb-", "ycsb", "workload"].into_iter().find_map(|prefix| lower.strip_prefix(prefix));
        let letter = letter.filter(|letter| letter.len() == 1);
        letter.unwrap_or(&lower).parse().map(NamedWorkload)
    }
}

/// The shares of operations, each greater than 0.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Mix(pub Vec<(Operation, u32)>);

impl FromStr for Mix {
    type Err = Invalid;

    fn from_str(text: &str) -> Result<Mix, Invalid> {
        let bad =
            || Invalid::new(format!("{text:?} is no mix of operations; write NAME=N,..., such as read=95,update=5"));
        let mut shares: Vec<(Operation, u32)> = Vec::new();
        for part in text.split(',') {
            let (name, share) = part.split_once('=').ok_or_else(bad)?;
            let operation: Operation = name.trim().parse()?;
            let share: u32 = share.trim().parse().map_err(|_| bad())?;
            if shares.iter().any(|(known, _)| *known == operation) {
                return Err(Invalid::new(format!("{text:?} names {operation} twice")));
            }
            if share > 1_000_000 {
                return Err(Invalid::new(format!("the share {share} of {operation} is over 1000000")));
            }
            if share > 0 {
                shares.push((operation, share));
            }
        }
        if shares.is_empty() {
            return Err(Invalid::new(format!("{text:?} has no operation with a share over 0")));
        }
        Ok(Mix(shares))
    }
}

impl fmt::Display for Mix {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let shares: Vec<String> = self.0.iter().map(|(operation, share)| format!("{operation}={share}")).collect();
        f.write_str(&shares.join(","))
    }
}

/// Calls per second.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Rate(pub f64);

impl FromStr for Rate {
    type Err = Invalid;

    fn from_str(text: &str) -> Result<Rate, Invalid> {
        let bad = |why: &str| {
            let most = crate::output::grouped(RATE_MAX as u64);
            Invalid::new(format!("{why}; write calls per second, such as 5000/s: more than 0, at most {most}"))
        };
        let number = text.strip_suffix("/s").unwrap_or(text).trim();
        let rate: f64 = number.parse().map_err(|_| bad(&format!("{text:?} is not a rate")))?;
        if !(rate > 0.0 && rate <= RATE_MAX) {
            return Err(bad(&format!("the rate {text} is out of range")));
        }
        Ok(Rate(rate))
    }
}

/// The form of a report.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ReportForm {
    Json,
    Html,
}

/// A file with a report; its ending says the form.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ReportFile {
    pub path: PathBuf,
    pub form: ReportForm,
}

impl FromStr for ReportFile {
    type Err = Invalid;

    fn from_str(text: &str) -> Result<ReportFile, Invalid> {
        let path = PathBuf::from(text);
        let form = match ending(&path).as_deref() {
            Some("json") => ReportForm::Json,
            Some("html") => ReportForm::Html,
            _ => return Err(Invalid::new(format!("{text:?} ends neither in .html nor in .json"))),
        };
        Ok(ReportFile { path, form })
    }
}

fn page_file(text: &str) -> Result<PathBuf, Invalid> {
    match ReportFile::from_str(text) {
        Ok(ReportFile { path, form: ReportForm::Html }) => Ok(path),
        _ => Err(Invalid::new(format!("{text:?} does not end in .html; --json prints the differences"))),
    }
}

fn ending(path: &Path) -> Option<String> {
    path.extension().map(|ending| ending.to_string_lossy().to_ascii_lowercase())
}

fn time(text: &str) -> Result<Time, Invalid> {
    duration(text).map(Time)
}

/// A duration, or 0.
fn time_or_none(text: &str) -> Result<Time, Invalid> {
    if matches!(text, "0" | "0s" | "0ms") { Ok(Time(Duration::ZERO)) } else { time(text) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn workloads_are_found_by_the_names_that_people_use() {
        for text in ["a", "A", "ycsb-a", "YCSB-A", "ycsba", "workloada"] {
            assert_eq!(text.parse(), Ok(NamedWorkload(Known::A)), "{text}");
        }
        for known in Known::ALL {
            assert_eq!(known.name().parse(), Ok(NamedWorkload(*known)));
        }
        let refused = "timeserie".parse::<NamedWorkload>().expect_err("no workload").to_string();
        assert!(refused.contains("did you mean timeseries?"), "{refused}");
        assert!(
            "g".parse::<NamedWorkload>().expect_err("no workload").to_string().contains("a, b, c, d, e, f, counters")
        );
    }

    #[test]
    fn mixes_name_operations_and_shares() {
        let mix: Mix = "read=95, update=5,scan=0".parse().expect("a mix");
        assert_eq!(mix.0, [(Operation::Read, 95), (Operation::Update, 5)]);
        assert_eq!(mix.to_string(), "read=95,update=5");
        for bad in ["", "read", "read=x", "read=-1", "raed=5", "read=0", "read=1,read=2", "read=2000000"] {
            assert!(bad.parse::<Mix>().is_err(), "{bad:?}");
        }
    }

    #[test]
    fn rates_are_positive() {
        assert_eq!(
            ["5000/s", "0.5", "1e3"].map(|text| text.parse::<Rate>().map(|rate| rate.0)),
            [Ok(5000.0), Ok(0.5), Ok(1000.0)]
        );
        for bad in ["0", "0/s", "-1", "x", "", "/s", "NaN", "inf", "1e9"] {
            assert!(bad.parse::<Rate>().is_err(), "{bad:?}");
        }
    }

    #[test]
    fn reports_are_files_of_a_known_form() {
        assert_eq!("a/b.HTML".parse::<ReportFile>().map(|file| file.form), Ok(ReportForm::Html));
        assert_eq!("b.json".parse::<ReportFile>().map(|file| file.form), Ok(ReportForm::Json));
        assert!("b.txt".parse::<ReportFile>().is_err() && "html".parse::<ReportFile>().is_err());
        assert!(page_file("b.json").is_err());
    }
}
