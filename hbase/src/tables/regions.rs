//! Regions split, merged, moved and flushed.

use bytes::Bytes;
use terrane_master::edge::{Map, Region};
use terrane_types::{Error, RegionId, ServerId, TableName, escape};
use tokio::time::Instant;

use super::descriptors::{read_name, show_table};
use super::procedures::{begin, nonce};
use super::substitutes::{check_merges, check_splits};
use super::{TableCalls, exception};
use crate::exception::{Exception, MERGE_REGION, TABLE_NOT_ENABLED, UNKNOWN_REGION};
use crate::proto;
use crate::region_name::{named, region_name};
use crate::serve::{Answer, Outcome};

/// The procedure by which clients before 2.6 flush a table.
const FLUSH: &str = "flush-table-proc";

/// The region that a specifier names.
fn find<'m>(map: &'m Map, wanted: &proto::RegionSpecifier) -> Result<&'m Region, Exception> {
    let found = map.regions.iter().find(|region| {
        let table = map.tables.iter().find(|table| table.schema.table == region.descriptor.table);
        let name = |name: &TableName| region_name(name, &region.descriptor.range.start, region.descriptor.region);
        table.is_some_and(|table| named(wanted, region.descriptor.region, || name(&table.schema.name)))
    });
    found.ok_or_else(|| Exception::new(UNKNOWN_REGION, escape(&wanted.value).to_string()))
}

impl TableCalls {
    pub(super) async fn split(&self, request: &proto::SplitTableRegionRequest, until: Instant) -> Outcome {
        let (table, region) = (read_name(&request.region_info.table_name)?, RegionId(request.region_info.region_id));
        let nonce = nonce(request.nonce_group(), request.nonce());
        if !self.master.procedures.knows(nonce) {
            let schema = self.table(&table, until).await?.schema;
            check_splits(&schema)?;
            if schema.disabled {
                return Err(Exception::new(TABLE_NOT_ENABLED, table.to_string()));
            }
            let map = self.master.map(until).await?;
            let is_known = |known: &Region| known.descriptor.region == region && known.descriptor.table == schema.table;
            if !map.regions.iter().any(is_known) {
                return Err(Exception::new(UNKNOWN_REGION, format!("table {table} has no region {region}")));
            }
        }
        let (master, order, at) =
            (self.master.clone(), self.order(nonce), request.split_row.clone().unwrap_or_default());
        let split =
            async move { master.edge.split(region, at, &order).await.map(drop).map_err(|error| exception(&error)) };
        Ok(Answer::of(&begin(&self.master, nonce, "SplitTableRegionProcedure", split)?))
    }

    /// Merges two neighbours or more: each with what those before it became.
    pub(super) async fn merge(&self, request: &proto::MergeTableRegionsRequest, until: Instant) -> Outcome {
        let nonce = nonce(request.nonce_group(), request.nonce());
        let mut regions = Vec::new();
        if !self.master.procedures.knows(nonce) {
            let map = self.master.map(until).await?;
            let mut found = request.region.iter().map(|wanted| find(&map, wanted)).collect::<Result<Vec<_>, _>>()?;
            found.sort_by(|one, other| one.descriptor.range.start.cmp(&other.descriptor.range.start));
            let are_neighbours = |pair: &[&Region]| {
                let (one, other) = (&pair[0].descriptor, &pair[1].descriptor);
                one.table == other.table && !one.range.end.is_empty() && one.range.end == other.range.start
            };
            if found.len() < 2 || !found.windows(2).all(are_neighbours) {
                let text = "regions to be merged are two or more, of one table, each next to another";
                return Err(Exception::new(MERGE_REGION, text));
            }
            let of = found.first().map(|region| region.descriptor.table);
            if let Some(table) = map.tables.iter().find(|table| Some(table.schema.table) == of) {
                check_merges(&table.schema.name, &show_table(&table.schema))?;
            }
            regions = found.into_iter().map(|region| region.descriptor.region).collect();
        }
        let (master, order) = (self.master.clone(), self.order(nonce));
        let merged = async move {
            let mut rest = regions.into_iter();
            let Some(mut one) = rest.next() else { return Ok(()) };
            for other in rest {
                let merged = master.edge.merge(one, other, &order).await.map_err(|error| match error {
                    Error::Invalid(refused) => Exception::new(MERGE_REGION, refused.what),
                    error => exception(&error),
                })?;
                one = merged.region;
            }
            Ok(())
        };
        Ok(Answer::of(&begin(&self.master, nonce, "MergeTableRegionsProcedure", merged)?))
    }

