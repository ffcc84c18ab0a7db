//! The console of a real cluster in a real browser: a hot range, rows by pages, a server that is killed while its page is
//! open, and one that is drained. What the pages show is read from the pages; the API has tests of its own.

#![allow(clippy::unwrap_used, reason = "what a test helper unwraps is what the test claims")]
use std::time::{Duration, Instant};

use serde_json::json;
use terrane_browser::Browser;

use crate::harness::Cluster;

/// Where the pictures of all pages go, for people: `target/console-cluster/`.
const FOLDER: &str = "console-cluster";
/// Rows of one import, all in the same third of the table.
const ROWS: u64 = 20_000;
/// Imports until the map must show the load. One is enough where the machine is not busy.
const IMPORTS_MAX: usize = 10;
/// A dead server is called after 600 ms, and an open page asks every 3 s. The rest is for slow machines.
const SHOWN_WITHIN: Duration = Duration::from_secs(20);

const PAGES: [(&str, &str); 14] = [
    ("overview", "/"),
    ("tables", "/tables"),
    ("table", "/tables/actions"),
    ("heat-tables", "/heat"),
    ("heat", "/heat/actions?span=1"),
    ("regions", "/regions"),
    ("groups", "/groups"),
    ("group", "/groups/1"),
    ("events", "/events"),
    ("procedures", "/procedures"),
    ("slow", "/slow"),
    ("data", "/data/actions?limit=20"),
    ("settings", "/settings"),
    ("failovers", "/failovers"),
];

/// Writes rows of the users from 1000 to 1999, which are one region of three.
fn write_to_one_region(cluster: &Cluster) {
    let rows: String = (0..ROWS).map(|number| format!("{},{number},login\n", 1_000 + number % 1_000)).collect();
    cluster.client.import_csv("actions", &format!("user,time,d:kind\n{rows}"));
}

/// The state of a server as the overview's list shows it.
fn state_of(server: u64) -> String {
    format!("document.querySelector(\"tr[data-href='/regions?server={server}'] .state\")?.innerText")
}

/// Opens the heat map again and again while one region is written, until it shows the load; then reads the hot range.
async fn the_heat_map_shows_the_hot_range(browser: &mut Browser, cluster: &Cluster) {
    for _ in 0..IMPORTS_MAX {
        write_to_one_region(cluster);
        browser.open(&format!("http://{}/heat/actions?span=1", cluster.console)).await;
        if browser.value("document.querySelector('.hottest .advice') !== null").await == json!(true) {
            break;
        }
    }
    let hottest = browser.text(".hottest li").await;
    for text in ["user=1000", "user=2000", "of the table", "Split here", "terrane admin split"] {
        assert!(hottest.contains(text), "the hottest range lacks {text:?}: {hottest}");
    }
    // The middle one of the three rows of the map is the dark one, in the column of the present.
    browser.wait("document.querySelector('.heatmap').dataset.drawMs").await;
    let darkest = "(() => { const canvas = document.querySelector('.plot canvas'); const brightness = (row) => { \
        const line = canvas.getContext('2d').getImageData(0, Math.floor((row + 0.5) * canvas.height / 3), canvas.width, 1).data; \
        let least = 765; for (let at = 0; at < line.length; at += 4) least = Math.min(least, line[at] + line[at + 1] + line[at + 2]); \
        return least; }; return [0, 1, 2].map(brightness); })()";
    let darkest = browser.value(darkest).await;
    let [above, hot, below] = [0, 1, 2].map(|row| darkest[row].as_u64().unwrap());
    assert!(hot + 200 < above && hot + 200 < below, "the least brightness of each row: {darkest}");
}

/// Opens the list of tables, then one, and turns the pages by clicks.
async fn rows_are_paged_by_clicks(browser: &mut Browser, cluster: &Cluster) {
    browser.open(&format!("http://{}/data", cluster.console)).await;
    browser.click("a[href='/data/actions']").await;
    browser
        .wait("location.pathname === '/data/actions' && document.querySelectorAll('.rows tbody tr').length === 50")
        .await;
    // Times are stored newest first: those of user 1000 are 19000, 18000 and so on.
    let row = |line: usize| {
        format!(
            "[...document.querySelectorAll('.rows tbody tr:nth-child({line}) .part')].map((part) => part.innerText.trim()).join()"
        )
    };
    assert_eq!(browser.value(&row(1)).await, "1000,19000");
    assert_eq!(browser.value(&row(50)).await, "1002,10002");
    browser.click("#next").await;
    browser.wait(&format!("{} === '1002,9002'", row(1))).await;
    browser.click("#next").await;
    browser.wait(&format!("{} === '1005,19005'", row(1))).await;
    browser.click("#previous").await;
    browser.wait(&format!("{} === '1002,9002'", row(1))).await;
    assert!(browser.text(".rows tbody tr").await.contains("d:kind"));
}

