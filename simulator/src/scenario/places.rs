//! Rows that take turns: each place has one row in use, and a new one takes its place before the history of the old one gets
//! long, or uncertain in too many places to be judged.

/// A row, by its number among all rows of the run.
pub type Row = usize;

/// The key of the row at a place that replaces so many earlier ones.
pub type Key = fn(place: usize, earlier: usize) -> Vec<u8>;

/// All places and rows.
#[derive(Debug)]
pub struct Places {
    key: Key,
    /// Bounds on the operations of a row, and on those with unknown outcomes.
    operations_max: usize,
    unknown_max: usize,
    rows: Vec<State>,
    in_use: Vec<Row>,
}

#[derive(Debug)]
struct State {
    key: Vec<u8>,
    place: usize,
    earlier: usize,
    operations: usize,
    unknown: usize,
}

impl State {
    fn new(key: Key, place: usize, earlier: usize) -> State {
        State { key: key(place, earlier), place, earlier, operations: 0, unknown: 0 }
    }
}

impl Places {
    pub fn new(places: usize, key: Key, operations_max: usize, unknown_max: usize) -> Places {
        let rows = (0..places).map(|place| State::new(key, place, 0)).collect();
        Places { key, operations_max, unknown_max, rows, in_use: (0..places).collect() }
    }

    /// The row in use at a place.
    pub fn row_at(&self, place: usize) -> Row {
        self.in_use[place]
    }

    /// All rows in use.
    pub fn in_use(&self) -> Vec<Row> {
        self.in_use.clone()
    }

    pub fn key(&self, row: Row) -> &[u8] {
        &self.rows[row].key
    }

    /// The number of rows, retired ones included.
    pub const fn rows(&self) -> usize {
        self.rows.len()
    }

    /// Counts an operation of a row, and replaces the row if it has had enough of them.
    pub fn count(&mut self, row: Row, unknown: bool) {
        let state = &mut self.rows[row];
        state.operations += 1;
        state.unknown += usize::from(unknown);
        let enough = state.operations >= self.operations_max || state.unknown >= self.unknown_max;
        let (place, earlier) = (state.place, state.earlier);
        if enough && self.in_use[place] == row {
            self.in_use[place] = self.rows.len();
            self.rows.push(State::new(self.key, place, earlier + 1));
        }
    }
}
