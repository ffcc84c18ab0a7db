//! Changes that are sent again under the id of their request, as a caller does whose answer was lost.

use super::*;

#[tokio::test]
async fn a_change_that_is_sent_again_is_answered_as_the_first_and_made_once() {
    let mut cluster = Cluster::with_servers().await;
    let id = |byte: u8| Bytes::from(vec![byte; 16]);

    let create = v1::CreateTableRequest { request_id: id(1), ..cluster.create("t", &["m"]) };
    let first = cluster.client.create_table(create.clone()).await.unwrap().into_inner();
    let again = cluster.client.create_table(create.clone()).await.unwrap().into_inner();
    assert_eq!(again, first);
    let other = v1::CreateTableRequest { request_id: id(2), ..create.clone() };
    assert!(matches!(refusal(cluster.client.create_table(other)).await, Error::AlreadyExists { .. }));

    let set = [("region_size".to_owned(), "64MiB".to_owned())].into();
    let (hello, request_id) = (cluster.hello(0), id(3));
    let alter = v1::AlterTableRequest { hello, name: "t".into(), set, request_id, ..Default::default() };
    let altered = cluster.client.alter_table(alter.clone()).await.unwrap().into_inner();
    assert_eq!(cluster.client.alter_table(alter).await.unwrap().into_inner(), altered);

    let dropped = v1::DropTableRequest { hello: cluster.hello(0), name: "t".into(), request_id: id(4) };
    cluster.client.drop_table(dropped.clone()).await.unwrap();
    cluster.client.drop_table(dropped.clone()).await.unwrap();
    let second = v1::CreateTableRequest { request_id: id(5), ..create };
    cluster.client.create_table(second).await.unwrap();
    cluster.client.drop_table(dropped).await.unwrap();
    cluster.describe("t").await.expect("the next table of this name is another one");
    cluster.end().await;
}
