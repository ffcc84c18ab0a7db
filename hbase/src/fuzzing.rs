//! What HBase's clients send, for the fuzz driver: frames, cell blocks, and filters with the rows that they judge.

use bytes::Bytes;
use prost::Message as _;
use terrane_regionserver::edge::RowJudge as _;
use terrane_types::fuzzing::{Damage, Dice, Format, again, draw, no_limits, round_trip};
use terrane_types::rows::{begin_row, end_row};
use terrane_types::{CellKind, CellRef, FamilyName, Invalid, PackedRows};

use crate::cell_block::{BlockReader, Codec, KeyValue};
use crate::filter::{Evaluator, StoreLimits};
use crate::frame::{Call, decode_call};
use crate::proto;

/// The formats of this crate.
pub const FORMATS: &[Format] = &[FRAME, CELL_BLOCK, FILTER];

/// The content of a request's frame.
const FRAME: Format = Format {
    name: "hbase-frame",
    damage: Damage::Undetected,
    read: |bytes| {
        let read = decode_call(Bytes::copy_from_slice(bytes)).map_err(|refused| refused.exception.text);
        again(read, |call| encode_call(&call))
    },
    draw: |dice| {
        let call = Call {
            id: dice.number32(),
            method: dice.text(12),
            parameter: dice.bytes(60).into(),
            cells: dice.bytes(60).into(),
            timeout: dice.flag().then(|| std::time::Duration::from_millis(1 + u64::from(dice.number32() / 2))),
        };
        round_trip(&call, encode_call(&call), |bytes| {
            decode_call(Bytes::copy_from_slice(bytes)).map_err(|refused| refused.exception.text)
        })
    },
    limits: no_limits,
};

fn encode_call(call: &Call) -> Vec<u8> {
    let length = u32::try_from(call.cells.len()).ok().filter(|&length| length > 0);
    let header = proto::RequestHeader {
        call_id: Some(call.id),
        method_name: Some(call.method.clone()),
        request_param: Some(true),
        cell_block_meta: length.map(|length| proto::CellBlockMeta { length: Some(length) }),
        timeout: call.timeout.and_then(|timeout| u32::try_from(timeout.as_millis()).ok()),
        ..proto::RequestHeader::default()
    };
    let mut frame = header.encode_length_delimited_to_vec();
    prost::encode_length_delimiter(call.parameter.len(), &mut frame).expect("a vector grows as needed");
    frame.extend_from_slice(&call.parameter);
    frame.extend_from_slice(&call.cells);
    frame
}

/// The codec, 0 or 1 for one with tags, and a cell block.
const CELL_BLOCK: Format = Format {
    name: "hbase-cell-block",
    damage: Damage::Undetected,
    read: |bytes| again(read_block(bytes), |cells| encode_block(bytes[0], &cells)),
    draw: |dice| {
        let codec = u8::from(dice.flag());
        let drawn = dice.list(4, |dice| {
            let tags = if codec == 1 { dice.bytes(20) } else { Vec::new() };
            (dice.bytes(60), dice.name(), dice.bytes(60), dice.signed(), dice.bytes(100), tags)
        });
        let kinds = [CellKind::Put, CellKind::Delete, CellKind::DeleteColumn, CellKind::DeleteFamily];
        let cells: Vec<KeyValue<'_>> = drawn
            .iter()
            .map(|(row, family, qualifier, timestamp, value, tags)| {
                let family = &family.as_bytes()[..family.len().min(crate::cell_block::FAMILY_BYTES_MAX)];
                let (timestamp, kind) = (*timestamp, dice.pick(&kinds));
                KeyValue { row, cell: CellRef { family, qualifier, timestamp, kind, tags, value } }
            })
            .collect();
        let bytes = encode_block(codec, &cells);
        assert_eq!(read_block(&bytes).as_deref(), Ok(&cells[..]), "a cell block is read as another one");
        bytes
    },
    limits: no_limits,
};

fn codec_of(code: u8) -> Result<Codec, Invalid> {
    match code {
        0 => Ok(Codec::KeyValue),
        1 => Ok(Codec::KeyValueWithTags),
        _ => Err(Invalid::new("no codec")),
    }
}

