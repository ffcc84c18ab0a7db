//! What all handles of one client share.

use std::time::Duration;

use terrane_proto::v1;
use terrane_types::TableSchema;

use crate::error::Error;
use crate::route::masters::{Kind, timed};
use crate::route::router::Router;

/// What all handles of one client share.
pub(crate) struct Core {
    pub(crate) router: Router,
    pub(crate) timeout: Duration,
}

impl Core {
    /// The hello of a call to a master.
    pub(crate) fn hello(&self) -> Option<v1::Hello> {
        Some(self.router.masters.hello(Some(self.router.cluster)))
    }

    /// A table's schema, from a master.
    pub(crate) async fn describe(&self, name: &str, timeout: Duration) -> Result<TableSchema, Error> {
        self.router.counting.master_calls.add();
        let request = v1::DescribeTableRequest { hello: self.hello(), name: name.to_owned() };
        let asked = self.router.masters.call(Kind::Read, timeout, |mut master, left| {
            let request = timed(request.clone(), left);
            async move { master.describe_table(request).await }
        });
        schema_of(asked.await?)
    }
}

/// The schema in a master's answer.
pub(crate) fn schema_of(reply: v1::TableReply) -> Result<TableSchema, Error> {
    let schema = reply.schema.ok_or_else(|| Error::internal("the master described a table without a schema"))?;
    Ok(TableSchema::try_from(schema)?)
}
