//! Every metric, by the part of the program that keeps it.

pub mod master;
pub mod process;
pub mod raft;
pub mod server;

use crate::Description;

/// Declares descriptions, and the list of them.
macro_rules! descriptions {
    ($($name:ident = $description:expr;)*) => {
        $(
            #[doc = concat!("See [`Description::help`] of `", stringify!($name), "`.")]
            pub static $name: $crate::Description = $description;
        )*

        /// All metrics of this part.
        pub static ALL: &[&$crate::Description] = &[$(&$name),*];
    };
}
use descriptions;

/// A part of the program, what its metrics are about, and its metrics.
pub struct Part {
    /// The title of its section in the documentation.
    pub title: &'static str,
    /// A sentence about its metrics.
    pub about: &'static str,
    /// Its metrics.
    pub metrics: &'static [&'static Description],
}

/// Every part.
#[must_use]
pub fn parts() -> [Part; 4] {
    [
        Part {
            title: "Region servers",
            about: "Each region server has these. Rates of requests count the leader's work: followers answer stale reads only.",
            metrics: server::ALL,
        },
        Part {
            title: "Masters",
            about: "Each master has these. Those about the catalog are as of what that master has applied.",
            metrics: master::ALL,
        },
        Part {
            title: "Consensus and the shared log",
            about: "Region servers and masters have these, over all log groups with a replica in the process.",
            metrics: raft::ALL,
        },
        Part {
            title: "Processes",
            about: "Every console adds these. They are about the whole process: under `terrane dev`, each node shows the same.",
            metrics: process::ALL,
        },
    ]
}

/// Every metric.
pub fn all() -> impl Iterator<Item = &'static Description> {
    parts().into_iter().flat_map(|part| part.metrics.iter().copied())
}

/// The metric of this name.
#[must_use]
pub fn named(name: &str) -> Option<&'static Description> {
    all().find(|metric| metric.name == name)
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;
    use crate::{Kind, Unit};

    #[test]
    fn names_follow_the_rules_of_prometheus() {
        let mut seen = BTreeSet::new();
        for metric in all() {
            let name = metric.name;
            assert!(seen.insert(name), "{name} is listed twice");
            let plain = name.bytes().all(|byte| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'_');
            assert!(plain, "{name}");
            for reserved in ["_total", "_count", "_sum", "_bucket", "_info_total"] {
                assert!(!name.ends_with(reserved), "{name}: the suffix {reserved} is added to samples");
            }
            for (unit, suffix) in [(Unit::Seconds, "_seconds"), (Unit::Bytes, "_bytes"), (Unit::Ratio, "_ratio")] {
                assert_eq!(name.ends_with(suffix), metric.unit == unit, "{name} and its unit");
            }
            assert!(metric.kind != Kind::Histogram || metric.unit == Unit::Seconds, "{name}");
            assert!(!metric.help.is_empty() && !metric.help.ends_with('.'), "{name}: {}", metric.help);
            assert!(metric.action.ends_with('.'), "{name}: {}", metric.action);
        }
    }
}
