//! Clients that say nothing, stop half-way or do not read, over sockets, beside one that behaves.

use terrane_env::net::{BudgetNames, GRACE, Outbound, connect_to, listen};

use super::*;

const NAMES: BudgetNames = BudgetNames {
    connections: "hbase_connections",
    calls: Some("hbase_calls"),
    bodies: Some("hbase_bodies"),
    requests: Some("hbase_requests"),
    answers: None,
};
/// How long a client that behaves may wait beside those that do not.
const SOON: Duration = Duration::from_secs(5);

struct Served {
    address: String,
    limits: Limits,
    stop: CancellationToken,
}

impl Drop for Served {
    fn drop(&mut self) {
        self.stop.cancel();
    }
}

/// Serves a port and a ZooKeeper port; the address is that of the former unless `zookeeper` is asked for.
async fn served(changed: IntakeLimits, zookeeper: bool) -> Served {
    let grpc = Intake::new(changed);
    let limits = Limits {
        intake: grpc.beside(NAMES, changed),
        zookeeper: grpc.beside(BudgetNames { connections: "zookeeper_connections", calls: None, ..NAMES }, changed),
        ..Limits::beside(&grpc)
    };
    let (listener, stop) = (listen("127.0.0.1:0").await.unwrap(), CancellationToken::new());
    let address = listener.local_addr().unwrap().to_string();
    let front = Arc::new(Port { limits: limits.clone() });
    if zookeeper {
        terrane_env::task::spawn_named("test", crate::zookeeper::serve(listener, front, stop.clone()));
    } else {
        terrane_env::task::spawn_named("test", serve(listener, front, stop.clone()));
    }
    Served { address, limits, stop }
}

async fn send(served: &Served, bytes: &[u8]) -> Outbound {
    let mut stream = connect_to(&served.address).await.unwrap();
    stream.write_all(bytes).await.unwrap();
    stream
}

/// The beginning of a call of `Echo` with so many bytes of cells, of which a part is sent.
fn part_of_a_call(bytes: usize, sent: usize) -> Vec<u8> {
    let mut call = framed(&request(1, "Echo", b"", &vec![1; bytes], Some(u32::try_from(bytes).unwrap())));
    call.truncate(sent);
    [hello("hostile"), call].concat()
}

/// A client that behaves: opens a connection, and gets the answer to a call with so many bytes of cells.
async fn answered(served: &Served, bytes: usize) {
    let cells = vec![1; bytes];
    let call = framed(&request(7, "Echo", b"", &cells, Some(u32::try_from(bytes).unwrap())));
    let mut stream = send(served, &[hello("alice"), call].concat()).await;
    assert_eq!(answer(&mut stream).await.0.call_id, Some(7));
}

async fn answered_soon(served: &Served, bytes: usize) {
    tokio::time::timeout(SOON, answered(served, bytes)).await.expect("others are served meanwhile");
}

/// Waits until the server has ended a connection.
async fn ended(stream: &mut Outbound) {
    let mut bytes = [0; 4096];
    while stream.read(&mut bytes).await.is_ok_and(|read| read > 0) {}
}

fn used(served: &Served) -> Vec<u64> {
    served.limits.intake.budgets().map(|budget| budget.used()).collect()
}

#[tokio::test]
async fn silent_connections_keep_no_one_out() {
    let served = served(IntakeLimits { connections: 20, ..IntakeLimits::default() }, false).await;
    let mut silent = Vec::new();
    for _ in 0..20 {
        silent.push(send(&served, b"").await);
    }
    for _ in 0..5 {
        tokio::time::timeout(Duration::from_secs(1), answered(&served, 10)).await.expect("it is admitted at once");
    }
    let closed = silent.iter_mut().map(|stream| tokio::time::timeout(SOON, ended(stream)));
    let closed = futures::future::join_all(closed).await.into_iter().filter(Result::is_ok).count();
    assert!((1..=5).contains(&closed), "each of five new connections needs at most one place; {closed} were closed");
}

#[tokio::test(start_paused = true)]
async fn a_connection_without_a_header_or_in_the_middle_of_a_call_is_closed_after_ten_seconds() {
    let served = served(IntakeLimits::default(), false).await;
    for bytes in [Vec::new(), b"HBas".to_vec(), part_of_a_call(1 << 20, 50_000)] {
        let mut stream = send(&served, &bytes).await;
        let began = tokio::time::Instant::now();
        tokio::time::timeout(3 * GRACE, ended(&mut stream)).await.expect("it is closed");
        assert!(began.elapsed() >= GRACE);
    }
    let mut idle = send(&served, &hello("alice")).await;
    assert!(tokio::time::timeout(3 * GRACE, ended(&mut idle)).await.is_err(), "between calls it may be silent");
    tokio::time::timeout(2 * IDLE_MAX, ended(&mut idle)).await.expect("but not without end");
}

