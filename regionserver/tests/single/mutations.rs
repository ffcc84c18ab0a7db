//! Increments, appends, conditions, atomic batches, and retries with the same operation number.

use bytes::Bytes;
use terrane_proto::{error, v1};
use terrane_types::cell::{CellRef, Cells, LATEST, pack};
use terrane_types::{Error, RegionDescriptor};

use crate::harness::{self, Bench, Client, packed, put, regions};

const OURS: [u8; 16] = [9; 16];

fn increment(row: &'static str, by: i64) -> v1::RowMutation {
    let what = Some(v1::read_modify_write::What::Increment(by));
    let rmw = v1::ReadModifyWrite { family: "f".into(), qualifier: "n".into(), what };
    v1::RowMutation {
        row: row.into(),
        read_modify_writes: vec![rmw],
        returns: v1::Returns::New.into(),
        ..Default::default()
    }
}

fn numbered(number: u64, mutation: v1::RowMutation) -> v1::RowMutation {
    v1::RowMutation { operation: number, first_try_ms: 1, ..mutation }
}

fn test(comparison: v1::Comparison, values: &[&'static [u8]]) -> Option<v1::Condition> {
    let test = v1::ColumnTest {
        family: "f".into(),
        qualifier: "q".into(),
        comparison: comparison.into(),
        values: values.iter().map(|value| Bytes::from_static(value)).collect(),
        ..Default::default()
    };
    Some(v1::Condition { kind: Some(v1::condition::Kind::Column(test)) })
}

/// The values of the cells returned for a row.
fn returned(reply: &v1::MutateReply, row: u32) -> Vec<Vec<u8>> {
    let result = reply.results.iter().find(|result| result.row == row).unwrap_or_else(|| panic!("{reply:?}"));
    Cells::new(&result.cells).map(|cell| cell.value.to_vec()).collect()
}

fn counter(reply: &v1::MutateReply, row: u32) -> i64 {
    let values = returned(reply, row);
    i64::from_be_bytes(values[0][..].try_into().unwrap())
}

fn refused(reply: &v1::MutateReply, row: u32) -> Error {
    let error = reply.errors.iter().find(|error| error.row == row).unwrap_or_else(|| panic!("{reply:?}"));
    error::from_detail(error.error.clone().unwrap())
}

/// Keeps the rows of a user together.
fn atomic_by_user(schema: &mut terrane_types::TableSchema) {
    schema.set_attribute("key", "user:bytes2, item:tail").unwrap();
    schema.set_attribute("atomic", "1").unwrap();
}

async fn mutate(client: &mut Client, region: &RegionDescriptor, rows: Vec<v1::RowMutation>) -> v1::MutateReply {
    client.mutate(region, OURS, v1::Mutate { rows, atomic: false }).await.unwrap()
}

async fn atomically(client: &mut Client, region: &RegionDescriptor, rows: Vec<v1::RowMutation>) -> v1::MutateReply {
    client.mutate(region, OURS, v1::Mutate { rows, atomic: true }).await.unwrap()
}

#[tokio::test]
async fn concurrent_increments_add_up_and_each_gets_its_own_sum() {
    let (mut bench, region, mut client) = Bench::with_table(|_| {}).await;
    let body = || v1::request::Body::Mutate(v1::Mutate { rows: vec![increment("hot", 1)], atomic: false });
    let answers = client.batch((0..3_000).map(|_| (region.clone(), body())).collect()).await;
    let sums: Vec<i64> = answers
        .iter()
        .map(|answer| match answer {
            v1::reply::Body::Mutate(reply) => counter(reply, 0),
            other => panic!("{other:?}"),
        })
        .collect();
    assert_eq!(sums, (1..=3_000).collect::<Vec<_>>());
    // A restart does not change the sum.
    bench.restart(2).await;
    let mut client = bench.client().await;
    assert_eq!(counter(&mutate(&mut client, &region, vec![increment("hot", -3_000)]).await, 0), 0);
    bench.stop_server().await;
}

#[tokio::test]
async fn an_increment_that_fails_is_an_error_of_its_row_alone() {
    let (mut bench, region, mut client) = Bench::with_table(|_| {}).await;
    let mut text = put(b"text", b"x");
    text.cells = packed(b"n", b"abc");
    mutate(&mut client, &region, vec![text, increment("full", i64::MAX)]).await;
    let rows = vec![increment("text", 1), increment("full", 1), increment("fine", 1)];
    let reply = mutate(&mut client, &region, rows).await;
    let not_a_counter = refused(&reply, 0).to_string();
    assert!(not_a_counter.contains("row text: column f:n holds 3 bytes"), "{not_a_counter}");
    let overflow = refused(&reply, 1).to_string();
    assert!(overflow.contains("row full: column f:n") && overflow.contains("overflow"), "{overflow}");
    assert_eq!(counter(&reply, 2), 1);
    let twice = v1::RowMutation { cells: packed(b"n", b""), ..increment("twice", 1) };
    let reply = mutate(&mut client, &region, vec![twice]).await;
    assert!(
        refused(&reply, 0).to_string().contains("more than once; a column takes one increment, append or"),
        "{reply:?}"
    );
    bench.stop_server().await;
}

#[tokio::test]
async fn appends_and_old_values_are_returned() {
    let (mut bench, region, mut client) = Bench::with_table(|_| {}).await;
    let append = |value: &'static str| {
        let what = Some(v1::read_modify_write::What::Append(value.into()));
        let rmw = v1::ReadModifyWrite { family: "f".into(), qualifier: "q".into(), what };
        let returns = v1::Returns::Old.into();
        v1::RowMutation { row: "row".into(), read_modify_writes: vec![rmw], returns, ..Default::default() }
    };
    let reply = mutate(&mut client, &region, vec![append("ab")]).await;
    assert_eq!(returned(&reply, 0), Vec::<Vec<u8>>::new());
    let reply = mutate(&mut client, &region, vec![append("cd")]).await;
    assert_eq!(returned(&reply, 0), [b"ab"]);
    assert_eq!(client.get(&region, &[b"row"]).await.unwrap(), ["row=abcd"]);
    // Deleting a whole family returns what it held.
    let mut cells = Vec::new();
    pack(&mut cells, CellRef::delete(terrane_types::CellKind::DeleteFamily, b"f", b"", LATEST));
    let delete = v1::RowMutation {
        row: "row".into(),
        cells: cells.into(),
        returns: v1::Returns::Old.into(),
        ..Default::default()
    };
    let reply = mutate(&mut client, &region, vec![delete]).await;
    assert_eq!(returned(&reply, 0), [b"abcd"]);
    assert_eq!(client.get(&region, &[b"row"]).await.unwrap(), Vec::<String>::new());
    bench.stop_server().await;
}

