//! Refusals by a table's schema are confirmed before they are answered.
//!
//! A write is checked before it is proposed, against what this replica has applied. A replica that has lost the leadership,
//! or has just won it, may not have applied the newest alter. It would refuse a put into a family that was added before the
//! put began, and a caller takes such a refusal as final. So it takes a read point first, as a read does; if the schema is
//! another one by then, the caller tries again. A write that passes needs none of this: the log checks it again.

use std::sync::Arc;
use std::time::Duration;

use terrane_types::{Error, RegionId};

use super::{BEHIND_RETRY, Edge, Header, Mutated};
use crate::edge::consistency::Consistency;
use crate::group::proposal::Group;
use crate::replicas::hosted::HostedRegion;

/// What a refusal was decided by.
pub(super) struct Grounds {
    region: RegionId,
    schema_version: u64,
    group: Group,
    deadline: Duration,
}

impl Grounds {
    /// The grounds of a refusal under this version of the schema.
    pub(super) fn new(header: &Header, schema_version: u64, group: &Group) -> Self {
        Self { region: header.region, schema_version, group: group.clone(), deadline: header.deadline }
    }
}

/// Whether another schema could have passed what this error refuses.
pub(super) const fn is_by_schema(error: &Error) -> bool {
    matches!(error, Error::Invalid(_) | Error::ReadOnly { .. } | Error::Disabled { .. })
}

impl Edge {
    /// Passes an outcome on; one that refuses something on these grounds only after they are confirmed.
    pub(super) fn answer<D>(self: &Arc<Self>, outcome: Result<Mutated, Error>, grounds: Option<Grounds>, done: D)
    where
        D: FnOnce(Result<Mutated, Error>) + Send + 'static,
    {
        let Some(grounds) = grounds.filter(|_| !terrane_env::planted!("a refusal by an old schema is final")) else {
            return done(outcome);
        };
        let edge = self.clone();
        self.tasks.spawn(async move {
            done(match edge.confirm(&grounds).await {
                Ok(()) => outcome,
                Err(error) => withdrawn(outcome, &error),
            });
        });
    }

    async fn confirm(&self, grounds: &Grounds) -> Result<(), Error> {
        let Grounds { region, schema_version, group, deadline } = grounds;
        let hosted = self.replicas.regions.get(*region);
        let least = Consistency::Linearizable;
        let consistency = hosted.map_or(least, |hosted| self.consistency(&hosted, least));
        consistency.read_point(group, &self.addresses, *deadline).await?;
        let hosted = self.replicas.regions.get(*region);
        if hosted.is_some_and(|hosted: Arc<HostedRegion>| hosted.schema_version() == *schema_version) {
            return Ok(());
        }
        let message = format!("region {region} was altered, split or dropped meanwhile");
        Err(Error::Unavailable { message, retry_after: BEHIND_RETRY })
    }
}

/// The outcome without the refusals that were not confirmed. What the log has decided stays.
fn withdrawn(outcome: Result<Mutated, Error>, error: &Error) -> Result<Mutated, Error> {
    let mut mutated = match outcome {
        Ok(mutated) => mutated,
        Err(refusal) if is_by_schema(&refusal) => return Err(error.clone()),
        Err(other) => return Err(other),
    };
    for failure in mutated.errors.iter_mut().filter(|failure| !failure.decided) {
        failure.error = error.clone();
    }
    Ok(mutated)
}

#[cfg(test)]
mod tests {
    use terrane_types::Invalid;

    use super::*;
    use crate::edge::RowFailure;

    fn no_family() -> Error {
        Invalid::new("table t has no family g").into()
    }

    fn behind() -> Error {
        Error::Unavailable { message: "altered".to_owned(), retry_after: BEHIND_RETRY }
    }

    #[test]
    fn a_refusal_that_is_not_confirmed_asks_for_another_try() {
        let read_only = Error::ReadOnly { what: "table t".to_owned() };
        assert_eq!(withdrawn(Err(read_only), &behind()).unwrap_err(), behind());
        let failed = |row, decided| RowFailure { row, error: no_family(), decided };
        let outcome = Mutated { errors: vec![failed(0, false), failed(2, true)], ..Mutated::default() };
        let left: Vec<Error> =
            withdrawn(Ok(outcome), &behind()).unwrap().errors.into_iter().map(|at| at.error).collect();
        assert_eq!(left, [behind(), no_family()], "the log has decided the second");
    }

    #[test]
    fn a_lost_proposal_stays_uncertain() {
        let uncertain = Error::Uncertain { not_tried: false };
        assert_eq!(withdrawn(Err(uncertain.clone()), &behind()).unwrap_err(), uncertain);
    }
}
