//! The audit stream: a line for each administrative call, with who asked from where, for what, and the outcome.
//!
//! The lines are events of the target `audit`, of level INFO. A call that is refused because another master leads is not
//! among them: the caller repeats it there. Reads are not administrative.

use std::fmt::Display;

use terrane_env::net::peer_of;
use terrane_proto::error;
use terrane_types::Error;
use tonic::{Request, Response, Status};

/// An administrative call that has no outcome yet.
pub struct Audit {
    action: &'static str,
    peer: String,
}

impl Audit {
    /// A call that asks for this action.
    pub fn of<T>(action: &'static str, request: &Request<T>) -> Self {
        Self { action, peer: peer_of(request.extensions()) }
    }

    /// Records the outcome of the call, which was about `subject`, and passes it on.
    pub fn outcome<T>(self, subject: impl Display, answer: Result<Response<T>, Status>) -> Result<Response<T>, Status> {
        let outcome = match &answer {
            Ok(_) => "done".to_owned(),
            Err(status) => match error::from_status(status) {
                Error::NotLeader { .. } => return answer,
                refused => refused.to_string(),
            },
        };
        let Self { action, peer } = self;
        tracing::info!(target: "audit", action, %subject, peer, outcome);
        answer
    }
}
