//! `namespace`: create, drop, list.

use serde::Serialize;

use super::connect;
use crate::args::client::{Connection, NamespaceCommand};
use crate::failure::{During, Failure};
use crate::output::Output;

pub async fn run(command: NamespaceCommand) -> Result<(), Failure> {
    match command {
        NamespaceCommand::Create { name, connection } => {
            let created = connect(&connection).await?.admin().create_namespace(name.as_str()).await;
            created.during(format!("create namespace {name}"))?;
            eprintln!("created namespace {name}");
            Ok(())
        }
        NamespaceCommand::Drop { name, connection } => {
            let dropped = connect(&connection).await?.admin().drop_namespace(name.as_str()).await;
            dropped.during(format!("drop namespace {name}"))?;
            eprintln!("dropped namespace {name}");
            Ok(())
        }
        NamespaceCommand::List { connection } => list(connection).await,
    }
}

#[derive(Serialize)]
struct NamespaceLine {
    namespace: String,
    tables: usize,
}

async fn list(connection: Connection) -> Result<(), Failure> {
    let admin = connect(&connection).await?.admin();
    let during = || "list the namespaces".to_owned();
    let (names, tables) =
        (admin.list_namespaces().await.during(during())?, admin.list_tables().await.during(during())?);
    let lines = names.iter().map(|name| NamespaceLine {
        namespace: name.to_string(),
        tables: tables.iter().filter(|table| table.schema.name.namespace() == name.as_str()).count(),
    });
    let mut output = Output::new(connection.json);
    if output.is_json() {
        lines.into_iter().try_for_each(|line| output.object(&line))?;
    } else {
        let rows = lines.map(|line| vec![line.namespace, line.tables.to_string()]).collect();
        output.table(&["namespace", "tables"], rows)?;
    }
    output.flush()
}
