//! HTTP/2 by hand: no client library would misuse it.

/// Bytes of a frame that every server takes.
const FRAME_BYTES: usize = 16 << 10;
pub const FRAME_DATA: u8 = 0;
pub const FRAME_HEADERS: u8 = 1;
pub const FRAME_SETTINGS: u8 = 4;
pub const END_HEADERS: u8 = 4;

/// The beginning of a call on a connection of its own: a message that announces so many bytes, of which some come.
pub fn begun_call(address: &str, path: &str, announced: usize, some: &[u8]) -> Vec<u8> {
    let mut bytes = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n".to_vec();
    frame(&mut bytes, FRAME_SETTINGS, 0, 0, &[]);
    frame(&mut bytes, FRAME_HEADERS, END_HEADERS, 1, &headers(address, path));
    let announced = u32::try_from(announced).unwrap_or(u32::MAX).to_be_bytes();
    frame(&mut bytes, FRAME_DATA, 0, 1, &[&[0][..], &announced].concat());
    for part in some.chunks(FRAME_BYTES) {
        frame(&mut bytes, FRAME_DATA, 0, 1, part);
    }
    bytes
}

/// Adds a frame.
pub fn frame(out: &mut Vec<u8>, kind: u8, flags: u8, stream: u32, payload: &[u8]) {
    let length = u32::try_from(payload.len()).unwrap_or(0).to_be_bytes();
    out.extend_from_slice(&length[1..]);
    out.extend_from_slice(&[kind, flags]);
    out.extend_from_slice(&stream.to_be_bytes());
    out.extend_from_slice(payload);
}

/// Literal fields without indexing (RFC 7541, 6.2.2), which need no table on either side.
pub fn headers(address: &str, path: &str) -> Vec<u8> {
    let mut block = Vec::new();
    let fields = [
        (":method", "POST"),
        (":scheme", "http"),
        (":path", path),
        (":authority", address),
        ("content-type", "application/grpc"),
        ("te", "trailers"),
    ];
    for (name, value) in fields {
        block.push(0);
        for text in [name, value] {
            block.push(u8::try_from(text.len()).unwrap_or(0));
            block.extend_from_slice(text.as_bytes());
        }
    }
    block
}
