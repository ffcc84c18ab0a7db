//! Holding a host up in the middle of a step, so that a crash strikes exactly there.
//!
//! Every [`crate::buggify_pause!`] marks a step of a procedure. The harness asks for one of the next steps that any host
//! reaches; that one pauses until the crash ends it.

use std::time::Duration;

use super::{host, with_state};

/// How long a step is held up: longer than the harness takes to crash the host, which is one tick.
pub(crate) const HOLD: Duration = Duration::from_millis(60);

/// The step that the harness waits for.
#[derive(Default)]
pub(super) struct Steps {
    /// The step comes after so many others; `None`: none is wanted.
    wanted: Option<u64>,
    held: Option<(&'static str, &'static str)>,
}

/// Holds up the `nth` step from now on that any host reaches, once.
pub fn hold_step(nth: u64) {
    with_state(|state| state.steps = Steps { wanted: Some(nth), held: None });
}

/// The host that is held up, and the step, once.
pub fn held_step() -> Option<(&'static str, &'static str)> {
    with_state(|state| state.steps.held.take())
}

/// A host reaches a step; whether it is held up.
pub(crate) fn reach_step(step: &'static str) -> bool {
    let Some(host) = host() else { return false };
    with_state(|state| match state.steps.wanted.as_mut() {
        Some(0) => {
            state.steps = Steps { wanted: None, held: Some((host, step)) };
            state.count("a host is held up in a step");
            true
        }
        Some(left) => {
            *left -= 1;
            false
        }
        None => false,
    })
}
