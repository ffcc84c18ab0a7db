//! Frames: one call or one answer.
//!
//! ```text
//! request:  total u32 | varint len | RequestHeader  | varint len | parameter | cell block
//! response: total u32 | varint len | ResponseHeader | varint len | message   | cell block
//! ```
//!
//! `total` is big-endian and does not count itself. The header says how long the cell block is; an answer that carries an
//! exception has neither message nor cells.

use std::time::Duration;

use bytes::{Buf as _, Bytes};
use prost::Message;

use crate::exception::Exception;
use crate::proto;

/// The call id of answers to no call: before the connection's first call, and when a frame has no readable header.
pub const NO_CALL: u32 = u32::MAX;

/// One call.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Call {
    /// The client's number for it.
    pub id: u32,
    /// The method of the connection's service.
    pub method: String,
    /// The encoded request message.
    pub parameter: Bytes,
    /// The cells that the request's actions refer to.
    pub cells: Bytes,
    /// How long the client waits for the answer.
    pub timeout: Option<Duration>,
}

/// A call that is refused before its method is looked at.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Malformed {
    /// The client's number for it, or [`NO_CALL`].
    pub call: u32,
    /// Why.
    pub exception: Exception,
}

/// Reads the content of a frame.
///
/// # Errors
/// [`Malformed`] with the call to answer; other calls of the connection go on, because the frame's end is known.
pub fn decode_call(mut frame: Bytes) -> Result<Call, Malformed> {
    let refuse = |call, what: &str| Malformed { call, exception: Exception::bad_request(what) };
    let header = take_delimited(&mut frame)
        .and_then(|header| proto::RequestHeader::decode(header).ok())
        .ok_or_else(|| refuse(NO_CALL, "the request header cannot be read"))?;
    let id = header.call_id.unwrap_or(NO_CALL);
    if !header.request_param() {
        return Err(refuse(id, "the call has no parameter"));
    }
    let announced = header.cell_block_meta.and_then(|meta| meta.length).unwrap_or(0);
    let unread = || refuse(id, "the length of the parameter cannot be read");
    let length = prost::decode_length_delimiter(&mut frame).map_err(|_| unread())?;
    if length > frame.len() && announced > 0 {
        return Err(refuse(id, "the parameter is longer than the rest of its frame"));
    }
    // Without cells HBase reads a parameter to the end of its frame whatever its length says, and hbase-driver, which writes
    // wrong lengths, depends on it.
    let parameter = frame.split_to(length.min(frame.len()));
    if usize::try_from(announced) != Ok(frame.len()) {
        let what = format!("the header announces a cell block of {announced} bytes, and {} follow", frame.len());
        return Err(refuse(id, &what));
    }
    let method = header.method_name.unwrap_or_default();
    let timeout = header.timeout.filter(|&ms| ms > 0).map(|ms| Duration::from_millis(ms.into()));
    Ok(Call { id, method, parameter, cells: frame, timeout })
}

/// The call id in the first bytes of a frame of which the rest is not read. `None` if they do not hold the whole header.
#[must_use]
pub fn call_of_beginning(frame: &[u8]) -> Option<u32> {
    let mut frame = Bytes::copy_from_slice(frame);
    proto::RequestHeader::decode(take_delimited(&mut frame)?).ok()?.call_id
}

/// Takes a message behind its length from the front.
fn take_delimited(bytes: &mut Bytes) -> Option<Bytes> {
    let length = prost::decode_length_delimiter(&mut *bytes).ok()?;
    (length <= bytes.remaining()).then(|| bytes.split_to(length))
}

/// Reads a call's parameter.
///
/// # Errors
/// The exception that refuses the call.
pub fn decode_parameter<M: Message + Default>(parameter: Bytes) -> Result<M, Exception> {
    M::decode(parameter).map_err(|error| Exception::bad_request(&format!("the parameter cannot be read: {error}")))
}

/// The frame of an answer with this encoded message, up to its cells, which have so many bytes.
///
/// # Errors
/// An exception for the client if no frame can hold the answer.
pub fn begin_answer(call: u32, message: &[u8], cells: usize) -> Result<Bytes, Exception> {
    let too_large = || Exception::too_large_an_answer(message.len().saturating_add(cells));
    let length = u32::try_from(cells).map_err(|_| too_large())?;
    let cell_block_meta = (length > 0).then_some(proto::CellBlockMeta { length: Some(length) });
    let header = proto::ResponseHeader { call_id: Some(call), exception: None, cell_block_meta };
    let own = delimited_len(&header) + prost::length_delimiter_len(message.len()) + message.len();
    let mut frame = begin(own, own + cells).ok_or_else(too_large)?;
    append_delimited(&mut frame, &header);
    prost::encode_length_delimiter(message.len(), &mut frame).expect("a vector grows as needed");
    frame.extend_from_slice(message);
    Ok(frame.into())
}

/// The frame of an answer that carries an exception.
#[must_use]
pub fn encode_exception(call: u32, exception: &Exception) -> Bytes {
    let header =
        proto::ResponseHeader { call_id: Some(call), exception: Some(exception.to_response()), cell_block_meta: None };
    let length = delimited_len(&header);
    let mut frame = begin(length, length).expect("the text of an exception is bounded");
    append_delimited(&mut frame, &header);
    frame.into()
}

