//! Disks that lie about syncs, to simulate an engine that forgets to sync. The tests must detect them.

use terrane_engine::BackendKind;
use terrane_env::fs::{Lie, Tear};

use super::workload::{BACKENDS, Op, Start, run_all, verify};

/// Whether something acknowledged is lost when power fails after a flush.
async fn is_detected(backend: BackendKind, lie: Option<Lie>) -> bool {
    let start = Start::filled(backend).await;
    // In a task of its own, so that its panic can be observed.
    let run = tokio::spawn(async move {
        let mut world = start.world();
        run_all(&mut world, &[Op::Reopen]).await;
        world.dir.memory().set_lie(lie);
        run_all(&mut world, &[Op::Write, Op::Flush]).await;
        world.close();
        let lost = world.dir.memory().crash(Tear::Lost);
        verify(&mut start.world_on(&world.known, lost)).await;
    });
    run.await.is_err_and(|error| error.is_panic())
}

#[tokio::test]
async fn a_disk_that_lies_about_syncs_is_detected() {
    for backend in BACKENDS {
        assert!(!is_detected(backend, None).await, "{backend}: an honest disk");
        for lie in [Lie::Files, Lie::Directories] {
            assert!(is_detected(backend, Some(lie)).await, "{backend}: a disk that lies about {lie:?}");
        }
    }
}
