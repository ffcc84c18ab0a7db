//! How evenly something is spread over servers.

use std::fmt;

/// The share of an even part by which a server may differ.
const DEVIATION_MAX: f64 = 0.1;

/// What each server has.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Spread(pub Vec<u64>);

impl Spread {
    /// Whether every server has its even part, give or take a tenth or one.
    pub fn is_even(&self) -> bool {
        let even = self.0.iter().sum::<u64>() as f64 / self.0.len().max(1) as f64;
        let allowed = (even * DEVIATION_MAX).max(1.0);
        self.0.iter().all(|&part| (part as f64 - even).abs() <= allowed)
    }
}

impl fmt::Display for Spread {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (least, most) = (self.0.iter().min().unwrap_or(&0), self.0.iter().max().unwrap_or(&0));
        write!(f, "{least}-{most}")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn even_parts_differ_by_a_tenth_or_one() {
        for even in [&[100, 109, 95][..], &[1, 2, 1, 2], &[4, 4, 4], &[0, 1]] {
            assert!(Spread(even.to_vec()).is_even(), "{even:?}");
        }
        for uneven in [&[100, 120, 80][..], &[4, 4, 0, 0], &[12, 12, 12, 0]] {
            assert!(!Spread(uneven.to_vec()).is_even(), "{uneven:?}");
        }
        assert_eq!(Spread(vec![7, 3, 5]).to_string(), "3-7");
    }
}
