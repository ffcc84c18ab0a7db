//! `hbase:meta` and `hbase:namespace` as clients read them: rendered, never stored.
//!
//! HBase's clients find regions by ordinary gets and scans of a table with one row per region and one per table's state.
//! Terrane's catalog has the same facts in another form, so a [`View`] renders the rows a read needs. It keeps HBase's row
//! order ([`MetaRow`]), which is not that of bytes. `hbase:namespace`, which some clients read, has one row per namespace.
//!
//! An empty answer means "no such table" to a client. A view is therefore made of a complete catalog only; a process
//! without one answers with an exception.

mod cells;
mod order;
mod rows;
mod view;

pub use cells::{Cell, Row};
pub use order::MetaRow;
pub use rows::{
    REGION_FAMILY, RegionRow, State, StateRow, TABLE_FAMILY, news_order, region_info, render_namespace, table_state,
};
pub use view::{Rows, Span, View};
