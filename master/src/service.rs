//! The master's gRPC edge: checks the hello, decodes, calls, encodes and maps errors. It makes no decisions.
//!
//! Changes, registrations and reports are the leader's: any other master redirects them, also those that are in progress
//! when it loses the leadership. Look-ups are answered by every master as of their arrival, once its catalog is up to
//! date. While no leader answers, the look-ups that a new client or an operator needs (`locate`, `describe_table`,
//! `status`) are answered from the catalog as it is, with the header [`OUTDATED`]: region servers correct outdated
//! locations. That something is missing is never said without the leader, and the other look-ups are refused.

pub(crate) mod audit;
pub(crate) mod deadline;
pub(crate) mod diagnostics;
mod scans;

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use futures::{Stream, stream};
use terrane_proto::hello::{self, Identity};
use terrane_proto::{OUTDATED, error, leadership, v1};
use terrane_types::{Error, FamilyName, Invalid, NamespaceName, RegionId, TableName, escape_family};
use tokio::time::Instant;
use tonic::{Request, Response, Status};

use crate::catalog::moves::MoveId;
use crate::catalog::namespaces::Properties;
use crate::catalog::requests::RequestId;
use crate::context::MasterContext;
use crate::fleet::{intents, listing, masters, recovery, region_moves};
use crate::history::chronicle;
use crate::masters_view;
use crate::metrics::Metrics;
use crate::servers::membership::Membership;
use crate::service::audit::Audit;
use crate::tables::TableCalls;
use crate::tables::regions::RegionCalls;
use crate::tables::schemas::{FamilyChange, TableChange};
use crate::views::Views;

use self::scans::{meta_block, meta_scan};

/// When a caller repeats a call that was in progress when the leadership was lost.
const REPEAT_AFTER: Duration = Duration::from_millis(50);

/// The service of one master.
pub struct MasterService {
    identity: Identity,
    context: Arc<MasterContext>,
    tables: TableCalls,
    views: Views,
    regions: RegionCalls,
    membership: Arc<Membership>,
    metrics: Arc<Metrics>,
}

impl MasterService {
    /// The service on this context.
    pub fn new(
        identity: Identity,
        context: Arc<MasterContext>,
        membership: Arc<Membership>,
        metrics: Arc<Metrics>,
    ) -> Self {
        let (tables, views) = (TableCalls::new(Arc::clone(&context)), Views::new(Arc::clone(&context)));
        let regions = RegionCalls::new(Arc::clone(&context), Arc::clone(&membership));
        Self { identity, context, tables, views, regions, membership, metrics }
    }

    /// Checks a call's hello and counts the call.
    fn admit(&self, call: &'static str, hello: Option<&v1::Hello>) -> Result<(), Status> {
        self.metrics.call(call);
        hello::check_cluster(hello, self.identity, false).map_err(|refused| error::status(&refused))
    }

    /// A call that only the leader answers. If it loses the leadership meanwhile, the call may take effect all the same:
    /// its caller repeats it, and the next leader recognises it.
    async fn leading<T>(&self, deadline: Instant, call: impl Future<Output = Result<T, Error>>) -> Result<T, Error> {
        self.context.leadership.admit(deadline).await?;
        tokio::select! {
            biased;
            answer = call => answer,
            () = self.context.leadership.lost() => {
                let message = "another master leads now; it continues with what was accepted".to_owned();
                Err(Error::InProgress { message, retry_after: REPEAT_AFTER })
            }
        }
    }

    /// The same for a call without a request id: its order may have arrived, and nothing would recognise a second one.
    async fn leading_once<T>(
        &self,
        deadline: Instant,
        call: impl Future<Output = Result<T, Error>>,
    ) -> Result<T, Error> {
        self.context.leadership.admit(deadline).await?;
        tokio::select! {
            biased;
            answer = call => answer,
            () = self.context.leadership.lost() => Err(Error::Uncertain { not_tried: false }),
        }
    }

    /// A look-up, as of its arrival.
    async fn fresh<T>(&self, view: impl FnOnce(&Views) -> Result<T, Error>) -> Result<Response<T>, Status> {
        let up_to_date = self.context.journal.barrier().await;
        answer(up_to_date.and_then(|()| view(&self.views)))
    }