    /// Answered once the region is there.
    pub(super) async fn move_region(&self, request: &proto::MoveRegionRequest, until: Instant) -> Outcome {
        let map = self.master.map(until).await?;
        let region = find(&map, &request.region)?;
        let targets: Vec<ServerId> = match &request.dest_server_name {
            Some(wanted) => vec![self.server_named(wanted)?],
            None => {
                map.servers.iter().map(|known| known.server).filter(|known| Some(*known) != region.leader).collect()
            }
        };
        let id = region.descriptor.region;
        let mut last = Exception::bad_request("there is no other server that the region could move to");
        for target in targets {
            if region.leader == Some(target) {
                return Ok(Answer::of(&proto::Nothing {}));
            }
            match self.master.edge.move_region(id, target, &self.order_until(until)).await {
                Ok(()) => return Ok(Answer::of(&proto::Nothing {})),
                Err(error @ Error::Invalid(_)) => last = exception(&error),
                Err(error) => return Err(exception(&error)),
            }
        }
        Err(last)
    }

    /// A region is served as long as its table is enabled.
    pub(super) async fn assign(&self, request: &proto::AssignRegionRequest, until: Instant) -> Outcome {
        let map = self.master.map(until).await?;
        let region = find(&map, &request.region)?;
        let table = map.tables.iter().find(|table| table.schema.table == region.descriptor.table);
        match table.filter(|table| table.schema.disabled) {
            Some(table) => Err(Exception::new(TABLE_NOT_ENABLED, table.schema.name.to_string())),
            None => Ok(Answer::of(&proto::Nothing {})),
        }
    }

    /// The server at a place, in its present life.
    pub(super) fn server_named(&self, name: &proto::ServerName) -> Result<ServerId, Exception> {
        let address = format!("{}:{}", name.host_name, name.port.unwrap_or_default());
        let found = self.master.edge.server_at(&address, name.start_code.filter(|&code| code > 0));
        found.ok_or_else(|| {
            let code = name.start_code.unwrap_or_default();
            Exception::bad_request(&format!("no live server is {address} with start code {code}"))
        })
    }

    pub(super) async fn flush(&self, request: &proto::FlushTableRequest, until: Instant) -> Outcome {
        let (name, nonce) = (read_name(&request.table_name)?, nonce(request.nonce_group(), request.nonce()));
        self.check_enabled(&name, until).await?;
        let (master, order) = (self.master.clone(), self.order(nonce));
        let flushed = async move { master.edge.flush_table(&name, &order).await.map_err(|error| exception(&error)) };
        Ok(Answer::of(&begin(&self.master, nonce, "FlushTableProcedure", flushed)?))
    }

    async fn check_enabled(&self, name: &TableName, until: Instant) -> Result<(), Exception> {
        match self.table(name, until).await?.schema.disabled {
            true => Err(Exception::new(TABLE_NOT_ENABLED, name.to_string())),
            false => Ok(()),
        }
    }

    /// Runs to its end before it is answered.
    pub(super) async fn run_procedure(&self, request: &proto::ExecProcedureRequest, until: Instant) -> Outcome {
        let (procedure, name) = (&request.procedure, request.procedure.instance());
        check_procedure(procedure)?;
        let name: TableName =
            name.parse().map_err(|refused: terrane_types::Invalid| Exception::bad_request(&refused.what))?;
        self.check_enabled(&name, until).await?;
        self.master.edge.flush_table(&name, &self.order_until(until)).await.map_err(|error| exception(&error))?;
        Ok(Answer::of(&proto::ExecProcedureResponse { expected_timeout: Some(0), return_data: Some(Bytes::new()) }))
    }
}

/// A procedure is answered when it is done.
pub(super) fn procedure_done(request: proto::IsProcedureDoneRequest) -> Outcome {
    let procedure = request.procedure.ok_or_else(|| Exception::bad_request("the request names no procedure"))?;
    check_procedure(&procedure)?;
    Ok(Answer::of(&proto::IsProcedureDoneResponse { done: Some(true), snapshot: Some(procedure) }))
}

fn check_procedure(procedure: &proto::ProcedureDescription) -> Result<(), Exception> {
    match procedure.signature.as_str() {
        FLUSH => Ok(()),
        other => Err(Exception::bad_request(&format!("The procedure is not registered: {other}"))),
    }
}