/// The beginning of a frame that will have so many bytes after its length, of which so many are written here; `None` if no
/// frame can.
fn begin(own: usize, length: usize) -> Option<Vec<u8>> {
    let total = i32::try_from(length).ok()?;
    let mut frame = Vec::with_capacity(4 + own);
    frame.extend_from_slice(&total.to_be_bytes());
    Some(frame)
}

fn delimited_len(message: &impl Message) -> usize {
    let length = message.encoded_len();
    prost::length_delimiter_len(length) + length
}

fn append_delimited(frame: &mut Vec<u8>, message: &impl Message) {
    message.encode_length_delimited(frame).expect("a vector grows as needed");
}

#[cfg(test)]
pub mod tests {
    use proptest::prelude::*;

    use super::*;

    /// A request frame, without the total.
    pub fn request(id: u32, method: &str, parameter: &[u8], cells: &[u8], announced: Option<u32>) -> Vec<u8> {
        let header = proto::RequestHeader {
            call_id: Some(id),
            method_name: Some(method.to_owned()),
            request_param: Some(true),
            cell_block_meta: announced.map(|length| proto::CellBlockMeta { length: Some(length) }),
            timeout: Some(60_000),
            ..proto::RequestHeader::default()
        };
        let mut frame = header.encode_length_delimited_to_vec();
        prost::encode_length_delimiter(parameter.len(), &mut frame).unwrap();
        frame.extend_from_slice(parameter);
        frame.extend_from_slice(cells);
        frame
    }

    #[test]
    fn the_answer_to_is_master_running_has_the_bytes_of_hbase() {
        let answer = begin_answer(0, &proto::IsMasterRunningResponse { is_master_running: true }.encode_to_vec(), 0);
        let answer = answer.unwrap();
        assert_eq!(&answer[..], [0, 0, 0, 6, 2, 8, 0, 2, 8, 1]);
    }

    #[test]
    fn the_call_of_is_master_running_is_read_from_the_bytes_of_hbase() {
        let bytes = b"\x15\x08\x00\x1a\x0fIsMasterRunning\x20\x01\x00";
        let call = decode_call(Bytes::from_static(bytes)).unwrap();
        assert_eq!((call.id, call.method.as_str()), (0, "IsMasterRunning"));
        assert!(call.parameter.is_empty() && call.cells.is_empty() && call.timeout.is_none());
    }

    #[test]
    fn a_cell_block_of_another_length_than_announced_is_refused_for_its_call_only() {
        for announced in [None, Some(0), Some(2), Some(4), Some(u32::MAX)] {
            let refused = decode_call(request(7, "Multi", b"p", b"abc", announced).into()).unwrap_err();
            assert_eq!((refused.call, refused.exception.do_not_retry), (7, true));
            assert!(refused.exception.text.contains("and 3 follow"), "{}", refused.exception.text);
        }
        let call = decode_call(request(7, "Multi", b"p", b"abc", Some(3)).into()).unwrap();
        assert_eq!((&call.parameter[..], &call.cells[..]), (&b"p"[..], &b"abc"[..]));
        assert_eq!(call.timeout, Some(Duration::from_secs(60)));
    }

    #[test]
    fn a_header_or_a_parameter_with_cells_that_is_longer_than_its_frame_is_refused() {
        assert_eq!(decode_call(Bytes::new()).unwrap_err().call, NO_CALL);
        assert_eq!(decode_call(Bytes::from_static(&[0xff; 12])).unwrap_err().call, NO_CALL);
        let mut frame = request(9, "Multi", b"parameter", b"cells", Some(5));
        frame.truncate(frame.len() - 6);
        assert_eq!(decode_call(frame.into()).unwrap_err().call, 9);
    }

    #[test]
    fn a_parameter_without_cells_ends_with_its_frame() {
        let mut frame = request(9, "Get", b"parameter", b"", None);
        frame.truncate(frame.len() - 1);
        assert_eq!(&decode_call(frame.into()).unwrap().parameter[..], b"paramete");
        let mut frame = request(9, "Get", b"", b"", None);
        frame.pop();
        assert_eq!(decode_call(frame.into()).unwrap_err().call, 9);
    }

    #[test]
    fn the_call_id_is_read_from_the_beginning_of_a_frame() {
        let frame = request(9, "Get", b"parameter", b"", None);
        let header = usize::from(frame[0]) + 1;
        assert_eq!(call_of_beginning(&frame[..header]), Some(9));
        assert_eq!(call_of_beginning(&frame[..header - 1]), None);
    }

    proptest! {
        #[test]
        fn arbitrary_frames_are_read_or_refused(frame in prop::collection::vec(any::<u8>(), 0..200)) {
            let _ = decode_call(frame.into());
        }

        #[test]
        fn a_damaged_frame_is_read_or_refused(at: prop::sample::Index, byte: u8) {
            let mut frame = request(7, "Multi", b"parameter", b"cells", Some(5));
            let at = at.index(frame.len());
            frame[at] = byte;
            let _ = decode_call(frame.into());
        }
    }
}
