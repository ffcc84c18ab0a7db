//! Plain little-endian writing and checked reading of the engine's on-disk data.

use terrane_types::ByteReader;
pub(crate) use terrane_types::ByteWriter;

/// Reads fields from bytes that passed their checksum; a field that does not fit nevertheless reads as `None`.
pub(crate) struct Reader<'a>(ByteReader<&'a [u8]>);

impl<'a> Reader<'a> {
    pub(crate) fn new(bytes: &'a [u8]) -> Self {
        Self(ByteReader::new(bytes))
    }

    pub(crate) fn u8(&mut self) -> Option<u8> {
        self.0.u8().ok()
    }

    #[cfg(feature = "sled")]
    pub(crate) fn u16(&mut self) -> Option<u16> {
        self.0.u16().ok()
    }

    pub(crate) fn u32(&mut self) -> Option<u32> {
        self.0.u32().ok()
    }

    pub(crate) fn u64(&mut self) -> Option<u64> {
        self.0.u64().ok()
    }

    pub(crate) fn i64(&mut self) -> Option<i64> {
        self.0.i64().ok()
    }

    pub(crate) fn bytes(&mut self) -> Option<&'a [u8]> {
        self.0.bytes().ok()
    }

    #[cfg(feature = "sled")]
    pub(crate) fn rest(&mut self) -> &'a [u8] {
        self.0.rest()
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}

/// The length and checksum before each frame.
pub(crate) const FRAME_HEADER_BYTES: usize = 8;

/// Appends `payload` with its length and CRC32C before it.
pub(crate) fn frame(out: &mut Vec<u8>, payload: &[u8]) {
    out.count(payload.len());
    out.u32(crc32c::crc32c(payload));
    out.raw(payload);
}

/// The frame at the head of `bytes`, when it is whole and its checksum holds.
pub(crate) fn unframe(bytes: &[u8]) -> Option<&[u8]> {
    let header = bytes.first_chunk::<FRAME_HEADER_BYTES>()?;
    let len = u32::from_le_bytes([header[0], header[1], header[2], header[3]]) as usize;
    let checksum = u32::from_le_bytes([header[4], header[5], header[6], header[7]]);
    let payload = bytes.get(FRAME_HEADER_BYTES..FRAME_HEADER_BYTES.checked_add(len)?)?;
    (len > 0 && crc32c::crc32c(payload) == checksum).then_some(payload)
}
