//! Namespaces through the whole master: its edge, log and checkpoint.

use super::*;

#[tokio::test]
async fn namespaces_are_made_listed_and_dropped() {
    let mut cluster = Cluster::with_servers().await;
    let request = |cluster: &Cluster, name: &str| v1::NamespaceRequest {
        hello: cluster.hello(0),
        name: name.into(),
        ..Default::default()
    };
    let early = cluster.create("ns:t", &[]);
    // Refused at once: no server need be there to know that.
    let refused = refusal(cluster.client.create_table(early)).await;
    assert!(refused.to_string().contains("terrane namespace create ns"), "{refused}");
    cluster.client.create_namespace(request(&cluster, "ns")).await.unwrap();
    let again = refusal(cluster.client.create_namespace(request(&cluster, "ns"))).await;
    assert!(matches!(again, Error::AlreadyExists { .. }), "{again}");
    let bad = refusal(cluster.client.create_namespace(request(&cluster, "a b"))).await;
    assert!(matches!(bad, Error::Invalid(_)), "{bad}");
    cluster.create_table("ns:t", &[]).await;
    cluster.create_table("t", &[]).await;
    let list = async |cluster: &mut Cluster, namespace: &str| {
        let request = v1::ListTablesRequest { hello: cluster.hello(0), namespace: namespace.into() };
        let tables = cluster.client.list_tables(request).await?.into_inner().tables;
        Ok::<_, Status>(tables.into_iter().map(|table| table.schema.unwrap().name).collect::<Vec<_>>())
    };
    assert_eq!(list(&mut cluster, "").await.unwrap(), ["ns:t", "t"]);
    assert_eq!(list(&mut cluster, "ns").await.unwrap(), ["ns:t"]);
    assert_eq!(list(&mut cluster, "default").await.unwrap(), ["t"]);
    assert_eq!(list(&mut cluster, "other").await.unwrap_err().code(), tonic::Code::NotFound);
    let refused = refusal(cluster.client.drop_namespace(request(&cluster, "ns"))).await;
    assert!(refused.to_string().contains("has a table: ns:t"), "{refused}");

    // Namespaces are in the log and in the checkpoint.
    let mut cluster = cluster.restarted().await;
    let hello = cluster.hello(0);
    let names = cluster.client.list_namespaces(v1::ClusterRequest { hello: hello.clone() }).await.unwrap();
    assert_eq!(names.into_inner().names, ["default", "ns"]);
    cluster.client.drop_table(v1::DropTableRequest { hello, name: "ns:t".into(), ..Default::default() }).await.unwrap();
    cluster.client.drop_namespace(request(&cluster, "ns")).await.unwrap();
    let gone = refusal(cluster.client.drop_namespace(request(&cluster, "ns"))).await;
    assert!(matches!(gone, Error::NotFound { .. }), "{gone}");
    cluster.end().await;
}
