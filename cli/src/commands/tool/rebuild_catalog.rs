//! `tool rebuild-catalog`: makes the data directories of new masters from what the region servers have.

use serde::Serialize;
use terrane_master::Rebuild;

use crate::args::tool::RebuildCatalog;
use crate::args::values::Addresses;
use crate::failure::Failure;
use crate::output::Output;

#[derive(Serialize)]
struct RebuiltLine {
    cluster: String,
    servers: usize,
    groups: usize,
    tables: usize,
    regions: usize,
    masters: Vec<MasterLine>,
}

#[derive(Serialize)]
struct MasterLine {
    address: String,
    directory: String,
}

pub async fn run(args: RebuildCatalog) -> Result<(), Failure> {
    let list = |addresses: &Addresses| addresses.to_string().split(',').map(str::to_owned).collect();
    let order = Rebuild {
        servers: list(&args.servers),
        peers: list(&args.peers),
        drop: args.drop_table.iter().map(ToString::to_string).collect(),
        out: args.out.clone(),
    };
    let rebuilt = terrane_master::rebuild(&order).await.map_err(|missing| {
        Failure::new(format!("the catalog cannot be rebuilt: {}", missing.join("; "))).advise(
            "start the servers that have them, and name all servers; a table whose regions are lost, or that was being created \
             or dropped, can be dropped with --drop-table",
        )
    })?;
    let mut output = Output::new(args.json);
    if output.is_json() {
        let masters = rebuilt.directories.iter().map(|(address, directory)| MasterLine {
            address: address.clone(),
            directory: directory.display().to_string(),
        });
        output.object(&RebuiltLine {
            cluster: rebuilt.cluster.to_string(),
            servers: rebuilt.servers,
            groups: rebuilt.groups,
            tables: rebuilt.tables,
            regions: rebuilt.regions,
            masters: masters.collect(),
        })?;
        return output.flush();
    }
    output.line(&format!(
        "cluster {}: {} tables, {} regions, {} groups, {} servers",
        rebuilt.cluster, rebuilt.tables, rebuilt.regions, rebuilt.groups, rebuilt.servers
    ))?;
    for (address, directory) in &rebuilt.directories {
        output.line(&format!("start the master at {address} with --data {}", directory.display()))?;
    }
    output.flush()
}
