//! `MasterService`: where its calls go, and tables created, described, listed, disabled, enabled and deleted.

use bytes::Bytes;
use terrane_master::edge::{Order, Table};
use terrane_types::{Error, TableName};
use tokio::time::Instant;

use super::descriptors::{read_name, read_table, show_table};
use super::namespaces::SYSTEM;
use super::procedures::{Nonce, begin, nonce};
use super::refusals::refused;
use super::regions::procedure_done;
use super::system::SystemTable;
use super::{TableCalls, deadline, exception};
use crate::exception::{
    CONSTRAINT, Exception, NAMESPACE_NOT_FOUND, TABLE_NOT_DISABLED, TABLE_NOT_ENABLED, TABLE_NOT_FOUND,
};
use crate::frame::{Call, decode_parameter};
use crate::meta::table_state;
use crate::name_pattern::NamePattern;
use crate::proto;
use crate::region_name::table_name;
use crate::serve::{Answer, Outcome};

/// How long the master works on an order before it says that it continues without an answer.
const ORDER_TIME: std::time::Duration = std::time::Duration::from_secs(600);

impl TableCalls {
    pub(super) async fn administer(&self, call: Call) -> Outcome {
        let until = deadline(&call);
        let parameter = call.parameter;
        match call.method.as_str() {
            "IsMasterRunning" => {
                let is_master_running = self.master.edge.leads();
                Ok(Answer::of(&proto::IsMasterRunningResponse { is_master_running }))
            }
            "CreateTable" => self.create(&decode_parameter(parameter)?),
            "DeleteTable" => self.change(Change::Delete, decode_parameter(parameter)?, until).await,
            "DisableTable" => self.change(Change::Disable, decode_parameter(parameter)?, until).await,
            "EnableTable" => self.change(Change::Enable, decode_parameter(parameter)?, until).await,
            "getProcedureResult" => {
                let request: proto::GetProcedureResultRequest = decode_parameter(parameter)?;
                Ok(Answer::of(&self.master.procedures.result(request.proc_id)))
            }
            "GetProcedures" => Ok(Answer::of(&self.master.procedures.list())),
            "GetTableDescriptors" => self.describe(decode_parameter(parameter)?, until).await,
            "GetTableNames" => self.names(decode_parameter(parameter)?, until).await,
            "ListTableDescriptorsByState" => self.describe_by_state(&decode_parameter(parameter)?, until).await,
            "ListTableNamesByState" => self.names_by_state(&decode_parameter(parameter)?, until).await,
            "ListTableDescriptorsByNamespace" => self.describe_namespace(decode_parameter(parameter)?, until).await,
            "ListTableNamesByNamespace" => self.names_of_namespace(decode_parameter(parameter)?, until).await,
            "GetTableState" => {
                let request: proto::GetTableStateRequest = decode_parameter(parameter)?;
                let disabled = match SystemTable::of_name(&request.table_name) {
                    Some(_) => false,
                    None => self.table(&read_name(&request.table_name)?, until).await?.schema.disabled,
                };
                Ok(Answer::of(&proto::GetTableStateResponse { table_state: table_state(disabled) }))
            }
            "ModifyTable" => self.modify(decode_parameter(parameter)?, until).await,
            "AddColumn" => self.add_column(decode_parameter(parameter)?, until).await,
            "ModifyColumn" => self.modify_column(decode_parameter(parameter)?, until).await,
            "DeleteColumn" => self.delete_column(decode_parameter(parameter)?, until).await,
            "truncateTable" => self.truncate(&decode_parameter(parameter)?, until).await,
            "GetSchemaAlterStatus" => self.alter_status(&decode_parameter(parameter)?, until).await,
            "CreateNamespace" => self.create_namespace(&decode_parameter(parameter)?, until).await,
            "ModifyNamespace" => self.modify_namespace(&decode_parameter(parameter)?, until).await,
            "DeleteNamespace" => self.delete_namespace(&decode_parameter(parameter)?, until).await,
            "GetNamespaceDescriptor" => self.describe_one_namespace(&decode_parameter(parameter)?, until).await,
            "ListNamespaces" => self.list_namespaces(until).await,
            "ListNamespaceDescriptors" => self.describe_namespaces(until).await,
            "SplitRegion" => self.split(&decode_parameter(parameter)?, until).await,
            "MergeTableRegions" => self.merge(&decode_parameter(parameter)?, until).await,
            "MoveRegion" => self.move_region(&decode_parameter(parameter)?, until).await,
            "AssignRegion" => self.assign(&decode_parameter(parameter)?, until).await,
            "FlushTable" => self.flush(&decode_parameter(parameter)?, until).await,
            "ExecProcedure" => self.run_procedure(&decode_parameter(parameter)?, until).await,
            "IsProcedureDone" => procedure_done(decode_parameter(parameter)?),
            "GetClusterStatus" => self.status(&decode_parameter(parameter)?, until).await,
            method => match self.switch(method, parameter, until).await? {
                Some(answer) => Ok(answer),
                None => refused(method),
            },
        }
    }

