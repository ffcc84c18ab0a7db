//! Pages: a bounded number of rows, and a token with which anybody may go on behind them later.
//!
//! A token is a position, not a cursor: no server keeps anything for it, it never expires, and it stays right when regions
//! split or move. It holds the table's id, the direction and the last row shown, so that a row written right behind the
//! end of one page is on the next. It is not secret: it can be read back into the row it holds. Its checksum guards
//! against mistyping, not against malice; a forged token reads nothing that a scan could not read.

use std::fmt;
use std::str::FromStr;

use bytes::Bytes;
use terrane_types::{Invalid, KeyRange, Row, TableId};

use crate::reading::RowData;

/// Layout of the bytes in a token: version, flags, table id (8 bytes, big-endian), row, CRC32C of all before it.
const VERSION: u8 = 1;
const HEADER_BYTES: usize = 10;
const CHECKSUM_BYTES: usize = 4;
const FLAG_REVERSE: u8 = 1;

/// Rows of one page, and where the next begins.
#[derive(Clone, Debug)]
pub struct Page {
    /// The rows, in the order of the scan.
    pub rows: Vec<RowData>,
    /// Give it to [`crate::Scan::after`] for the rows that follow. `None`: nothing followed.
    pub next: Option<PageToken>,
}

/// Where a page ended; as text (`Display`, `FromStr`) it fits into a URL unchanged.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PageToken {
    table: TableId,
    reverse: bool,
    last: Row,
}

impl PageToken {
    /// The position behind `last`, in the direction of the scan.
    pub(crate) fn behind(table: TableId, reverse: bool, last: Row) -> Self {
        Self { table, reverse, last }
    }

    /// What is left of `range` behind this position.
    pub(crate) fn rest_of(&self, range: &KeyRange, table: TableId, reverse: bool) -> Result<KeyRange, Invalid> {
        if self.table != table {
            return Err(Invalid::new(format!("the page token is of table {}, not of table {table}", self.table)));
        }
        if self.reverse != reverse {
            return Err(Invalid::new("the page token is of a scan in the other direction"));
        }
        if !range.contains(&self.last) {
            return Err(Invalid::new(format!(
                "the page token is of another range: its row {} is not in {range}",
                self.last
            )));
        }
        let rest = if reverse {
            KeyRange { start: range.start.clone(), stop: self.last.clone().into_bytes() }
        } else {
            KeyRange { start: self.last.after(), stop: range.stop.clone() }
        };
        Ok(rest)
    }

    fn encode(&self) -> Vec<u8> {
        let mut bytes = Vec::with_capacity(HEADER_BYTES + self.last.len() + CHECKSUM_BYTES);
        bytes.push(VERSION);
        bytes.push(if self.reverse { FLAG_REVERSE } else { 0 });
        bytes.extend_from_slice(&self.table.0.to_be_bytes());
        bytes.extend_from_slice(&self.last);
        let checksum = crc32c::crc32c(&bytes);
        bytes.extend_from_slice(&checksum.to_be_bytes());
        bytes
    }

    fn decode(bytes: &[u8]) -> Option<Self> {
        let (body, checksum) = bytes.split_last_chunk::<CHECKSUM_BYTES>()?;
        let (header, row) = body.split_first_chunk::<HEADER_BYTES>()?;
        if crc32c::crc32c(body) != u32::from_be_bytes(*checksum) || header[0] != VERSION || header[1] > FLAG_REVERSE {
            return None;
        }
        let table = u64::from_be_bytes(*header.last_chunk::<8>()?);
        let last = Row::new(Bytes::copy_from_slice(row)).ok()?;
        Some(Self { table: TableId(table), reverse: header[1] & FLAG_REVERSE != 0, last })
    }
}

impl fmt::Display for PageToken {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&base64url(&self.encode()))
    }
}

impl FromStr for PageToken {
    type Err = Invalid;

    fn from_str(text: &str) -> Result<Self, Invalid> {
        from_base64url(text)
            .and_then(|bytes| Self::decode(&bytes))
            .ok_or_else(|| Invalid::new("the page token is damaged or is not one of ours; take it over unchanged"))
    }
}

const ALPHABET: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_";

