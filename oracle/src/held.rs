//! Which budgets of a server were in use at every look. Readers still work while the looks are taken, so every budget has to
//! be unused at one of them, not all at once.

use std::collections::{BTreeMap, BTreeSet};

use super::resources::{RETURNED, used};

type Host = &'static str;

/// The resources of each host that no look has found unused.
#[derive(Default)]
pub struct Held {
    hosts: BTreeMap<Host, BTreeSet<&'static str>>,
}

impl Held {
    /// Begins: nothing of these hosts has been looked at.
    pub fn begin(&mut self, hosts: impl Iterator<Item = Host>) {
        self.hosts = hosts.map(|host| (host, RETURNED.into())).collect();
    }

    /// Looks at the numbers of a host.
    pub fn look(&mut self, host: Host, numbers: &BTreeMap<String, f64>) {
        if let Some(held) = self.hosts.get_mut(host) {
            held.retain(|resource| used(numbers, resource) > 0.0);
        }
    }

    /// A host with budgets that were in use at every look, if there is one.
    #[must_use]
    pub fn some(&self) -> Option<String> {
        let (host, held) = self.hosts.iter().find(|(_, held)| !held.is_empty())?;
        Some(format!("{host} has used some of {held:?} at every look"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_budget_counts_as_returned_once_a_look_finds_it_unused() {
        let numbers = |used: f64| {
            let number = |resource| (format!("terrane_server_resource_used{{resource=\"{resource}\"}}"), used);
            RETURNED.into_iter().map(number).collect::<BTreeMap<String, f64>>()
        };
        let mut held = Held::default();
        held.begin(["s1"].into_iter());
        assert!(held.some().unwrap().starts_with("s1 has used"), "nothing was looked at");
        held.look("s1", &numbers(2.0));
        assert!(held.some().is_some());
        held.look("s1", &numbers(0.0));
        held.look("s1", &numbers(2.0));
        assert_eq!(held.some(), None);
    }
}
