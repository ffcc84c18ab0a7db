//! Bulk loads at the edge: the region is found and checked, and the rest is [`Loads`](crate::loads::commit::Loads).

use std::sync::Arc;

use terrane_types::Error;

use super::{Answer, Bulk, Edge, Header};
use crate::group::proposal::Proposal;
use crate::operation::Settle;

impl Edge {
    /// Takes a part of a run, or commits it.
    pub async fn bulk(self: &Arc<Self>, header: &Header, bulk: Bulk) -> Result<Answer, Error> {
        let (hosted, group) = self.find(header)?;
        match bulk {
            Bulk::Part(part) => {
                let added = self.loads.add(header.client, part, &hosted, &group).await;
                Ok(Answer::PartsHere(added.map_err(|error| self.elsewhere(&group, error))?))
            }
            Bulk::Commit(commit, under_way) => {
                if let Some(under_way) = under_way {
                    let settle = Settle { region: header.region, client: header.client, under_way };
                    // Nothing waits for it: if it is lost, the next one says more.
                    group.submit(Proposal::Settle(settle), drop);
                }
                Ok(Answer::Committed(self.loads.commit(commit, &hosted, &group, header.deadline).await?))
            }
        }
    }
}
