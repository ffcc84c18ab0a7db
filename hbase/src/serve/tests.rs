//! A port from end to end: a connection in memory, and a front that answers with what it was asked.

use bytes::Bytes;
use terrane_env::budget::Unit;
use terrane_env::net::{Intake, IntakeLimits};
use terrane_types::ClusterId;
use tokio::io::{AsyncWriteExt as _, DuplexStream};

use super::*;
use crate::exception::UNKNOWN_SERVICE;
use crate::frame::tests::request;
use crate::proto;

mod hostile;

/// Bytes of the answer to a call of `Large`.
const LARGE_BYTES: usize = 4 << 20;

struct Port {
    limits: Limits,
}

impl Port {
    fn new() -> Arc<Self> {
        Arc::new(Self { limits: Limits::beside(&Intake::new(IntakeLimits::default())) })
    }
}

struct Echo;

impl Front for Port {
    fn discovery(&self) -> Discovery {
        Discovery { cluster: Some(ClusterId([1; 16])), ..Discovery::default() }
    }

    fn limits(&self) -> &Limits {
        &self.limits
    }

    fn open(&self, opened: Opened, _client: &Client) -> Result<Arc<dyn Calls>, Exception> {
        if opened.user == "refused" {
            return Err(Exception::new(UNKNOWN_SERVICE, "refused"));
        }
        Ok(Arc::new(Echo))
    }
}

impl Calls for Echo {
    fn carry_out(self: Arc<Self>, call: Call) -> BoxFuture<'static, Outcome> {
        Box::pin(async move {
            match call.method.as_str() {
                "Never" => std::future::pending().await,
                "Fail" => Err(Exception::bad_request("no")),
                "Large" => Ok(Answer::with_cells(&proto::GetClusterIdResponse::default(), vec![7; LARGE_BYTES])),
                _ => Ok(Answer::with_cells(
                    &proto::GetClusterIdResponse { cluster_id: Some(call.method) },
                    call.cells.to_vec(),
                )),
            }
        })
    }
}

fn framed(content: &[u8]) -> Vec<u8> {
    [&i32::try_from(content.len()).unwrap().to_be_bytes()[..], content].concat()
}

fn hello(user: &str) -> Vec<u8> {
    hello_compressed(user, None)
}

fn hello_compressed(user: &str, compressor: Option<&str>) -> Vec<u8> {
    let header = proto::ConnectionHeader {
        service_name: Some("ClientService".to_owned()),
        user_info: Some(proto::UserInformation { effective_user: user.to_owned(), real_user: None }),
        cell_block_codec_class: Some("org.apache.hadoop.hbase.codec.KeyValueCodec".to_owned()),
        cell_block_compressor_class: compressor.map(|name| format!("org.apache.hadoop.io.compress.{name}")),
        ..proto::ConnectionHeader::default()
    };
    [&b"HBas\x00\x50"[..], &framed(&header.encode_to_vec())].concat()
}

fn connect() -> DuplexStream {
    connect_with(1 << 20)
}

/// A connection whose two directions hold so many bytes.
fn connect_with(bytes: usize) -> DuplexStream {
    let (stream, server) = tokio::io::duplex(bytes);
    let front = Port::new();
    let intake = front.limits.intake.clone();
    let client = Client { address: "127.0.0.1:1".parse().unwrap(), connection: intake.connect().unwrap(), intake };
    terrane_env::task::spawn_named("test", connection(server, client, front));
    stream
}

/// The header and the rest of the next answer.
async fn answer(client: &mut (impl AsyncRead + Unpin)) -> (proto::ResponseHeader, Bytes) {
    let length = client.read_i32().await.unwrap();
    let mut frame = vec![0; usize::try_from(length).unwrap()];
    client.read_exact(&mut frame).await.unwrap();
    let mut frame = Bytes::from(frame);
    let header = proto::ResponseHeader::decode_length_delimited(&mut frame).unwrap();
    (header, frame)
}

#[tokio::test]
async fn a_call_is_answered_with_its_number_its_message_and_its_cells() {
    let mut client = connect();
    let bytes = [hello("alice"), framed(&request(9, "Echo", b"", b"cells", Some(5)))].concat();
    client.write_all(&bytes).await.unwrap();
    let (header, mut rest) = answer(&mut client).await;
    assert_eq!((header.call_id, header.cell_block_meta.unwrap().length), (Some(9), Some(5)));
    let message = proto::GetClusterIdResponse::decode_length_delimited(&mut rest).unwrap();
    assert_eq!((message.cluster_id.as_deref(), &rest[..]), (Some("Echo"), &b"cells"[..]));
}

