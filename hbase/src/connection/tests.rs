//! Connections byte by byte: every preamble, calls over the limit, arbitrary bytes.

use proptest::prelude::*;

use super::*;
use crate::frame::tests::request;

/// Preamble and header of a client, as HBase's documents show them.
const HELLO: &[u8] = b"HBas\x00\x50\x00\x00\x00\x45\x0a\x07\x0a\x05alice\x12\x0dClientService\x1a\x2borg.apache.hadoop.hbase.codec.KeyValueCodec";

fn framed(content: &[u8]) -> Vec<u8> {
    [&i32::try_from(content.len()).unwrap().to_be_bytes()[..], content].concat()
}

fn events(connection: &mut Connection, bytes: &[u8]) -> Vec<Event> {
    let mut received = BytesMut::from(bytes);
    std::iter::from_fn(|| connection.receive(&mut received)).collect()
}

fn refusal(event: &Event) -> (String, String) {
    let Event::Refused(bytes) = event else { panic!("{event:?} is not a refusal") };
    let header = proto::ResponseHeader::decode_length_delimited(&bytes[4..]).unwrap();
    assert_eq!(header.call_id, Some(NO_CALL));
    let exception = header.exception.unwrap();
    let class = exception.exception_class_name.unwrap().rsplit_once('.').unwrap().1.to_owned();
    (class, exception.stack_trace.unwrap())
}

fn header(change: impl FnOnce(&mut proto::ConnectionHeader)) -> Vec<u8> {
    let mut header = proto::ConnectionHeader {
        service_name: Some("ClientService".to_owned()),
        ..proto::ConnectionHeader::default()
    };
    change(&mut header);
    [&b"HBas\x00\x50"[..], &framed(&header.encode_to_vec())].concat()
}

#[test]
fn the_hello_of_a_client_opens_a_connection_and_calls_follow() {
    let call = framed(&request(3, "Get", b"parameter", b"", None));
    let bytes = [HELLO, &call, &call].concat();
    let all = events(&mut Connection::default(), &bytes);
    let [Event::Opened(opened), Event::Call(first), Event::Call(second)] = &all[..] else { panic!("{all:?}") };
    let expected = Opened {
        service: Service::Client,
        user: "alice".to_owned(),
        codec: Some(Codec::KeyValue),
        compression: None,
        version: None,
    };
    assert_eq!(opened, &expected);
    assert_eq!((first.id, first.method.as_str()), (3, "Get"));
    assert_eq!(first, second);
}

#[test]
fn the_registry_probe_is_one_question() {
    let all = events(&mut Connection::default(), b"RegistHBas");
    assert_eq!(all, [Event::Registry]);
}

#[test]
fn a_question_for_the_principal_is_refused_and_the_connection_goes_on() {
    let all = events(&mut Connection::default(), &[b"Securi", HELLO].concat());
    assert!(matches!(&all[..], [Event::Send(_), Event::Opened(_)]), "{all:?}");
}

#[test]
fn a_client_with_kerberos_is_told_to_go_on_without() {
    let token = framed(b"token");
    let all = events(&mut Connection::default(), &[b"HBas\x00\x51", &token[..], &HELLO[6..]].concat());
    let [Event::Send(switch), Event::Opened(_)] = &all[..] else { panic!("{all:?}") };
    assert_eq!(switch[..4], [0; 4]);
    assert_eq!(i32::from_be_bytes(switch[4..].try_into().unwrap()), -88);
}

#[test]
fn other_beginnings_are_refused_with_the_class_of_hbase() {
    let refused = |bytes: &[u8]| refusal(events(&mut Connection::default(), bytes).last().unwrap());
    let (class, text) = refused(b"GET / HTTP/1.1");
    assert_eq!(class, "FatalConnectionException");
    assert!(text.contains(": Expected HEADER="), "{text}");
    assert_eq!(refused(b"HBas\x01\x50").0, "WrongVersionException");
    assert_eq!(refused(b"HBas\x00\x01").0, "BadAuthException");
    assert_eq!(
        refused(&header(|header| header.service_name = Some("NoService".to_owned()))).0,
        "UnknownServiceException"
    );
    assert_eq!(refused(&header(|header| header.service_name = None)).0, "EmptyServiceNameException");
    let codec = header(|header| header.cell_block_codec_class = Some("a.Codec".to_owned()));
    assert_eq!(refused(&codec).0, "UnsupportedCellCodecException");
    let compressor = header(|header| {
        header.cell_block_codec_class = Some("org.apache.hadoop.hbase.codec.KeyValueCodec".to_owned());
        header.cell_block_compressor_class = Some("a.Compressor".to_owned());
    });
    assert_eq!(refused(&compressor).0, "UnsupportedCompressionCodecException");
    let cipher = header(|header| header.rpc_crypto_cipher_transformation = Some("AES".to_owned()));
    assert_eq!(refused(&cipher).0, "UnsupportedCryptoException");
    assert_eq!(refused(b"HBas\x00\x50\xff\xff\xff\xff").0, "FatalConnectionException");
}

