//! The masters in `status`: which one leads, how far the others are behind, and what is wrong with them.

use futures::future::join_all;
use terrane_proto::v1;
use terrane_types::states::MasterState;
use terrane_types::{Issue, IssueKind, Place};

use crate::context::MasterContext;
use crate::masters::peer_calls::state;

/// The masters, as seen from one of them.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct MastersView {
    /// All masters, in the order of their list.
    pub masters: Vec<v1::MasterInfo>,
    /// Health issues.
    pub issues: Vec<Issue>,
    /// What the leader's procedures wait for.
    pub waits: Vec<String>,
}

/// Asks the other masters how they stand.
pub async fn look(context: &MasterContext) -> MastersView {
    let peers = context.journal.peers();
    let mut places: Vec<(usize, String)> = peers.places().into_iter().collect();
    places.sort_by(|one, other| one.1.cmp(&other.1));
    let states = join_all(places.iter().map(|(place, _)| async move {
        if *place == peers.own_place() { Some(state(context)) } else { peers.state(*place).await }
    }));
    let states = states.await;
    let addresses: Vec<String> = places.into_iter().map(|(_, address)| address).collect();
    view(&addresses, states)
}

/// The view of masters at these addresses that answered this; `None`: no answer.
fn view(addresses: &[String], states: Vec<Option<v1::MasterStateReply>>) -> MastersView {
    let committed = states.iter().flatten().map(|state| state.committed).max().unwrap_or(0);
    let leader_term = states.iter().flatten().filter(|state| state.leads).map(|state| state.term).max();
    let mut view = MastersView::default();
    for (address, state) in addresses.iter().zip(states) {
        let Some(state) = state else {
            let silent = IssueKind::MasterUnreachable.issue(format!("the master at {address} does not answer"));
            view.issues.push(silent.at(Place::Master(address.clone())));
            let (address, state) = (address.clone(), MasterState::Unreachable.name().to_owned());
            view.masters.push(v1::MasterInfo { address, state, ..v1::MasterInfo::default() });
            continue;
        };
        // One that was deposed may not know it yet.
        let leads = state.leads && Some(state.term) == leader_term;
        if leads {
            view.waits = state.waits;
        }
        let reporter = format!("the master at {address} reports");
        let reported = |own: v1::HealthIssue| Issue::from(own).reported(&reporter, Place::Master(address.clone()));
        view.issues.extend(state.issues.into_iter().map(reported));
        view.masters.push(v1::MasterInfo {
            address: address.clone(),
            state: match (leads, state.is_learner) {
                (true, _) => MasterState::Leader,
                (false, true) => MasterState::Joining,
                (false, false) => MasterState::Follower,
            }
            .name()
            .to_owned(),
            term: state.term,
            applied: state.applied,
            lag: committed.saturating_sub(state.applied),
            endpoints: state.endpoints,
            versions: state.versions,
            resources: state.resources,
        });
    }
    if leader_term.is_none() {
        let majority = addresses.len() / 2 + 1;
        view.issues.push(IssueKind::NoLeadingMaster.issue(format!(
            "no master leads: nothing can be administered until {majority} of {} masters run, and what is shown here may be \
             outdated",
            addresses.len()
        )));
    }
    view
}

#[cfg(test)]
mod tests {
    use super::*;

    fn addresses() -> Vec<String> {
        ["a:1", "b:1", "c:1"].map(str::to_owned).to_vec()
    }

    fn answered(leads: bool, term: u64, applied: u64, committed: u64) -> Option<v1::MasterStateReply> {
        let waits = leads.then(|| format!("of term {term}")).into_iter().collect();
        Some(v1::MasterStateReply { leads, term, applied, committed, waits, ..v1::MasterStateReply::default() })
    }

    fn shown(view: &MastersView) -> Vec<(&str, u64)> {
        view.masters.iter().map(|master| (master.state.as_str(), master.lag)).collect()
    }

    #[test]
    fn followers_show_their_lag() {
        let view =
            view(&addresses(), vec![answered(false, 3, 7, 9), answered(true, 3, 10, 10), answered(false, 3, 10, 10)]);
        assert_eq!(shown(&view), [("follower", 3), ("leader", 0), ("follower", 0)]);
        assert_eq!((view.issues.len(), view.waits.join("")), (0, "of term 3".to_owned()));
    }

    #[test]
    fn of_two_leaders_the_one_of_the_later_term_counts() {
        let view = view(&addresses(), vec![answered(true, 3, 9, 9), answered(true, 4, 10, 10), None]);
        assert_eq!(shown(&view), [("follower", 1), ("leader", 0), ("unreachable", 0)]);
        assert_eq!(view.waits, ["of term 4"]);
        let silent = IssueKind::MasterUnreachable.issue("the master at c:1 does not answer");
        assert_eq!(view.issues, [silent.at(Place::Master("c:1".to_owned()))]);
    }

    #[test]
    fn masters_without_a_leader_say_what_is_needed() {
        let view = view(&addresses(), vec![answered(false, 3, 9, 9), None, None]);
        assert!(view.issues[2].what.contains("until 2 of 3 masters run"), "{:?}", view.issues);
    }

    #[test]
    fn what_a_master_reports_of_itself_is_an_issue() {
        let full = v1::MasterStateReply {
            issues: vec![IssueKind::DiskFull.issue("the disk of /m is full").into()],
            ..answered(false, 3, 9, 9).unwrap()
        };
        let view = view(&addresses(), vec![answered(true, 3, 9, 9), Some(full), answered(false, 3, 9, 9)]);
        let full = IssueKind::DiskFull.issue("the master at b:1 reports: the disk of /m is full");
        assert_eq!(view.issues, [full.at(Place::Master("b:1".to_owned()))]);
    }
}
