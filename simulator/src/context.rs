//! What the parts of a run share: its plan and its state.

use std::rc::Rc;
use std::sync::{Arc, Mutex};

use terrane_env::trace::TraceId;
use terrane_oracle::traced::Traces;
use terrane_types::versions::{LEVEL_OF_NONCES, LEVEL_OF_TRACES};

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

/// The feature level that a server knows, in its metrics.
const FEATURE_LEVEL: &str = "terrane_server_feature_level";

impl Context {
    /// Whether every server knows that traces may be logged.
    pub fn logs_traces(&self) -> bool {
        !self.plan.rolls_out && self.all_know(LEVEL_OF_TRACES)
    }

    /// Whether every server records the nonces of HBase's clients.
    pub fn keeps_nonces(&self) -> bool {
        self.all_know(LEVEL_OF_NONCES)
    }

    fn all_know(&self, level: u32) -> bool {
        self.plan.server_hosts().iter().all(|host| self.state.most(host, FEATURE_LEVEL) >= f64::from(level))
    }

    pub fn new(plan: Plan) -> Context {
        Context { plan: Rc::new(plan), state: RunState::new(), watch: Watch::default(), traces: Arc::default() }
    }
}
