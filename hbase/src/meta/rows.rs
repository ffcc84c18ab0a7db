//! The two kinds of rows in `hbase:meta`, and that of `hbase:namespace`, with their cells.

use bytes::Bytes;
use prost::Message as _;
use terrane_types::{KeyRange, RegionEpoch, RegionId, TableName};

use super::cells::{Cell, Row};
use crate::place::Place;
use crate::proto;
use crate::region_name::{region_name, table_name};

/// What precedes a message in a cell or a ZooKeeper node.
pub(crate) const MESSAGE_MARK: &[u8] = b"PBUF";

/// The family of regions' cells, and of those of namespaces.
pub const REGION_FAMILY: &[u8] = b"info";

/// The family of tables' cells.
pub const TABLE_FAMILY: &[u8] = b"table";

/// What a region's row says of its state.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum State {
    /// A server serves it.
    Open,
    /// It has no leader yet.
    Opening,
    /// Its table is disabled.
    Closed,
}

impl State {
    const fn text(self) -> &'static str {
        match self {
            Self::Open => "OPEN",
            Self::Opening => "OPENING",
            Self::Closed => "CLOSED",
        }
    }
}

/// A region's row.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RegionRow {
    /// The table's name.
    pub table: TableName,
    /// The region.
    pub region: RegionId,
    /// Its rows.
    pub range: KeyRange,
    /// Where it is served, or would be if its table were enabled.
    pub place: Option<Place>,
    /// Orders the news of its place: a client believes the higher one.
    pub order: u64,
    /// Its state.
    pub state: State,
}

/// Orders the news of a region's place: a client believes the higher one.
#[must_use]
pub const fn news_order(epoch: RegionEpoch, term: u64) -> u64 {
    (epoch.0 << 32) | (term & u32::MAX as u64)
}

/// A region as a message. None is offline, not even one of a disabled table: clients take that for a region that is gone, and
/// wait for another one instead of asking for the state of the table.
#[must_use]
pub fn region_info(table: &TableName, region: RegionId, range: &KeyRange) -> proto::RegionInfo {
    proto::RegionInfo {
        region_id: region.0,
        table_name: table_name(table),
        start_key: Some(range.start.clone()),
        end_key: Some(range.end.clone()),
        offline: Some(false),
        split: Some(false),
        replica_id: Some(0),
    }
}

/// A table's state as a message.
#[must_use]
pub fn table_state(disabled: bool) -> proto::TableState {
    let state = if disabled { proto::table_state::State::Disabled } else { proto::table_state::State::Enabled };
    proto::TableState { state: state.into() }
}

impl RegionRow {
    /// The row's key.
    #[must_use]
    pub fn key(&self) -> Bytes {
        region_name(&self.table, &self.range.start, self.region)
    }

    /// The row with its cells, in order of their qualifiers.
    #[must_use]
    pub fn render(&self, timestamp: i64) -> Row {
        let cell = |qualifier: &'static str, value: Vec<u8>| Cell {
            family: REGION_FAMILY,
            qualifier: qualifier.as_bytes(),
            timestamp,
            value: value.into(),
        };
        let info = region_info(&self.table, self.region, &self.range);
        let mut cells = vec![cell("regioninfo", [MESSAGE_MARK, &info.encode_to_vec()].concat())];
        if let Some(place) = &self.place {
            cells.push(cell("seqnumDuringOpen", self.order.to_be_bytes().to_vec()));
            cells.push(cell("server", format!("{}:{}", place.host, place.port).into_bytes()));
            cells.push(cell("serverstartcode", place.start_code.to_be_bytes().to_vec()));
            cells.push(cell("sn", place.to_string().into_bytes()));
        }
        cells.push(cell("state", self.state.text().as_bytes().to_vec()));
        Row { key: self.key(), cells }
    }
}

/// The row of a table's state.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StateRow {
    /// The table's name.
    pub table: TableName,
    /// Whether it is disabled.
    pub disabled: bool,
}

