//! What mutations that arrive together come to, which deletes are taken, and what increments and appends make: as on HBase.

use std::time::Duration;

use terrane_hbase_client::is_refusal;
use tokio::time::Instant;

use super::*;

/// How long the lead of a group may take to settle.
const REFUSED_MAX: Duration = Duration::from_secs(30);

fn delete(values: Vec<QualifierValue>) -> MutationProto {
    mutation(MutationType::Delete, b"row", values)
}

fn put(times: &[u64]) -> MutationProto {
    mutation(MutationType::Put, b"row", times.iter().map(|time| value(Some(*time), None, time.to_string())).collect())
}

fn merge(kind: MutationType, bytes: impl Into<Bytes>) -> MutationProto {
    mutation(kind, b"row", vec![value(None, None, bytes)])
}

/// A delete of one version; of the newest one without a time.
fn one_version(time: Option<u64>) -> QualifierValue {
    value(time, Some(DeleteType::DeleteOneVersion), "")
}

/// A delete in a whole family.
fn in_family(time: Option<u64>, kind: DeleteType) -> MutationProto {
    delete(vec![QualifierValue { qualifier: None, ..value(time, Some(kind), "") }])
}

fn on_row(row: &str, mut mutation: MutationProto) -> MutationProto {
    mutation.row = Some(Bytes::copy_from_slice(row.as_bytes()));
    mutation.nonce = Some(nonce());
    mutation
}

/// Sends mutations of a row in one call: as a `RowMutations`, or as a list in which each is for itself. What the server
/// refuses without an effect, as while the lead of its group changes, is sent again with its nonce, as HBase's client does.
async fn send(client: &mut HbaseClient, row: &str, mutations: &[MutationProto], atomic: bool) -> Result<()> {
    let action = |(index, mutation): (u32, &MutationProto)| proto::Action {
        index: Some(index),
        mutation: Some(on_row(row, mutation.clone())),
        ..proto::Action::default()
    };
    let mut actions: Vec<_> = (0u32..).zip(mutations).map(action).collect();
    let until = Instant::now() + REFUSED_MAX;
    while !actions.is_empty() {
        let encode = |region| {
            let action = proto::RegionAction { region, atomic: Some(atomic), action: actions.clone(), condition: None };
            proto::MultiRequest { region_action: vec![action], nonce_group: Some(1), condition: None }.encode_to_vec()
        };
        let answer = client.call::<proto::MultiResponse>(row.as_bytes(), "Multi", encode, || false).await;
        let answer = answer.map_err(|why| anyhow!(why))?.answer;
        let result = answer.region_action_result.into_iter().next().context("no result")?;
        let refused: Vec<u32> = if let Some(why) = &result.exception {
            ensure!(is_refusal(&why.name), "refused with {why:?}");
            actions.iter().filter_map(|action| action.index).collect()
        } else {
            let results = &result.result_or_exception;
            ensure!(results.len() == actions.len(), "answered {results:?}");
            for why in results.iter().filter_map(|one| one.exception.as_ref()) {
                ensure!(is_refusal(&why.name), "an action was refused with {why:?}");
            }
            results.iter().filter(|one| one.exception.is_some()).filter_map(|one| one.index).collect()
        };
        ensure!(refused.is_empty() || Instant::now() < until, "refused for {REFUSED_MAX:?}: {result:?}");
        actions.retain(|action| action.index.is_some_and(|index| refused.contains(&index)));
        if !actions.is_empty() {
            client.forget_regions();
        }
    }
    Ok(())
}

