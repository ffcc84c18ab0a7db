//! Budgets under many interleavings of their users. docs/testing.md says how these tests work.

#![allow(clippy::unwrap_used, reason = "what a test helper unwraps is what the test claims")]

use std::sync::Arc;

use terrane_env::budget::{Budget, Unit};
use terrane_env::interleave::{explore, finds, spawn};
use terrane_env::sync::point;

/// Users that take, grow, shrink and return shares stay within the limit, and what they took is returned exactly once.
fn users_of_one_budget() {
    let budget = Budget::new("answers", Unit::Bytes, 10);
    let users: Vec<_> = [(4, 2), (3, 3), (5, 1)]
        .into_iter()
        .map(|(first, more)| {
            let budget = Arc::clone(&budget);
            spawn(move || {
                for _ in 0..2 {
                    let Some(mut share) = budget.try_take(first) else { continue };
                    assert!(budget.used() <= 10, "{} of 10 are used", budget.used());
                    share.grow(more);
                    assert!(budget.used() <= 10, "{} of 10 are used", budget.used());
                    share.shrink_to(1);
                    point();
                }
            })
        })
        .collect();
    users.into_iter().for_each(|user| user.join().unwrap());
    let usage = budget.usage();
    assert_eq!(usage.used, 0);
    assert!(usage.peak <= 10, "at most {} of 10 were used", usage.peak);
}

#[test]
fn shares_of_racing_users_stay_within_the_limit_and_all_come_back() {
    explore(users_of_one_budget);
}

#[test]
fn a_limit_that_is_checked_before_it_is_taken_is_found() {
    finds("a limit is checked before it is taken", users_of_one_budget);
}

/// A request that never fits is refused. Meanwhile requests that fit are not.
#[test]
fn a_refused_share_keeps_no_other_from_being_taken() {
    explore(|| {
        let budget = Budget::new("answers", Unit::Bytes, 10);
        let held = budget.try_take(1).unwrap();
        let large = spawn({
            let budget = Arc::clone(&budget);
            move || assert!(budget.try_take(10).is_none())
        });
        assert!(budget.try_take(4).is_some(), "5 of 10 would be used");
        large.join().unwrap();
        drop(held);
        assert_eq!(budget.used(), 0);
    });
}

/// Of two shares larger than the limit at most one is granted at a time, and one of them always is.
#[test]
fn of_two_shares_beyond_the_limit_one_is_granted() {
    explore(|| {
        let budget = Budget::new("answers", Unit::Bytes, 10);
        let take = |budget: Arc<Budget>| move || budget.try_take(25);
        let other = spawn(take(Arc::clone(&budget)));
        let mine = take(Arc::clone(&budget))();
        let other = other.join().unwrap();
        assert_eq!(usize::from(mine.is_some()) + usize::from(other.is_some()), 1);
    });
}
