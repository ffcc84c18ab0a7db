//! What regions and groups keep in their durable points.

use std::sync::Arc;

use bytes::Bytes;
use terrane_types::fuzzing::{Damage, Dice, Format, again, draw, no_limits, round_trip};
use terrane_types::limits::{METADATA_ENTRIES_MAX, METADATA_VALUE_BYTES_MAX, NAME_CHARS_MAX, ROW_BYTES_MAX};
use terrane_types::{
    FamilyName, FamilySchema, GroupId, KeyRange, MoveId, RegionDescriptor, RegionEpoch, RegionId, TableId,
};

use super::operations::draw_destination;
use crate::group::region_state::RegionState;
use crate::group::state::GroupState;
use crate::operation::{ChangeTables, Depart, Destination, Freeze, Split};
use crate::window::{RESULT_BYTES_MAX, UnderWay, WINDOW_BYTES_MAX, Window};

const OF_GROUP: GroupId = GroupId(3);

/// The window of operations of a region, drawn as a log would fill it.
pub const WINDOW: Format = Format {
    name: "window",
    damage: Damage::Undetected,
    read: |bytes| again(Window::decode(Bytes::copy_from_slice(bytes)), |window| window.encode().into()),
    draw: |dice| {
        let (mut window, mut stamp) = (Window::default(), 1 + dice.below(1_000_000) as u64);
        for _ in 0..dice.below(40) {
            stamp += dice.pick(&[0, 1, 1000, 16 * 60 * 1000]);
            update(&mut window, dice, stamp);
        }
        checked_window(&window)
    },
    limits: || {
        let mut window = Window::default();
        let result = Bytes::from(vec![7; RESULT_BYTES_MAX]);
        for number in 1..=(2 * WINDOW_BYTES_MAX / RESULT_BYTES_MAX) as u64 {
            window.update([1; 16], 1, 5).applied(number, Some(&result));
            window.update([2; 16], 1, 5).applied(u64::MAX - 2 * number, None);
        }
        vec![checked_window(&window)]
    },
};

/// A region's part of its durable point.
pub const REGION: Format = Format {
    name: "region-state",
    damage: Damage::Undetected,
    read: |bytes| again(RegionState::decode(Bytes::copy_from_slice(bytes)), |state| state.encode().into()),
    draw: |dice| {
        let state = RegionState {
            descriptor: draw::descriptor(dice),
            schema: Arc::new(draw::schema(dice)),
            planned: draw::range(dice),
            moving: dice.one_in(3).then(|| draw_destination(dice)),
        };
        checked_region(&state)
    },
    limits: || {
        let row = |byte| Bytes::from(vec![byte; ROW_BYTES_MAX]);
        let range = KeyRange::new(row(b'a'), row(b'z')).expect("the range is not reversed");
        let descriptor = RegionDescriptor { range, ..draw::descriptor(&mut Dice::new(1)) };
        vec![checked_region(&RegionState {
            planned: descriptor.range.clone(),
            descriptor,
            schema: Arc::new(large_schema()),
            moving: None,
        })]
    },
};

/// A group's part of its durable point, drawn as a log would change it.
pub const GROUP: Format = Format {
    name: "group-state",
    damage: Damage::Undetected,
    read: |bytes| again(GroupState::decode(OF_GROUP, Bytes::copy_from_slice(bytes)), |state| state.encode().into()),
    draw: |dice| {
        let mut state = GroupState::new(OF_GROUP);
        for _ in 0..dice.below(6) {
            change(&mut state, dice);
        }
        let bytes: Vec<u8> = state.encode().into();
        let back = GroupState::decode(OF_GROUP, bytes.clone().into()).expect("a state that was written is read");
        assert_eq!(back.encode(), bytes, "a group's state is read as another one");
        bytes
    },
    limits: no_limits,
};

fn update(window: &mut Window, dice: &mut Dice, stamp: u64) {
    let mut client = [0; 16];
    client[0] = dice.below(4).try_into().expect("a small number");
    let mut update = window.update(client, dice.below(30) as u64, stamp);
    for _ in 0..dice.below(6) {
        let number = if dice.one_in(10) { dice.number() } else { dice.below(60) as u64 };
        let result = dice.flag().then(|| Bytes::from(dice.bytes(RESULT_BYTES_MAX + 1)));
        update.applied(number, result.as_ref());
    }
    if dice.one_in(4) {
        let first = dice.below(40) as u64;
        let below = first + 5 + dice.below(30) as u64;
        update.settle(&UnderWay::new(below, vec![(first, first + 3)]).expect("one range below the end"));
    }
}

fn checked_window(window: &Window) -> Vec<u8> {
    round_trip(window, window.encode().into(), |bytes| Window::decode(Bytes::copy_from_slice(bytes)))
}

fn checked_region(state: &RegionState) -> Vec<u8> {
    round_trip(state, state.encode().into(), |bytes| RegionState::decode(Bytes::copy_from_slice(bytes)))
}

fn change(state: &mut GroupState, dice: &mut Dice) {
    let (table, version) = (TableId(1 + dice.below(3) as u64), dice.below(5) as u64);
    let mut schema = draw::schema(dice);
    (schema.table, schema.version) = (table, version);
    let region = RegionDescriptor {
        region: RegionId(1 + dice.below(20) as u64),
        table,
        epoch: RegionEpoch(1),
        ..draw::descriptor(dice)
    };
    let drop = dice.one_in(5).then(|| TableId(1 + dice.below(3) as u64));
    let create = vec![region.clone()];
    state.change_tables(&ChangeTables { schema: Some(schema), create, drop }, false);
    let (left, right) = (RegionId(100 + dice.below(50) as u64), RegionId(200 + dice.below(50) as u64));
    let split = Split { region: region.region, epoch: RegionEpoch(1), left, right, at: draw::row(dice).into() };
    state.split(&split).ok();
    let to = Destination { id: MoveId(dice.below(9) as u64), ..draw_destination(dice) };
    let id = to.id;
    match dice.below(4) {
        0 => {
            state.freeze(&Freeze { region: region.region, epoch: RegionEpoch(1), to }).ok();
        }
        1 => {
            state.depart(&Depart { id, adopted: region }).ok();
        }
        2 => {
            state.refuse(id);
        }
        _ => state.note_adopted(id, region.region, 1 + dice.number() / 2),
    }
}

/// A schema with the most and longest metadata that one table and one family take.
fn large_schema() -> terrane_types::TableSchema {
    let mut schema = draw::schema(&mut Dice::new(1));
    let entry = |number: usize| {
        let name = format!("{number:0>NAME_CHARS_MAX$}");
        (name, "v".repeat(METADATA_VALUE_BYTES_MAX))
    };
    schema.metadata = (0..METADATA_ENTRIES_MAX).map(entry).collect();
    let name = FamilyName::new(&"f".repeat(NAME_CHARS_MAX)).expect("a valid name");
    let family = FamilySchema { metadata: schema.metadata.clone(), ..FamilySchema::new(name) };
    schema.add_family(family).expect("a new name");
    schema.check().expect("a schema at its limits is accepted");
    schema
}
