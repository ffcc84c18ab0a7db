//! Regions that move to another group, over a restart.

use terrane_types::{MoveId, ServerId};

use super::*;
use crate::operation::{Depart, Destination, Freeze};

const MOVE: MoveId = MoveId(9);

#[tokio::test]
async fn a_region_that_has_left_leaves_again_after_a_crash_before_its_departure_is_on_disk() {
    let mut replica = Replica::new().await;
    replica.put(1, 1, "a").await;
    replica.machine.record().await.unwrap();
    replica.machine.flush(RegionId(1)).await.unwrap();
    replica.put(1, 1, "b").await;
    let to = Destination { id: MOVE, group: GroupId(7), servers: vec![ServerId(1)] };
    replica.apply(encoded(|out| Freeze { region: RegionId(1), epoch: RegionEpoch(1), to }.encode(out))).await;
    let adopted = RegionDescriptor {
        region: RegionId(1),
        table: TableId(5),
        range: KeyRange::all(),
        epoch: RegionEpoch(2),
        group: GroupId(7),
        schema_version: 1,
    };
    replica.apply(encoded(|out| Depart { id: MOVE, adopted }.encode(out))).await;
    assert_eq!(replica.shown(), "");
    assert_eq!(replica.machine.durable().index, 2, "on disk, the region is as it was then");
    let replica = replica.crash_and_replay().await;
    assert_eq!(replica.shown(), "");
    replica.machine.record().await.unwrap();
    assert_eq!(replica.machine.durable().index, 5);
}
