//! Sizes and spans of time as people write them: a number with a unit.

use crate::invalid::Invalid;

/// Parses a size: an integer with `B`, `KiB`, `MiB` or `GiB`.
///
/// ```
/// assert_eq!(terrane_types::parse_size("16MiB")?, 16 << 20);
/// assert!(terrane_types::parse_size("16MB").is_err());
/// # Ok::<(), terrane_types::Invalid>(())
/// ```
///
/// # Errors
/// [`Invalid`] for anything else, including a size over 2^64 bytes.
pub fn parse_size(text: &str) -> Result<u64, Invalid> {
    let units = [("KiB", 1u64 << 10), ("MiB", 1 << 20), ("GiB", 1 << 30), ("B", 1)];
    parse_with_unit(text, &units)
        .ok_or_else(|| Invalid::new(format!("{text:?} is not a size: an integer with B, KiB, MiB or GiB, as in 16MiB")))
}

/// Parses a duration into milliseconds: an integer with `ms`, `s`, `m`, `h` or `d`, or a bare integer of seconds, as in
/// HBase. The least is one millisecond.
///
/// ```
/// assert_eq!(terrane_types::parse_duration_ms("90")?, 90_000);
/// assert_eq!(terrane_types::parse_duration_ms("7d")?, 604_800_000);
/// # Ok::<(), terrane_types::Invalid>(())
/// ```
///
/// # Errors
/// [`Invalid`] for anything else, including zero and more than 2^63 milliseconds.
pub fn parse_duration_ms(text: &str) -> Result<u64, Invalid> {
    let units = [("ms", 1), ("s", 1_000), ("m", 60_000), ("h", 3_600_000), ("d", 86_400_000), ("", 1_000)];
    parse_with_unit(text, &units).filter(|&ms| ms > 0 && i64::try_from(ms).is_ok()).ok_or_else(|| {
        Invalid::new(format!("{text:?} is not a time span: an integer with ms, s, m, h or d, or of seconds, as in 7d"))
    })
}

/// The number before the first unit that the text ends with, times the unit. Units are tried in order, so that `ms` is
/// not mistaken for `s`.
fn parse_with_unit(text: &str, units: &[(&str, u64)]) -> Option<u64> {
    let (digits, scale) = units.iter().find_map(|(unit, scale)| Some((text.strip_suffix(unit)?, scale)))?;
    if !digits.bytes().all(|byte| byte.is_ascii_digit()) {
        return None;
    }
    digits.parse::<u64>().ok()?.checked_mul(*scale)
}
