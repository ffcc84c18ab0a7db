//! The value of a parameter in the place of a literal: whether it fits, and its bytes.
//!
//! A number fits by its value and not by its width, because a caller's `5` is an `i32` whatever the column holds. Text and
//! numbers are never taken for each other. An error is the end of a sentence about the parameter.

use terrane_types::{CellValue, Time, Value, ValueType};

/// A bound value as an operand of this type.
pub(crate) fn operand(value: &CellValue<'_>, read_as: ValueType) -> Result<Vec<u8>, String> {
    let bytes = value.bytes().map_err(|invalid| format!("has no encoding: {}", invalid.what))?;
    if read_as == ValueType::Time && value.value_type() == ValueType::Text {
        let text = String::from_utf8_lossy(bytes);
        return Time::parse(&text)
            .map(|time| time.millis().to_be_bytes().into())
            .map_err(|invalid| format!("is refused: {}", invalid.what));
    }
    if read_as.is_number() {
        return number(value.value_type(), bytes, read_as);
    }
    if value.value_type().is_number() {
        let given = value.value_type();
        return Err(format!("is a number ({given}): say how to read the other side, like {given}(…)"));
    }
    if read_as == ValueType::Text && std::str::from_utf8(bytes).is_err() {
        return Err("is not UTF-8, which a text is; compare other bytes without text()".to_owned());
    }
    Ok(bytes.to_vec())
}

fn number(given: ValueType, bytes: &[u8], read_as: ValueType) -> Result<Vec<u8>, String> {
    if !given.is_number() {
        return Err(format!("is {}, not a number of type {read_as}", kind(given)));
    }
    if given == read_as {
        return Ok(bytes.to_vec());
    }
    let shown =
        given.as_stored().text(bytes).map_err(|invalid| format!("is not a value of its type: {}", invalid.what))?;
    match given.read(bytes) {
        // Every integer of 4 bytes is a float exactly.
        Ok(Value::Integer(_)) if read_as == ValueType::F64 && given.width() != Some(4) => {
            Err(format!("is {shown} ({given}), not a number of type f64"))
        }
        Ok(Value::Integer(_)) => {
            read_as.parse_text(&shown).map_err(|_| format!("is {shown}, which {read_as} does not hold"))
        }
        _ => Err(format!("is {shown} ({given}), not a number of type {read_as}")),
    }
}

/// A bound value as the decimal digits of a whole number.
pub(crate) fn whole_number(value: &CellValue<'_>, what: &str) -> Result<String, String> {
    let given = value.value_type();
    let bytes = value.bytes().map_err(|invalid| format!("has no encoding: {}", invalid.what))?;
    match given.read(bytes) {
        Ok(Value::Integer(number)) => Ok(number.to_string()),
        _ => Err(format!("is {}, not {what}, a whole number", kind(given))),
    }
}

fn kind(value_type: ValueType) -> &'static str {
    match value_type {
        ValueType::Text => "text",
        ValueType::Bytes => "bytes",
        _ => "a number",
    }
}
