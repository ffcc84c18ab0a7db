//! A session packet by packet: reads, watches, refused writes, arbitrary bytes.

use proptest::prelude::*;
use terrane_types::ClusterId;

use super::*;
use crate::discovery::Discovery;
use crate::place::Place;

fn nodes(master: &str) -> Nodes {
    let place = |host: &str| Place { host: host.to_owned(), port: 1, start_code: 2 };
    Nodes::new(&Discovery {
        cluster: Some(ClusterId([1; 16])),
        active_master: (!master.is_empty()).then(|| place(master)),
        meta: Some(place("m")),
        ..Discovery::default()
    })
}

fn connect(read_only: bool) -> Bytes {
    packet(|out| {
        out.put_i32(0);
        out.put_i64(0);
        out.put_i32(90_000);
        out.put_i64(0);
        put_buffer(out, &[0; 16]);
        if read_only {
            out.put_u8(0);
        }
    })
}

fn request(xid: i32, opcode: i32, path: Option<(&str, bool)>) -> Bytes {
    packet(|out| {
        out.put_i32(xid);
        out.put_i32(opcode);
        if let Some((path, watch)) = path {
            put_buffer(out, path.as_bytes());
            out.put_u8(u8::from(watch));
        }
    })
}

fn steps(session: &mut Session, bytes: &[u8], nodes: &Nodes) -> Vec<Step> {
    let mut received = BytesMut::from(bytes);
    std::iter::from_fn(|| session.receive(&mut received, nodes)).collect()
}

fn connected() -> Session {
    let mut session = Session::new(7);
    steps(&mut session, &connect(true), &nodes("a"));
    session
}

/// The error and the body of the one answer.
fn answer(session: &mut Session, request: &[u8], nodes: &Nodes) -> (i32, Bytes) {
    let steps = steps(session, request, nodes);
    let [Step::Send(bytes)] = &steps[..] else { panic!("{steps:?}") };
    let mut fields = Fields(&bytes[4..]);
    let (_xid, zxid, error) = (fields.int().unwrap(), fields.long().unwrap(), fields.int().unwrap());
    assert_eq!(zxid, ZXID);
    (error, Bytes::copy_from_slice(fields.0))
}

#[test]
fn a_client_connects_and_gets_a_bounded_timeout_and_its_flag_back() {
    for read_only in [true, false] {
        let steps = steps(&mut Session::new(7), &connect(read_only), &nodes("a"));
        let [Step::Send(bytes)] = &steps[..] else { panic!("{steps:?}") };
        let mut fields = Fields(&bytes[4..]);
        assert_eq!((fields.int(), fields.int(), fields.long()), (Ok(0), Ok(40_000), Ok(7)));
        assert_eq!(fields.buffer().unwrap().len(), 16);
        assert_eq!(fields.0.len(), usize::from(read_only));
    }
}

#[test]
fn nodes_are_read_with_their_stat() {
    let mut session = connected();
    let (error, body) = answer(&mut session, &request(1, op::GET_DATA, Some(("/hbase/master", false))), &nodes("a"));
    let mut fields = Fields(&body);
    let data = fields.buffer().unwrap();
    assert!(data.windows(4).any(|part| part == b"PBUF"));
    assert_eq!((error, fields.0.len()), (0, 68), "the stat has 68 bytes");
    let (error, body) = answer(&mut session, &request(2, op::EXISTS, Some(("/hbase/hbaseid", false))), &nodes("a"));
    assert_eq!((error, body.len()), (0, 68));
    let (_, body) = answer(&mut session, &request(3, op::GET_CHILDREN, Some(("/hbase", false))), &nodes("a"));
    let mut fields = Fields(&body);
    assert_eq!(fields.int(), Ok(3));
    let names: Vec<&str> = (0..3).map(|_| fields.text().unwrap()).collect();
    assert_eq!(names, ["hbaseid", "master", "meta-region-server"]);
    assert!(fields.0.is_empty());
    let (error, body) =
        answer(&mut session, &request(4, op::GET_DATA, Some(("/hbase/root-region-server", false))), &nodes("a"));
    assert_eq!((error, body.len()), (code::NO_NODE, 0));
}

#[test]
fn writes_are_refused_and_the_session_goes_on() {
    let mut session = connected();
    for opcode in [op::CREATE, op::DELETE, op::SET_DATA, op::MULTI] {
        assert_eq!(
            answer(&mut session, &request(1, opcode, Some(("/hbase/x", false))), &nodes("a")).0,
            code::READ_ONLY
        );
    }
    assert_eq!(answer(&mut session, &request(1, 77, None), &nodes("a")).0, code::UNIMPLEMENTED);
    assert_eq!(answer(&mut session, &request(1, op::EXISTS, None), &nodes("a")).0, code::MARSHALLING);
    assert_eq!(answer(&mut session, &request(-2, op::PING, None), &nodes("a")).0, code::OK);
    let steps = steps(&mut session, &request(9, op::CLOSE, None), &nodes("a"));
    assert!(matches!(&steps[..], [Step::SendAndClose(_)]));
}

#[test]
fn a_watch_fires_once_when_its_node_appears_changes_or_goes() {
    let mut session = connected();
    let watch = request(1, op::EXISTS, Some(("/hbase/master", true)));
    let mut kinds = Vec::new();
    for (seen, now) in [("", "a"), ("a", "b"), ("b", "")] {
        answer(&mut session, &watch, &nodes(seen));
        assert_eq!(session.changes(&nodes(seen)), Vec::<Bytes>::new());
        let events = session.changes(&nodes(now));
        assert_eq!((events.len(), session.changes(&nodes(seen)).len()), (1, 0));
        let mut fields = Fields(&events[0][4..]);
        assert_eq!((fields.int(), fields.long(), fields.int()), (Ok(-1), Ok(-1), Ok(0)));
        kinds.push(fields.int().unwrap());
        assert_eq!((fields.int(), fields.text()), (Ok(event::CONNECTED), Ok("/hbase/master")));
    }
    assert_eq!(kinds, [event::CREATED, event::DATA_CHANGED, event::DELETED]);
    answer(&mut session, &request(1, op::GET_CHILDREN2, Some(("/hbase", true))), &nodes("a"));
    assert_eq!(session.changes(&nodes("")).len(), 1);
}

#[test]
fn watches_are_bounded() {
    let mut session = connected();
    for at in 0..2 * WATCHES_MAX {
        answer(&mut session, &request(1, op::EXISTS, Some((&format!("/hbase/{at}"), true))), &nodes("a"));
    }
    assert_eq!(session.watches.len(), WATCHES_MAX);
}

#[test]
fn other_protocols_are_closed_and_ruok_is_answered() {
    assert_eq!(steps(&mut Session::new(7), b"GET / HTTP/1.1", &nodes("a")), [Step::Close]);
    assert_eq!(steps(&mut Session::new(7), b"\xff\xff\xff\xffxxxx", &nodes("a")), [Step::Close]);
    let imok = Step::SendAndClose(Bytes::from_static(b"imok"));
    assert_eq!(steps(&mut Session::new(7), b"ruok", &nodes("a")), [imok]);
}

proptest! {
    #[test]
    fn arbitrary_bytes_never_panic(bytes in prop::collection::vec(any::<u8>(), 0..120), opens: bool, framed: bool) {
        let bytes = if framed { packet(|out| out.put_slice(&bytes)).to_vec() } else { bytes };
        let mut session = if opens { connected() } else { Session::new(7) };
        steps(&mut session, &bytes, &nodes("a"));
    }
}