#[tokio::test]
async fn cells_travel_compressed_in_both_directions_and_a_damaged_block_fails_its_call_alone() {
    for compressor in ["GzipCodec", "DefaultCodec", "ZStandardCodec", "SnappyCodec", "Lz4Codec"] {
        let compression = Compression::of_class(&format!("org.apache.hadoop.io.compress.{compressor}")).unwrap();
        for cells in [b"cells".repeat(3), b"many cells".repeat(20_000)] {
            let block = compression.compress(&cells);
            let length = Some(u32::try_from(block.len()).unwrap());
            let mut client = connect();
            let damaged = framed(&request(1, "Echo", b"", &block[..block.len() - 1], length.map(|length| length - 1)));
            let whole = framed(&request(2, "Echo", b"", &block, length));
            client.write_all(&[hello_compressed("alice", Some(compressor)), damaged, whole].concat()).await.unwrap();
            for _ in 0..2 {
                let (header, mut rest) = answer(&mut client).await;
                if header.call_id == Some(1) {
                    let class = header.exception.unwrap().exception_class_name.unwrap();
                    assert_eq!(class, "org.apache.hadoop.hbase.DoNotRetryIOException");
                    continue;
                }
                proto::GetClusterIdResponse::decode_length_delimited(&mut rest).unwrap();
                assert_eq!(usize::try_from(header.cell_block_meta.unwrap().length()).unwrap(), rest.len());
                assert!(rest.starts_with(&compression.compress(&cells)[..4]), "{compressor}");
                assert_eq!(compression.decompress(&rest, 1 << 20, |_| Ok(())).unwrap(), cells);
            }
        }
    }
}

#[tokio::test]
async fn cells_that_are_decompressed_when_there_is_no_room_are_refused_and_the_client_comes_back() {
    let room = Budget::new("decompressed", Unit::Bytes, 100 << 10);
    let compression = Compression::Zstd;
    let carry_out = |cells: usize| {
        let block = compression.compress(&vec![1; cells]);
        let call =
            Call { id: 1, method: "Echo".to_owned(), parameter: Bytes::new(), cells: block.into(), timeout: None };
        carry_out_compressed(Arc::new(Echo), call, compression, room.clone())
    };
    assert!(carry_out(100 << 10).await.is_ok());
    let other = room.try_take(1).unwrap();
    let refused = carry_out(100 << 10).await.unwrap_err();
    assert!(refused.class.ends_with("CallQueueTooBigException") && !refused.do_not_retry);
    assert_eq!(room.used(), other.amount(), "a call that has ended occupies nothing");
}

#[tokio::test]
async fn a_call_that_fails_or_never_ends_holds_up_no_other() {
    let mut client = connect();
    let calls = [(1, "Never"), (2, "Fail"), (3, "Echo")];
    let calls: Vec<u8> = calls.iter().flat_map(|(id, method)| framed(&request(*id, method, b"", b"", None))).collect();
    client.write_all(&[hello("alice"), calls].concat()).await.unwrap();
    let mut answered = Vec::new();
    for _ in 0..2 {
        let (header, _) = answer(&mut client).await;
        answered.push((header.call_id.unwrap(), header.exception.is_some()));
    }
    answered.sort_unstable();
    assert_eq!(answered, [(2, true), (3, false)]);
}

#[tokio::test]
async fn the_registry_probe_and_a_refused_connection_get_one_answer_and_the_end() {
    for (bytes, refused) in [(b"Regist".to_vec(), false), (hello("refused"), true), (b"GET / HTTP".to_vec(), true)] {
        let mut client = connect();
        client.write_all(&bytes).await.unwrap();
        let (header, _) = answer(&mut client).await;
        assert_eq!((header.call_id, header.exception.is_some()), (Some(NO_CALL), refused));
        assert_eq!(client.read(&mut [0; 8]).await.unwrap(), 0, "the connection has ended");
    }
}

#[tokio::test]
async fn a_client_that_reads_no_answers_is_soon_not_read_from() {
    let mut client = connect_with(1 << 10);
    client.write_all(&hello("alice")).await.unwrap();
    let call = framed(&request(1, "Echo", b"", b"", None));
    let flood = async {
        for sent in 0..100 * CALLS_MAX {
            let written = tokio::time::timeout(Duration::from_millis(500), client.write_all(&call)).await;
            if written.is_err() {
                return sent;
            }
        }
        usize::MAX
    };
    // What fits the buffers of both directions, and the calls in flight.
    assert!(flood.await < 10 * CALLS_MAX);
}

/// A front that is deposed when the token says so.
struct Deposed {
    limits: Limits,
    deposed: CancellationToken,
}

impl Front for Deposed {
    fn discovery(&self) -> Discovery {
        Discovery::default()
    }

    fn limits(&self) -> &Limits {
        &self.limits
    }

    fn connections_end(&self) -> BoxFuture<'_, ()> {
        Box::pin(self.deposed.cancelled())
    }

    fn open(&self, _opened: Opened, _client: &Client) -> Result<Arc<dyn Calls>, Exception> {
        Ok(Arc::new(Echo))
    }
}

#[tokio::test]
async fn connections_end_when_what_is_behind_the_port_says_so() {
    let listener = terrane_env::net::listen("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap().to_string();
    let (deposed, stop) = (CancellationToken::new(), CancellationToken::new());
    let front =
        Arc::new(Deposed { limits: Limits::beside(&Intake::new(IntakeLimits::default())), deposed: deposed.clone() });
    terrane_env::task::spawn_named("test", serve(listener, front, stop.clone()));
    let mut client = terrane_env::net::connect_to(&address).await.unwrap();
    client.write_all(&[hello("alice"), framed(&request(9, "Echo", b"", b"", None))].concat()).await.unwrap();
    assert!(client.read_i32().await.unwrap() > 0, "it is answered");
    client.write_all(&framed(&request(10, "Never", b"", b"", None))).await.unwrap();
    deposed.cancel();
    // It ends, or is reset if the last call was not read yet.
    client.read_to_end(&mut Vec::new()).await.ok();
    stop.cancel();
}