#[tokio::test]
async fn calls_that_stop_half_way_make_room_for_those_that_arrive() {
    let served = served(IntakeLimits { body_bytes: 16 << 20, ..IntakeLimits::default() }, false).await;
    let mut stuck = Vec::new();
    for _ in 0..10 {
        stuck.push(send(&served, &part_of_a_call(3 << 20, 3 << 19)).await);
    }
    for bytes in [100 << 10, 100 << 10, 1 << 20] {
        answered_soon(&served, bytes).await;
    }
    drop(stuck);
}

#[tokio::test]
async fn one_half_sent_call_of_the_largest_size_makes_room() {
    let served = served(IntakeLimits { body_bytes: 16 << 20, ..IntakeLimits::default() }, false).await;
    let mut stuck = send(&served, &part_of_a_call(16 << 20, 13 << 20)).await;
    for _ in 0..3 {
        answered_soon(&served, 2 << 20).await;
    }
    tokio::time::timeout(SOON, ended(&mut stuck)).await.expect("it gave way");
}

#[tokio::test]
async fn calls_that_are_not_answered_are_counted_and_those_over_the_limit_are_refused() {
    let served = served(IntakeLimits { request_bytes: 1 << 20, ..IntakeLimits::default() }, false).await;
    let never = framed(&request(1, "Never", b"", &vec![1; 900 << 10], Some(900 << 10)));
    let mut stream = send(&served, &[hello("hostile"), never].concat()).await;
    tokio::time::timeout(SOON, async {
        while used(&served)[3] < 900 << 10 {
            tokio::task::yield_now().await;
        }
    })
    .await
    .expect("it is counted");
    stream.write_all(&framed(&request(2, "Echo", b"", &vec![1; 200 << 10], Some(200 << 10)))).await.unwrap();
    let (header, _) = answer(&mut stream).await;
    let class = header.exception.unwrap().exception_class_name.unwrap();
    assert!(header.call_id == Some(2) && class.ends_with("CallQueueTooBigException"), "{class}");
    answered_soon(&served, 10).await;
}

#[tokio::test(start_paused = true)]
async fn answers_that_are_not_read_are_counted_bounded_and_given_up_when_others_need_room() {
    let limit = 64 << 20;
    let served = served(IntakeLimits { answer_bytes: limit, ..IntakeLimits::default() }, false).await;
    let calls: Vec<u8> = (0..50).flat_map(|id| framed(&request(id, "Large", b"", b"", None))).collect();
    let mut stuck = Vec::new();
    for _ in 0..6 {
        stuck.push(send(&served, &[hello("hostile"), calls.clone()].concat()).await);
    }
    let answers = served.limits.intake.answer_budget();
    tokio::time::sleep(Duration::from_secs(1)).await;
    let (held, most) = (answers.used(), answers.usage().peak);
    assert!(held > 8 << 20, "{held} bytes are counted");
    assert!(most < limit, "{most} bytes at most: a connection that reads nothing gets no further answers");
    tokio::time::timeout(SOON, answered(&served, 10)).await.expect("a small answer has room");
    tokio::time::sleep(Duration::from_secs(6)).await;
    // Another one asks for more than there is.
    let other = served.limits.intake.connect().unwrap();
    assert!(!served.limits.intake.may_answer(&other, limit));
    for stream in &mut stuck {
        tokio::time::timeout(SOON, ended(stream)).await.expect("it is closed");
    }
    drop(stuck);
    tokio::time::timeout(SOON, async {
        while answers.used() > 0 || used(&served)[1] > 0 {
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    })
    .await
    .expect("all is returned");
}

#[tokio::test]
async fn silent_sessions_keep_no_one_from_a_zookeeper_port() {
    let served = served(IntakeLimits { connections: 20, ..IntakeLimits::default() }, true).await;
    let mut silent = Vec::new();
    for _ in 0..40 {
        silent.push(send(&served, b"").await);
    }
    let asked = async {
        let mut stream = send(&served, b"ruok").await;
        let mut answer = Vec::new();
        stream.read_to_end(&mut answer).await.unwrap();
        assert_eq!(answer, b"imok");
    };
    tokio::time::timeout(Duration::from_secs(1), asked).await.expect("it is admitted at once");
}

#[tokio::test(start_paused = true)]
async fn a_session_that_does_not_begin_or_stops_in_a_packet_is_closed_after_ten_seconds() {
    let served = served(IntakeLimits::default(), true).await;
    for bytes in [&b""[..], &[0, 0, 0, 45, 0]] {
        let mut stream = send(&served, bytes).await;
        let began = tokio::time::Instant::now();
        tokio::time::timeout(3 * GRACE, ended(&mut stream)).await.expect("it is closed");
        assert!(began.elapsed() >= GRACE);
    }
}