async fn times(client: &mut HbaseClient, row: &str) -> Result<Vec<u64>> {
    Ok(versions(client, row.as_bytes()).await?.into_iter().map(|(time, _)| time).collect())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn mutations_that_arrive_together_are_judged_by_their_timestamps() -> Result<()> {
    let mut served = Served::begin("together").await?;
    let client = &mut served.client;
    let up_to = |time| delete(vec![value(Some(time), Some(DeleteType::DeleteMultipleVersions), "")]);
    for (name, atomic) in [("RowMutations", true), ("a list", false)] {
        // The tombstone comes before the cells beneath it, as stock copies write it.
        for (at, tombstone) in [up_to(10), in_family(Some(10), DeleteType::DeleteFamily)].into_iter().enumerate() {
            let row = format!("{name}{at}");
            send(client, &row, &[tombstone, put(&[5, 10, 12])], atomic).await?;
            let left = times(client, &row).await?;
            ensure!(left == [12], "{name}: a delete at 10 beside puts at 5, 10 and 12 left {left:?}");
        }
        let row = format!("{name} with a delete of one version");
        send(client, &row, &[delete(vec![one_version(Some(5))]), put(&[5, 7])], atomic).await?;
        let left = times(client, &row).await?;
        ensure!(left == [7], "{name}: a delete of version 5 beside puts at 5 and 7 left {left:?}");
        // A delete of the newest version sees the row as it was before.
        mutate(client, on_row(&row, put(&[9])), None).await?;
        send(client, &row, &[put(&[11]), delete(vec![one_version(None)])], atomic).await?;
        let left = times(client, &row).await?;
        ensure!(left == [11, 7], "{name}: a delete of the newest version beside a put left {left:?}");
        // What comes later is another matter: with us it counts.
        mutate(client, on_row(&row, up_to(20)), None).await?;
        mutate(client, on_row(&row, put(&[15])), None).await?;
        let left = times(client, &row).await?;
        ensure!(left == [15], "{name}: a put after a delete shows, and {left:?} are there");
    }
    served.end().await
}

/// HBase's tools write tombstones before or after what these cover, and each in a call of its own.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_tombstone_covers_what_a_later_call_dates_below_it_where_the_family_has_that_rule() -> Result<()> {
    let rule = ("meta.hbase.NEW_VERSION_BEHAVIOR", "false");
    let spec = |name: &str, versions: &str| TableSpec::new(name)?.family("f", &[("versions", versions), rule]);
    let mut served = Served::begin_with(spec("dated", "5")?).await?;
    let own = served.cluster.client().await?;
    own.admin().create_table(spec("one", "1")?).await?;
    let client = &mut served.client;

    let up_to = delete(vec![value(Some(10), Some(DeleteType::DeleteMultipleVersions), "")]);
    let family = in_family(Some(10), DeleteType::DeleteFamily);
    let (version, family_version) =
        (delete(vec![one_version(Some(10))]), in_family(Some(10), DeleteType::DeleteFamilyVersion));
    let deletes = [(up_to, &[12][..]), (family, &[12]), (version, &[12, 5]), (family_version, &[12, 5])];
    for is_flushed in [false, true] {
        for (at, (tombstone, _)) in deletes.iter().enumerate() {
            mutate(client, on_row(&format!("{is_flushed} {at}"), tombstone.clone()), None).await?;
        }
        if is_flushed {
            own.admin().flush_table("dated", |_| {}).await?;
        }
        for (at, (_, left)) in deletes.iter().enumerate() {
            let row = &format!("{is_flushed} {at}");
            send(client, row, &[put(&[5]), put(&[10, 12])], false).await?;
            let found = times(client, row).await?;
            ensure!(found == *left, "{row}: of puts at 5, 10 and 12 after a delete at 10 there are {found:?}");
            // Alone, and together with others.
            mutate(client, on_row(row, put(&[10])), None).await?;
            send(client, row, &[put(&[10]), put(&[11])], true).await?;
            let found = times(client, row).await?;
            ensure!(found.contains(&11) && !found.contains(&10), "{row}: after a put at 10 there are {found:?}");
        }
    }

    // A put without a timestamp is newer than what was deleted before it.
    let now = delete(vec![value(None, Some(DeleteType::DeleteMultipleVersions), "")]);
    let plain = mutation(MutationType::Put, b"row", vec![value(None, None, "new")]);
    mutate(client, on_row("plain", now), None).await?;
    mutate(client, on_row("plain", plain), None).await?;
    let left = versions(client, b"plain").await?;
    ensure!(left.len() == 1 && left[0].1 == "new", "after a delete and a put there are {left:?}");

    // A put below the version that a delete beside it takes away stays, where one version is kept.
    let places = serve_hbase(&served.cluster, &served.stop).await?;
    let client = &mut HbaseClient::new(own, "one".parse()?, places);
    for (row, atomic) in [("mutations", true), ("list", false)] {
        mutate(client, on_row(row, put(&[10])), None).await?;
        send(client, row, &[put(&[5]), delete(vec![one_version(Some(10))])], atomic).await?;
        let left = times(client, row).await?;
        ensure!(left == [5], "{row}: a put at 5 and a delete of the version at 10 left {left:?}");
        send(client, row, &[put(&[10]), delete(vec![one_version(Some(10))])], atomic).await?;
        let left = times(client, row).await?;
        ensure!(left == [5], "{row}: a put at 10 and a delete of that version left {left:?}");
    }
    served.end().await
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn valid_deletes_are_taken() -> Result<()> {
    let mut served = Served::begin("deletes").await?;
    let client = &mut served.client;

    // The newest version and another one of the same column.
    mutate(client, on_row("one", put(&[3, 5, 7])), None).await?;
    mutate(client, on_row("one", delete(vec![one_version(None), one_version(Some(5))])), None).await?;
    let left = times(client, "one").await?;
    ensure!(left == [3], "the newest version and version 5 were deleted, and {left:?} are left");

    // Two deletes of a newest version in one list see the same one.
    mutate(client, on_row("list", put(&[3, 5, 7])), None).await?;
    send(client, "list", &[delete(vec![one_version(None)]), delete(vec![one_version(None)])], false).await?;
    let left = times(client, "list").await?;
    ensure!(left == [5, 3], "two deletes of the newest version left {left:?}");

    // Any two operations are taken, in any way.
    let counter = 1i64.to_be_bytes().to_vec();
    let newest = one_version(None);
    let operations = [
        mutation(MutationType::Put, b"row", vec![value(None, None, counter.clone())]),
        mutation(MutationType::Put, b"row", vec![value(Some(7), None, counter.clone())]),
        delete(vec![newest.clone()]),
        delete(vec![newest.clone(), newest.clone()]),
        delete(vec![newest, one_version(Some(7))]),
        delete(vec![value(None, Some(DeleteType::DeleteMultipleVersions), "")]),
        in_family(None, DeleteType::DeleteFamily),
        in_family(Some(7), DeleteType::DeleteFamilyVersion),
        MutationProto { column_value: Vec::new(), ..delete(Vec::new()) },
        merge(MutationType::Increment, counter.clone()),
        merge(MutationType::Append, ""),
    ];
    for (first, one) in operations.iter().enumerate() {
        for (second, other) in operations.iter().enumerate() {
            for atomic in [true, false] {
                let row = format!("{first} {second} {atomic}");
                let begin = mutation(MutationType::Put, b"row", vec![value(Some(3), None, counter.clone())]);
                mutate(client, on_row(&row, begin), None).await?;
                send(client, &row, &[one.clone(), other.clone()], atomic).await.with_context(|| row.clone())?;
            }
        }
    }

    // A delete leaves what is dated in the future, under a condition as without one.
    let future = 1 << 45;
    let column = || delete(vec![value(None, Some(DeleteType::DeleteMultipleVersions), "")]);
    mutate(client, on_row("future", put(&[future])), None).await?;
    mutate(client, on_row("future", column()), None).await?;
    let answer = mutate(client, on_row("future", column()), Some(exists("future"))).await?;
    ensure!(answer.processed == Some(true), "answered {answer:?}");
    let left = times(client, "future").await?;
    ensure!(left == [future], "deletes up to now left {left:?}");
    served.end().await
}

/// The condition that a row has the column, whatever its value.
fn exists(row: &str) -> proto::Condition {
    compared(row, proto::CompareType::NotEqual)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn every_increment_and_append_makes_a_version() -> Result<()> {
    let mut served = Served::begin("versions").await?;
    let client = &mut served.client;
    let increment = || merge(MutationType::Increment, 1i64.to_be_bytes().to_vec());
    for _ in 0..5 {
        send(client, "counter", &[increment(), increment(), increment(), increment()], false).await?;
    }
    let found = versions(client, b"counter").await?;
    let values: Vec<_> = found.iter().map(|(_, value)| value.last().copied().unwrap_or_default()).collect();
    ensure!(values == [20, 19, 18, 17, 16], "of 20 increments the newest five are {values:?}");

    let future = 1 << 45;
    mutate(client, on_row("future", put(&[future])), None).await?;
    mutate(client, on_row("future", merge(MutationType::Append, "x")), None).await?;
    let left = times(client, "future").await?;
    ensure!(left == [future + 1, future], "an append over a version of the future left {left:?}");

    // A column that is named twice is returned twice.
    let append = |text: &'static str| value(None, None, text);
    let twice = mutation(MutationType::Append, b"row", vec![append("a"), append("b")]);
    let shown: Vec<_> = shown(mutate(client, on_row("twice", twice), None).await?.result);
    let values: Vec<_> = shown.iter().map(|(_, value)| value.clone()).collect();
    ensure!(values == ["a", "b"], "two appends to one column returned {values:?}");
    let left = versions(client, b"twice").await?;
    ensure!(left.len() == 1 && left[0].1 == "b", "the last one counts, and {left:?} are there");
    served.end().await
}

/// A filter that is decided by columns reads these, and the first cell of the row.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_filter_of_columns_judges_a_row_of_any_size() -> Result<()> {
    let mut served = Served::begin("wide").await?;
    let client = &mut served.client;
    let of_column = |qualifier: &str, value: Vec<u8>| {
        let value =
            QualifierValue { qualifier: Some(qualifier.to_owned().into()), ..self::value(Some(7), None, value) };
        on_row("wide", mutation(MutationType::Put, b"row", vec![value]))
    };
    for at in 0..6 {
        mutate(client, of_column(&format!("a{at}"), vec![b'x'; 1 << 20]), None).await?;
    }
    mutate(client, of_column("state", b"new".to_vec()), None).await?;
    for (qualifier, tested, missing, holds) in [
        ("state", "new", true, true),
        ("state", "old", false, false),
        ("absent", "x", true, false),
        ("absent", "x", false, true),
    ] {
        let condition = column_is("wide", qualifier, tested, missing);
        let answer = mutate(client, of_column("seen", b"x".to_vec()), Some(condition)).await?;
        ensure!(answer.processed == Some(holds), "{qualifier}={tested}: answered {:?}", answer.processed);
    }
    // A row without cells passes no filter.
    let condition = column_is("none", "absent", "x", false);
    let answer = mutate(client, on_row("none", put(&[1])), Some(condition)).await?;
    ensure!(answer.processed == Some(false), "a row that is not there: answered {:?}", answer.processed);
    served.end().await
}

/// The condition that a `SingleColumnValueFilter` passes the row.
fn column_is(row: &str, qualifier: &str, value: &str, filter_if_missing: bool) -> proto::Condition {
    let filter = proto::SingleColumnValueFilter {
        column_family: Some(FAMILY),
        column_qualifier: Some(qualifier.to_owned().into()),
        compare_op: proto::CompareType::Equal.into(),
        comparator: comparator(value.to_owned().into()),
        filter_if_missing: Some(filter_if_missing),
        latest_version_only: Some(true),
    };
    proto::Condition {
        row: Bytes::copy_from_slice(row.as_bytes()),
        filter: Some(proto::Filter {
            name: "org.apache.hadoop.hbase.filter.SingleColumnValueFilter".to_owned(),
            serialized_filter: Some(filter.encode_to_vec().into()),
        }),
        ..proto::Condition::default()
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_condition_on_a_row_of_another_region_is_refused_at_once() -> Result<()> {
    let spec = TableSpec::new("regions")?.family("f", &[("versions", "5")])?.split_at(b"m");
    let mut served = Served::begin_with(spec).await?;
    let put = on_row("z", put(&[1]));
    let encode = |region| {
        let condition = Some(exists("a"));
        proto::MutateRequest { region, mutation: put.clone(), condition, nonce_group: Some(1) }.encode_to_vec()
    };
    let tries = std::cell::Cell::new(0);
    let gives_up = || tries.replace(tries.get() + 1) > 50;
    let refused = served.client.call::<proto::MutateResponse>(b"a", "Mutate", encode, gives_up).await.err();
    let refused = refused.context("it was taken")?;
    ensure!(refused.contains("DoNotRetryIOException") && tries.get() == 0, "refused with {refused}");
    served.end().await
}
