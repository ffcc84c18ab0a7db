//! The workloads of `bench`, and what distinguishes them.

/// Rows per call, and calls in flight, while a table is filled.
pub const FILL_BATCH: u32 = 1_000;
pub const FILL_IN_FLIGHT: u32 = 8;

/// What the calls of a run do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Workload {
    Put,
    Get,
    Scan,
    FullScan,
    Load,
    /// `Load` with the row's number in a second column.
    LoadNumbers,
    Incr,
    Cas,
    Page,
    Count,
    Sum,
    First,
    Last,
    Floor,
    Ceiling,
}

impl Workload {
    pub fn name(self) -> &'static str {
        match self {
            Workload::Put => "put",
            Workload::Get => "get",
            Workload::Scan => "scan",
            Workload::FullScan => "fullscan",
            Workload::Load | Workload::LoadNumbers => "load",
            Workload::Incr => "incr",
            Workload::Cas => "cas",
            Workload::Page => "page",
            Workload::Count => "count",
            Workload::Sum => "sum",
            Workload::First => "first",
            Workload::Last => "last",
            Workload::Floor => "floor",
            Workload::Ceiling => "ceiling",
        }
    }

    pub fn batch_default(self) -> u32 {
        match self {
            Workload::Page => 10,
            Workload::Scan => 100,
            Workload::Load | Workload::LoadNumbers => FILL_BATCH,
            _ => 1,
        }
    }

    pub fn in_flight_default(self) -> u32 {
        match self {
            Workload::Load | Workload::LoadNumbers => FILL_IN_FLIGHT,
            Workload::FullScan | Workload::Page | Workload::Count | Workload::Sum => 1,
            _ => 64,
        }
    }

    /// Whether it ends by itself, and the measurement with it, unless a duration is given.
    pub fn ends(self) -> bool {
        matches!(self, Workload::Load | Workload::LoadNumbers | Workload::FullScan)
    }

    /// Whether the outcome of its calls is checked afterwards, so that every call has to be answered.
    pub fn is_checked(self) -> bool {
        matches!(self, Workload::Incr | Workload::Cas)
    }

    /// Whether each call reads or writes one row whose number is known.
    pub fn is_of_one_row(self, batch: u64) -> bool {
        batch == 1 && matches!(self, Workload::Put | Workload::Get | Workload::Incr)
    }

    /// Whether it reads rows that have to exist beforehand.
    pub fn needs_rows(self) -> bool {
        matches!(
            self,
            Workload::Get | Workload::Scan | Workload::FullScan | Workload::Page | Workload::Count | Workload::Sum
        )
    }
}