    pub(super) async fn table(&self, name: &TableName, until: Instant) -> Result<Table, Exception> {
        let found = self.master.map(until).await?.tables.into_iter().find(|table| table.schema.name == *name);
        found.ok_or_else(|| Exception::new(TABLE_NOT_FOUND, name.to_string()))
    }

    pub(super) fn order(&self, nonce: Option<Nonce>) -> Order {
        let id = nonce.map(|(group, nonce)| {
            let mut id = [0; 16];
            id[..8].copy_from_slice(&group.to_be_bytes());
            id[8..].copy_from_slice(&nonce.to_be_bytes());
            id
        });
        Order { id, deadline: Instant::now() + ORDER_TIME, peer: self.peer.clone() }
    }

    /// An order that has no procedure: its call waits for it.
    pub(super) fn order_until(&self, deadline: Instant) -> Order {
        Order { id: None, deadline, peer: self.peer.clone() }
    }

    /// Whether an order is an earlier one again, which may have taken effect: then its conditions are not checked another time.
    pub(super) fn is_repeated(&self, nonce: Option<Nonce>) -> bool {
        self.master.procedures.knows(nonce) || self.master.edge.has_made(&self.order(nonce))
    }

    fn create(&self, request: &proto::CreateTableRequest) -> Outcome {
        let schema = read_table(&request.table_schema)?;
        let mut split_at: Vec<Bytes> = request.split_keys.clone();
        split_at.sort();
        let nonce = nonce(request.nonce_group(), request.nonce());
        let order = self.order(nonce);
        let master = self.master.clone();
        // An order that is repeated finds its own table: the catalog knows it by its nonce.
        let create =
            async move { master.edge.create_table(schema, split_at, &order).await.map_err(|e| no_namespace(&e)) };
        Ok(Answer::of(&begin(&self.master, nonce, "CreateTableProcedure", create)?))
    }

    async fn change(&self, change: Change, request: proto::TableRequest, until: Instant) -> Outcome {
        if SystemTable::of_name(&request.table_name).is_some() {
            let text = "system tables are not disabled, enabled or deleted";
            return Err(Exception::new(CONSTRAINT, text));
        }
        let name = read_name(&request.table_name)?;
        let nonce = nonce(request.nonce_group(), request.nonce());
        if !self.is_repeated(nonce) {
            let is_disabled = self.table(&name, until).await?.schema.disabled;
            match change {
                Change::Disable if is_disabled => return Err(Exception::new(TABLE_NOT_ENABLED, name.to_string())),
                Change::Delete | Change::Enable if !is_disabled => {
                    return Err(Exception::new(TABLE_NOT_DISABLED, name.to_string()));
                }
                _ => {}
            }
        }
        let order = self.order(nonce);
        let (master, kind) = (self.master.clone(), change);
        let change = async move {
            match change {
                Change::Delete => master.edge.drop_table(&name, &order).await,
                Change::Disable => master.edge.set_disabled(&name, true, &order).await,
                Change::Enable => master.edge.set_disabled(&name, false, &order).await,
            }
            .map_err(|error| exception(&error))
        };
        let kind = match kind {
            Change::Delete => "DeleteTableProcedure",
            Change::Disable => "DisableTableProcedure",
            Change::Enable => "EnableTableProcedure",
        };
        Ok(Answer::of(&begin(&self.master, nonce, kind, change)?))
    }

    async fn describe(&self, request: proto::GetTableDescriptorsRequest, until: Instant) -> Outcome {
        let is_stored = |name: &&proto::TableName| SystemTable::of_name(name).is_none();
        let wanted = request.table_names.iter().filter(is_stored).map(read_name);
        let wanted = wanted.collect::<Result<Vec<_>, _>>()?;
        // Tables that are named may be in any namespace.
        let is_list = !request.table_names.is_empty();
        let namespace = request.namespace.as_deref().filter(|_| !is_list);
        let chosen = self.chosen(request.regex.as_deref(), namespace, until).await?;
        let mut table_schema = Vec::new();
        for table in self.master.map(until).await?.tables {
            let name = &table.schema.name;
            if (!is_list || wanted.contains(name)) && chosen.has(name)? {
                table_schema.push(show_table(&table.schema));
            }
        }
        for table in SystemTable::ALL {
            let name = table.name();
            let is_asked = if is_list { request.table_names.contains(&name) } else { request.include_sys_tables() };
            if is_asked && chosen.has_system(&name)? {
                table_schema.push(table.show());
            }
        }
        Ok(Answer::of(&proto::GetTableDescriptorsResponse { table_schema }))
    }