#[tokio::test]
async fn one_of_many_concurrent_test_and_sets_wins() {
    let (mut bench, region, mut client) = Bench::with_table(|_| {}).await;
    let claim = |who: usize| {
        let condition = test(v1::Comparison::Absent, &[]);
        let mutation = put(b"job", who.to_string().as_bytes());
        let rows = vec![v1::RowMutation { condition, return_found: true, ..mutation }];
        v1::request::Body::Mutate(v1::Mutate { rows, atomic: false })
    };
    let answers = client.batch((0..100).map(|who| (region.clone(), claim(who))).collect()).await;
    let mut won = Vec::new();
    for (who, answer) in answers.iter().enumerate() {
        let v1::reply::Body::Mutate(reply) = answer else { panic!("{answer:?}") };
        match reply.results.first() {
            None => won.push(who),
            Some(result) => {
                assert!(result.condition_failed);
                assert_eq!(returned(reply, 0), [b"0"], "what was found");
            }
        }
    }
    assert_eq!(won, [0]);
    assert_eq!(client.get(&region, &[b"job"]).await.unwrap(), ["job=0"]);
    bench.stop_server().await;
}

#[tokio::test]
async fn an_atomic_batch_is_applied_as_a_whole_or_not_at_all() {
    let (mut bench, region, mut client) = Bench::with_table(atomic_by_user).await;
    let held = v1::RowMutation { condition: test(v1::Comparison::Absent, &[]), ..put(b"u1a", b"1") };
    let reply = atomically(&mut client, &region, vec![held.clone(), put(b"u1b", b"2")]).await;
    assert!(reply.errors.is_empty() && reply.results.is_empty(), "{reply:?}");
    let reply = atomically(&mut client, &region, vec![put(b"u1c", b"3"), held]).await;
    assert!(reply.results.len() == 2 && reply.results.iter().all(|result| result.condition_failed), "{reply:?}");
    let bad = v1::RowMutation { read_modify_writes: increment("x", 1).read_modify_writes, ..put(b"u1a", b"9") };
    let text = v1::RowMutation { cells: packed(b"n", b"abc"), ..put(b"u1a", b"") };
    mutate(&mut client, &region, vec![text]).await;
    let reply = atomically(&mut client, &region, vec![put(b"u1c", b"3"), bad]).await;
    assert!(refused(&reply, 0).to_string().contains("nothing of the atomic batch was applied"), "{reply:?}");
    assert!(refused(&reply, 1).to_string().contains("holds 3 bytes"), "{reply:?}");
    assert_eq!(client.get(&region, &[b"u1b", b"u1c"]).await.unwrap(), ["u1b=2"]);
    let apart = v1::Mutate { rows: vec![put(b"u1a", b"1"), put(b"u2a", b"1")], atomic: true };
    let refused = client.mutate(&region, OURS, apart).await.unwrap_err().to_string();
    assert!(refused.contains("these differ there from u1a: u2a"), "{refused}");
    bench.stop_server().await;
}

