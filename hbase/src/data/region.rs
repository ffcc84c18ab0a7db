//! A region as a call names it: its requests, and the checks that a call makes of it.

use std::sync::Arc;
use std::time::Duration;

use terrane_regionserver::edge::{Body, ClientId, Consistency, GetRequest, Header, Mutation, NONCE_CLIENT, Request};
use terrane_types::{RegionDescriptor, TableSchema, escape};

use crate::exception::{Exception, NO_SUCH_FAMILY, WRONG_REGION};

/// A region that a call names, as it is here.
#[derive(Clone)]
pub(super) struct Region {
    pub descriptor: RegionDescriptor,
    pub schema: Arc<TableSchema>,
    pub deadline: Duration,
    /// The caller takes cells with their times to live.
    pub with_ttl: bool,
}

impl Region {
    /// A write of this region. `exact` makes it depend on the schema that it was made for.
    pub fn write(&self, mutation: Mutation, exact: bool) -> Request {
        let is_numbered = mutation.rows.iter().any(|row| row.operation != 0);
        let client = if is_numbered { NONCE_CLIENT } else { ClientId::default() };
        let header = Header { exact_schema: exact, client, ..self.header() };
        Request { header, body: Body::Mutate(mutation) }
    }

    /// A read of rows of this region by key.
    pub fn read(&self, get: GetRequest) -> Request {
        Request { header: self.header(), body: Body::Get(get) }
    }

    pub fn header(&self) -> Header {
        Header {
            table: self.descriptor.table,
            region: self.descriptor.region,
            epoch: self.descriptor.epoch,
            schema_version: self.schema.version,
            exact_schema: false,
            deadline: self.deadline,
            client: Default::default(),
            lowest_unsettled: 0,
            consistency: Consistency::Linearizable,
            trace: None,
        }
    }

    /// The client looks for the row's region again.
    pub fn check_row(&self, row: &[u8]) -> Result<(), Exception> {
        if self.descriptor.range.contains(row) {
            return Ok(());
        }
        let text = format!("row {} is not in region {}", escape(row), self.descriptor.region);
        Err(Exception::new(WRONG_REGION, text))
    }

    pub fn check_family(&self, family: &[u8]) -> Result<(), Exception> {
        match self.schema.known_family(family) {
            Ok(_) => Ok(()),
            Err(unknown) => Err(Exception::new(NO_SUCH_FAMILY, unknown.what)),
        }
    }
}
