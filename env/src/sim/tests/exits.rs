//! Processes that end themselves.

use super::*;
use crate::sim::{allow_exits, host, is_exiting, take_exits};
use crate::{fs, task};

#[test]
fn a_process_that_ends_itself_is_mute_until_it_is_restarted() {
    let mut run = simulation(1);
    allow_exits(true);
    let notes = Notes::default();
    let noting = notes.clone();
    add_host(&mut run, "a", move || {
        let notes = noting.clone();
        async move {
            notes.add(format!("starts as {:?}", host()));
            let file = fs::File::open_rw(Path::new("/f")).await?;
            tokio::spawn(async move {
                tokio::time::sleep(Duration::from_millis(100)).await;
                task::abort_process("the disk is broken")
            });
            loop {
                file.write_all_at(b"1", file.len().await?).await?;
                notes.add("writes");
                tokio::time::sleep(Duration::from_millis(60)).await;
            }
        }
    });
    run_for(&mut run, Duration::from_secs(2));
    assert!(is_exiting("a") && !is_exiting("b"));
    assert_eq!(take_exits(), [("a", "the disk is broken".to_owned())]);
    assert!(take_exits().is_empty());
    let lines = notes.take();
    assert!(lines.len() > 1 && lines.len() < 4, "{lines:?}");
    run.crash("a");
    run.bounce("a");
    run_for(&mut run, Duration::from_millis(50));
    assert!(!is_exiting("a"));
    assert_eq!(notes.take()[0], r#"starts as Some("a")"#);
}

#[test]
fn a_process_may_end_itself_in_its_own_main_task() {
    let mut run = simulation(1);
    allow_exits(true);
    add_host(&mut run, "a", || async { task::abort_process("it cannot start") });
    run_for(&mut run, Duration::from_secs(1));
    assert_eq!(take_exits().len(), 1);
}

#[test]
#[should_panic(expected = "a process aborted itself: why")]
fn an_exit_that_is_not_allowed_is_a_finding() {
    let mut run = simulation(1);
    add_host(&mut run, "a", || async { task::abort_process("why") });
    run.step().map_err(|error| error.to_string()).unwrap();
}
