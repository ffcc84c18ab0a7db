//! The limited resources of a node: their use, as its metrics show it, never exceeds their limits.

use std::collections::BTreeMap;

const USED: &str = "terrane_server_resource_used";
const LIMIT: &str = "terrane_server_resource_limit";
/// Counted when they exist already, so that they may exceed their limit by what one moment brings.
const COUNTED_LATE: [&str; 2] = ["answers", "memtables"];

/// A resource above its limit, if there is one.
#[must_use]
pub fn excess(numbers: &BTreeMap<String, f64>) -> Option<String> {
    let of_used = numbers.range(USED.to_owned()..).take_while(|(name, _)| name.starts_with(USED));
    for (name, used) in of_used {
        let resource = &name[USED.len()..];
        let limit = numbers.get(&format!("{LIMIT}{resource}")).copied().unwrap_or(f64::MAX);
        let late = COUNTED_LATE.iter().any(|counted| resource.contains(counted));
        if *used > limit && !late {
            return Some(format!("resource {resource} is used to {used}, its limit is {limit}"));
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_resource_above_its_limit_is_found() {
        let numbers = |used: f64| {
            let number = |name: &str, value: f64| (format!("{name}{{resource=\"calls\"}}"), value);
            BTreeMap::from([number(USED, used), number(LIMIT, 3.0)])
        };
        assert_eq!(excess(&numbers(3.0)), None);
        assert!(excess(&numbers(4.0)).unwrap().contains("calls"));
    }
}
