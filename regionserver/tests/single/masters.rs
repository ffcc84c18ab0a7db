//! Which masters a server reports to.

use crate::harness::{Bench, RunningMaster};

#[tokio::test]
async fn a_server_learns_of_the_master_that_leads_from_one_that_does_not() {
    let mut bench = Bench::without_server().await;
    let mut leader = RunningMaster::start().await;
    *bench.master.leader.lock().unwrap() = Some(leader.address.clone());
    bench.start_server().await.unwrap();
    leader.report(|report| report.server == 1).await;
    bench.stop_server().await;
}