    async fn describe_by_state(&self, request: &proto::TablesByStateRequest, until: Instant) -> Outcome {
        let tables = self.master.map(until).await?.tables.into_iter();
        let tables = tables.filter(|table| table.schema.disabled != request.is_enabled);
        let table_schema = tables.map(|table| show_table(&table.schema)).collect();
        Ok(Answer::of(&proto::GetTableDescriptorsResponse { table_schema }))
    }

    async fn names_by_state(&self, request: &proto::TablesByStateRequest, until: Instant) -> Outcome {
        let tables = self.master.map(until).await?.tables.into_iter();
        let tables = tables.filter(|table| table.schema.disabled != request.is_enabled);
        let table_names = tables.map(|table| table_name(&table.schema.name)).collect();
        Ok(Answer::of(&proto::GetTableNamesResponse { table_names }))
    }

    async fn names(&self, request: proto::GetTableNamesRequest, until: Instant) -> Outcome {
        let chosen = self.chosen(request.regex.as_deref(), request.namespace.as_deref(), until).await?;
        let mut table_names = Vec::new();
        for table in self.master.map(until).await?.tables {
            if chosen.has(&table.schema.name)? {
                table_names.push(table_name(&table.schema.name));
            }
        }
        if request.include_sys_tables() {
            for name in SystemTable::ALL.map(SystemTable::name) {
                if chosen.has_system(&name)? {
                    table_names.push(name);
                }
            }
        }
        Ok(Answer::of(&proto::GetTableNamesResponse { table_names }))
    }

    /// The tables of a pattern, in a namespace that there must be.
    async fn chosen(
        &self,
        pattern: Option<&str>,
        namespace: Option<&str>,
        until: Instant,
    ) -> Result<Chosen, Exception> {
        let chosen = Chosen::new(pattern, namespace)?;
        if let Some(name) = &chosen.namespace {
            self.check_exists(name, until).await?;
        }
        Ok(chosen)
    }
}

#[derive(Clone, Copy)]
enum Change {
    Delete,
    Disable,
    Enable,
}

/// A missing namespace is invalid input to us, and has a class of its own in HBase.
fn no_namespace(error: &Error) -> Exception {
    let text = error.to_string();
    if matches!(error, Error::Invalid(_)) && text.contains("namespace") && text.contains("not exist") {
        return Exception::new(NAMESPACE_NOT_FOUND, text);
    }
    exception(error)
}

/// Which tables a call asks for.
struct Chosen {
    pattern: Option<NamePattern>,
    namespace: Option<String>,
}

impl Chosen {
    fn new(pattern: Option<&str>, namespace: Option<&str>) -> Result<Self, Exception> {
        let pattern = pattern.map(NamePattern::new).transpose();
        let pattern = pattern.map_err(|refused| Exception::bad_request(&refused.what))?;
        Ok(Self { pattern, namespace: namespace.filter(|name| !name.is_empty()).map(str::to_owned) })
    }

    fn has(&self, name: &TableName) -> Result<bool, Exception> {
        self.matches(name.namespace(), name.table())
    }

    fn has_system(&self, name: &proto::TableName) -> Result<bool, Exception> {
        self.matches(SYSTEM, &String::from_utf8_lossy(&name.qualifier))
    }

    fn matches(&self, namespace: &str, table: &str) -> Result<bool, Exception> {
        if self.namespace.as_deref().is_some_and(|wanted| wanted != namespace) {
            return Ok(false);
        }
        let matched = self.pattern.as_ref().map_or(Ok(true), |pattern| pattern.matches_parts(namespace, table));
        matched.map_err(|stopped| Exception::bad_request(&stopped.what))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_empty_pattern_chooses_no_table_and_none_chooses_all() {
        let has = |pattern: Option<&str>, namespace: Option<&str>, name: &str| {
            Chosen::new(pattern, namespace).unwrap().has(&name.parse().unwrap()).unwrap()
        };
        assert!(has(None, None, "t") && has(Some(".*"), None, "n:t") && has(Some("t|u"), None, "u"));
        assert!(!has(Some(""), None, "t") && !has(None, Some("n"), "t") && has(None, Some("n"), "n:t"));
        let has_system =
            |pattern| Chosen::new(Some(pattern), None).unwrap().has_system(&SystemTable::Meta.name()).unwrap();
        assert!(has_system("hbase:.*") && has_system(".*") && !has_system("") && !has_system("meta"));
        assert!(Chosen::new(Some("("), None).is_err());
    }
}