impl StateRow {
    /// The row with its cell.
    #[must_use]
    pub fn render(&self, timestamp: i64) -> Row {
        let value = table_state(self.disabled).encode_to_vec().into();
        let cell = Cell { family: TABLE_FAMILY, qualifier: b"state", timestamp, value };
        Row { key: self.table.to_string().into(), cells: vec![cell] }
    }
}

/// The row of a namespace, whose key is its name.
#[must_use]
pub fn render_namespace(namespace: &proto::NamespaceDescriptor, timestamp: i64) -> Row {
    let value = namespace.encode_to_vec().into();
    Row { key: namespace.name.clone(), cells: vec![Cell { family: REGION_FAMILY, qualifier: b"d", timestamp, value }] }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn row() -> RegionRow {
        RegionRow {
            table: "t1".parse().unwrap(),
            region: RegionId(1_700_000_000_000),
            range: KeyRange::all(),
            place: Some(Place { host: "h1".to_owned(), port: 16_020, start_code: 5 }),
            order: 9,
            state: State::Open,
        }
    }

    #[test]
    fn a_region_info_has_the_bytes_of_hbase() {
        let row = row().render(1);
        let info = &row.cells[0];
        let expected = b"PBUF\x08\x80\xd0\x95\xff\xbc\x31\x12\x0d\x0a\x07default\x12\x02t1\x1a\x00\x22\x00\x28\x00\x30\x00\x38\x00";
        assert_eq!((info.qualifier, &info.value[..]), (&b"regioninfo"[..], &expected[..]));
    }

    #[test]
    fn a_region_says_where_it_is_served() {
        let row = row().render(1);
        let value = |name: &[u8]| row.cells.iter().find(|cell| cell.qualifier == name).map(|cell| cell.value.clone());
        assert_eq!(value(b"server").unwrap(), "h1:16020");
        assert_eq!(value(b"sn").unwrap(), "h1,16020,5");
        assert_eq!(value(b"serverstartcode").unwrap(), [0, 0, 0, 0, 0, 0, 0, 5][..]);
        assert_eq!(value(b"seqnumDuringOpen").unwrap(), [0, 0, 0, 0, 0, 0, 0, 9][..]);
        assert_eq!(value(b"state").unwrap(), "OPEN");
        assert!(row.cells.windows(2).all(|pair| pair[0].qualifier < pair[1].qualifier));
    }

    #[test]
    fn a_region_of_a_disabled_table_is_closed_and_keeps_its_place() {
        let (open, closed) = (row().render(1), RegionRow { state: State::Closed, ..row() }.render(1));
        let (state, rest) = closed.cells.split_last().unwrap();
        assert_eq!((state.qualifier, &state.value[..]), (&b"state"[..], &b"CLOSED"[..]));
        assert_eq!(rest, &open.cells[..rest.len()], "its description says neither offline nor split");
    }

    #[test]
    fn a_region_without_a_leader_names_no_server() {
        let row = RegionRow { place: None, state: State::Opening, ..row() }.render(1);
        let names: Vec<&[u8]> = row.cells.iter().map(|cell| cell.qualifier).collect();
        assert_eq!(names, [&b"regioninfo"[..], b"state"]);
    }

    #[test]
    fn a_table_state_has_no_mark_and_the_bytes_of_hbase() {
        let row = StateRow { table: "n:t".parse().unwrap(), disabled: true }.render(1);
        assert_eq!((&row.key[..], &row.cells[0].value[..]), (&b"n:t"[..], &[8, 1][..]));
    }

    #[test]
    fn a_namespace_has_the_bytes_of_hbase() {
        let namespace = proto::NamespaceDescriptor { name: Bytes::from_static(b"default"), configuration: Vec::new() };
        let row = render_namespace(&namespace, 1);
        assert_eq!(
            (&row.key[..], row.cells[0].family, row.cells[0].qualifier),
            (&b"default"[..], &b"info"[..], &b"d"[..])
        );
        assert_eq!(&row.cells[0].value[..], b"\x0a\x07default");
    }
}
