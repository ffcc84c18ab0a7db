//! Servers that report and are not at the address that they name, and newcomers at the address of another.

use terrane_types::{IssueKind, Place, ServerId};

use super::*;

impl Cluster {
    async fn register(&mut self, address: &str, own: u64) -> Result<v1::RegisterReply, Error> {
        let hello = if own == 0 { fake::registration(String::new()).hello } else { self.hello(own) };
        let request = v1::RegisterRequest { hello, ..registration(address.to_owned()) };
        let reply = self.client.register(request).await;
        reply.map(Response::into_inner).map_err(|status| error::from_status(&status))
    }
}

#[tokio::test]
async fn a_newcomer_at_the_address_of_a_server_that_is_there_is_refused() {
    let mut cluster = Cluster::new().await;
    cluster.add_server(1).await;
    let address = cluster.status().await.servers[0].address.clone();
    // It has no replicas, so that nothing but its answer keeps it.
    let refused = cluster.register(&address, 0).await.unwrap_err();
    assert!(matches!(refused, Error::Invalid(_)), "{refused}");
    let says = refused.to_string();
    assert!(says.contains("is the address of server 1") && says.contains("--advertise"), "{says}");
    // Neither does a known server get it.
    cluster.add_server(2).await;
    let refused = cluster.register(&address, 2).await.unwrap_err();
    assert!(refused.to_string().contains("is the address of server 1"), "{refused}");
    let servers = cluster.status().await.servers;
    assert_eq!(servers.iter().map(|server| server.server).collect::<Vec<_>>(), [1, 2]);
    cluster.end().await;
}

#[tokio::test]
async fn a_server_whose_address_leads_to_another_is_unreachable_and_gets_no_group() {
    let mut cluster = Cluster::with_servers().await;
    // The fourth server names an address at which a fake of server 9 answers.
    let wrong = serve_fake(9, &cluster.ordered, &cluster.stop).await;
    assert_eq!(cluster.register(&wrong, 0).await.unwrap().server, 4);
    cluster.until(4, "unreachable").await;
    let unreachable = cluster.report(4, 0, Vec::new()).await.unreachable;
    assert_eq!(unreachable, "server 9 of this cluster answers there");
    let status = cluster.status().await;
    let of_server = Some(v1::Place::from(Place::Server(ServerId(4))));
    let issue = status.issues.iter().find(|issue| issue.place == of_server).expect("it is a health issue");
    assert_eq!(issue.kind, IssueKind::ServerUnreachable.name());
    assert!(
        issue.what.contains(&wrong) && issue.what.contains(&unreachable) && issue.next.contains("--advertise"),
        "{issue:?}"
    );
    cluster.create_table("t", &["k"]).await;
    assert!(cluster.ordered.groups.lock().iter().all(|(server, _)| *server != 4 && *server != 9));
    cluster.end().await;
}

#[tokio::test]
async fn a_new_group_is_open_once_a_majority_has_its_first_entry_and_gets_no_region_before() {
    let mut cluster = Cluster::new().await;
    cluster.ordered.leaderless.lock().insert(1);
    cluster.add_servers().await;
    let created = async |cluster: &mut Cluster| {
        for server in 1..=3 {
            cluster.report(server, 0, Vec::new()).await;
        }
        cluster.groups().await.iter().filter(|group| group.state != "creating").count()
    };
    eventually("the groups of the other servers", async || (created(&mut cluster).await >= 8).then_some(())).await;
    assert_eq!(created(&mut cluster).await, 8, "those that server 1 is to lead have no leader");
    cluster.create_table("t", &["b", "c", "d", "e", "f", "g", "h", "i", "j", "k", "l"]).await;
    let of_first: Vec<u64> = {
        let ordered = cluster.ordered.groups.lock();
        ordered.iter().filter(|(server, order)| *server == 1 && order.lead).map(|(_, order)| order.group).collect()
    };
    let regions = cluster.regions().await;
    let on = |group: u64| regions.iter().any(|region| region.group == group);
    assert!(!of_first.is_empty() && !of_first.iter().any(|group| on(*group)), "{of_first:?}: {regions:?}");
    cluster.ordered.leaderless.lock().clear();
    eventually("the groups of server 1", async || (created(&mut cluster).await >= 12).then_some(())).await;
    cluster.end().await;
}

#[tokio::test]
async fn a_server_that_was_removed_is_told() {
    let mut cluster = Cluster::new().await;
    // Fewer than a group needs, so that it has no replicas.
    for server in 1..=2 {
        cluster.add_server(server).await;
    }
    // Its address leads nowhere any more, so it can be decommissioned without a drain once it is not live.
    let nowhere = "127.0.0.1:9";
    assert_eq!(cluster.register(nowhere, 0).await.unwrap().server, 3);
    cluster.until(3, "unreachable").await;
    let remove = v1::ChangeServerRequest {
        hello: cluster.hello(0),
        server: "3".to_owned(),
        change: v1::ServerChange::Decommission as i32,
    };
    cluster.client.change_server(remove).await.unwrap();
    let report = cluster.report_of(3);
    let refused = refusal(cluster.client.report(report)).await;
    assert!(matches!(refused, Error::NotFound { .. }), "{refused}");
    let refused = cluster.register(nowhere, 3).await.unwrap_err().to_string();
    assert!(refused.contains("server 3 was removed from this cluster"), "{refused}");
    // One that never was a server of the cluster is not said to be removed.
    let refused = cluster.register(nowhere, 9).await.unwrap_err();
    assert!(matches!(refused, Error::NotFound { .. }), "{refused}");
    cluster.end().await;
}