    /// A look-up that is answered even if no leader can be asked what has changed.
    async fn fresh_or_outdated<T>(&self, view: impl FnOnce(&Views) -> Result<T, Error>) -> Result<Response<T>, Status> {
        let Err(no_leader) = self.context.journal.barrier().await else { return answer(view(&self.views)) };
        match view(&self.views) {
            Ok(outdated) => {
                let mut response = Response::new(outdated);
                response.metadata_mut().insert(OUTDATED, tonic::metadata::MetadataValue::from_static("1"));
                Ok(response)
            }
            // It may have been created since.
            Err(Error::NotFound { .. }) => Err(error::status(&no_leader)),
            Err(refused) => Err(error::status(&refused)),
        }
    }
}

fn answer<T>(result: Result<T, Error>) -> Result<Response<T>, Status> {
    result.map(Response::new).map_err(|refused| error::status(&refused))
}

fn table_name(name: &str) -> Result<TableName, Status> {
    TableName::new(name).map_err(|invalid| error::status(&Error::Invalid(invalid)))
}

fn request_id(bytes: &bytes::Bytes) -> Result<Option<RequestId>, Status> {
    RequestId::of(bytes).map_err(|invalid| error::status(&invalid))
}

fn namespace_name(name: &str) -> Result<NamespaceName, Status> {
    NamespaceName::new(name).map_err(|invalid| error::status(&Error::Invalid(invalid)))
}

#[tonic::async_trait]
impl v1::master_server::Master for MasterService {
    async fn identify(&self, request: Request<v1::Hello>) -> Result<Response<v1::HelloReply>, Status> {
        self.metrics.call("identify");
        let mut hello = request.into_inner();
        if hello.cluster_id.is_empty() {
            // The first call of a client, to learn the cluster id.
            hello.cluster_id = bytes::Bytes::copy_from_slice(&self.identity.cluster.0);
        }
        answer(hello::check(&hello, self.identity, terrane_env::time::wall_ms()))
    }

    async fn create_namespace(&self, request: Request<v1::NamespaceRequest>) -> Result<Response<v1::Empty>, Status> {
        let deadline = deadline::of(request.metadata());
        let audit = Audit::of("create namespace", &request);
        let request = request.into_inner();
        let subject = request.name.clone();
        self.admit("create_namespace", request.hello.as_ref())?;
        let id = request_id(&request.request_id)?;
        let create = self.tables.create_namespace(namespace_name(&request.name)?, Properties::new(), id);
        let created = self.leading(deadline, create).await;
        audit.outcome(subject, answer(created.map(|()| v1::Empty {})))
    }

    async fn drop_namespace(&self, request: Request<v1::NamespaceRequest>) -> Result<Response<v1::Empty>, Status> {
        let deadline = deadline::of(request.metadata());
        let audit = Audit::of("drop namespace", &request);
        let request = request.into_inner();
        let subject = request.name.clone();
        self.admit("drop_namespace", request.hello.as_ref())?;
        let id = request_id(&request.request_id)?;
        let dropped = self.leading(deadline, self.tables.drop_namespace(namespace_name(&request.name)?, id)).await;
        audit.outcome(subject, answer(dropped.map(|()| v1::Empty {})))
    }

    async fn list_namespaces(
        &self,
        request: Request<v1::ClusterRequest>,
    ) -> Result<Response<v1::ListNamespacesReply>, Status> {
        self.admit("list_namespaces", request.get_ref().hello.as_ref())?;
        self.fresh(|views| Ok(v1::ListNamespacesReply { names: views.namespaces() })).await
    }

    async fn create_table(&self, request: Request<v1::CreateTableRequest>) -> Result<Response<v1::TableReply>, Status> {
        let deadline = deadline::of(request.metadata());
        let audit = Audit::of("create table", &request);
        let request = request.into_inner();
        let subject = request.schema.as_ref().map(|schema| schema.name.clone()).unwrap_or_default();
        self.admit("create_table", request.hello.as_ref())?;
        let created = async {
            let schema = request.schema.ok_or_else(|| Invalid::new("the schema is missing"))?;
            let schema: terrane_types::TableSchema = schema.try_into()?;
            let name = schema.name.clone();
            let id = RequestId::of(&request.request_id)?;
            self.tables.create(schema, request.split_at, id, deadline).await?;
            self.views.table(&name)
        };
        audit.outcome(subject, answer(self.leading(deadline, created).await))
    }

