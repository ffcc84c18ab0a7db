//! Tables altered and emptied.

use terrane_types::{Error, TableName, TableSchema};
use tokio::time::Instant;

use super::descriptors::{modified, read_name, with_changed_family, with_family, without_family};
use super::procedures::Nonce;
use super::procedures::{begin, nonce};
use super::{TableCalls, exception};
use crate::exception::{Exception, REGION_TOO_BUSY, TABLE_NOT_DISABLED, TABLE_NOT_FOUND};
use crate::proto;
use crate::serve::{Answer, Outcome};

/// How often an alteration is made again from a newer schema, because another one came first.
const ATTEMPTS_MAX: usize = 10;

impl TableCalls {
    pub(super) async fn modify(&self, request: proto::ModifyTableRequest, until: Instant) -> Outcome {
        let (name, nonce) = (read_name(&request.table_name)?, nonce(request.nonce_group(), request.nonce()));
        if request.table_schema.table_name.as_ref().is_some_and(|other| *other != request.table_name) {
            return Err(Exception::bad_request("a descriptor cannot give a table another name"));
        }
        let descriptor = request.table_schema;
        self.alter(name, nonce, "ModifyTableProcedure", until, move |current| modified(current, &descriptor)).await
    }

    pub(super) async fn add_column(&self, request: proto::ColumnRequest, until: Instant) -> Outcome {
        let (name, nonce) = (read_name(&request.table_name)?, nonce(request.nonce_group(), request.nonce()));
        let family = request.column_families;
        self.alter(name, nonce, "ModifyTableProcedure", until, move |current| with_family(current, &family)).await
    }

    pub(super) async fn modify_column(&self, request: proto::ColumnRequest, until: Instant) -> Outcome {
        let (name, nonce) = (read_name(&request.table_name)?, nonce(request.nonce_group(), request.nonce()));
        let family = request.column_families;
        let change = move |current: &TableSchema| with_changed_family(current, &family);
        self.alter(name, nonce, "ModifyTableProcedure", until, change).await
    }

    pub(super) async fn delete_column(&self, request: proto::DeleteColumnRequest, until: Instant) -> Outcome {
        let (name, nonce) = (read_name(&request.table_name)?, nonce(request.nonce_group(), request.nonce()));
        let family = request.column_name;
        self.alter(name, nonce, "ModifyTableProcedure", until, move |current| without_family(current, &family)).await
    }

    /// Changes a schema. What is wrong with the change is said at once; it is made from the newest schema.
    async fn alter(
        &self,
        name: TableName,
        nonce: Option<Nonce>,
        kind: &'static str,
        until: Instant,
        change: impl Fn(&TableSchema) -> Result<TableSchema, Exception> + Send + Sync + 'static,
    ) -> Outcome {
        let is_repeated = self.is_repeated(nonce);
        if !is_repeated {
            change(&self.table(&name, until).await?.schema)?;
        }
        let (master, order) = (self.master.clone(), self.order(nonce));
        let altered = async move {
            for _ in 0..ATTEMPTS_MAX {
                let tables = master.map(order.deadline).await?.tables;
                let table = tables.into_iter().find(|table| table.schema.name == name);
                let table = table.ok_or_else(|| Exception::new(TABLE_NOT_FOUND, name.to_string()))?;
                // Of an order that has been made, only its end is waited for.
                let wanted = if is_repeated { table.schema } else { change(&table.schema)? };
                match master.edge.modify_table(&wanted, &order).await {
                    Err(Error::SchemaChanged { .. }) => {}
                    outcome => return outcome.map_err(|error| exception(&error)),
                }
            }
            let text = format!("table {name} was altered by others {ATTEMPTS_MAX} times meanwhile; repeat this");
            Err(Exception::new(REGION_TOO_BUSY, text))
        };
        Ok(Answer::of(&begin(&self.master, nonce, kind, altered)?))
    }

    pub(super) async fn truncate(&self, request: &proto::TruncateTableRequest, until: Instant) -> Outcome {
        let (name, nonce) = (read_name(&request.table_name)?, nonce(request.nonce_group(), request.nonce()));
        if !self.is_repeated(nonce) && !self.table(&name, until).await?.schema.disabled {
            return Err(Exception::new(TABLE_NOT_DISABLED, name.to_string()));
        }
        let (master, order, keep_splits) = (self.master.clone(), self.order(nonce), request.preserve_splits());
        let truncated = async move {
            master.edge.truncate_table(&name, keep_splits, &order).await.map_err(|error| exception(&error))
        };
        Ok(Answer::of(&begin(&self.master, nonce, "TruncateTableProcedure", truncated)?))
    }

    /// An alteration reaches one group of regions after the other; while it does, any region may still lack it.
    pub(super) async fn alter_status(&self, request: &proto::GetSchemaAlterStatusRequest, until: Instant) -> Outcome {
        let name = read_name(&request.table_name)?;
        let table = self.table(&name, until).await?;
        let map = self.master.map(until).await?;
        let regions = map.regions.iter().filter(|region| region.descriptor.table == table.schema.table).count();
        let regions = u32::try_from(regions).unwrap_or(u32::MAX);
        Ok(Answer::of(&proto::GetSchemaAlterStatusResponse {
            yet_to_update_regions: Some(if table.is_altering { regions } else { 0 }),
            total_regions: Some(regions),
        }))
    }
}
