//! Changes of tables as HBase's clients follow them: an order returns a number, and the client asks until it is finished.
//!
//! Outcomes are kept in memory, for the latest [`PROCEDURES_MAX`] orders. A client whose number is not known here any more,
//! because another master leads, looks at the table itself. An order that is repeated under its nonce gets the same number.

use std::collections::BTreeMap;
use std::sync::Arc;

use parking_lot::Mutex;

use super::Master;
use crate::exception::{Exception, REGION_TOO_BUSY};
use crate::limits::PROCEDURES_MAX;
use crate::proto;
use crate::proto::get_procedure_result_response::State;

/// An order's nonce: the client's group of nonces, and the nonce.
pub(super) type Nonce = (u64, u64);

/// A request's nonce, if it has one.
pub(super) fn nonce(group: u64, nonce: u64) -> Option<Nonce> {
    (nonce != 0).then_some((group, nonce))
}

/// Begins an order, which runs on when its caller has gone.
pub(super) fn begin(
    master: &Master,
    nonce: Option<Nonce>,
    kind: &'static str,
    order: impl Future<Output = Result<(), Exception>> + Send + 'static,
) -> Result<proto::ProcedureResponse, Exception> {
    Ok(proto::ProcedureResponse { proc_id: Some(master.procedures.begin(nonce, kind, order)?) })
}

/// The orders of one master.
#[derive(Clone, Default)]
pub(super) struct Procedures(Arc<Mutex<Known>>);

#[derive(Default)]
struct Known {
    next: u64,
    by_id: BTreeMap<u64, Procedure>,
}

struct Procedure {
    /// The class of HBase's that does the like.
    kind: &'static str,
    nonce: Option<Nonce>,
    submitted_ms: u64,
    outcome: Option<(u64, Result<(), Exception>)>,
}

impl Procedures {
    /// Begins an order unless it is known; `order` runs by itself.
    pub fn begin(
        &self,
        nonce: Option<Nonce>,
        kind: &'static str,
        order: impl Future<Output = Result<(), Exception>> + Send + 'static,
    ) -> Result<u64, Exception> {
        let id = {
            let mut known = self.0.lock();
            let repeated = known.by_id.iter().find(|(_, one)| nonce.is_some() && one.nonce == nonce).map(|(id, _)| *id);
            if let Some(id) = repeated {
                return Ok(id);
            }
            if known.by_id.len() >= PROCEDURES_MAX {
                let oldest = known.by_id.iter().find(|(_, one)| one.outcome.is_some()).map(|(id, _)| *id);
                let oldest = oldest.ok_or_else(|| {
                    Exception::new(REGION_TOO_BUSY, format!("{PROCEDURES_MAX} changes of tables are unfinished"))
                })?;
                known.by_id.remove(&oldest);
            }
            let submitted_ms = terrane_env::time::wall_ms();
            // Above the numbers of an earlier life of the process.
            let id = known.next.max(submitted_ms);
            known.next = id + 1;
            known.by_id.insert(id, Procedure { kind, nonce, submitted_ms, outcome: None });
            id
        };
        let known = self.0.clone();
        terrane_env::task::spawn_named("hbase procedure", async move {
            let outcome = order.await;
            if let Some(procedure) = known.lock().by_id.get_mut(&id) {
                procedure.outcome = Some((terrane_env::time::wall_ms(), outcome));
            }
        });
        Ok(id)
    }

    /// Whether an order with this nonce has begun.
    pub fn knows(&self, nonce: Option<Nonce>) -> bool {
        nonce.is_some() && self.0.lock().by_id.values().any(|one| one.nonce == nonce)
    }