#[test]
fn a_connection_names_how_its_cell_blocks_are_compressed() {
    let opened = |codec: Option<&str>| {
        let bytes = header(|header| {
            header.cell_block_codec_class = codec.map(str::to_owned);
            header.cell_block_compressor_class = Some("org.apache.hadoop.io.compress.GzipCodec".to_owned());
        });
        let Some(Event::Opened(opened)) = events(&mut Connection::default(), &bytes).pop() else { panic!("opened") };
        opened.compression
    };
    assert_eq!(opened(Some("org.apache.hadoop.hbase.codec.KeyValueCodec")), Some(Compression::Gzip));
    assert_eq!(opened(None), None, "a connection without a codec has no cell blocks");
}

#[test]
fn a_refused_connection_reads_nothing_more() {
    let mut connection = Connection::default();
    assert_eq!(events(&mut connection, b"nonsense").len(), 1);
    assert_eq!(events(&mut connection, HELLO), []);
}

#[test]
fn a_call_over_the_limit_is_refused_and_the_next_one_served() {
    let large = framed(&request(5, "Multi", &[0; 500], b"", None));
    let small = framed(&request(6, "Get", b"", b"", None));
    let mut connection = Connection::new(200);
    let mut received = BytesMut::from(HELLO);
    assert!(matches!(connection.receive(&mut received), Some(Event::Opened(_))));
    let mut refused = 0;
    // Byte by byte: the refusal comes before the frame has arrived, and nothing of it is kept.
    for byte in large {
        received.extend_from_slice(&[byte]);
        if let Some(event) = connection.receive(&mut received) {
            let Event::Malformed(malformed) = event else { panic!("{event:?}") };
            assert_eq!(malformed.call, 5);
            assert!(malformed.exception.class.ends_with("RequestTooBigException"));
            refused += 1;
        }
        assert!(received.len() < 100, "{} bytes are kept", received.len());
    }
    received.extend_from_slice(&small);
    let Some(Event::Call(call)) = connection.receive(&mut received) else { panic!("the next call is served") };
    assert_eq!((refused, call.id), (1, 6));
}

#[test]
fn a_call_over_the_limit_without_a_header_is_refused_without_its_number() {
    let mut connection = Connection::new(200);
    let mut all = events(&mut connection, &[HELLO, &framed(&[0xff; 300])].concat());
    assert!(matches!(all.pop(), Some(Event::Malformed(Malformed { call: NO_CALL, .. }))));
    assert!(connection.is_open());
}

proptest! {
    #[test]
    fn events_do_not_depend_on_how_bytes_arrive(cuts in prop::collection::vec(0usize..400, 0..12)) {
        let calls: Vec<u8> = (0..4).flat_map(|id| framed(&request(id, "Scan", &[7; 60], b"", None))).collect();
        let bytes = [HELLO, &calls].concat();
        let whole = events(&mut Connection::new(100), &bytes);
        let mut cuts: Vec<usize> = cuts.into_iter().map(|cut| cut.min(bytes.len())).collect();
        cuts.extend([0, bytes.len()]);
        cuts.sort_unstable();
        let (mut connection, mut received, mut parts) = (Connection::new(100), BytesMut::new(), Vec::new());
        for window in cuts.windows(2) {
            received.extend_from_slice(&bytes[window[0]..window[1]]);
            while let Some(event) = connection.receive(&mut received) {
                parts.push(event);
            }
        }
        prop_assert_eq!(whole, parts);
    }

    #[test]
    fn arbitrary_bytes_never_panic(bytes in prop::collection::vec(any::<u8>(), 0..300), hello: bool) {
        let bytes = if hello { [HELLO, &bytes].concat() } else { bytes };
        events(&mut Connection::new(100), &bytes);
    }
}

#[test]
fn cells_of_gets_are_where_the_release_of_the_client_looks_for_them() {
    let opened = |version: Option<(u32, u32)>| {
        let info = |(major, minor)| proto::VersionInfo {
            version_major: Some(major),
            version_minor: Some(minor),
            ..proto::VersionInfo::default()
        };
        let bytes = header(|header| {
            header.cell_block_codec_class = Some("org.apache.hadoop.hbase.codec.KeyValueCodec".to_owned());
            header.version_info = version.map(info);
        });
        let all = events(&mut Connection::default(), &bytes);
        let [Event::Opened(opened)] = &all[..] else { panic!("{all:?}") };
        assert_eq!(opened.codec, Some(Codec::KeyValue), "scans and batches use it in any case");
        opened.clone()
    };
    for (version, in_block, at_once) in [
        (Some((2, 6)), true, true),
        (Some((1, 3)), true, true),
        (Some((1, 2)), false, true),
        (Some((1, 1)), false, false),
        (None, false, true),
    ] {
        let opened = opened(version);
        assert_eq!(opened.codec_of_gets().is_some(), in_block, "{version:?}");
        assert_eq!(opened.knows_immediate_retries(), at_once, "{version:?}");
    }
}
