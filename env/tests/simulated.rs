//! The simulation, through the public interface: hosts that talk, crash and lose what they had not synced.
//!
//! `cargo xtask check` runs it in a separate target directory; without the feature `sim` this file is empty.
#![cfg(feature = "sim")]

use std::cell::Cell;
use std::path::Path;
use std::rc::Rc;
use std::time::Duration;

use terrane_env::{fs, net, rand, sim, task, time};
use tonic::body::Body;
use tonic::service::Routes;
use tower::ServiceExt;

fn simulation(seed: u64) -> turmoil::Sim<'static> {
    sim::seed(seed);
    turmoil::Builder::new().rng_seed(seed).simulation_duration(Duration::from_secs(60)).build()
}

#[test]
fn a_crash_forgets_what_was_not_synced() {
    let mut run = simulation(1);
    let recovered = Rc::new(Cell::new(false));
    let noted = recovered.clone();
    run.host("server", move || {
        let noted = noted.clone();
        async move {
            sim::boot_host("server");
            let data = Path::new("/data");
            fs::create_dir_all(data).await?;
            fs::sync_dir(Path::new("/")).await?;
            if fs::exists(&data.join("synced")).await? {
                assert_eq!(fs::read(&data.join("synced")).await?, b"kept");
                assert_eq!(fs::list(data).await?, ["STAMP", "synced"]);
                noted.set(true);
            } else {
                let file = fs::File::create_new(&data.join("synced")).await?;
                file.write_all_at(b"kept", 0).await?;
                file.sync_data().await?;
                fs::write_durable(&data.join("STAMP"), b"1").await?;
                file.write_all_at(b"lost", 0).await?;
                fs::File::create_new(&data.join("never synced")).await?;
            }
            serve().await
        }
    });
    run.client("first", wait_for_port("server:7700"));
    run.run().unwrap();
    run.crash("server");
    sim::power_cut("server", fs::Tear::Lost);
    run.bounce("server");
    run.client("second", wait_for_port("server:7700"));
    run.run().unwrap();
    assert!(recovered.get(), "the second start found what the first had synced");
}

#[test]
fn a_disk_value_is_the_hosts_disk_and_reads_at_once() {
    let mut run = simulation(6);
    run.client("client", async {
        let disk = fs::Disk::os();
        let data = Path::new("/data");
        disk.create_dir_all(data).await?;
        let file = disk.create_new(&data.join("f")).await?;
        file.write_all_at(b"content", 0).await?;
        let mut buffer = [0; 3];
        let before = tokio::time::Instant::now();
        file.read_exact_at_now(&mut buffer, 2)?;
        assert_eq!(before.elapsed(), Duration::ZERO);
        assert_eq!(&buffer, b"nte");
        let short = file.read_exact_at_now(&mut buffer, 5).expect_err("the file ends before");
        assert_eq!(short.kind(), std::io::ErrorKind::UnexpectedEof);
        fs::hard_link(&data.join("f"), &data.join("g")).await?;
        let taken = disk.hard_link(&data.join("f"), &data.join("g")).await.expect_err("the name is taken");
        assert_eq!(taken.kind(), std::io::ErrorKind::AlreadyExists);
        let missing = disk.hard_link(&data.join("h"), &data.join("i")).await.expect_err("nothing to link");
        assert_eq!(missing.kind(), std::io::ErrorKind::NotFound);
        assert_eq!(fs::read(&data.join("g")).await?, b"content");
        assert_eq!(disk.file_len(&data.join("g")).await?, 7);
        Ok(())
    });
    run.run().unwrap();
}