#[tokio::test]
async fn a_retry_gets_the_first_answer_after_a_restart_and_a_split_too() {
    let (mut bench, region, mut client) = Bench::with_table(|_| {}).await;
    let claim = v1::RowMutation { condition: test(v1::Comparison::Absent, &[]), ..put(b"job", b"x") };
    let operations = [
        numbered(1, increment("n", 5)),
        numbered(2, claim.clone()),
        numbered(3, claim),
        numbered(4, put(b"plain", b"1")),
        numbered(5, v1::RowMutation { returns: 0, ..increment("n", 1) }),
    ];
    let first = mutate(&mut client, &region, operations.to_vec()).await;
    assert_eq!((counter(&first, 0), first.results.len()), (5, 2), "{first:?}");
    mutate(&mut client, &region, vec![numbered(6, put(b"plain", b"2"))]).await;
    let again = |reply: v1::MutateReply| (reply.errors, reply.results);
    let expected = again(first);
    let retried = mutate(&mut client, &region, operations.to_vec()).await;
    assert_eq!(again(retried), expected);

    bench.restart(2).await;
    let mut client = bench.client().await;
    let retried = mutate(&mut client, &region, operations.to_vec()).await;
    assert_eq!(again(retried), expected, "after a restart");

    bench.split("k").await.unwrap();
    let report = bench.report(|report| report.regions.len() == 2).await;
    let [left, right] = &regions(&report)[..] else { panic!("{report:?}") };
    for operation in &operations {
        let region = if operation.row < *"k" { left } else { right };
        let retried = mutate(&mut client, region, vec![operation.clone()]).await;
        let of_first =
            expected.1.iter().filter(|result| operations[result.row as usize].operation == operation.operation);
        let of_first: Vec<_> = of_first.map(|result| v1::RowResult { row: 0, ..result.clone() }).collect();
        assert_eq!(retried.results, of_first, "number {} after the split", operation.operation);
    }
    assert_eq!(client.get(right, &[b"plain"]).await.unwrap(), ["plain=2"]);
    assert_eq!(counter(&mutate(&mut client, right, vec![numbered(7, increment("n", 0))]).await, 0), 6);
    bench.stop_server().await;
}

#[tokio::test]
async fn operations_below_the_settled_mark_are_not_tried() {
    let (mut bench, region, mut client) = Bench::with_table(|_| {}).await;
    client.lowest_unsettled = 8;
    mutate(&mut client, &region, vec![numbered(8, put(b"a", b"1"))]).await;
    let reply = mutate(&mut client, &region, vec![numbered(7, put(b"a", b"2")), numbered(9, put(b"b", b"1"))]).await;
    assert_eq!(refused(&reply, 0), Error::Uncertain { not_tried: true });
    assert_eq!(client.get(&region, &[b"a", b"b"]).await.unwrap(), ["a=1", "b=1"]);
    bench.stop_server().await;
}

#[tokio::test]
async fn a_unary_mutation_uses_messages() {
    use terrane_proto::v1::data_client::DataClient;
    let mut bench = Bench::start().await;
    let region = bench.create_table(|_| {}).await;
    let call = v1::MutateCall {
        hello: harness::our_hello(),
        header: harness::header(&region),
        body: Some(v1::Mutate { rows: vec![increment("n", 4)], atomic: false }),
    };
    let reply = DataClient::new(bench.channel()).mutate(call).await.unwrap().into_inner();
    let cell = &reply.results[0].messages[0];
    assert_eq!((&cell.family[..], &cell.value[..]), ("f", &4i64.to_be_bytes()[..]));
    assert!(reply.results[0].cells.is_empty());
    bench.stop_server().await;
}

