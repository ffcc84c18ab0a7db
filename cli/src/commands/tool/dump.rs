//! `tool dump`: prints the content of a store file.

use serde::Serialize;
use terrane_engine::{DumpedBlock, DumpedCell, FileProperties, dump_file};
use terrane_types::escape;

use crate::args::tool::Dump;
use crate::failure::{Failure, chain};
use crate::output::{Output, grouped};

/// Characters of a key or value in text output; JSON has all of them.
const SHOWN_MAX: usize = 40;

pub async fn run(args: Dump) -> Result<(), Failure> {
    let file = args.file.display().to_string();
    let dumped = dump_file(&args.file, args.blocks, args.cells).await;
    let dumped = dumped.map_err(|error| Failure::new(format!("cannot read {file}: {}", chain(&error))))?;
    let Some(dumped) = dumped else {
        return Err(Failure::usage(format!("{file} does not have the name of a store file"))
            .advise("store files are named NUMBER.tbl or NUMBER.cells, in the directory `engine` of a server's data"));
    };
    let mut output = Output::new(args.json);
    if args.json {
        output.object(&PropertiesLine::new(&dumped.properties))?;
        for block in &dumped.blocks {
            output.object(&BlockLine::new(block))?;
        }
        for cell in &dumped.cells {
            output.object(&CellLine::new(cell))?;
        }
        return output.flush();
    }
    let properties = &dumped.properties;
    output.table(&[], property_rows(properties))?;
    if !dumped.blocks.is_empty() {
        output.line("")?;
        output.table(
            &["part", "offset", "bytes", "cells", "data", "up to row", "qualifier"],
            block_rows(&dumped.blocks),
        )?;
        left(&mut output, dumped.blocks.len(), properties.data_blocks, "blocks")?;
    }
    if !dumped.cells.is_empty() {
        output.line("")?;
        output.table(&["row", "qualifier", "timestamp", "sequence", "kind", "value"], cell_rows(&dumped.cells))?;
        left(&mut output, dumped.cells.len(), properties.cells, "cells")?;
    }
    output.flush()
}

fn left(output: &mut Output, shown: usize, all: u64, what: &str) -> Result<(), Failure> {
    match all.saturating_sub(shown as u64) {
        0 => Ok(()),
        more => output.line(&format!("and {} more {what} (use --{what} N)", grouped(more))),
    }
}

/// Escaped bytes, truncated if they are long; escapes stay whole.
fn shown(bytes: &[u8]) -> String {
    let mut text = String::new();
    for (index, byte) in bytes.iter().enumerate() {
        let part = escape(&[*byte]);
        // The last byte may take the place of the ellipsis.
        let width = SHOWN_MAX - usize::from(index + 1 < bytes.len());
        if text.len() + part.len() > width {
            return text + "…";
        }
        text.push_str(&part);
    }
    text
}

fn property_rows(properties: &FileProperties) -> Vec<Vec<String>> {
    let row = |name: &str, text: String| vec![name.to_owned(), text];
    let mut rows = vec![
        row(
            "file",
            format!(
                "{} {}, format {}, {} bytes",
                properties.kind,
                properties.id,
                properties.format,
                grouped(properties.bytes)
            ),
        ),
        row("first row", shown(&properties.first_row)),
        row("last row", shown(&properties.last_row)),
        row(
            "rows",
            format!("{}, at most {} cells per row", grouped(properties.rows), grouped(properties.longest_row_cells)),
        ),
        row("cells", format!("{}, including {} tombstones", grouped(properties.cells), grouped(properties.deletes))),
        row("timestamps", format!("{} to {}", properties.timestamps.0, properties.timestamps.1)),
        row("sequences", format!("{} to {}", properties.sequences.0, properties.sequences.1)),
        row("data", format!("{} bytes before compression", grouped(properties.data_bytes))),
    ];
    if let Some(storage) = properties.storage {
        let prefix = if properties.has_prefix_filter { ", with a filter of row prefixes" } else { "" };
        let written = format!(
            "compression {}, bloom {}, block_size {}{}{prefix}",
            storage.compression,
            storage.bloom,
            storage.block_size,
            if storage.in_memory { ", in_memory" } else { "" },
        );
        rows.push(row("written", written));
        let blocks =
            format!("{} of cells, {} of the index", grouped(properties.data_blocks), grouped(properties.index_blocks));
        rows.push(row("blocks", blocks));
    }
    rows
}