/// Each page wide and narrow, in light and dark; none is wider than its window.
async fn every_page_fits(browser: &mut Browser, cluster: &Cluster) {
    for (width, height, schemes) in [(1280, 900, &["light", "dark"][..]), (390, 844, &["light"][..])] {
        browser.resize(width, height, width < 500).await;
        for (name, path) in PAGES {
            browser.open(&format!("http://{}{path}", cluster.console)).await;
            assert_eq!(browser.value("document.getElementById('main').dataset.state").await, "shown", "{path}");
            let content = browser.value("document.documentElement.scrollWidth").await;
            assert_eq!(content, width, "{path} is wider than {width} pixels");
            for scheme in schemes {
                browser.prefer(scheme).await;
                browser
                    .value("new Promise((shown) => requestAnimationFrame(() => requestAnimationFrame(shown)))")
                    .await;
                browser.keep_picture(FOLDER, &format!("{name}-{width}-{scheme}")).await;
            }
            browser.prefer("light").await;
        }
    }
    browser.resize(1280, 900, false).await;
}

/// Kills a server that leads, under the eyes of an open overview, and starts it again. Returns its id.
async fn a_killed_server_is_named(browser: &mut Browser, cluster: &mut Cluster) -> u64 {
    let servers = cluster.client.json_lines(&["admin", "servers"]);
    let leads = |server: &&serde_json::Value| server["leaders"].as_u64().is_some_and(|leaders| leaders > 0);
    let victim = servers.iter().find(leads).unwrap_or_else(|| panic!("no server leads: {servers:?}"));
    let (id, address) = (victim["server"].as_u64().unwrap(), victim["address"].as_str().unwrap().to_owned());
    let index = cluster.addresses.iter().position(|known| *known == address).unwrap();

    browser.open(&format!("http://{}/", cluster.console)).await;
    browser.wait("document.querySelector('.problems').innerText.includes('All is well.')").await;
    browser.value("window.unloaded = false").await;
    let killed = Instant::now();
    cluster.kill_server(index);
    browser.wait(&format!("document.querySelector('.problems').innerText.includes({})", json!(address))).await;
    let shown = killed.elapsed();
    browser.wait(&format!("{} === 'silent'", state_of(id))).await;
    assert!(shown < SHOWN_WITHIN, "the overview named the dead server after {shown:?}");
    println!("the overview named the dead server after {shown:?}");
    browser.keep_picture(FOLDER, "overview-dead-1280-light").await;

    // By a click, as a person would look for what it cost.
    browser.click("nav a[href='/failovers']").await;
    let cells = format!(
        "[...document.querySelectorAll('tbody tr')].filter((line) => line.innerText.includes('server {id} no longer answered'))"
    );
    browser.wait(&format!("{cells}.some((line) => /\\d (ms|s)/.test(line.lastElementChild.innerText))")).await;
    browser.keep_picture(FOLDER, "failovers-after-1280-light").await;
    browser.click("nav a[href='/events']").await;
    browser.wait("document.querySelector('.event.failover')").await;
    assert!(browser.text(".event.failover").await.contains(&format!("server {id} no longer answered")));

    browser.click("nav a[href='/']").await;
    cluster.start_server(index);
    browser.wait(&format!("{} === 'live'", state_of(id))).await;
    browser.wait("document.querySelector('.problems').innerText.includes('All is well.')").await;
    assert_eq!(browser.value("window.unloaded").await, json!(false), "the page was loaded again");
    id
}

/// Drains a server; its state changes on the open overview.
async fn a_drain_is_followed(browser: &mut Browser, cluster: &Cluster, other_than: u64) {
    let servers = cluster.client.json_lines(&["admin", "servers"]);
    let drained = servers.iter().map(|server| server["server"].as_u64().unwrap()).find(|id| *id != other_than).unwrap();
    cluster.client.succeed(&["admin", "drain", &drained.to_string()]);
    browser.wait(&format!("['draining', 'drained'].includes({})", state_of(drained))).await;
    browser.wait(&format!("{} === 'drained'", state_of(drained))).await;
    let replicas = format!(
        "document.querySelector(\"tr[data-href='/regions?server={drained}'] td[data-label=Replicas]\").innerText"
    );
    assert_eq!(browser.value(&replicas).await, "0");
    assert_eq!(browser.value("window.unloaded").await, json!(false), "the page was loaded again");
    browser.keep_picture(FOLDER, "overview-drained-1280-light").await;
    browser.click("nav a[href='/events']").await;
    browser.wait(&format!("document.querySelector('main').innerText.includes('server {drained} is drained')")).await;
    browser.keep_picture(FOLDER, "events-after-1280-light").await;
}

#[tokio::test]
async fn the_pages_of_a_cluster_follow_what_happens_to_it() {
    let Some(mut browser) = Browser::start(1280, 900).await else { return };
    // With four servers there are three for the replicas of the one that is drained.
    let mut cluster = Cluster::start_of(1, 4);
    cluster.client.create_actions();
    browser.prefer("light").await;
    the_heat_map_shows_the_hot_range(&mut browser, &cluster).await;
    rows_are_paged_by_clicks(&mut browser, &cluster).await;
    every_page_fits(&mut browser, &cluster).await;
    let killed = a_killed_server_is_named(&mut browser, &mut cluster).await;
    a_drain_is_followed(&mut browser, &cluster, killed).await;
    assert_eq!(browser.complaints, Vec::<String>::new());
}