#[tokio::test]
async fn an_operation_first_tried_in_the_future_is_not_tried() {
    let (mut bench, region, mut client) = Bench::with_table(|_| {}).await;
    let later = terrane_env::time::wall_ms() + 60_000;
    let from_future = v1::RowMutation { first_try_ms: later, ..numbered(1, increment("n", 5)) };
    let plain = v1::RowMutation { first_try_ms: later, ..numbered(2, put(b"plain", b"1")) };
    let reply = mutate(&mut client, &region, vec![from_future, plain, numbered(3, put(b"a", b"1"))]).await;
    for row in 0..2 {
        assert_eq!(refused(&reply, row), Error::Uncertain { not_tried: true });
    }
    assert_eq!(client.get(&region, &[b"a", b"n", b"plain"]).await.unwrap(), ["a=1"]);
    bench.stop_server().await;
}

#[tokio::test]
async fn rows_over_the_read_limit_are_postponed_and_the_others_are_applied() {
    let (mut bench, region, mut client) = Bench::with_table(|_| {}).await;
    let rows: Vec<[u8; 1]> = (b'a'..b'k').map(|row| [row]).collect();
    for row in &rows {
        mutate(&mut client, &region, vec![put(row, &vec![7; 9 << 20])]).await;
    }
    let claim = |(number, row): (u64, &[u8; 1])| {
        let mutation = v1::RowMutation { cells: packed(b"n", b"1"), ..put(row, b"") };
        numbered(number, v1::RowMutation { condition: test(v1::Comparison::Exists, &[]), ..mutation })
    };
    let mut claims: Vec<_> = (1..).zip(&rows).map(claim).collect();
    // A row that needs no read follows them, so that mutations of one row keep their order.
    claims.push(numbered(99, put(b"a", b"last")));
    let (mut rounds, mut left) = (0, claims);
    while !left.is_empty() {
        let reply = mutate(&mut client, &region, left.clone()).await;
        assert!(reply.errors.len() < left.len(), "some rows are applied each time");
        let postponed = reply.errors.iter().map(|error| error.row);
        assert!(postponed.eq((left.len() - reply.errors.len()) as u32..left.len() as u32), "the last ones, in order");
        for error in &reply.errors {
            assert_eq!(refused(&reply, error.row), Error::Busy { retry_after: std::time::Duration::from_millis(1) });
        }
        left.drain(..left.len() - reply.errors.len());
        rounds += 1;
    }
    assert!((2..5).contains(&rounds), "{rounds}");
    let reply = mutate(&mut client, &region, vec![numbered(1, increment("other", 1))]).await;
    assert!(reply.errors.is_empty() && reply.results.is_empty(), "number 1 was noted: {reply:?}");
    bench.stop_server().await;
}

#[tokio::test]
async fn a_large_atomic_batch_that_fails_reports_once_and_does_not_block_the_group() {
    let (mut bench, region, mut client) = Bench::with_table(atomic_by_user).await;
    // Keys of bytes that take four characters each when escaped.
    let key = |number: u32| [b"u1", &[0xFF; 2_000][..], &number.to_be_bytes()].concat();
    let count = 5_000;
    mutate(&mut client, &region, vec![v1::RowMutation { cells: packed(b"n", b"abc"), ..put(&key(count), b"") }]).await;
    let mut rows: Vec<_> = (0..count).map(|number| put(&key(number), b"")).collect();
    rows.push(v1::RowMutation { row: key(count).into(), ..increment("x", 1) });
    let reply = atomically(&mut client, &region, rows).await;
    assert_eq!(reply.errors.len(), rows_of(count) + 1, "all fail");
    let bytes: usize = reply.errors.iter().map(|error| error.error.as_ref().unwrap().message.len()).sum();
    assert!(bytes < 1 << 20, "{bytes} bytes of sentences");
    assert!(refused(&reply, 0).to_string().contains("nothing of the atomic batch was applied: "), "the first says why");
    assert!(refused(&reply, 7).to_string().contains("row number 5000"), "{}", refused(&reply, 7));
    let many = (0..20_000u32).map(|number| put(&key(number)[..20], b"")).collect();
    let refused = client.mutate(&region, OURS, v1::Mutate { rows: many, atomic: false }).await.unwrap_err();
    assert!(refused.to_string().contains("16384"), "{refused}");
    mutate(&mut client, &region, vec![put(b"u2", b"after")]).await;
    assert_eq!(client.get(&region, &[b"u2"]).await.unwrap(), ["u2=after"]);
    bench.stop_server().await;
}

fn rows_of(count: u32) -> usize {
    usize::try_from(count).unwrap()
}