/// Ends when a call is answered, which the server does only after its checks.
async fn wait_for_port(address: &'static str) -> turmoil::Result {
    while call(address).await.is_err() {
        if turmoil::sim_elapsed().is_some_and(|elapsed| elapsed > Duration::from_secs(30)) {
            return Err("the server never came".into());
        }
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    Ok(())
}

async fn call(address: &str) -> Result<(), tonic::transport::Error> {
    let call = http::Request::post(format!("http://{address}/no.Such/Call")).body(Body::empty());
    let call = call.expect("a valid request");
    net::channel(address).expect("a valid address").oneshot(call).await.map(|_| ())
}

async fn serve() -> turmoil::Result {
    let intake = net::Intake::new(net::IntakeLimits::default());
    let incoming = net::listen("0.0.0.0:7700").await?.incoming(&intake);
    net::server(&intake).add_routes(Routes::default()).serve_with_incoming(incoming).await?;
    Ok(())
}

#[test]
fn a_lost_link_heals() {
    let mut run = simulation(2);
    run.host("server", serve);
    run.client("client", async {
        let address = "server:7700";
        wait_for_port(address).await?;
        let channel = net::channel(address)?;
        let request = || http::Request::post("http://server:7700/no.Such/Call").body(Body::empty());
        channel.clone().oneshot(request()?).await?;
        turmoil::partition("client", "server");
        let cut = tokio::time::timeout(Duration::from_secs(5), channel.clone().oneshot(request()?)).await?;
        assert!(cut.is_err(), "keep-alive notices the cut");
        turmoil::repair("client", "server");
        channel.clone().oneshot(request()?).await?;
        Ok(())
    });
    run.run().unwrap();
}

fn trace(seed: u64) -> Vec<String> {
    let trace = std::sync::Arc::new(std::sync::Mutex::new(Vec::new()));
    let written = trace.clone();
    let mut run = simulation(seed);
    run.host("server", serve);
    run.client("client", async move {
        wait_for_port("server:7700").await?;
        fs::create_dir_all(Path::new("/data")).await?;
        for step in 0..20 {
            fs::write_durable(Path::new("/data/f"), &rand::bytes::<8>()).await?;
            let drawn = task::run_blocking(rand::u64).await;
            written.lock().expect("no holder panics").push(format!(
                "{step} {drawn} {} {}",
                time::wall_ms(),
                time::now_ns()
            ));
        }
        Ok(())
    });
    run.run().expect("the run succeeds");
    let lines = trace.lock().expect("no holder panics");
    lines.clone()
}

#[test]
fn a_seed_gives_the_same_trace_twice() {
    // Absolute dates come from the machine unless the harness sets the epoch, so compare without them.
    let strip = |lines: Vec<String>| -> Vec<String> {
        lines
            .iter()
            .map(|line| {
                line.split(' ').enumerate().filter(|(i, _)| *i != 2).map(|(_, w)| w).collect::<Vec<_>>().join(" ")
            })
            .collect()
    };
    let first = strip(trace(3));
    assert_eq!(first.len(), 20);
    assert_eq!(first, strip(trace(3)));
    assert_ne!(first, strip(trace(4)));
}

#[test]
fn a_suspended_machine_is_noticed_once() {
    let mut run = simulation(5);
    run.client("client", async {
        let mut watch = time::ClockWatch::new();
        assert!(!watch.moved_apart());
        sim::suspend(Duration::from_secs(5));
        assert!(watch.moved_apart());
        assert!(!watch.moved_apart());
        Ok(())
    });
    run.run().unwrap();
}

#[test]
fn a_step_that_has_begun_ends_although_its_caller_gives_up() {
    let mut run = simulation(7);
    run.client("client", async {
        sim::boot_host("client");
        let slow = sim::DiskSpeed { sync_max: Duration::from_secs(1), ..sim::DiskSpeed::INSTANT };
        sim::set_disk_speed("client", slow.slowed(4));
        let step = task::run_io(async {
            let file = fs::File::create_new(Path::new("/f")).await?;
            file.sync_all().await?;
            file.write_all_at(b"whole", 0).await
        });
        tokio::time::timeout(Duration::from_millis(500), step).await.expect_err("the disk is slow");
        assert!(fs::read(Path::new("/f")).await?.is_empty(), "it has begun");
        tokio::time::sleep(Duration::from_secs(5)).await;
        assert_eq!(fs::read(Path::new("/f")).await?, b"whole");
        Ok(())
    });
    run.run().unwrap();
}
