//! What a viewer costs: asserted where it is a number of bytes or requests, printed where it depends on the machine.
//!
//! The figures of `docs/console.md` are those of
//! `TERRANE_CONSOLE_SECONDS=30 cargo test -p terrane-console --test web measured -- --nocapture`.

use serde_json::{Value, json};

use terrane_browser::Browser;

use crate::console;

/// The most bytes of assets that a viewer loads.
const ASSETS_BYTES_MAX: u64 = 200 << 10;

const PAINTS: &str = "new Promise((told) => new PerformanceObserver((list) => told(list.getEntries().map((entry) => [entry.name, Math.round(entry.startTime)]))).observe({ type: 'paint', buffered: true }))";
const LARGEST: &str = "new Promise((told) => new PerformanceObserver((list) => told(Math.round(list.getEntries().at(-1).startTime))).observe({ type: 'largest-contentful-paint', buffered: true }))";
const LOADED: &str = "performance.getEntriesByType('resource').filter((entry) => entry.name.includes('/assets/')).reduce((sum, entry) => sum + entry.decodedBodySize, 0)";

/// How long each page is watched: short unless figures are wanted, and shorter than the patience of the browser.
fn watched_seconds() -> u64 {
    std::env::var("TERRANE_CONSOLE_SECONDS").ok().and_then(|text| text.parse().ok()).unwrap_or(1).min(50)
}

fn metric(answer: &Value, name: &str) -> f64 {
    let metrics = answer["metrics"].as_array().unwrap();
    metrics.iter().find(|metric| metric["name"] == name).unwrap()["value"].as_f64().unwrap()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_viewer_loads_and_asks_little() {
    let Some(mut browser) = Browser::start(1280, 900).await else { return };
    let (console, cluster) = console().await;
    for round in 0..3 {
        browser.open(&format!("http://{}/?{round}", console.address())).await;
        let [paints, largest] = [browser.value(PAINTS).await, browser.value(LARGEST).await];
        println!("overview, load {round}: {paints} ms, largest contentful paint {largest} ms");
    }
    let size = browser.value(LOADED).await.as_u64().unwrap();
    println!("assets: {size} bytes");
    assert!((1..=ASSETS_BYTES_MAX).contains(&size), "{size}");
    for path in ["/heat/telemetry?span=24", "/heat/actions"] {
        browser.open(&format!("http://{}{path}", console.address())).await;
        browser.wait("document.querySelector('.heatmap').dataset.drawMs").await;
        browser.value("document.querySelector('.heatmap').paint()").await;
        let (about, drawn) =
            (browser.text(".about").await, browser.value("document.querySelector('.heatmap').dataset.drawMs").await);
        println!("{path}: {about}: drawn in {drawn} ms");
    }
    let full = "import(document.querySelector('link[href$=\"heatmap.js\"]').href).then(({ draw }) => { const canvas = document.createElement('canvas'); [canvas.width, canvas.height] = [1440, 1000]; const counts = Array.from({ length: 1000 }, (_, row) => Array.from({ length: 1440 }, (_, column) => (row * column) % 977)); return Array.from({ length: 5 }, () => { const before = performance.now(); const greatest = draw(canvas, counts); return [greatest, Math.round(performance.now() - before)]; }); })";
    let drawn = browser.value(full).await;
    assert_eq!(drawn[0][0], 976, "all 1,440 minutes of 1,000 regions were drawn");
    println!("1,440 minutes of 1,000 regions, a pixel each, five times: drawn in [greatest, ms] {drawn}");
    let seconds = watched_seconds();
    for path in ["/", "/regions", "/heat/telemetry?span=24"] {
        browser.open(&format!("http://{}{path}", console.address())).await;
        let asked = cluster.asked();
        let before = browser.call("Performance.getMetrics", json!({})).await;
        browser.value(&format!("new Promise((later) => setTimeout(later, {}))", seconds * 1_000)).await;
        let after = browser.call("Performance.getMetrics", json!({})).await;
        let spent = |name| metric(&after, name) - metric(&before, name);
        let asked = cluster.asked() - asked;
        println!(
            "{path}: {:.2} % of a core over {seconds} s, {asked} questions",
            spent("TaskDuration") / spent("Timestamp") * 100.0
        );
        assert!(asked as u64 <= 1 + seconds, "{path} asked {asked} times in {seconds} s");
    }
    console.shutdown().await;
}
