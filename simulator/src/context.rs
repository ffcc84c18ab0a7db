//! What the parts of a run share: its plan and its state.

use std::rc::Rc;
use std::sync::{Arc, Mutex};

use terrane_env::trace::TraceId;
use terrane_oracle::traced::Traces;

use crate::plan::Plan;
use crate::run_state::RunState;
use crate::watch::Watch;

/// A handle to the plan and the state of the run.
#[derive(Clone)]
pub struct Context {
    pub plan: Rc<Plan>,
    pub state: RunState,
    pub watch: Watch,
    /// Shared with the servers, which hand their spans to a sink that any thread could call.
    pub traces: Arc<Mutex<Traces<TraceId>>>,
}

impl Context {
    pub fn new(plan: Plan) -> Context {
        Context { plan: Rc::new(plan), state: RunState::new(), watch: Watch::default(), traces: Arc::default() }
    }
}