fn block_rows(blocks: &[DumpedBlock]) -> Vec<Vec<String>> {
    let row = |block: &DumpedBlock| {
        vec![
            block.partition.to_string(),
            block.offset.to_string(),
            block.bytes.to_string(),
            block.cells.to_string(),
            block.data_bytes.to_string(),
            shown(&block.last_row),
            block.last_qualifier.as_deref().map(shown).unwrap_or_default(),
        ]
    };
    blocks.iter().map(row).collect()
}

fn cell_rows(cells: &[DumpedCell]) -> Vec<Vec<String>> {
    let row = |cell: &DumpedCell| {
        vec![
            shown(&cell.row),
            shown(&cell.qualifier),
            cell.timestamp.to_string(),
            format!("{}.{}", cell.sequence, cell.position),
            format!("{:?}", cell.kind),
            shown(&cell.value),
        ]
    };
    cells.iter().map(row).collect()
}

#[derive(Serialize)]
struct PropertiesLine {
    file: u64,
    kind: &'static str,
    format: u32,
    bytes: u64,
    first_row: String,
    last_row: String,
    rows: u64,
    cells: u64,
    deletes: u64,
    longest_row_cells: u64,
    timestamp_min: i64,
    timestamp_max: i64,
    sequence_min: u64,
    sequence_max: u64,
    data_bytes: u64,
    data_blocks: u64,
    index_blocks: u64,
    #[serde(skip_serializing_if = "Option::is_none")]
    compression: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    bloom: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    block_size: Option<u32>,
    #[serde(skip_serializing_if = "Option::is_none")]
    in_memory: Option<bool>,
    prefix_filter: bool,
}

impl PropertiesLine {
    fn new(properties: &FileProperties) -> PropertiesLine {
        PropertiesLine {
            file: properties.id,
            kind: properties.kind,
            format: properties.format,
            bytes: properties.bytes,
            first_row: escape(&properties.first_row),
            last_row: escape(&properties.last_row),
            rows: properties.rows,
            cells: properties.cells,
            deletes: properties.deletes,
            longest_row_cells: properties.longest_row_cells,
            timestamp_min: properties.timestamps.0,
            timestamp_max: properties.timestamps.1,
            sequence_min: properties.sequences.0,
            sequence_max: properties.sequences.1,
            data_bytes: properties.data_bytes,
            data_blocks: properties.data_blocks,
            index_blocks: properties.index_blocks,
            compression: properties.storage.map(|storage| storage.compression.to_string()),
            bloom: properties.storage.map(|storage| storage.bloom.to_string()),
            block_size: properties.storage.map(|storage| storage.block_size),
            in_memory: properties.storage.map(|storage| storage.in_memory),
            prefix_filter: properties.has_prefix_filter,
        }
    }
}

#[derive(Serialize)]
struct BlockLine {
    partition: usize,
    offset: u64,
    bytes: u64,
    cells: u64,
    data_bytes: u64,
    last_row: String,
    last_qualifier: Option<String>,
}

impl BlockLine {
    fn new(block: &DumpedBlock) -> BlockLine {
        BlockLine {
            partition: block.partition,
            offset: block.offset,
            bytes: block.bytes,
            cells: block.cells,
            data_bytes: block.data_bytes,
            last_row: escape(&block.last_row),
            last_qualifier: block.last_qualifier.as_deref().map(escape),
        }
    }
}

#[derive(Serialize)]
struct CellLine {
    row: String,
    qualifier: String,
    timestamp: i64,
    sequence: u64,
    position: u32,
    kind: String,
    tags: String,
    value: String,
}

impl CellLine {
    fn new(cell: &DumpedCell) -> CellLine {
        CellLine {
            row: escape(&cell.row),
            qualifier: escape(&cell.qualifier),
            timestamp: cell.timestamp,
            sequence: cell.sequence,
            position: cell.position,
            kind: format!("{:?}", cell.kind),
            tags: escape(&cell.tags),
            value: escape(&cell.value),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn long_bytes_are_cut_and_short_ones_are_not() {
        assert_eq!(shown(b"a\x00"), r"a\x00");
        assert_eq!(shown(&[b'a'; SHOWN_MAX]), "a".repeat(SHOWN_MAX));
        assert_eq!(shown(&[b'a'; SHOWN_MAX + 1]), "a".repeat(SHOWN_MAX - 1) + "…");
        assert_eq!(shown(&[0; SHOWN_MAX]), r"\x00".repeat(9) + "…");
    }
}
