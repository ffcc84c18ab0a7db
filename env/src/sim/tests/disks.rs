//! Disks: what a crash loses, and every fault that the harness can plan.

use std::io;

use super::*;
use crate::fs::{self, Fault, File, Tear};
use crate::sim::{
    DiskSpeed, counts, damage, damage_below, durable_files, durably_begins, fail_disk, heal_disk, lose_end, lose_write,
    misdirect_write, missed_write, power_cut, random_tear, set_disk_speed, set_free_space, stall_disk, wipe_disk,
};

const SECOND: Duration = Duration::from_secs(1);

/// A host that writes a durable file `f` at its first start, and notes its content at every other.
fn reader(run: &mut turmoil::Sim<'static>, host: &'static str, content: &'static [u8]) -> Notes {
    let notes = Notes::default();
    let noting = notes.clone();
    add_host(run, host, move || {
        let notes = noting.clone();
        async move {
            fs::create_dir_durable(Path::new("/data")).await?;
            match fs::read(&at("f")).await {
                Ok(bytes) => notes.add(String::from_utf8_lossy(&bytes).into_owned()),
                Err(error) if error.kind() == io::ErrorKind::NotFound => fs::write_durable(&at("f"), content).await?,
                Err(error) => notes.add(format!("{error}")),
            }
            std::future::pending().await
        }
    });
    notes
}

fn restart(run: &mut turmoil::Sim<'static>, host: &'static str, tear: Option<Tear>) {
    run.crash(host);
    if let Some(tear) = tear {
        power_cut(host, tear);
    }
    run.bounce(host);
    run_for(run, 10 * SECOND);
}