    async fn alter_table(&self, request: Request<v1::AlterTableRequest>) -> Result<Response<v1::TableReply>, Status> {
        let deadline = deadline::of(request.metadata());
        let audit = Audit::of("alter table", &request);
        let request = request.into_inner();
        let subject = altered_subject(&request);
        self.admit("alter_table", request.hello.as_ref())?;
        let (name, id) = (table_name(&request.name)?, request_id(&request.request_id)?);
        let altered = async {
            self.tables.alter(&name, &table_change(request)?, id, deadline).await?;
            self.views.table(&name)
        };
        audit.outcome(subject, answer(self.leading(deadline, altered).await))
    }

    async fn drop_table(&self, request: Request<v1::DropTableRequest>) -> Result<Response<v1::Empty>, Status> {
        let deadline = deadline::of(request.metadata());
        let audit = Audit::of("drop table", &request);
        let request = request.into_inner();
        let subject = request.name.clone();
        self.admit("drop_table", request.hello.as_ref())?;
        let id = request_id(&request.request_id)?;
        let name = table_name(&request.name)?;
        let dropped = self.leading(deadline, self.tables.drop(&name, id, deadline)).await;
        audit.outcome(subject, answer(dropped.map(|()| v1::Empty {})))
    }

    async fn truncate_table(
        &self,
        request: Request<v1::TruncateTableRequest>,
    ) -> Result<Response<v1::TableReply>, Status> {
        let deadline = deadline::of(request.metadata());
        let audit = Audit::of("truncate table", &request);
        let request = request.into_inner();
        let subject = request.name.clone();
        self.admit("truncate_table", request.hello.as_ref())?;
        let (name, id) = (table_name(&request.name)?, request_id(&request.request_id)?);
        let truncated = async {
            self.tables.truncate(&name, true, id, deadline).await?;
            self.views.table(&name)
        };
        audit.outcome(subject, answer(self.leading(deadline, truncated).await))
    }

    async fn list_tables(
        &self,
        request: Request<v1::ListTablesRequest>,
    ) -> Result<Response<v1::ListTablesReply>, Status> {
        let request = request.into_inner();
        self.admit("list_tables", request.hello.as_ref())?;
        let namespace = Some(request.namespace.as_str()).filter(|name| !name.is_empty());
        let namespace = namespace.map(namespace_name).transpose()?;
        self.fresh(|views| views.tables(namespace.as_ref()).map(|tables| v1::ListTablesReply { tables })).await
    }

    async fn describe_table(
        &self,
        request: Request<v1::DescribeTableRequest>,
    ) -> Result<Response<v1::TableReply>, Status> {
        let request = request.into_inner();
        self.admit("describe_table", request.hello.as_ref())?;
        let name = table_name(&request.name)?;
        self.fresh_or_outdated(|views| views.table(&name)).await
    }

    async fn locate(&self, request: Request<v1::LocateRequest>) -> Result<Response<v1::LocateReply>, Status> {
        let request = request.into_inner();
        self.admit("locate", request.hello.as_ref())?;
        self.fresh_or_outdated(|views| views.locate(&request)).await
    }

    type ScanMetaStream = Pin<Box<dyn Stream<Item = Result<v1::ScanBlock, Status>> + Send>>;

    async fn scan_meta(&self, request: Request<v1::ScanCall>) -> Result<Response<Self::ScanMetaStream>, Status> {
        let request = request.into_inner();
        self.admit("scan_meta", request.hello.as_ref())?;
        let body = request.body.unwrap_or_default();
        let as_messages = body.cells_as == v1::CellsAs::Messages as i32;
        let scan = meta_scan(body).map_err(|refused| error::status(&refused))?;
        let blocks = self.fresh(|views| views.scan_meta(&scan)).await?;
        let blocks = blocks.into_inner().into_iter().map(move |block| meta_block(block, as_messages));
        Ok(Response::new(Box::pin(stream::iter(blocks))))
    }

