//! What the servers of the other group answer: they fetch files, and adopt a region or refuse it.

use std::time::Duration;

use terrane_proto::v1;
use terrane_raft::ProposeError;
use terrane_types::{Error, GroupId, MoveId, RegionDescriptor, ServerId};

use super::departures::Departures;
use super::peers::PAUSES;
use crate::edge::error_mapping::propose_error;
use crate::group::machine::GroupMachine;
use crate::group::proposal::Proposal;
use crate::group::reply::Reply;
use crate::group::state::Arrival;
use crate::operation::{Adopt, Refuse, Source};
use crate::staging::{FileSet, StagingProgress};

/// How long a server fetches before it says how far it has come.
const STAGE_TIME: Duration = Duration::from_millis(500);

/// What became of a move is not known any more. As an error, so that an older server does not take it for a refusal.
pub(super) const FORGOTTEN: Error = Error::Uncertain { not_tried: true };

impl Departures {
    /// Fetches the files of a region that comes in, and says how far that is and who votes now. Without contents, nothing is
    /// fetched.
    pub async fn stage(&self, request: v1::StageRegionRequest) -> Result<v1::StageRegionReply, Error> {
        let group = GroupId(request.to_group);
        let reply = self.staged(request).await?;
        let Some(status) = self.host.group(group).map(|group| group.status()) else { return Ok(reply) };
        let voters = status.members.iter().filter(|(replica, _)| status.voters.contains(replica));
        let voters = voters.map(|(replica, server)| v1::GroupMember {
            replica: replica.0,
            server: server.0,
            address: self.addresses.get(*server).unwrap_or_default(),
        });
        Ok(v1::StageRegionReply { voters: voters.collect(), applied: status.applied, ..reply })
    }

    async fn staged(&self, request: v1::StageRegionRequest) -> Result<v1::StageRegionReply, Error> {
        let (id, group) = (MoveId(request.r#move), GroupId(request.to_group));
        let source = Source { server: ServerId(request.source), boot: request.source_boot };
        let not_here = || Error::NotFound { what: format!("group {group} on server {}", self.peers.server()) };
        let machine = self.replicas.machine(group).ok_or_else(not_here)?;
        match machine.arrival(id) {
            Some(Arrival::Adopted { .. }) => {
                return Ok(v1::StageRegionReply { staged: true, adopted: true, ..Default::default() });
            }
            Some(Arrival::Refused) => return Ok(v1::StageRegionReply { refused: true, ..Default::default() }),
            None => {}
        }
        if let Some(has_rows) = Self::forgotten(&machine, id, request.region.as_ref()) {
            // The region can have come in only by this move.
            let (staged, adopted, forgotten) = (has_rows, has_rows, !has_rows);
            return Ok(v1::StageRegionReply { staged, adopted, forgotten, ..Default::default() });
        }
        if request.contents.is_empty() {
            return Ok(v1::StageRegionReply::default());
        }
        self.addresses.set([(source.server, request.source_address)]);
        let adopt = Adopt { id, source, contents: request.contents };
        let progress = self.staging.stage(FileSet::Region(&adopt), &[source.server], STAGE_TIME).await?;
        let StagingProgress { is_staged: staged, bytes } = progress;
        if staged {
            self.staging.note_views(&adopt, request.views).await;
        }
        Ok(v1::StageRegionReply { staged, bytes, ..Default::default() })
    }

    /// Of a move that is forgotten here: whether rows of its region are here.
    fn forgotten(machine: &GroupMachine, id: MoveId, region: Option<&v1::RegionDescriptor>) -> Option<bool> {
        let was = RegionDescriptor::try_from(region?.clone()).ok()?;
        machine.forgotten(id, &was)
    }

    /// Has a group that this server leads adopt a region.
    pub async fn adopt(&self, request: v1::AdoptRegionRequest) -> Result<v1::AdoptRegionReply, Error> {
        let (id, group) = (MoveId(request.r#move), self.led(GroupId(request.to_group))?);
        let machine = self.replicas.machine(group.id());
        let is_decided = machine.is_some_and(|machine| machine.arrival(id).is_some());
        let hello = request.hello.as_ref();
        let source =
            hello.map(|hello| Source { server: ServerId(hello.own_server), boot: hello.boot }).unwrap_or_default();
        let adopt = Adopt { id, source, contents: request.contents };
        if !is_decided && !self.staging.has(FileSet::Region(&adopt)).await {
            let message = "the region's files are not here yet".to_owned();
            return Err(Error::Unavailable { message, retry_after: PAUSES.0 });
        }
        let contents = terrane_engine::RegionContents::decode(&adopt.contents);
        let least_stamp = contents.map_or(0, |contents| contents.point().stamp);
        if terrane_env::buggify!("an adoption is proposed late") {
            // As after a call that was given up while its proposal waited.
            let (group, adopt) = (group.clone(), adopt.clone());
            terrane_env::task::spawn_named("late adoption", async move {
                tokio::time::sleep(Duration::from_millis(terrane_env::rand::range(0..1_000))).await;
                drop(group.propose(Proposal::Adopt { adopt, least_stamp }).await);
            });
            let message = "the adoption waits".to_owned();
            return Err(Error::Unavailable { message, retry_after: PAUSES.0 });
        }
        match group.propose(Proposal::Adopt { adopt, least_stamp }).await {
            Ok(Reply::Adopted) => Ok(v1::AdoptRegionReply { adopted: true, refused: String::new() }),
            Ok(Reply::Unknown) => Err(propose_error(ProposeError::Uncertain, &group, &self.addresses)),
            Ok(refused) => Ok(v1::AdoptRegionReply { adopted: false, refused: refused.refusal() }),
            Err(error) => Err(propose_error(error, &group, &self.addresses)),
        }
    }

    /// Refuses a move into a group that this server leads, unless the region was adopted.
    pub async fn refuse(&self, request: v1::RefuseMoveRequest) -> Result<v1::RefuseMoveReply, Error> {
        let (id, group) = (MoveId(request.r#move), self.led(GroupId(request.to_group))?);
        match group.propose(Proposal::Refuse(Refuse { id })).await {
            Ok(Reply::Adopted) => Ok(v1::RefuseMoveReply { adopted: true }),
            Ok(Reply::Refused { .. }) => Ok(v1::RefuseMoveReply::default()),
            Ok(Reply::Forgotten) => Err(FORGOTTEN),
            Ok(Reply::Unknown) => Err(propose_error(ProposeError::Uncertain, &group, &self.addresses)),
            Ok(other) => Err(Error::Internal { message: other.refusal() }),
            Err(error) => Err(propose_error(error, &group, &self.addresses)),
        }
    }
}
