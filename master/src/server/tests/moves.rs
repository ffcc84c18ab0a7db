//! Moves of regions: what an administrator asks, what the region's leader is ordered, and what a restarted master does.

use std::collections::BTreeMap;

use super::*;

/// Every group is led by its planned leader in the first term, and all members are caught up.
async fn report_all(cluster: &mut Cluster) {
    report_all_in(cluster, 1).await;
}

async fn report_all_in(cluster: &mut Cluster, term: u64) {
    eventually("the creation of the groups", async || {
        let groups = cluster.groups().await;
        // Until the servers report what they have got, a group that is open seems to have no majority.
        let open = groups.iter().filter(|group| group.state == "open" || group.state == "no majority");
        (groups.len() == 12 && open.count() == 12).then_some(())
    })
    .await;
    let regions = cluster.regions().await;
    for server in 1..=3 {
        let created: Vec<v1::CreateGroupRequest> = cluster
            .ordered
            .groups
            .lock()
            .iter()
            .filter(|(to, _)| *to == server)
            .map(|(_, order)| order.clone())
            .collect();
        let led: BTreeSet<u64> = created.iter().filter(|order| order.lead).map(|order| order.group).collect();
        let group = |order: &v1::CreateGroupRequest| {
            let member = |member: &v1::GroupMember| v1::MemberProgress {
                replica: member.replica,
                server: member.server,
                voter: true,
                matched: 10,
                alive: true,
                ..v1::MemberProgress::default()
            };
            let (replica, leader) = (order.replica, if order.lead { server } else { 0 });
            let members = if order.lead { order.members.iter().map(member).collect() } else { Vec::new() };
            v1::GroupReport { group: order.group, replica, term, leader, members, ..v1::GroupReport::default() }
        };
        let of_led = regions.iter().filter(|region| led.contains(&region.group)).cloned();
        let request = v1::ReportRequest {
            groups: created.iter().map(group).collect(),
            regions: opened(of_led, term),
            clock_ms: terrane_env::time::wall_ms(),
            ..cluster.report_of(server)
        };
        cluster.client.report(request).await.unwrap();
    }
}

async fn begin(cluster: &mut Cluster, region: u64, server: &str) -> Result<v1::BeginMoveReply, Error> {
    let request = v1::BeginMoveRequest { hello: cluster.hello(0), region, server: server.to_owned() };
    cluster.client.begin_move(request).await.map(Response::into_inner).map_err(|status| error::from_status(&status))
}