/// RFC 4648, section 5, without padding.
fn base64url(bytes: &[u8]) -> String {
    let mut text = String::with_capacity(bytes.len().div_ceil(3) * 4);
    for chunk in bytes.chunks(3) {
        let word = chunk.iter().fold(0u32, |word, byte| word << 8 | u32::from(*byte)) << (8 * (3 - chunk.len()));
        for place in 0..=chunk.len() {
            let index = word >> (18 - 6 * place) & 63;
            text.push(char::from(ALPHABET[index as usize]));
        }
    }
    text
}

/// The inverse; refuses every text that [`base64url`] would not have written.
fn from_base64url(text: &str) -> Option<Vec<u8>> {
    let mut bytes = Vec::with_capacity(text.len() / 4 * 3 + 2);
    for chunk in text.as_bytes().chunks(4) {
        let mut word = 0u32;
        for (place, symbol) in chunk.iter().enumerate() {
            let index = ALPHABET.iter().position(|known| known == symbol)?;
            word |= u32::try_from(index).ok()? << (18 - 6 * place);
        }
        let whole = chunk.len().checked_sub(1).filter(|whole| *whole > 0)?;
        bytes.extend_from_slice(&word.to_be_bytes()[1..=whole]);
    }
    (base64url(&bytes) == text).then_some(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn token(reverse: bool, row: &[u8]) -> PageToken {
        PageToken::behind(TableId(7), reverse, Row::try_from(row).expect("a valid row"))
    }

    #[test]
    fn tokens_come_back_from_text_unchanged() {
        for length in 1..40 {
            let row: Vec<u8> = (0..length).map(|i| (i as u8).wrapping_mul(61).wrapping_add(length as u8)).collect();
            for reverse in [false, true] {
                let token = token(reverse, &row);
                let text = token.to_string();
                assert_eq!(text.parse::<PageToken>().expect("our own token"), token);
                assert!(text.bytes().all(|b| ALPHABET.contains(&b)), "{text} fits into a URL");
            }
        }
    }

    #[test]
    fn every_changed_character_is_noticed() {
        let text = token(true, b"user-17\x00\xff").to_string();
        for place in 0..text.len() {
            for other in ["A", "z", "_", "!", "="] {
                let mut changed = text.clone();
                changed.replace_range(place..=place, other);
                if changed != text {
                    assert!(changed.parse::<PageToken>().is_err(), "{changed} was taken for {text}");
                }
            }
            assert!(text[..place].parse::<PageToken>().is_err(), "cut to {place}");
        }
        assert!("\u{fc}ber".parse::<PageToken>().is_err());
    }

    #[test]
    fn base64url_writes_what_the_standard_shows() {
        for (plain, text) in [("", ""), ("f", "Zg"), ("fo", "Zm8"), ("foo", "Zm9v"), ("foobar", "Zm9vYmFy")] {
            assert_eq!(base64url(plain.as_bytes()), text);
            assert_eq!(from_base64url(text).as_deref(), Some(plain.as_bytes()));
        }
        assert_eq!(base64url(&[0xfb, 0xff]), "-_8");
    }

    #[test]
    fn the_rest_of_a_range_begins_right_behind_the_last_row() {
        let range = KeyRange::prefix(b"u");
        let forward = token(false, b"u5").rest_of(&range, TableId(7), false).expect("fits");
        assert!(!forward.contains(b"u5") && forward.contains(b"u5\0") && !forward.contains(b"v"));
        let back = token(true, b"u5").rest_of(&range, TableId(7), true).expect("fits");
        assert!(!back.contains(b"u5") && back.contains(b"u4\xff") && back.contains(b"u"));
    }

    #[test]
    fn a_token_of_another_scan_is_refused_by_name() {
        let range = KeyRange::prefix(b"u");
        let refused = |table, reverse, range: &KeyRange| {
            token(false, b"u5").rest_of(range, TableId(table), reverse).expect_err("does not fit").what
        };
        assert!(refused(8, false, &range).contains("table 7"));
        assert!(refused(7, true, &range).contains("direction"));
        assert!(refused(7, false, &KeyRange::prefix(b"v")).contains("another range"));
    }
}