/// One host that does one thing once.
fn once<F>(from: u64, before: impl FnOnce(), software: impl Fn(Notes) -> F + 'static) -> Vec<String>
where
    F: Future<Output = io::Result<()>> + 'static,
{
    let mut run = simulation(from);
    before();
    let notes = Notes::default();
    let noting = notes.clone();
    add_host(&mut run, "a", move || {
        let work = software(noting.clone());
        async move {
            fs::create_dir_durable(Path::new("/data")).await?;
            work.await?;
            std::future::pending().await
        }
    });
    run_for(&mut run, 60 * SECOND);
    notes.take()
}

async fn durable(name: &str, bytes: &[u8]) -> io::Result<File> {
    let file = File::create_new(&at(name)).await?;
    file.write_all_at(bytes, 0).await?;
    file.sync_all().await?;
    fs::sync_dir(Path::new("/data")).await?;
    Ok(file)
}

/// The fates of 100 unsynced writes after a power cut.
fn torn(tear: impl Fn() -> Tear) -> Vec<String> {
    let mut run = simulation(3);
    set_disk_speed("a", DiskSpeed::INSTANT);
    let notes = Notes::default();
    let noting = notes.clone();
    add_host(&mut run, "a", move || {
        let notes = noting.clone();
        async move {
            fs::create_dir_durable(Path::new("/data")).await?;
            if fs::exists(&at("f0")).await? {
                for number in 0..100 {
                    notes.add(String::from_utf8_lossy(&fs::read(&at(&format!("f{number}"))).await?).into_owned());
                }
            }
            for number in 0..100 {
                let file = File::open_rw(&at(&format!("f{number}"))).await?;
                file.sync_all().await?;
                fs::sync_dir(Path::new("/data")).await?;
                file.write_all_at(b"unsynced", 0).await?;
            }
            std::future::pending().await
        }
    });
    run_for(&mut run, SECOND);
    restart(&mut run, "a", Some(tear()));
    notes.take()
}

#[test]
fn a_power_cut_loses_keeps_or_tears_what_was_not_synced() {
    assert!(torn(|| Tear::Lost).iter().all(String::is_empty));
    assert!(torn(|| Tear::Kept).iter().all(|content| content == "unsynced"));
    let some = torn(|| Tear::Random(1));
    assert!(some.iter().any(String::is_empty) && some.iter().any(|content| content == "unsynced"), "{some:?}");
    assert!(some.iter().any(|content| !content.is_empty() && content != "unsynced"), "{some:?}");
    assert_eq!(some, torn(|| Tear::Random(1)));
    assert_eq!(torn(random_tear), torn(random_tear));
    assert_eq!(counts()["power is cut with changes that were not synced"], 1);
}

#[test]
fn without_a_power_cut_the_page_cache_survives_the_process() {
    let mut run = simulation(1);
    let notes = Notes::default();
    let noting = notes.clone();
    add_host(&mut run, "a", move || {
        let notes = noting.clone();
        async move {
            notes.add(format!("{}", fs::exists(Path::new("/f")).await?));
            File::open_rw(Path::new("/f")).await?.write_all_at(b"unsynced", 0).await?;
            std::future::pending().await
        }
    });
    run_for(&mut run, SECOND);
    restart(&mut run, "a", None);
    restart(&mut run, "a", Some(Tear::Lost));
    assert_eq!(notes.take(), ["false", "true", "false"]);
}

#[test]
fn hosts_have_disks_of_their_own_and_a_wiped_one_is_empty() {
    let mut run = simulation(1);
    let (a, b) = (reader(&mut run, "a", b"of a"), reader(&mut run, "b", b"of b"));
    run_for(&mut run, 10 * SECOND);
    for host in ["a", "b"] {
        restart(&mut run, host, Some(Tear::Lost));
    }
    assert_eq!((a.take(), b.take()), (vec!["of a".to_owned()], vec!["of b".to_owned()]));
    run.crash("a");
    wipe_disk("a");
    run.bounce("a");
    run_for(&mut run, 10 * SECOND);
    restart(&mut run, "b", Some(Tear::Lost));
    assert_eq!((a.take().len(), b.take().len()), (0, 1));
}

#[test]
fn a_file_of_an_earlier_life_does_not_reach_the_disk_of_the_next() {
    let mut run = simulation(1);
    let kept: Rc<RefCell<Option<File>>> = Rc::default();
    let keeping = kept.clone();
    let notes = Notes::default();
    let noting = notes.clone();
    add_host(&mut run, "a", move || {
        let (kept, notes) = (keeping.clone(), noting.clone());
        async move {
            let old = kept.take();
            let file = File::open_rw(Path::new("/f")).await?;
            fs::sync_dir(Path::new("/")).await?;
            if let Some(old) = old {
                old.write_all_at(b"from the past", 0).await?;
                notes.add(format!("{} {}", old.len().await?, file.len().await?));
            }
            *kept.borrow_mut() = Some(file);
            std::future::pending().await
        }
    });
    run_for(&mut run, 10 * SECOND);
    restart(&mut run, "a", Some(Tear::Lost));
    assert_eq!(notes.take(), ["13 0"]);
}

#[test]
fn a_full_disk_refuses_writes_and_its_space_stays_consistent() {
    let notes = once(
        1,
        || set_free_space("a", Some(1_000)),
        |notes| async move {
            let file = durable("f", &[7; 600]).await?;
            let sizes = || async { io::Result::Ok((fs::free_space(&at("")).await?, fs::total_space(&at("")).await?)) };
            notes.add(format!("{:?}", sizes().await?));
            notes.add(format!("{:?}", file.write_all_at(&[7; 600], 600).await.unwrap_err().kind()));
            heal_disk("a");
            file.write_all_at(&[7; 600], 600).await?;
            let (free, total) = sizes().await?;
            notes.add(format!("{}", free > 1 << 30 && total >= free));
            Ok(())
        },
    );
    assert_eq!(notes, ["(400, 1000)", "StorageFull", "true"]);
    assert_eq!(counts()["a disk is full"], 1);
}

#[test]
fn a_limit_of_space_survives_a_power_cut() {
    let mut run = simulation(1);
    set_free_space("a", Some(1_000));
    let notes = Notes::default();
    let noting = notes.clone();
    add_host(&mut run, "a", move || {
        let notes = noting.clone();
        async move {
            notes.add(format!("{}", fs::free_space(Path::new("/")).await?));
            let file = File::open_rw(Path::new("/f")).await?;
            fs::sync_dir(Path::new("/")).await?;
            file.write_all_at(&[7; 300], 0).await?;
            file.sync_all().await?;
            file.write_all_at(&[7; 300], 300).await?;
            std::future::pending().await
        }
    });
    run_for(&mut run, 10 * SECOND);
    restart(&mut run, "a", Some(Tear::Lost));
    assert_eq!(notes.take(), ["1000", "700"]);
}

#[test]
fn the_chosen_operation_fails_syncs_included() {
    let notes = once(
        1,
        || {
            fail_disk("a", 1, 2, Fault::Error, |verb, path| verb == "sync" && path.ends_with("/f"));
            fail_disk("a", 0, 1, Fault::ShortWrite, |verb, path| verb == "write" && path.ends_with("/g"));
        },
        |notes| async move {
            let file = durable("f", b"synced").await?;
            file.write_all_at(b"failed", 0).await?;
            for _ in 0..3 {
                notes.add(
                    file.sync_data().await.map_or_else(|error| format!("{:?}", error.raw_os_error()), |()| "ok".into()),
                );
            }
            let other = File::create_new(&at("g")).await?;
            notes.add(format!("{}", other.write_all_at(&[7; 600], 0).await.is_err()));
            notes.add(format!("{}", other.len().await? < 600));
            Ok(())
        },
    );
    assert_eq!(notes, ["Some(5)", "Some(5)", "ok", "true", "true"]);
    assert_eq!((counts()["a disk operation fails"], counts()["a write is cut short"]), (2, 1));
}

#[test]
fn damage_is_found_by_reading_and_survives_a_restart() {
    let mut run = simulation(5);
    let notes = reader(&mut run, "a", b"00000000");
    assert_eq!(damage("a", |_| true), None, "nothing is durable yet");
    run_for(&mut run, 10 * SECOND);
    assert_eq!(damage("a", |path| path.ends_with("/g")), None);
    assert_eq!(damage("a", |path| path.ends_with("/f")).as_deref(), Some("/data/f"));
    restart(&mut run, "a", Some(Tear::Lost));
    restart(&mut run, "a", Some(Tear::Lost));
    let read = notes.take();
    assert_eq!(read[0], read[1]);
    assert_ne!(read[0], "00000000");
    assert_eq!(counts()["a bit of a file is damaged"], 1);
}

#[test]
fn a_lost_write_leaves_the_old_bytes_and_a_misdirected_one_lands_elsewhere() {
    let notes = once(
        1,
        || {},
        |notes| async move {
            let file = durable("f", &[b'0'; 1_024]).await?;
            let victim = durable("g", &[b'0'; 1_024]).await?;
            lose_write("a", |path| path.ends_with("/f"));
            file.write_all_at(b"lost", 0).await?;
            misdirect_write("a", |path| path.starts_with("/data"));
            file.write_all_at(b"misdirected", 2_000).await?;
            let contents = [fs::read(&at("f")).await?, fs::read(&at("g")).await?];
            let written =
                |needle: &[u8]| contents.iter().any(|bytes| bytes.windows(needle.len()).any(|part| part == needle));
            notes.add(format!("{} {}", written(b"lost"), written(b"misdirected")));
            notes.add(format!("{:?} {}", &contents[0][2_000..], victim.len().await?));
            file.write_all_at(b"right", 0).await?;
            notes.add(format!("{}", fs::read(&at("f")).await?.starts_with(b"right")));
            Ok(())
        },
    );
    assert_eq!(notes, ["false true", "[0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0] 1024", "true"]);
    assert_eq!((counts()["a write is lost"], counts()["a write is misdirected"]), (1, 1));
}

#[test]
fn a_missing_write_has_a_place_unless_it_would_have_changed_nothing() {
    let notes = once(
        1,
        || {},
        |notes| async move {
            let file = durable("f", &[b'0'; 64]).await?;
            for bytes in [b"00", b"11"] {
                lose_write("a", |path| path.ends_with("/f"));
                file.write_all_at(bytes, 8).await?;
                notes.add(format!("{:?}", missed_write("a")));
            }
            Ok(())
        },
    );
    assert_eq!(notes, ["None", r#"Some(("/data/f", 8))"#]);
}

#[test]
fn a_bit_rots_below_the_chosen_end() {
    let mut run = simulation(5);
    reader(&mut run, "a", b"00000000");
    run_for(&mut run, 10 * SECOND);
    assert_eq!(durable_files("a"), [("/data/f".to_owned(), 8)]);
    assert!(damage_below("a", "/data/f", 3).is_some_and(|offset| offset < 3));
    assert_eq!(damage_below("a", "/data/g", 3), None);
}

#[test]
fn the_end_of_a_file_is_lost_from_a_mark_on() {
    let mut run = simulation(5);
    reader(&mut run, "a", b"0<1<2<3");
    run_for(&mut run, 10 * SECOND);
    assert!(durably_begins("a", "/data/f", b"0<") && !durably_begins("a", "/data/f", b"<"));
    assert_eq!(lose_end("a", "/data/f", b"<"), Some(5));
    assert_eq!(lose_end("a", "/data/f", b"<"), Some(3));
    assert_eq!(lose_end("a", "/data/f", b">"), None);
    assert_eq!(durable_files("a"), [("/data/f".to_owned(), 7)]);
}

#[test]
fn a_stalled_disk_does_nothing_until_the_time_and_a_slow_one_takes_long() {
    let stall = Duration::from_secs(20);
    let notes = once(
        1,
        || set_disk_speed("a", DiskSpeed::INSTANT),
        move |notes| async move {
            stall_disk("a", stall);
            fs::exists(Path::new("/data")).await?;
            notes.add(format!("{}", turmoil::sim_elapsed() >= Some(stall)));
            let file = durable("f", b"1").await?;
            let fast = DiskSpeed { sync_max: Duration::from_millis(2), ..DiskSpeed::INSTANT };
            set_disk_speed("a", fast.slowed(100));
            let before = tokio::time::Instant::now();
            file.sync_data().await?;
            notes.add(format!("{}", before.elapsed() >= Duration::from_millis(50)));
            Ok(())
        },
    );
    assert_eq!(notes, ["true", "true"]);
    assert!(counts()["a disk operation waits for a stalled disk"] >= 1);
}
