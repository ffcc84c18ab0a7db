//! Typed tables against a fake cluster: structs as rows, and salted keys in one order.

use futures::TryStreamExt as _;
use terrane_client::{
    Bucket, Client, Consistency, Desc, Error, IntoSpan as _, KeyDeclaration, KeySpan, KeyedTable, LatestPer,
    MutationOutcome, PageToken, Returns, Row, RowKey, TypedTable, column,
};

use crate::fake::Fake;

#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, RowKey)]
struct ActionKey {
    user: u64,
    time: Desc<i64>,
}

#[derive(Clone, Debug, PartialEq, Eq, Row)]
#[row(key = ActionKey, family = "f")]
struct Action {
    #[row(part)]
    user: u64,
    #[row(part)]
    time: Desc<i64>,
    kind: String,
    note: Option<String>,
    #[row(family = "g", qualifier = "times")]
    count: i64,
}

#[derive(Clone, Debug, PartialEq, Eq, RowKey)]
struct SaltedKey {
    bucket: Bucket<8>,
    user: u64,
    time: Desc<i64>,
}

#[derive(Clone, Debug, PartialEq, Eq, Row)]
#[row(family = "f")]
struct Salted {
    #[row(key)]
    key: SaltedKey,
    value: u32,
}

fn action(user: u64, time: i64) -> Action {
    let note = (time % 2 == 0).then(|| format!("at {time}"));
    Action { user, time: Desc(time), kind: "login".to_owned(), note, count: -time }
}

fn salted(user: u64, time: i64) -> Salted {
    Salted { key: SaltedKey { bucket: Bucket, user, time: Desc(time) }, value: u32::try_from(time).expect("small") }
}

async fn table(key: &str, splits: &[&str]) -> (Fake, Client) {
    let cluster = Fake::start(splits).await;
    cluster.world.lock().schema.key = Some(KeyDeclaration::parse(key).expect("a declaration"));
    let client = cluster.client().await;
    (cluster, client)
}

async fn actions() -> (Fake, TypedTable<Action>) {
    let (cluster, client) = table("user:u64, time:desc i64", &["\0\0\0\0\0\0\0\x02", "\0\0\0\0\0\0\0\x03"]).await;
    let actions = TypedTable::new(client.table("t").await.expect("it exists")).expect("the declared key");
    for user in 1..=3 {
        for time in [10, 25, 30, 5] {
            actions.put(&action(user, time)).await.expect("written");
        }
    }
    (cluster, actions)
}

/// 3 users with 20 rows each over 8 buckets; region boundaries lie inside buckets.
async fn in_buckets() -> (Fake, TypedTable<Salted>) {
    let (cluster, client) =
        table("bucket8, user:u64, time:desc i64", &["\x01", "\x02\0\0\0\0\0\0\0\x02", "\x05"]).await;
    let rows = TypedTable::new(client.table("t").await.expect("it exists")).expect("the declared key");
    for user in 1..=3 {
        for time in 0..20 {
            rows.put(&salted(user, time)).await.expect("written");
        }
    }
    (cluster, rows)
}

/// In key order: users ascending, times descending.
fn in_order() -> Vec<(u64, i64)> {
    (1..=3).flat_map(|user| (0..20).rev().map(move |time| (user, time))).collect()
}

fn named(rows: &[Salted]) -> Vec<(u64, i64)> {
    rows.iter().map(|row| (row.key.user, row.key.time.0)).collect()
}

#[tokio::test]
async fn a_struct_is_read_as_it_was_put() {
    let (_cluster, actions) = actions().await;
    let key = ActionKey { user: 2, time: Desc(10) };
    assert_eq!(actions.get(&key).await.unwrap(), Some(action(2, 10)));
    let without = Action { note: None, ..action(2, 10) };
    actions.put(&without).await.unwrap();
    assert_eq!(actions.get(&key).await.unwrap(), Some(without), "what is none is no more there");
    actions.delete(&key).await.unwrap();
    assert_eq!(actions.get(&key).consistency(Consistency::Stale).await.unwrap(), None);
}

