//! The limited resources of a node: their use, as its metrics show it, never exceeds their limits, and what requests took is
//! returned when they have ended.

use std::collections::BTreeMap;

const USED: &str = "terrane_server_resource_used";
const LIMIT: &str = "terrane_server_resource_limit";
/// Counted when they exist already, so that they may exceed their limit by what one moment brings.
const COUNTED_LATE: [&str; 2] = ["answers", "memtables"];

/// The log may exceed its limit while entries are copied out of it; at a quarter more every group is refused, and what is
/// under way then comes on top.
const OVERRUNS: (&str, f64) = ("log", 1.5);

/// Resources that only requests under way hold, and connections of clients that have gone.
pub const RETURNED: [&str; 9] = [
    "bodies",
    "answers",
    "waiting_writes",
    "write_operations",
    "write_bytes",
    "hbase_connections",
    "hbase_calls",
    "hbase_bodies",
    "hbase_requests",
];

/// What is wrong if HBase's clients have received answers that no budget of their server has held.
#[must_use]
pub fn uncounted(received: u64, counted: u64) -> Option<String> {
    (received > counted)
        .then(|| format!("clients received {received} bytes of answers, of which servers counted {counted}"))
}

/// How much of a resource is in use.
#[must_use]
pub fn used(numbers: &BTreeMap<String, f64>, resource: &str) -> f64 {
    numbers.get(&format!("{USED}{{resource=\"{resource}\"}}")).copied().unwrap_or_default()
}

/// A resource above its limit, if there is one.
#[must_use]
pub fn excess(numbers: &BTreeMap<String, f64>) -> Option<String> {
    let of_used = numbers.range(USED.to_owned()..).take_while(|(name, _)| name.starts_with(USED));
    for (name, used) in of_used {
        let resource = &name[USED.len()..];
        let limit = numbers.get(&format!("{LIMIT}{resource}")).copied().unwrap_or(f64::MAX);
        let limit = if resource.contains(&format!("\"{}\"", OVERRUNS.0)) { limit * OVERRUNS.1 } else { limit };
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
    fn answers_that_no_budget_held_are_found() {
        assert_eq!(uncounted(5, 5), None);
        assert!(uncounted(6, 5).unwrap().contains("6 bytes"));
    }

    #[test]
    fn a_resource_above_its_limit_is_found() {
        let numbers = |used: f64| {
            let number = |name: &str, value: f64| (format!("{name}{{resource=\"calls\"}}"), value);
            BTreeMap::from([number(USED, used), number(LIMIT, 3.0)])
        };
        assert_eq!(excess(&numbers(3.0)), None);
        assert!(excess(&numbers(4.0)).unwrap().contains("calls"));
        assert_eq!([used(&numbers(4.0), "calls"), used(&numbers(4.0), "bodies")], [4.0, 0.0]);
    }
}
