//! What is drawn for Terrane's own client as messages of HBase's protocol, and results as what a reader sees.

use bytes::Bytes;
use prost::Message as _;
use terrane_hbase::proto::mutation_proto::column_value::QualifierValue;
use terrane_hbase::proto::mutation_proto::{ColumnValue, DeleteType, MutationType};
use terrane_hbase::proto::{self, CompareType, MutationProto};
use terrane_oracle::model::draw::FAMILIES;
use terrane_oracle::model::plain::{Columns, Condition, Event, Filter, Kind, Seen, Selection};

use crate::nonce;

/// A delete without a time acts up to the time of the server, which is above all times of writes but those of the future.
pub const NOW: i64 = 4_000_000_000_000;

pub fn mutation(row: &[u8], event: &Event) -> MutationProto {
    let (kind, delete) = match event.kind {
        Kind::Put => (MutationType::Put, None),
        // Without a time, the newest one is meant.
        Kind::Version | Kind::Newest => (MutationType::Delete, Some(DeleteType::DeleteOneVersion)),
        Kind::Column => (MutationType::Delete, Some(DeleteType::DeleteMultipleVersions)),
        Kind::Family => (MutationType::Delete, Some(DeleteType::DeleteFamily)),
        Kind::FamilyVersion => (MutationType::Delete, Some(DeleteType::DeleteFamilyVersion)),
    };
    let value = QualifierValue {
        qualifier: Some(event.qualifier.into()),
        value: Some(event.value.clone().into()),
        // A delete up to now has no time of its own.
        timestamp: event.timestamp.filter(|&at| at != NOW).map(i64::cast_unsigned),
        delete_type: delete.map(Into::into),
        tags: None,
    };
    let column = ColumnValue { family: event.family.into(), qualifier_value: vec![value] };
    MutationProto {
        row: Some(Bytes::copy_from_slice(row)),
        mutate_type: Some(kind.into()),
        column_value: vec![column],
        nonce: Some(nonce()),
        ..MutationProto::default()
    }
}

/// A delete of everything in a row up to a time.
pub fn delete_of_row(row: &[u8], timestamp: Option<i64>) -> MutationProto {
    MutationProto {
        row: Some(Bytes::copy_from_slice(row)),
        mutate_type: Some(MutationType::Delete.into()),
        timestamp: timestamp.map(i64::cast_unsigned),
        nonce: Some(nonce()),
        ..MutationProto::default()
    }
}

fn binary(value: &[u8]) -> proto::Comparator {
    let comparable = proto::ByteArrayComparable { value: Some(Bytes::copy_from_slice(value)) };
    proto::Comparator {
        name: "org.apache.hadoop.hbase.filter.BinaryComparator".to_owned(),
        serialized_comparator: Some(proto::BinaryComparator { comparable }.encode_to_vec().into()),
    }
}

pub fn condition_of(row: &[u8], condition: &Condition) -> proto::Condition {
    let (family, qualifier, compare, value) = match condition {
        Condition::Absent(family, qualifier) => (family, qualifier, CompareType::Equal, &[][..]),
        Condition::Exists(family, qualifier) => (family, qualifier, CompareType::NotEqual, &[][..]),
        Condition::Equals(family, qualifier, value) => (family, qualifier, CompareType::Equal, &value[..]),
        Condition::Differs(family, qualifier, value) => (family, qualifier, CompareType::NotEqual, &value[..]),
        other => unreachable!("{other:?} is not expressible"),
    };
    proto::Condition {
        row: Bytes::copy_from_slice(row),
        family: Some((*family).into()),
        qualifier: Some((*qualifier).into()),
        compare_type: Some(compare.into()),
        comparator: Some(binary(value)),
        ..proto::Condition::default()
    }
}

pub fn get_of(row: &[u8], selection: &Selection) -> proto::Get {
    let mut column: Vec<proto::Column> = Vec::new();
    for (family, _) in FAMILIES {
        let of_family = |columns: &&Columns| match columns {
            Columns::Family(of) | Columns::One(of, _) | Columns::Prefix(of, _) => *of == family,
        };
        let named: Vec<&Columns> = selection.columns.iter().filter(of_family).collect();
        let mut qualifier: Vec<Bytes> = Vec::new();
        for columns in &named {
            if let Columns::One(_, name) = columns {
                qualifier.push((*name).into());
            }
        }
        if named.iter().any(|columns| matches!(columns, Columns::Family(_))) {
            qualifier.clear();
        }
        qualifier.sort();
        qualifier.dedup();
        if !named.is_empty() {
            column.push(proto::Column { family: family.into(), qualifier });
        }
    }
    let time = |time: i64| u64::try_from(time).ok();
    let time_range = selection.times.map(|(from, to)| proto::TimeRange { from: time(from), to: time(to) });
    proto::Get {
        row: Bytes::copy_from_slice(row),
        column,
        time_range,
        max_versions: u32::try_from(selection.versions).ok(),
        store_offset: selection.family_cells.and_then(|(offset, _)| u32::try_from(offset).ok()),
        store_limit: selection.family_cells.and_then(|(_, limit)| u32::try_from(limit).ok()),
        filter: filter_of(selection),
        ..proto::Get::default()
    }
}

fn named_filter(name: &str, message: Vec<u8>) -> proto::Filter {
    proto::Filter { name: format!("org.apache.hadoop.hbase.filter.{name}"), serialized_filter: Some(message.into()) }
}

fn filter_of(selection: &Selection) -> Option<proto::Filter> {
    let by_name = |filter: &Filter| {
        let (compare, name) = match filter {
            Filter::Qualifier(name) => (CompareType::Equal, name),
            Filter::Not(filter) => match &**filter {
                Filter::Qualifier(name) => (CompareType::NotEqual, name),
                other => unreachable!("{other:?} is not drawn here"),
            },
            other => unreachable!("{other:?} is not drawn here"),
        };
        let comparator = Some(binary(name.as_bytes()));
        let compare_filter = proto::CompareFilter { compare_op: compare.into(), comparator };
        named_filter("QualifierFilter", proto::ComparingFilter { compare_filter }.encode_to_vec())
    };
    let keys = selection
        .keys_only
        .then(|| named_filter("KeyOnlyFilter", proto::KeyOnlyFilter { len_as_val: false }.encode_to_vec()));
    let filters: Vec<_> = selection.filter.as_ref().map(by_name).into_iter().chain(keys).collect();
    match filters.len() {
        0 | 1 => filters.into_iter().next(),
        _ => {
            let operator = proto::filter_list::Operator::MustPassAll.into();
            Some(named_filter("FilterList", proto::FilterList { operator, filters }.encode_to_vec()))
        }
    }
}

pub fn seen_in(result: Option<proto::Result>) -> Vec<Seen> {
    let text = |bytes: Option<Bytes>| String::from_utf8_lossy(&bytes.unwrap_or_default()).into_owned();
    let seen = |cell: proto::Cell| {
        let at = cell.timestamp.unwrap_or_default().cast_signed();
        (text(cell.family), text(cell.qualifier), at, cell.value.unwrap_or_default().to_vec())
    };
    result.unwrap_or_default().cell.into_iter().map(seen).collect()
}