    /// What became of an order.
    pub fn result(&self, id: u64) -> proto::GetProcedureResultResponse {
        let known = self.0.lock();
        let Some(procedure) = known.by_id.get(&id) else {
            return proto::GetProcedureResultResponse { state: State::NotFound.into(), ..Default::default() };
        };
        let (state, last_update, exception) = match &procedure.outcome {
            None => (State::Running, procedure.submitted_ms, None),
            Some((ended_ms, outcome)) => (State::Finished, *ended_ms, outcome.as_ref().err()),
        };
        proto::GetProcedureResultResponse {
            state: state.into(),
            submitted_time: Some(procedure.submitted_ms),
            last_update: Some(last_update),
            result: None,
            exception: exception.map(foreign),
        }
    }

    /// All that are remembered, oldest first.
    pub fn list(&self) -> proto::GetProceduresResponse {
        use proto::procedure::ProcedureState;
        let known = self.0.lock();
        let entry = |(id, procedure): (&u64, &Procedure)| {
            let (state, last_update, exception) = match &procedure.outcome {
                None => (ProcedureState::Runnable, procedure.submitted_ms, None),
                Some((ended_ms, Ok(()))) => (ProcedureState::Success, *ended_ms, None),
                Some((ended_ms, Err(exception))) => (ProcedureState::Failed, *ended_ms, Some(foreign(exception))),
            };
            proto::Procedure {
                class_name: format!("org.apache.hadoop.hbase.master.procedure.{}", procedure.kind),
                proc_id: *id,
                submitted_time: procedure.submitted_ms,
                state: state.into(),
                last_update,
                exception,
            }
        };
        proto::GetProceduresResponse { procedure: known.by_id.iter().map(entry).collect() }
    }
}

fn foreign(exception: &Exception) -> proto::ForeignExceptionMessage {
    proto::ForeignExceptionMessage {
        source: Some("master".to_owned()),
        generic_exception: Some(proto::GenericExceptionMessage {
            class_name: Some(exception.class.to_owned()),
            message: Some(exception.text.clone()),
            error_info: None,
        }),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    async fn ended(procedures: &Procedures, id: u64) -> proto::GetProcedureResultResponse {
        loop {
            let result = procedures.result(id);
            if result.state() != State::Running {
                return result;
            }
            tokio::task::yield_now().await;
        }
    }

    #[tokio::test]
    async fn an_order_is_followed_to_its_outcome_and_repeated_under_its_nonce() {
        let procedures = Procedures::default();
        let refused = Exception::bad_request("no");
        let id = procedures.begin(Some((1, 2)), "TestProcedure", async move { Err(refused) }).unwrap();
        assert_eq!(procedures.begin(Some((1, 2)), "TestProcedure", async { Ok(()) }).unwrap(), id);
        let result = ended(&procedures, id).await;
        assert_eq!(result.state(), State::Finished);
        let class = result.exception.unwrap().generic_exception.unwrap().class_name.unwrap();
        assert!(class.ends_with("DoNotRetryIOException"));
        assert_eq!(procedures.result(id + 1).state(), State::NotFound);
        let other = procedures.begin(None, "TestProcedure", async { Ok(()) }).unwrap();
        assert!(ended(&procedures, other).await.exception.is_none() && other > id);
        let listed = procedures.list().procedure;
        let states: Vec<_> = listed.iter().map(|one| (one.proc_id, one.exception.is_some())).collect();
        assert_eq!(states, [(id, true), (other, false)]);
        assert!(listed[0].class_name.ends_with(".TestProcedure"));
    }

    #[tokio::test]
    async fn only_the_latest_outcomes_are_kept_and_unfinished_orders_are_bounded() {
        let procedures = Procedures::default();
        let first = procedures.begin(None, "TestProcedure", async { Ok(()) }).unwrap();
        ended(&procedures, first).await;
        for _ in 1..=PROCEDURES_MAX {
            procedures.begin(None, "TestProcedure", std::future::pending()).unwrap();
        }
        assert_eq!(procedures.result(first).state(), State::NotFound);
        assert!(procedures.begin(None, "TestProcedure", async { Ok(()) }).is_err());
    }
}