    async fn list_servers(
        &self,
        request: Request<v1::ClusterRequest>,
    ) -> Result<Response<v1::ListServersReply>, Status> {
        self.admit("list_servers", request.get_ref().hello.as_ref())?;
        self.membership.look_for_dead().await;
        self.fresh(|views| Ok(v1::ListServersReply { servers: views.servers() })).await
    }

    async fn list_groups(&self, request: Request<v1::ClusterRequest>) -> Result<Response<v1::ListGroupsReply>, Status> {
        self.admit("list_groups", request.get_ref().hello.as_ref())?;
        self.fresh(|views| Ok(v1::ListGroupsReply { groups: views.groups() })).await
    }

    async fn list_regions(
        &self,
        request: Request<v1::ListRegionsRequest>,
    ) -> Result<Response<v1::ListRegionsReply>, Status> {
        let request = request.into_inner();
        self.admit("list_regions", request.hello.as_ref())?;
        let table = if request.table.is_empty() { None } else { Some(table_name(&request.table)?) };
        self.fresh(|views| views.regions(table.as_ref()).map(|regions| v1::ListRegionsReply { regions })).await
    }

    async fn status(&self, request: Request<v1::ClusterRequest>) -> Result<Response<v1::StatusReply>, Status> {
        self.admit("status", request.get_ref().hello.as_ref())?;
        let (masters, ()) =
            futures::future::join(masters_view::look(&self.context), self.membership.look_for_dead()).await;
        self.fresh_or_outdated(|views| Ok(views.status(masters))).await
    }

    async fn split_region(
        &self,
        request: Request<v1::SplitRegionRequest>,
    ) -> Result<Response<v1::SplitRegionReply>, Status> {
        let deadline = deadline::of(request.metadata());
        let audit = Audit::of("split region", &request);
        let request = request.into_inner();
        let subject = request.region;
        self.admit("split_region", request.hello.as_ref())?;
        let split = async {
            let daughters = self.regions.split(RegionId(request.region), request.at).await?;
            Ok(v1::SplitRegionReply { daughters: daughters.iter().map(Into::into).collect() })
        };
        audit.outcome(subject, answer(self.leading_once(deadline, split).await))
    }

    async fn merge_regions(
        &self,
        request: Request<v1::MergeRegionsRequest>,
    ) -> Result<Response<v1::MergeRegionsReply>, Status> {
        let deadline = deadline::of(request.metadata());
        let audit = Audit::of("merge regions", &request);
        let request = request.into_inner();
        let subject = format!("{} and {}", request.region, request.other);
        self.admit("merge_regions", request.hello.as_ref())?;
        let merged = async {
            let merged = self.regions.merge(RegionId(request.region), RegionId(request.other), deadline).await?;
            Ok(v1::MergeRegionsReply { region: Some((&merged).into()) })
        };
        audit.outcome(subject, answer(self.leading_once(deadline, merged).await))
    }

    async fn begin_move(&self, request: Request<v1::BeginMoveRequest>) -> Result<Response<v1::BeginMoveReply>, Status> {
        let deadline = deadline::of(request.metadata());
        let audit = Audit::of("move region", &request);
        let request = request.into_inner();
        let subject = format!("{} to {}", request.region, request.server);
        self.admit("begin_move", request.hello.as_ref())?;
        let begun = region_moves::begin(&self.context, RegionId(request.region), &request.server);
        audit.outcome(subject, answer(self.leading(deadline, begun).await))
    }

