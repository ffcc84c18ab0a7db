//! What the parts of a run share: its plan and its state.

use std::rc::Rc;

use crate::plan::Plan;
use crate::run_state::RunState;
use crate::watch::Watch;

/// A handle to the plan and the state of the run.
#[derive(Clone)]
pub struct Context {
    pub plan: Rc<Plan>,
    pub state: RunState,
    pub watch: Watch,
}

impl Context {
    pub fn new(plan: Plan) -> Context {
        Context { plan: Rc::new(plan), state: RunState::new(), watch: Watch::default() }
    }
}