#[tokio::test]
async fn typed_writes_take_conditions_and_return_outcomes_like_untyped_ones() {
    let (_cluster, actions) = actions().await;
    let key = ActionKey { user: 2, time: Desc(10) };
    let changed = Action { kind: "logout".to_owned(), ..action(2, 10) };
    let login = || column("f", "kind").equals("login");
    let has = |outcome: &MutationOutcome, value: &[u8]| {
        outcome.row.as_ref().is_some_and(|row| row.cells().any(|cell| cell.value == value))
    };
    let outcome = actions.put(&changed).when(login()).returning(Returns::Old).await.unwrap();
    assert!(outcome.held && has(&outcome, b"login"), "{outcome:?}");
    let outcome = actions.put(&action(2, 10)).when(login()).return_found().await.unwrap();
    assert!(!outcome.held && has(&outcome, b"logout"), "{outcome:?}");
    assert_eq!(actions.get(&key).await.unwrap(), Some(changed));

    assert_eq!(actions.increment(&key, "g", "times", 14).await.unwrap(), 4);
    assert_eq!(actions.get(&key).await.unwrap().map(|action| action.count), Some(4));
    let rows = [action(7, 1), action(8, 2)];
    let written = actions.put_many(&rows).await.unwrap();
    assert!(written.len() == 2 && written.iter().all(Result::is_ok), "{written:?}");
    assert_eq!(actions.first(8).await.unwrap(), Some(action(8, 2)));

    let keyed: KeyedTable<ActionKey> = KeyedTable::new(actions.table().clone()).unwrap();
    let mutated = keyed.mutate(&key, |row| row.set("f", "note", "n").increment("g", "times", 1)).await.unwrap();
    assert!(mutated.held);
    assert_eq!(keyed.increment(&key, "g", "times", 1).await.unwrap(), 6);
    assert!(!keyed.delete(&key, |row| row).when(column("f", "note").is_absent()).await.unwrap().held);
}

#[tokio::test]
async fn typed_stale_reads_say_as_of_when() {
    let (_cluster, actions) = actions().await;
    let key = ActionKey { user: 2, time: Desc(10) };
    let plain = actions.get(&key).with_as_of().await.unwrap();
    assert_eq!((plain.value, plain.as_of_ms), (Some(action(2, 10)), None), "a leader's answer is complete");
    let page = actions.page(2).limit(2).consistency(Consistency::Stale).with_as_of().await.unwrap();
    let one = actions.first(2).consistency(Consistency::Stale).with_as_of().await.unwrap();
    let get = actions.get(&key).consistency(Consistency::Stale).with_as_of().await.unwrap();
    for as_of_ms in [page.as_of_ms, one.as_of_ms, get.as_of_ms] {
        assert!(as_of_ms.is_some());
    }
}

#[tokio::test]
async fn an_impossible_typed_request_is_refused_before_it_is_sent() {
    let (_cluster, actions) = actions().await;
    let page = actions.page(2).with(|scan| scan.latest(LatestPer::parts(1), 1)).await;
    let refused = page.expect_err("pages of the latest rows").to_string();
    assert!(refused.contains("latest_of_each"), "{refused}");

    let (_cluster, rows) = in_buckets().await;
    for filter in ["page(3)", "while(u32(f:value) < 5)"] {
        let scan = rows.scan(..).filter(filter).await.map(drop);
        let count = rows.count(..).filter(filter).await.map(drop);
        for outcome in [scan, count] {
            let refused = outcome.expect_err("over buckets").to_string();
            assert!(refused.contains("salted") && refused.contains("`limit`"), "{refused}");
        }
    }
    assert_eq!(rows.count(..).await.unwrap(), 60);
    let refused = rows.latest_of_each(3).await.map(drop).expect_err("two parts").to_string();
    assert!(refused.contains("2 parts after its bucket, not 3"), "{refused}");
}

#[tokio::test]
async fn leading_parts_select_rows() {
    let (_cluster, actions) = actions().await;
    let times = async |span: KeySpan<ActionKey>| -> Vec<i64> {
        let rows: Vec<Action> = actions.scan(span).await.unwrap().try_collect().await.unwrap();
        rows.iter().map(|row| row.time.0).collect()
    };
    assert_eq!(times(2u64.into_span()).await, [30, 25, 10, 5]);
    assert_eq!(times(ActionKey::prefix().user(2).time_between(10..30)).await, [25, 10]);
    assert_eq!(times(ActionKey::prefix().user(2).time(25).into_span()).await, [25]);
    assert_eq!(times(ActionKey::prefix().user_between(2..3)).await.len(), 4);
    assert_eq!(actions.count(..).await.unwrap(), 12);
    assert_eq!(actions.count(3).await.unwrap(), 4);
    assert_eq!(actions.latest(2).await.unwrap(), Some(action(2, 30)));
    assert_eq!(actions.last(2).await.unwrap(), Some(action(2, 5)));
    assert_eq!(actions.latest(9).await.unwrap(), None);
}