fn read_block(bytes: &[u8]) -> Result<Vec<KeyValue<'_>>, Invalid> {
    let (code, block) = bytes.split_first().ok_or_else(|| Invalid::new("no codec"))?;
    let mut reader = BlockReader::new(codec_of(*code)?, block);
    let mut cells = Vec::new();
    while reader.finish().is_err() {
        cells.push(reader.next_cell()?);
    }
    Ok(cells)
}

fn encode_block(code: u8, cells: &[KeyValue<'_>]) -> Vec<u8> {
    let mut out = vec![code];
    for cell in cells {
        let codec = codec_of(code).expect("the block was read or drawn with it");
        cell.encode(codec, &mut out).expect("it was read or drawn within the layout's limits");
    }
    out
}

/// A filter behind its length, and packed rows that it judges.
const FILTER: Format = Format {
    name: "hbase-filter",
    damage: Damage::Undetected,
    read: |bytes| {
        let mut rest = Bytes::copy_from_slice(bytes);
        let filter = proto::Filter::decode_length_delimited(&mut rest).ok()?;
        let evaluator = |reverse| {
            let read = Evaluator::new(Some(&filter), 2, StoreLimits { limit: Some(3), offset: 1 });
            read.map(|evaluator| evaluator.deferring(reverse).reversed(reverse)).map_err(|refused| refused.what)
        };
        let rows: Vec<_> = PackedRows::new(rest).collect::<Result<_, _>>().ok()?;
        for reverse in [false, true] {
            let (mut one, mut other) = (evaluator(reverse).ok()?, evaluator(reverse).ok()?);
            for row in &rows {
                let judged = judge(&mut one, row.row.as_ref(), row.cells.as_bytes());
                let again = judge(&mut other, row.row.as_ref(), row.cells.as_bytes());
                assert_eq!(judged, again, "two evaluators of a filter differ about a row");
            }
        }
        Some(bytes.to_vec())
    },
    draw: |dice| {
        let families = ["f", "g"].map(|name| FamilyName::new(name).expect("a valid name"));
        let filter = filter(dice, 3);
        Evaluator::new(Some(&filter), 1, StoreLimits::default()).map(drop).expect("what is drawn is a filter");
        let mut out = filter.encode_length_delimited_to_vec();
        for _ in 0..dice.below(4) {
            let (row, cells) = (draw::row(dice), draw::cells(dice, &families, 4));
            terrane_types::pack_row(&mut out, &row, &cells);
        }
        out
    },
    limits: no_limits,
};

/// What an evaluator makes of a row: whether it passes, and what is returned of it.
fn judge(evaluator: &mut Evaluator, row: &[u8], cells: &[u8]) -> Result<(bool, Vec<u8>), String> {
    let mut block = b"before".to_vec();
    let start = begin_row(&mut block, row);
    block.extend_from_slice(cells);
    end_row(&mut block, start);
    let passes = evaluator.judge(&mut block, 6).map_err(|refused| refused.what)?;
    assert!(block.starts_with(b"before"), "a filter changed what is before the row");
    if passes {
        for passed in PackedRows::new(Bytes::copy_from_slice(&block[6..])) {
            assert_eq!(passed.expect("a judged row is a row").row.as_ref(), row);
        }
    }
    Ok((passes, block))
}

fn named(name: &str, message: &impl prost::Message) -> (String, Option<Bytes>) {
    (format!("org.apache.hadoop.hbase.filter.{name}"), Some(message.encode_to_vec().into()))
}

fn comparator(dice: &mut Dice) -> proto::Comparator {
    let comparable = proto::ByteArrayComparable { value: Some(dice.bytes(10).into()) };
    let (name, serialized_comparator) = match dice.below(5) {
        0 => named("BinaryPrefixComparator", &proto::BinaryComparator { comparable }),
        1 => named("SubstringComparator", &proto::SubstringComparator { substr: dice.text(4) }),
        2 => {
            let bitwise_op = proto::bit_comparator::BitwiseOp::Xor.into();
            named("BitComparator", &proto::BitComparator { comparable, bitwise_op })
        }
        3 => {
            let pattern = dice.pick(&["^a+", "(?=b)a*", "(a)\\1", "[0-9]*$", "é|\\x00"]).to_owned();
            let (pattern_flags, charset) = (dice.pick(&[0, 2, 32]), dice.pick(&["UTF-8", "ISO-8859-1"]).to_owned());
            named(
                "RegexStringComparator",
                &proto::RegexStringComparator { pattern, pattern_flags, charset, engine: None },
            )
        }
        _ => named("BinaryComparator", &proto::BinaryComparator { comparable }),
    };
    proto::Comparator { name, serialized_comparator }
}

fn compares(dice: &mut Dice) -> proto::ComparingFilter {
    use proto::CompareType::{Equal, Greater, LessOrEqual, NotEqual};
    let compare_op = dice.pick(&[Equal, NotEqual, LessOrEqual, Greater]).into();
    proto::ComparingFilter { compare_filter: proto::CompareFilter { compare_op, comparator: Some(comparator(dice)) } }
}

/// A filter that is taken.
fn filter(dice: &mut Dice, depth: usize) -> proto::Filter {
    let (name, serialized_filter) = match dice.below(if depth > 0 { 17 } else { 14 }) {
        0 => named("PrefixFilter", &proto::PrefixFilter { prefix: Some(dice.bytes(10).into()) }),
        1 => named("PageFilter", &proto::PageFilter { page_size: i64::from(dice.number32()) }),
        2 => named("KeyOnlyFilter", &proto::KeyOnlyFilter { len_as_val: dice.flag() }),
        3 => named("InclusiveStopFilter", &proto::InclusiveStopFilter { stop_row_key: Some(dice.bytes(10).into()) }),
        4 => named("ColumnPrefixFilter", &proto::ColumnPrefixFilter { prefix: dice.bytes(10).into() }),
        5 => {
            let (limit, offset) = (i32::try_from(dice.below(5)).ok(), i32::try_from(dice.below(3)).ok());
            let message = proto::ColumnPaginationFilter { limit: limit.unwrap_or(0), offset, column_offset: None };
            named("ColumnPaginationFilter", &message)
        }
        6 => named("ColumnCountGetFilter", &proto::ColumnCountGetFilter { limit: 2 }),
        7 => {
            let timestamps = vec![draw::timestamp(dice), i64::from(dice.number32())];
            named("TimestampsFilter", &proto::TimestampsFilter { timestamps, can_hint: Some(dice.flag()) })
        }
        8 => {
            let prefix = dice.bytes(4);
            let sorted_prefixes = vec![prefix.clone().into(), [&prefix[..], b"b"].concat().into()];
            named("MultipleColumnPrefixFilter", &proto::MultipleColumnPrefixFilter { sorted_prefixes })
        }
        9 => named("RowFilter", &compares(dice)),
        10 => named("QualifierFilter", &compares(dice)),
        11 => named("ValueFilter", &compares(dice)),
        12 => named("FamilyFilter", &compares(dice)),
        13 => {
            let message = proto::SingleColumnValueFilter {
                column_family: Some(Bytes::from_static(b"f")),
                column_qualifier: Some(dice.bytes(10).into()),
                compare_op: proto::CompareType::Equal.into(),
                comparator: comparator(dice),
                filter_if_missing: Some(dice.flag()),
                latest_version_only: Some(dice.flag()),
            };
            named("SingleColumnValueFilter", &message)
        }
        14 => named("SkipFilter", &proto::WrappingFilter { filter: filter(dice, depth - 1) }),
        15 => named("WhileMatchFilter", &proto::WrappingFilter { filter: filter(dice, depth - 1) }),
        _ => {
            use proto::filter_list::Operator::{MustPassAll, MustPassOne};
            let operator = dice.pick(&[MustPassAll, MustPassOne]).into();
            named("FilterList", &proto::FilterList { operator, filters: dice.list(3, |dice| filter(dice, depth - 1)) })
        }
    };
    proto::Filter { name, serialized_filter }
}
