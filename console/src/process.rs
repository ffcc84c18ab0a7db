//! What the operating system says about this process, read when it is asked for.
//!
//! From `/proc`, without which (on other systems than Linux, in the simulation) these metrics are left out.

use std::path::Path;
use std::sync::OnceLock;
use std::sync::atomic::AtomicU64;

use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::registry::Registry;
use terrane_env::{fs, time};
use terrane_metrics::Description;
use terrane_metrics::list::process as list;

/// Linux counts the processor time of a process in hundredths of a second on all machines that it shows to programs.
const TICKS_PER_SECOND: f64 = 100.0;

/// The fields of `/proc/self/stat` after the name of the program, which may contain anything: user and kernel time, and the
/// start after the start of the machine, in ticks.
const USER_TIME: usize = 11;
const KERNEL_TIME: usize = 12;
const START: usize = 19;

/// Adds the metrics of this process to a registry.
pub async fn register(registry: &mut Registry) {
    if let Some(stat) = read("/proc/self/stat").await {
        let ticks = |place| field(&stat, place);
        if let (Some(user), Some(kernel)) = (ticks(USER_TIME), ticks(KERNEL_TIME)) {
            let cpu: Counter<f64, AtomicU64> = Counter::default();
            cpu.inc_by((user + kernel) / TICKS_PER_SECOND);
            list::CPU.register(registry, cpu);
        }
        if let Some(started) = start_time(ticks(START)).await {
            gauge(registry, &list::STARTED, started);
        }
    }
    if let Some(status) = read("/proc/self/status").await {
        let kib = |name| Some(1024.0 * line(&status, name)?.split(' ').next()?.parse::<f64>().ok()?);
        optional(registry, &list::RESIDENT, kib("VmRSS:"));
        optional(registry, &list::VIRTUAL, kib("VmSize:"));
        optional(registry, &list::THREADS, line(&status, "Threads:").and_then(|threads| threads.parse().ok()));
    }
    if let Ok(open) = fs::list(Path::new("/proc/self/fd")).await {
        optional(registry, &list::FDS, u32::try_from(open.len()).ok().map(f64::from));
    }
    if let Some(limits) = read("/proc/self/limits").await {
        let files = line(&limits, "Max open files").and_then(|soft| soft.split(' ').next()?.parse().ok());
        optional(registry, &list::FDS_MAX, files);
    }
}

fn optional(registry: &mut Registry, described: &Description, value: Option<f64>) {
    if let Some(value) = value {
        gauge(registry, described, value);
    }
}

fn gauge(registry: &mut Registry, described: &Description, value: f64) {
    let gauge: Gauge<f64, AtomicU64> = Gauge::default();
    gauge.set(value);
    described.register(registry, gauge);
}

async fn read(path: &str) -> Option<String> {
    String::from_utf8(fs::read(Path::new(path)).await.ok()?).ok()
}

/// A field of `/proc/self/stat`, counted from the first one after the program's name.
fn field(stat: &str, place: usize) -> Option<f64> {
    let (_, fields) = stat.rsplit_once(')')?;
    fields.split_whitespace().nth(place)?.parse().ok()
}

/// What follows a name at the start of a line.
fn line<'t>(text: &'t str, name: &str) -> Option<&'t str> {
    text.lines().find_map(|line| line.strip_prefix(name)).map(str::trim)
}

/// When this process started, in seconds since 1970. Computed once: the clocks that it is computed from drift apart.
async fn start_time(start_ticks: Option<f64>) -> Option<f64> {
    static STARTED: OnceLock<f64> = OnceLock::new();
    if let Some(started) = STARTED.get() {
        return Some(*started);
    }
    let uptime = read("/proc/uptime").await?;
    let uptime: f64 = uptime.split(' ').next()?.parse().ok()?;
    let age_ms = 1_000.0 * (uptime - start_ticks? / TICKS_PER_SECOND);
    #[expect(clippy::cast_precision_loss, reason = "milliseconds since 1970 have 41 bits")]
    let started = (time::wall_ms() as f64 - age_ms) / 1_000.0;
    Some(*STARTED.get_or_init(|| started))
}

#[cfg(test)]
mod tests {
    use prometheus_client::encoding::text::encode;

    use super::*;

    #[test]
    fn a_program_may_have_any_name() {
        let stat = "7 (a) b) c) S 1 7 7 0 -1 4194304 9 0 0 0 123 45 0 0 20 0 9 0 777 1000 50";
        assert_eq!(
            (field(stat, USER_TIME), field(stat, KERNEL_TIME), field(stat, START)),
            (Some(123.0), Some(45.0), Some(777.0))
        );
        assert_eq!(field("no such line", 3), None);
    }

    #[cfg(target_os = "linux")]
    #[tokio::test]
    async fn every_metric_of_the_process_is_there() {
        let mut registry = Registry::default();
        register(&mut registry).await;
        let mut text = String::new();
        encode(&mut text, &registry).unwrap();
        // The build is the node's to say.
        for metric in list::ALL.iter().filter(|metric| metric.name != list::BUILD.name) {
            let shown = metric.samples().pop().unwrap();
            let value = text.lines().find_map(|line| line.strip_prefix(&shown)?.trim().parse::<f64>().ok());
            assert!(value.is_some_and(|value| value >= 0.0), "{shown}\n{text}");
        }
        let started = text.lines().find_map(|line| line.strip_prefix("process_start_time_seconds ")).unwrap();
        assert!(started.parse::<f64>().unwrap() > 1.7e9, "{started}");
    }
}