#[tokio::test]
async fn neighbours_are_found_by_key() {
    let (_cluster, actions) = actions().await;
    let key = |user, time| ActionKey { user, time: Desc(time) };
    let time = |found: Option<Action>| found.map(|row| (row.user, row.time.0));
    // Times descend: an earlier key is a later time.
    assert_eq!(time(actions.floor(&key(2, 11)).await.unwrap()), Some((2, 25)));
    assert_eq!(time(actions.ceiling(&key(2, 11)).await.unwrap()), Some((2, 10)));
    assert_eq!(time(actions.lower(&key(2, 30)).await.unwrap()), Some((1, 5)));
    assert_eq!(time(actions.lower(&key(2, 30)).within(2).await.unwrap()), None);
    assert_eq!(time(actions.higher(&key(2, 5)).await.unwrap()), Some((3, 30)));
    assert_eq!(time(actions.higher(&key(3, 5)).await.unwrap()), None);
}

#[tokio::test]
async fn the_latest_of_each_user_come_in_one_call() {
    let (_cluster, actions) = actions().await;
    let newest: Vec<Action> = actions.latest_of_each(1).rows(2).await.unwrap().try_collect().await.unwrap();
    let newest: Vec<(u64, i64)> = newest.iter().map(|row| (row.user, row.time.0)).collect();
    assert_eq!(newest, [(1, 30), (1, 25), (2, 30), (2, 25), (3, 30), (3, 25)]);
}

#[tokio::test]
async fn a_row_of_another_type_is_named() {
    let (cluster, actions) = actions().await;
    let key = ActionKey { user: 1, time: Desc(30) }.encode().unwrap();
    let column = ("g".into(), "times".into());
    cluster.world.lock().rows.get_mut(&key[..]).expect("it exists").insert(column, (1, "five".into()));
    let error = actions.latest(1).await.expect_err("five is not a number");
    assert!(error.is_invalid() && error.to_string().contains("g:times: i64 values have 8 bytes"), "{error}");
    let mut rows = actions.scan(1).await.unwrap();
    assert!(rows.next().await.is_some_and(|row| row.is_err()));
    assert_eq!(rows.next().await.unwrap().unwrap(), action(1, 25), "the scan goes on behind it");
}

#[tokio::test]
async fn a_table_without_a_family_of_the_type_is_refused() {
    #[derive(Debug, Row)]
    #[row(family = "elsewhere")]
    struct Other {
        #[row(key)]
        key: ActionKey,
        value: u32,
    }
    let (_cluster, client) = table("user:u64, time:desc i64", &[]).await;
    let table = client.table("t").await.unwrap();
    let row = Other { key: ActionKey { user: 1, time: Desc(1) }, value: 1 };
    assert_eq!((row.key.user, row.value), (1, 1));
    assert!(TypedTable::<Other>::new(table.clone()).is_err_and(|error| error.to_string().contains("elsewhere")));
    assert!(TypedTable::<Salted>::new(table).is_err_and(|error| error.to_string().contains("bucket8")));
}

#[tokio::test]
async fn salted_rows_are_read_in_one_order() {
    let (_cluster, rows) = in_buckets().await;
    let all: Vec<Salted> = rows.scan(..).await.unwrap().try_collect().await.unwrap();
    assert_eq!(named(&all), in_order());
    for (offset, limit) in [(0, 7), (13, 20), (55, 20), (100, 1)] {
        let part: Vec<Salted> = rows.scan(..).offset(offset).limit(limit).await.unwrap().try_collect().await.unwrap();
        let expected: Vec<_> = in_order().into_iter().skip(offset as usize).take(limit as usize).collect();
        assert_eq!(named(&part), expected);
        let back: Vec<Salted> =
            rows.scan(..).offset(offset).limit(limit).reverse().await.unwrap().try_collect().await.unwrap();
        let expected: Vec<_> = in_order().into_iter().rev().skip(offset as usize).take(limit as usize).collect();
        assert_eq!(named(&back), expected);
    }
    let some: Vec<Salted> =
        rows.scan(SaltedKey::prefix().user(2).time_between(5..8)).await.unwrap().try_collect().await.unwrap();
    assert_eq!(named(&some), [(2, 7), (2, 6), (2, 5)]);
    assert_eq!((rows.count(..).await.unwrap(), rows.count(2).await.unwrap()), (60, 20));
}