    async fn follow_move(
        &self,
        request: Request<v1::FollowMoveRequest>,
    ) -> Result<Response<v1::FollowMoveReply>, Status> {
        let deadline = deadline::of(request.metadata());
        let request = request.into_inner();
        self.admit("follow_move", request.hello.as_ref())?;
        let followed = async { region_moves::follow(&self.context, MoveId(request.r#move)) };
        answer(self.leading(deadline, followed).await)
    }

    async fn list_procedures(
        &self,
        request: Request<v1::ListProceduresRequest>,
    ) -> Result<Response<v1::ListProceduresReply>, Status> {
        let deadline = deadline::of(request.metadata());
        let v1::ListProceduresRequest { hello, ended } = request.into_inner();
        self.admit("list_procedures", hello.as_ref())?;
        let listed = async {
            let procedures = listing::procedures(&self.context);
            let ended = if ended { chronicle::ended_procedures(&self.context) } else { Vec::new() };
            Ok(v1::ListProceduresReply { procedures, ended })
        };
        answer(self.leading(deadline, listed).await)
    }

    async fn cancel_procedure(
        &self,
        request: Request<v1::CancelProcedureRequest>,
    ) -> Result<Response<v1::Empty>, Status> {
        let deadline = deadline::of(request.metadata());
        let audit = Audit::of("cancel procedure", &request);
        let request = request.into_inner();
        let subject = request.id.clone();
        self.admit("cancel_procedure", request.hello.as_ref())?;
        let cancelled = async { intents::cancel(&self.context, &request.id).await.map(|()| v1::Empty {}) };
        audit.outcome(subject, answer(self.leading(deadline, cancelled).await))
    }

    async fn change_server(
        &self,
        request: Request<v1::ChangeServerRequest>,
    ) -> Result<Response<v1::ChangeServerReply>, Status> {
        let deadline = deadline::of(request.metadata());
        let audit = Audit::of("change server", &request);
        let request = request.into_inner();
        let subject = format!("{}: {}", request.server, request.change().as_str_name());
        self.admit("change_server", request.hello.as_ref())?;
        audit.outcome(
            subject,
            answer(
                self.leading(deadline, intents::change_server(&self.context, &request.server, request.change())).await,
            ),
        )
    }

    async fn balance(&self, request: Request<v1::BalanceRequest>) -> Result<Response<v1::BalanceReply>, Status> {
        let deadline = deadline::of(request.metadata());
        let audit = Audit::of("balance", &request);
        let request = request.into_inner();
        let subject = request.mode().as_str_name();
        self.admit("balance", request.hello.as_ref())?;
        audit.outcome(subject, answer(self.leading(deadline, intents::balance(&self.context, request.mode())).await))
    }

    async fn set_replication(
        &self,
        request: Request<v1::SetReplicationRequest>,
    ) -> Result<Response<v1::SetReplicationReply>, Status> {
        let deadline = deadline::of(request.metadata());
        let audit = Audit::of("set replication", &request);
        let request = request.into_inner();
        let subject = request.replication;
        self.admit("set_replication", request.hello.as_ref())?;
        audit.outcome(
            subject,
            answer(self.leading(deadline, intents::set_replication(&self.context, request.replication)).await),
        )
    }

    async fn set_replace_after(
        &self,
        request: Request<v1::SetReplaceAfterRequest>,
    ) -> Result<Response<v1::SetReplaceAfterReply>, Status> {
        let deadline = deadline::of(request.metadata());
        let audit = Audit::of("set replace-after", &request);
        let v1::SetReplaceAfterRequest { hello, after_ms } = request.into_inner();
        let subject = if after_ms == 0 { "default".to_owned() } else { format!("{after_ms} ms") };
        self.admit("set_replace_after", hello.as_ref())?;
        audit
            .outcome(subject, answer(self.leading(deadline, intents::set_replace_after(&self.context, after_ms)).await))
    }

    async fn set_masters(
        &self,
        request: Request<v1::SetMastersRequest>,
    ) -> Result<Response<v1::SetMastersReply>, Status> {
        let deadline = deadline::of(request.metadata());
        let audit = Audit::of("set masters", &request);
        let request = request.into_inner();
        let subject = described(request.masters.join(","), request.confirmed);
        self.admit("set_masters", request.hello.as_ref())?;
        audit.outcome(subject, answer(self.leading_once(deadline, masters::set(&self.context, &request)).await))
    }

    async fn restart_check(
        &self,
        request: Request<v1::RestartCheckRequest>,
    ) -> Result<Response<v1::RestartCheckReply>, Status> {
        let deadline = deadline::of(request.metadata());
        let request = request.into_inner();
        self.admit("restart_check", request.hello.as_ref())?;
        answer(self.leading(deadline, async { self.views.restart_check(&request.server) }).await)
    }

    async fn recover_group(
        &self,
        request: Request<v1::RecoverGroupRequest>,
    ) -> Result<Response<v1::RecoverGroupReply>, Status> {
        let deadline = deadline::of(request.metadata());
        let audit = Audit::of("recover group", &request);
        let request = request.into_inner();
        let subject = described(request.group.to_string(), request.confirmed);
        self.admit("recover_group", request.hello.as_ref())?;
        audit.outcome(subject, answer(self.leading(deadline, recovery::recover(&self.context, &request)).await))
    }

    async fn check_cluster(
        &self,
        request: Request<v1::ClusterRequest>,
    ) -> Result<Response<v1::CheckClusterReply>, Status> {
        let deadline = deadline::of(request.metadata());
        self.admit("check_cluster", request.get_ref().hello.as_ref())?;
        answer(self.leading(deadline, async { Ok(self.views.check()) }).await)
    }

    async fn load_history(
        &self,
        request: Request<v1::LoadHistoryRequest>,
    ) -> Result<Response<v1::LoadHistoryReply>, Status> {
        let deadline = deadline::of(request.metadata());
        let request = request.into_inner();
        self.admit("load_history", request.hello.as_ref())?;
        answer(self.leading(deadline, async { chronicle::load(&self.context, request) }).await)
    }

    async fn list_events(
        &self,
        request: Request<v1::ListEventsRequest>,
    ) -> Result<Response<v1::ListEventsReply>, Status> {
        let deadline = deadline::of(request.metadata());
        let request = request.into_inner();
        self.admit("list_events", request.hello.as_ref())?;
        answer(self.leading(deadline, async { Ok(chronicle::events(&self.context, &request)) }).await)
    }

    async fn list_failovers(
        &self,
        request: Request<v1::ClusterRequest>,
    ) -> Result<Response<v1::ListFailoversReply>, Status> {
        let deadline = deadline::of(request.metadata());
        self.admit("list_failovers", request.get_ref().hello.as_ref())?;
        answer(self.leading(deadline, async { Ok(chronicle::failovers(&self.context)) }).await)
    }

    async fn register(&self, request: Request<v1::RegisterRequest>) -> Result<Response<v1::RegisterReply>, Status> {
        self.metrics.call("register");
        let deadline = deadline::of(request.metadata());
        let request = request.into_inner();
        self.membership.check(request.hello.as_ref()).map_err(|refused| error::status(&refused))?;
        answer(self.leading(deadline, self.membership.register(request)).await)
    }

    async fn report(&self, request: Request<v1::ReportRequest>) -> Result<Response<v1::ReportReply>, Status> {
        let request = request.into_inner();
        self.admit("report", request.hello.as_ref())?;
        let mut answer = answer(self.membership.report(request).await)?;
        if self.context.leadership.holds() {
            leadership::stamp(answer.metadata_mut(), self.context.orders.leadership());
        }
        Ok(answer)
    }
}

/// What a change is about that is only described unless it is confirmed.
fn described(subject: String, confirmed: bool) -> String {
    if confirmed { subject } else { format!("{subject} (only described)") }
}

/// What an alteration is about, in a few words.
fn altered_subject(request: &v1::AlterTableRequest) -> String {
    let set = request.set.iter().map(|(name, value)| format!("{name}={value}"));
    let families = request.families.iter().map(|change| format!("family {}", escape_family(change.name.as_bytes())));
    let drops = request.drop_families.iter().map(|name| format!("drop family {}", escape_family(name.as_bytes())));
    let mut changes: Vec<String> = set.chain(families).chain(drops).collect();
    changes.sort();
    format!("{}: {}", request.name, changes.join(", "))
}

fn table_change(request: v1::AlterTableRequest) -> Result<TableChange, Error> {
    let family = |change: v1::FamilyChange| {
        let (name, add) = (FamilyName::new(&change.name)?, change.add);
        Ok(FamilyChange { name, add, attributes: change.attributes.into_iter().collect() })
    };
    Ok(TableChange {
        set: request.set.into_iter().collect(),
        families: request.families.into_iter().map(family).collect::<Result<_, Error>>()?,
        drop_families: request
            .drop_families
            .iter()
            .map(|name| Ok(FamilyName::new(name)?))
            .collect::<Result<_, Error>>()?,
    })
}
