//! Scans of the meta table, from the wire and back.

use terrane_proto::{convert, error, v1};
use terrane_types::{Error, Invalid, KeyRange, Projection};
use tonic::Status;

use crate::meta::{MetaBlock, MetaScan};

pub(super) fn meta_scan(body: v1::Scan) -> Result<MetaScan, Error> {
    let (projection, filter) = match body.projection {
        Some(projection) => terrane_proto::projection::projection(projection)?,
        None => (Projection::all(), String::new()),
    };
    if !filter.is_empty() {
        return Err(Invalid::new("a scan of the meta table takes no filter").into());
    }
    Ok(MetaScan {
        range: KeyRange::new(body.start, body.end)?,
        reverse: body.reverse,
        limit: body.limit,
        offset: body.offset,
        projection,
        block_bytes: usize::try_from(body.block_bytes).unwrap_or(0),
        resume: body.resume,
        count_only: body.count_only,
    })
}

pub(super) fn meta_block(block: MetaBlock, as_messages: bool) -> Result<v1::ScanBlock, Status> {
    let rows = bytes::Bytes::from(block.rows);
    let (rows, messages) = if as_messages {
        let messages = convert::row_messages(rows).map_err(|refused| error::status(&refused))?;
        (bytes::Bytes::new(), messages)
    } else {
        (rows, Vec::new())
    };
    Ok(v1::ScanBlock {
        rows,
        messages,
        row_count: block.row_count,
        resume: block.resume,
        done: block.done,
        limit_left: block.limit_left,
        offset_left: block.offset_left,
        ..v1::ScanBlock::default()
    })
}