#[tokio::test]
async fn salted_rows_are_paged_by_token_and_by_offset() {
    let (cluster, rows) = in_buckets().await;
    for reverse in [false, true] {
        let (mut seen, mut token): (Vec<_>, Option<PageToken>) = (Vec::new(), None);
        for number in 0..9u64 {
            let request = rows.page(..).after(token.take()).limit(7);
            let page = if reverse { request.reverse() } else { request }.await.unwrap();
            let by_offset = rows.page(..).limit(7).offset(number * 7);
            let by_offset = if reverse { by_offset.reverse() } else { by_offset }.await.unwrap();
            assert_eq!(named(&page.rows), named(&by_offset.rows));
            seen.extend(named(&page.rows));
            assert_eq!(page.next.is_some(), number < 8);
            token = page.next.map(|token| token.to_string().parse().expect("our own"));
            if number == 3 {
                let regions = cluster.world.lock().regions.len();
                cluster.world.lock().split(&[if reverse { 3 } else { 4 }]);
                assert_eq!(cluster.world.lock().regions.len(), regions + 1);
            }
        }
        let mut expected = in_order();
        if reverse {
            expected.reverse();
        }
        assert_eq!(seen, expected);
    }
}

#[tokio::test]
async fn a_token_opens_only_for_its_own_pages() {
    let (_cluster, rows) = in_buckets().await;
    let token = rows.page(2).limit(3).await.unwrap().next.expect("more rows");
    let refused = |result: Result<_, Error>| result.is_err_and(|error: Error| error.is_invalid());
    assert!(refused(rows.page(3).after(token.clone()).await.map(drop)));
    assert!(refused(rows.page(2).reverse().after(token.clone()).await.map(drop)));
    assert!(refused(rows.page(2).filter("prefix(row, 'r')").after(token.clone()).await.map(drop)));
    assert_eq!(named(&rows.page(2).after(token).limit(2).await.unwrap().rows), [(2, 16), (2, 15)]);
}

#[tokio::test]
async fn ends_and_latest_of_salted_rows_are_those_of_all_buckets() {
    let (_cluster, rows) = in_buckets().await;
    let key = |user, time| salted(user, time).key;
    assert_eq!(rows.latest(2).await.unwrap(), Some(salted(2, 19)));
    assert_eq!(rows.last(..).await.unwrap(), Some(salted(3, 0)));
    assert_eq!(rows.get(&key(2, 7)).await.unwrap(), Some(salted(2, 7)));
    assert_eq!(rows.higher(&key(2, 7)).await.unwrap(), Some(salted(2, 6)));
    assert_eq!(rows.lower(&key(2, 19)).await.unwrap(), Some(salted(1, 0)));
    assert_eq!(rows.floor(&key(2, 100)).await.unwrap(), Some(salted(1, 0)));
    let newest: Vec<Salted> = rows.latest_of_each(1).rows(2).await.unwrap().try_collect().await.unwrap();
    assert_eq!(named(&newest), [(1, 19), (1, 18), (2, 19), (2, 18), (3, 19), (3, 18)]);
    let some: Vec<Salted> = rows.latest_of_each(1).offset(1).limit(1).await.unwrap().try_collect().await.unwrap();
    assert_eq!(named(&some), [(2, 19)]);
}

#[tokio::test]
async fn keyed_rows_are_read_in_one_order_too() {
    let (_cluster, rows) = in_buckets().await;
    let keyed: KeyedTable<SaltedKey> = KeyedTable::new(rows.table().clone()).unwrap();
    let mut found = keyed.scan(3).limit(2).await.unwrap();
    let mut times = Vec::new();
    while let Some(row) = found.next().await {
        times.push(row.unwrap().key.time.0);
    }
    assert_eq!(times, [19, 18]);
}