async fn follow(cluster: &mut Cluster, id: u64) -> v1::FollowMoveReply {
    let request = v1::FollowMoveRequest { hello: cluster.hello(0), r#move: id };
    cluster.client.follow_move(request).await.unwrap().into_inner()
}

async fn until(cluster: &mut Cluster, id: u64, what: &str, holds: impl Fn(&v1::FollowMoveReply) -> bool) {
    eventually(what, async || holds(&follow(cluster, id).await).then_some(())).await;
}

fn copying() -> Result<v1::MoveRegionReply, Error> {
    let (state, detail) = (v1::MoveState::Copying.into(), "round 1".to_owned());
    Ok(v1::MoveRegionReply { state, detail, copied_bytes: 40, bytes: 100, region: None })
}

fn moved(region: &v1::RegionDescriptor, to: u64) -> Result<v1::MoveRegionReply, Error> {
    let region = v1::RegionDescriptor { epoch: region.epoch + 1, group: to, ..region.clone() };
    Ok(v1::MoveRegionReply { state: v1::MoveState::Moved.into(), region: Some(region), ..Default::default() })
}

/// The server that leads the group of the first region, and another one.
async fn one_and_another(cluster: &mut Cluster) -> (u64, u64) {
    let located = cluster.locate("").await;
    let leader = located.groups.iter().find(|group| group.group == located.regions[0].group).unwrap().leader;
    (leader, leader % 3 + 1)
}

#[tokio::test]
async fn a_region_moves_to_a_server() {
    let mut cluster = Cluster::with_servers().await;
    cluster.create_table("t", &["m"]).await;
    report_all(&mut cluster).await;
    let region = cluster.regions().await[0].clone();
    let (there, other) = one_and_another(&mut cluster).await;
    *cluster.ordered.moving.lock() = copying();

    let begun = begin(&mut cluster, region.region, &other.to_string()).await.unwrap();
    assert_eq!((begun.r#move, begun.server, begun.from_group), (1, other, region.group));
    until(&mut cluster, 1, "copying", |state| (state.state.as_str(), state.copied_bytes) == ("copying", 40)).await;
    let order = cluster.ordered.moves.lock()[0].clone();
    assert_eq!((order.region, order.epoch, order.to_group), (region.region, region.epoch, begun.to_group));
    assert_eq!((order.members.len(), order.cancel), (3, false));
    let again = begin(&mut cluster, region.region, &other.to_string()).await.unwrap();
    assert_eq!(again, begun, "the answer to the first request may have been lost");

    // Nothing else happens to the region meanwhile.
    let refused = begin(&mut cluster, region.region, &there.to_string()).await.unwrap_err();
    assert!(refused.to_string().contains("terrane admin cancel move-1"), "{refused}");
    let split = v1::SplitRegionRequest { hello: cluster.hello(0), region: region.region, at: Bytes::new() };
    let refused = refusal(cluster.client.split_region(split)).await;
    assert!(refused.to_string().contains("is moving to group"), "{refused}");
    let request = v1::ListProceduresRequest { hello: cluster.hello(0), ended: false };
    let listed = cluster.client.list_procedures(request).await.unwrap().into_inner();
    assert!(listed.ended.is_empty(), "not asked for: {listed:?}");
    let listed = listed.procedures;
    let listed: Vec<_> = listed.iter().filter(|info| info.kind == "move region").collect();
    assert_eq!((listed.len(), listed[0].id.as_str(), listed[0].copied_bytes, listed[0].bytes), (1, "move-1", 40, 100));

    *cluster.ordered.moving.lock() = moved(&region, begun.to_group);
    until(&mut cluster, 1, "moved", |state| state.state == "moved").await;
    let now = cluster.regions().await[0].clone();
    assert_eq!((now.region, now.epoch, now.group), (region.region, region.epoch + 1, begun.to_group));
    let request = v1::ListProceduresRequest { hello: cluster.hello(0), ended: true };
    let ended = cluster.client.list_procedures(request).await.unwrap().into_inner().ended;
    let moved = ended.iter().find(|ended| ended.kind == "move region").expect("the move has ended");
    assert_eq!((moved.id.as_str(), moved.outcome.as_str(), moved.failed), ("move-1", "done", false));
    assert!(moved.started_ms <= moved.ended_ms && moved.reason.contains("operator"), "{moved:?}");
    assert!(ended.iter().any(|ended| ended.kind == "create table" && ended.subject == "table t"), "{ended:?}");
    let refused = begin(&mut cluster, region.region, &other.to_string()).await.unwrap_err();
    assert!(refused.to_string().contains("already"), "{refused}");
    cluster.end().await;
}

#[tokio::test]
async fn a_move_that_cannot_work_is_refused_with_what_would() {
    let mut cluster = Cluster::with_servers().await;
    cluster.create_table("t", &[]).await;
    let (there, other) = one_and_another(&mut cluster).await;
    let region = cluster.regions().await[0].region;
    let refused = begin(&mut cluster, region, &other.to_string()).await.unwrap_err();
    assert!(refused.to_string().contains("`terrane admin groups` shows one"), "{refused}");
    report_all(&mut cluster).await;
    for (region, server, says) in
        [(77, "1", "region 77"), (region, "9", "server 9 (known: 1"), (region, there.to_string().as_str(), "already")]
    {
        let refused = begin(&mut cluster, region, server).await.unwrap_err();
        assert!(refused.to_string().contains(says), "{refused}");
    }
    cluster.add_server(4).await;
    let drain = v1::ChangeServerRequest { hello: cluster.hello(0), server: other.to_string(), ..Default::default() };
    cluster.client.change_server(drain).await.unwrap();
    let refused = begin(&mut cluster, region, &other.to_string()).await.unwrap_err();
    assert!(refused.to_string().contains(&format!("terrane admin undrain {other}")), "{refused}");
    cluster.end().await;
}

#[tokio::test]
async fn a_restarted_master_continues_a_move_and_a_cancelled_one_is_undone() {
    let mut cluster = Cluster::with_servers().await;
    cluster.create_table("t", &["m"]).await;
    report_all(&mut cluster).await;
    let regions = cluster.regions().await;
    let (_, other) = one_and_another(&mut cluster).await;
    *cluster.ordered.moving.lock() = copying();
    let region = regions[0].clone();
    begin(&mut cluster, region.region, &other.to_string()).await.unwrap();
    until(&mut cluster, 1, "copying", |state| state.copied_bytes == 40).await;

    let mut cluster = cluster.restarted().await;
    cluster.ordered.moves.lock().clear();
    until(&mut cluster, 1, "copying after the restart", |state| state.copied_bytes == 40).await;
    let cancel = v1::CancelProcedureRequest { hello: cluster.hello(0), id: "move-1".to_owned() };
    cluster.client.cancel_procedure(cancel.clone()).await.unwrap();
    until(&mut cluster, 1, "being undone", |state| state.detail.contains("being undone")).await;
    let undone = v1::MoveRegionReply { state: v1::MoveState::Undone.into(), ..v1::MoveRegionReply::default() };
    *cluster.ordered.moving.lock() = Ok(undone);
    until(&mut cluster, 1, "undone", |state| state.state == "undone" && state.detail.contains("cancelled")).await;
    assert!(cluster.ordered.moves.lock().iter().any(|order| order.cancel), "the leader was told");
    assert_eq!(cluster.regions().await[0], region, "the region stays");
    assert!(matches!(refusal(cluster.client.cancel_procedure(cancel)).await, Error::NotFound { .. }));
    cluster.end().await;
}

#[tokio::test]
async fn regions_of_two_groups_are_brought_together_before_they_merge() {
    let mut cluster = Cluster::with_servers().await;
    cluster.create_table("t", &["m"]).await;
    report_all(&mut cluster).await;
    let regions = cluster.regions().await;
    let (left, right) = (regions[0].clone(), regions[1].clone());
    assert_ne!(left.group, right.group);
    *cluster.ordered.moving.lock() = copying();
    let merge = v1::MergeRegionsRequest { hello: cluster.hello(0), region: left.region, other: right.region };
    let request = within(merge.clone(), Duration::from_millis(500));
    let refused = refusal(cluster.client.merge_regions(request)).await;
    assert!(refused.to_string().contains("move-1"), "{refused}");
    *cluster.ordered.moving.lock() = moved(&left, right.group);
    cluster.client.merge_regions(merge).await.unwrap();
    assert_eq!(cluster.ordered.moves.lock()[0].region, left.region);
    assert_eq!(cluster.regions().await.len(), 1);
    cluster.end().await;
}

#[tokio::test]
async fn a_dropped_table_waits_for_the_move_of_its_region() {
    let mut cluster = Cluster::with_servers().await;
    cluster.create_table("t", &[]).await;
    report_all(&mut cluster).await;
    let region = cluster.regions().await[0].clone();
    let (_, other) = one_and_another(&mut cluster).await;
    *cluster.ordered.moving.lock() = copying();
    let begun = begin(&mut cluster, region.region, &other.to_string()).await.unwrap();
    until(&mut cluster, 1, "copying", |state| state.copied_bytes == 40).await;
    let drop = v1::DropTableRequest { hello: cluster.hello(0), name: "t".into(), ..Default::default() };
    let refused = refusal(cluster.client.drop_table(within(drop.clone(), Duration::from_millis(500)))).await;
    assert!(refused.to_string().contains("the move of region 31 (move-1)"), "{refused}");
    cluster.ordered.tables.lock().clear();
    // It was too late to undo it: the drop is ordered where the region is now.
    *cluster.ordered.moving.lock() = moved(&region, begun.to_group);
    eventually("the drop", async || cluster.describe("t").await.is_err().then_some(())).await;
    let dropped: Vec<u64> = cluster.ordered.tables.lock().iter().map(|(_, order)| order.group).collect();
    assert_eq!(dropped, [begun.to_group]);
    cluster.end().await;
}

/// They say in which term a group is: far above the one in which they were lost.
#[tokio::test]
async fn a_server_is_told_which_of_its_groups_were_recovered_without_it() {
    let mut cluster = Cluster::with_servers().await;
    report_all(&mut cluster).await;
    let hello = cluster.hello(1);
    let address = cluster.servers().await[0].address.clone();
    let registration = v1::RegisterRequest { hello, boot: 1, ..fake::registration(address) };
    let recovered = cluster.client.register(registration.clone()).await.unwrap().into_inner().recovered;
    assert_eq!(recovered, [], "no group was recovered");
    let term = terrane_raft::RECOVERY_TERMS + 7;
    report_all_in(&mut cluster, term).await;
    let recovered = cluster.client.register(registration).await.unwrap().into_inner().recovered;
    assert!(recovered.len() == 12 && recovered.iter().all(|group| group.term == term), "{recovered:?}");

    let groups = [(recovered[0].group, 3), (recovered[1].group, term - 1)];
    // It believes to lead one of them.
    let report = |(group, term)| v1::GroupReport { group, replica: 9, term, leader: 1, ..v1::GroupReport::default() };
    let groups = groups.into_iter().map(report).collect();
    let report = v1::ReportRequest { groups, ..cluster.report_of(1) };
    let reply = cluster.client.report(report).await.unwrap().into_inner();
    assert_eq!(reply.recovered, recovered[..1], "those of which it has a lost replica");
}

/// Members that a recovery has lost may have elected a leader among themselves before they are told.
#[tokio::test]
async fn a_replica_that_has_left_its_group_does_not_lead_it() {
    let mut cluster = Cluster::with_servers().await;
    report_all(&mut cluster).await;
    let groups = cluster.groups().await;
    let location = |info: &v1::GroupInfo| info.location.clone().unwrap();
    let led = groups.iter().find(|info| location(info).leader > 1).unwrap();
    let (group, led_by) = (location(led).group, location(led).leader);
    let created = cluster.ordered.groups.lock().clone();
    let of_one: BTreeMap<u64, u64> =
        created.iter().filter(|(to, _)| *to == 1).map(|(_, order)| (order.group, order.replica)).collect();
    let stranger = *of_one.iter().find(|(other, _)| **other != group).unwrap().1;
    let member = of_one[&group];
    for (replica, leader) in [(stranger, led_by), (member, 1)] {
        let seen = v1::GroupReport { group, replica, term: 9, leader: 1, ..v1::GroupReport::default() };
        let report = v1::ReportRequest { groups: vec![seen], ..cluster.report_of(1) };
        cluster.client.report(report).await.unwrap();
        let groups = cluster.groups().await;
        let found = groups.iter().map(location).find(|location| location.group == group).unwrap();
        assert_eq!(found.leader, leader, "replica {replica}");
    }
}
