//! The fake region server's scans, a block at a time.

use bytes::{Buf, BufMut, Bytes};
use terrane_proto::v1;
use terrane_types::value_type::{Value, ValueType};
use terrane_types::{Error, KeyRange, RegionDescriptor, pack_row};

use super::World;
use super::data::packed;

/// Where a scan is in a region. Its sums start over with each request's range, as they must.
struct Token {
    limit: u64,
    offset: u64,
    given: u32,
    passed: Option<Bytes>,
    prefix: Bytes,
}

impl Token {
    fn read(scan: &v1::Scan) -> Token {
        let mut token = scan.resume.clone();
        if token.is_empty() {
            let latest = scan.latest.clone().unwrap_or_default();
            let (prefix, given) = (latest.last_prefix, latest.given);
            return Token { limit: scan.limit, offset: scan.offset, given, passed: None, prefix };
        }
        let (limit, offset, given, length) = (token.get_u64(), token.get_u64(), token.get_u32(), token.get_u32());
        let prefix = token.split_to(length as usize);
        Token { limit, offset, given, passed: (!token.is_empty()).then_some(token), prefix }
    }

    fn write(&self) -> Bytes {
        let mut token = Vec::new();
        token.put_u64(self.limit);
        token.put_u64(self.offset);
        token.put_u32(self.given);
        token.put_u32(self.prefix.len() as u32);
        token.extend_from_slice(&self.prefix);
        token.extend_from_slice(self.passed.as_deref().unwrap_or_default());
        token.into()
    }
}

pub fn block(world: &mut World, region: &RegionDescriptor, scan: &v1::Scan) -> Result<v1::ScanBlock, Error> {
    if let Some((blocks, at)) = world.split_after_blocks.take() {
        if blocks == 0 {
            world.split(&at);
            let current = world.regions.clone();
            return Err(Error::StaleEpoch { region: region.region, current });
        }
        world.split_after_blocks = Some((blocks - 1, at));
    }
    world.projection = scan.projection.clone().unwrap_or_default();
    world.scan = scan.clone();
    let mut at = Token::read(scan);
    let salted = world.schema.key.as_ref().is_some_and(|key| key.parts()[0].kind.is_bucket());
    let limited = scan.limit != 0;
    let range = KeyRange::new(scan.start.clone(), scan.end.clone())?;
    let mut names: Vec<Bytes> =
        world.rows.keys().filter(|row| range.contains(row) && region.range.contains(row)).cloned().collect();
    if scan.reverse {
        names.reverse();
    }
    let begun = names.clone();
    if let Some(passed) = &at.passed {
        names.retain(|row| if scan.reverse { row < passed } else { row > passed });
    }
    let mut block = v1::ScanBlock { done: true, ..v1::ScanBlock::default() };
    let mut rows = Vec::new();
    for (seen, name) in names.into_iter().enumerate() {
        if seen == world.block_rows || (limited && at.limit == 0) {
            block.done = limited && at.limit == 0;
            break;
        }
        at.passed = Some(name.clone());
        if let Some(v1::Latest { prefix: Some(per), rows: most, .. }) = &scan.latest {
            let length = match per {
                v1::latest::Prefix::Bytes(length) => *length,
                // The fake knows keys with parts of 8 bytes each, after a bucket if the region has one.
                v1::latest::Prefix::Parts(parts) => 8 * (parts - u32::from(salted)) + u32::from(salted),
            };
            let prefix = name.slice(..name.len().min(length as usize));
            at.given = if prefix == at.prefix { at.given } else { 0 };
            at.prefix = prefix;
            if at.given >= *most {
                continue;
            }
            at.given += 1;
        }
        if at.offset > 0 {
            at.offset -= 1;
            continue;
        }
        at.limit = at.limit.saturating_sub(u64::from(limited));
        block.row_count += 1;
        if !scan.count_only && scan.aggregate.is_none() {
            pack_row(&mut rows, &name, &packed(&world.rows[&name]));
        }
    }
    if let Some(aggregate) = &scan.aggregate {
        let passed = begun.into_iter().take_while(|row| {
            at.passed.as_ref().is_some_and(|passed| if scan.reverse { row >= passed } else { row <= passed })
        });
        block.aggregate = Some(summed(world, passed, aggregate)?);
    }
    block.resume = at.write();
    block.rows = rows.into();
    (block.limit_left, block.offset_left) = (at.limit, at.offset);
    (block.last_prefix, block.prefix_given) = (at.prefix, at.given);
    Ok(block)
}

fn summed(
    world: &World,
    rows: impl Iterator<Item = Bytes>,
    aggregate: &v1::Aggregate,
) -> Result<v1::AggregatePart, Error> {
    let read_as = ValueType::parse(&aggregate.read_as)?;
    let column = (Bytes::from(aggregate.family.clone()), aggregate.qualifier.clone());
    let mut values = Vec::new();
    for row in rows {
        if let Some((_, value)) = world.rows[&row].get(&column) {
            let Value::Integer(value) = read_as.read(value)? else { panic!("the fake sums up integers only") };
            values.push(value);
        }
    }
    let bytes = |value: Option<i128>| value.map_or_else(Vec::new, |value| value.to_be_bytes().to_vec()).into();
    Ok(v1::AggregatePart {
        rows: values.len() as u64,
        values: values.len() as u64,
        sum: bytes(values.iter().copied().reduce(|one, other| one + other)),
        min: bytes(values.iter().copied().min()),
        max: bytes(values.iter().copied().max()),
    })
}
