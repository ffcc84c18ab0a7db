//! Decimal numbers of any size, as HBase stores Java's `BigDecimal`: a scale of 4 bytes, then the unscaled number in two's
//! complement, big-endian. They are only compared, so that neither scale nor size ever sets how much is computed: digits are
//! bounded by [`DECIMAL_BYTES_MAX`], and a scale is only added to a length.

use std::cmp::Ordering;

use terrane_types::Invalid;

use crate::limits::DECIMAL_BYTES_MAX;

#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Decimal {
    negative: bool,
    /// The digits of the number without zeros in front: none for zero.
    digits: Vec<u8>,
    /// How many digits are before the point; negative for zeros after it.
    whole: i64,
}

impl Decimal {
    pub fn read(bytes: &[u8]) -> Result<Self, Invalid> {
        let Some((scale, unscaled)) = bytes.split_first_chunk::<4>().filter(|(_, unscaled)| !unscaled.is_empty())
        else {
            return Err(Invalid::new(format!("a decimal number has at least 5 bytes; this has {}", bytes.len())));
        };
        if unscaled.len() > DECIMAL_BYTES_MAX {
            return Err(Invalid::new(format!(
                "a decimal number of {} bytes; a comparator reads up to {DECIMAL_BYTES_MAX}",
                unscaled.len()
            )));
        }
        let negative = unscaled[0] >= 0x80;
        let digits = digits(magnitude(unscaled, negative));
        let scale = i64::from(i32::from_be_bytes(*scale));
        let count = i64::try_from(digits.len()).unwrap_or(i64::MAX);
        Ok(Self { negative, whole: count - scale, digits })
    }

    pub fn compare(&self, other: &Self) -> Ordering {
        let sign = |number: &Self| match (number.digits.is_empty(), number.negative) {
            (true, _) => 0,
            (false, true) => -1,
            (false, false) => 1,
        };
        sign(self).cmp(&sign(other)).then_with(|| {
            let order = self.whole.cmp(&other.whole).then_with(|| {
                let count = self.digits.len().max(other.digits.len());
                let padded = |digits: &[u8], at: usize| digits.get(at).copied().unwrap_or(0);
                let mut pairs = (0..count).map(|at| padded(&self.digits, at).cmp(&padded(&other.digits, at)));
                pairs.find(|order| order.is_ne()).unwrap_or(Ordering::Equal)
            });
            let order = if self.digits.is_empty() { Ordering::Equal } else { order };
            if self.negative { order.reverse() } else { order }
        })
    }
}

/// The absolute value of a number in two's complement, big-endian.
fn magnitude(unscaled: &[u8], negative: bool) -> Vec<u8> {
    let mut magnitude = unscaled.to_vec();
    if negative {
        let mut carry = true;
        for byte in magnitude.iter_mut().rev() {
            let (sum, overflow) = (!*byte).overflowing_add(u8::from(carry));
            (*byte, carry) = (sum, overflow);
        }
        if carry {
            magnitude.insert(0, 1);
        }
    }
    magnitude
}

/// The decimal digits of a number, big-endian, by long division.
fn digits(mut number: Vec<u8>) -> Vec<u8> {
    let mut digits = Vec::new();
    let mut from = 0;
    loop {
        while number.get(from) == Some(&0) {
            from += 1;
        }
        if from == number.len() {
            digits.reverse();
            return digits;
        }
        let mut rest = 0_u16;
        for byte in &mut number[from..] {
            let part = rest << 8 | u16::from(*byte);
            *byte = (part / 10).to_be_bytes()[1];
            rest = part % 10;
        }
        digits.push(rest.to_be_bytes()[1]);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn number(unscaled: i64, scale: i32) -> Decimal {
        let bytes = unscaled.to_be_bytes();
        Decimal::read(&[&scale.to_be_bytes()[..], &bytes[..]].concat()).unwrap()
    }

    #[test]
    fn numbers_compare_by_what_they_are_worth() {
        assert_eq!(number(100, 2).compare(&number(1, 0)), Ordering::Equal);
        assert_eq!(number(1, -2).compare(&number(100, 0)), Ordering::Equal);
        assert_eq!(number(-15, 1).compare(&number(-2, 0)), Ordering::Greater);
        assert_eq!(number(0, 5).compare(&number(0, -5)), Ordering::Equal);
        assert_eq!(number(-1, 0).compare(&number(0, 9)), Ordering::Less);
        assert_eq!(number(i64::MIN, 0).compare(&number(i64::MAX, 0)), Ordering::Less);
        assert_eq!(number(1, i32::MAX).compare(&number(1, i32::MIN)), Ordering::Less);
    }

    #[test]
    fn bytes_that_are_no_number_are_refused() {
        assert!(Decimal::read(&[0; 4]).is_err());
        assert!(Decimal::read(&vec![1; DECIMAL_BYTES_MAX + 5]).is_err());
    }

    proptest::proptest! {
        #[test]
        fn numbers_of_one_scale_compare_like_integers(left: i64, right: i64, scale in -9_i32..9) {
            proptest::prop_assert_eq!(number(left, scale).compare(&number(right, scale)), left.cmp(&right));
        }
    }
}
