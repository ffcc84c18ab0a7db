//! The pages in a real browser: what they show, and what clicks and keys do.

use serde_json::json;

use terrane_browser::Browser;

use crate::console;

/// What a page shows must hold all of these.
const PAGES: [(&str, &[&str]); 15] = [
    (
        "/",
        &[
            "orders-eu",
            "Server 3 has been silent",
            "terrane admin replication",
            "Rows written",
            "server 4",
            "10.0.0.2:7600",
        ],
    ),
    ("/tables", &["actions", "telemetry", "disabled", "user:u64, time:desc i64, action:u32"]),
    ("/tables/actions", &["Row key", "desc i64", "versions", "count i64", "region 30", "user=6041666"]),
    ("/heat", &["Choose a table", "weather"]),
    ("/heat/actions", &["Hottest", "user=6207113", "Reverse this part", "terrane admin split 30 --at user=6207113"]),
    ("/regions", &["1,063 regions", "200 of 1,063 shown"]),
    ("/regions?server=2", &["Regions on server 2"]),
    ("/regions/30", &["Compaction debt", "splitting", "Members of its group", "41 % of the table's writes"]),
    ("/groups", &["2 of 3 members", "group 8"]),
    ("/groups/2", &["Commit index", "12,407 entries", "does not follow"]),
    ("/events", &["Running now", "region 30 splits", "server 3 is silent", "no report for 3 s"]),
    ("/procedures", &["drain-4", "move-217", "drain server 4", "failed: server 3 is silent"]),
    ("/slow", &["1,204 requests took 250 ms or longer", "It waited 301 ms in the queue of region 30", "commit"]),
    ("/settings", &["server.compaction_rate", "64MiB", "set at run time, default 128MiB"]),
    ("/failovers", &["71 ms", "lasts", "the disk of server 4 stalled"]),
];

#[tokio::test]
async fn every_page_shows_its_content_without_complaints() {
    let Some(mut browser) = Browser::start(1280, 900).await else { return };
    let (console, _) = console().await;
    for (path, texts) in PAGES {
        browser.open(&format!("http://{}{path}", console.address())).await;
        let shown = browser.text("main").await;
        for text in texts {
            assert!(shown.contains(text), "{path} lacks {text:?}: {shown}");
        }
    }
    assert_eq!(browser.complaints, Vec::<String>::new());
    console.shutdown().await;
}

#[tokio::test]
async fn clicks_and_keys_lead_from_page_to_page() {
    let Some(mut browser) = Browser::start(1280, 900).await else { return };
    let (console, _) = console().await;
    browser.open(&format!("http://{}/", console.address())).await;
    browser.click("nav a[href='/tables']").await;
    browser.wait("location.pathname === '/tables' && document.querySelector('h1').innerText === 'Tables'").await;
    // The first line of the list, by the keyboard.
    browser.press(&["j", "Enter"]).await;
    browser
        .wait("location.pathname === '/tables/actions' && document.querySelector('h1').innerText === 'actions'")
        .await;
    // A click anywhere on the line of a region.
    browser.click("tr[data-href='/regions/2'] td.number").await;
    browser.wait("document.querySelector('h1').innerText === 'Region 2'").await;
    browser.value("history.back()").await;
    browser.wait("document.querySelector('h1').innerText === 'actions'").await;
    for (key, title) in
        [("s", "Slow requests"), ("f", "Failovers"), ("l", "Log groups"), ("e", "Events"), ("o", "orders-eu")]
    {
        browser.press(&["g", key]).await;
        browser.wait(&format!("document.querySelector('h1').innerText === {}", json!(title))).await;
    }
    browser.press(&["?"]).await;
    browser.wait("document.getElementById('keys').open").await;
    assert!(browser.text("#keys").await.contains("Heat map"));
    browser.press(&["?"]).await;
    browser.wait("!document.getElementById('keys').open").await;
    // Light, then dark, kept by the browser.
    browser.press(&["m", "m"]).await;
    browser.wait("document.documentElement.dataset.theme === 'dark'").await;
    browser.open(&format!("http://{}/tables", console.address())).await;
    browser.wait("document.documentElement.dataset.theme === 'dark'").await;
    // A list in another order, then events of one kind.
    browser.click("th:nth-child(4) button").await;
    browser.wait("document.querySelector('tbody tr').dataset.href === '/tables/telemetry'").await;
    browser.press(&["g", "e"]).await;
    browser.wait("document.querySelector('button[data-value=merge]')").await;
    browser.click("button[data-value=merge]").await;
    browser.wait("document.querySelectorAll('.event').length === 1").await;
    assert!(browser.text(".event").await.contains("regions 8 and 9 became region 8"));
    assert_eq!(browser.complaints, Vec::<String>::new());
    console.shutdown().await;
}

#[tokio::test]
async fn the_data_browser_pages_and_shows_cells_as_text() {
    let Some(mut browser) = Browser::start(1280, 900).await else { return };
    let (console, _) = console().await;
    browser.open(&format!("http://{}/data/actions?limit=50", console.address())).await;
    let shown = browser.text("main").await;
    assert!(shown.contains("<img src=x onerror=") && shown.contains("50 rows"), "{shown}");
    assert_eq!(browser.value("document.querySelectorAll('main img, main script').length").await, 0);
    browser.click(".rows li button").await;
    browser.wait("document.querySelectorAll('.rows .value')[9].innerText.length > 4000 && !document.querySelector('.rows li button')").await;
    let first = "document.querySelector('.rows tbody .key').innerText";
    browser.click("#next").await;
    browser.wait(&format!("{first} === '50'")).await;
    browser.press(&["n"]).await;
    browser.wait(&format!("{first} === '100' && !document.getElementById('next')")).await;
    assert!(browser.text("main").await.contains("End of the range."));
    browser.press(&["p"]).await;
    browser.wait(&format!("{first} === '50'")).await;
    // A prefix, typed.
    browser.value("{ const field = document.querySelector('[name=prefix]'); field.value = ''; field.focus(); }").await;
    browser.press(&["u", "s", "e", "r", "=", "7", "Enter"]).await;
    browser.wait(&format!("document.querySelectorAll('.rows tbody tr').length === 1 && {first} === '7'")).await;
    // A bad one says what is wrong, and the page stays usable.
    browser.press(&["/"]).await;
    browser.press(&["x", "Enter"]).await;
    browser.wait("document.querySelector('.failure')?.innerText.includes('is not an integer')").await;
    assert!(browser.value("document.querySelector('[name=prefix]').value").await.as_str().unwrap().contains('x'));
    browser.complaints.retain(|complaint| !complaint.contains("400 (Bad Request)"));
    assert_eq!(browser.complaints, Vec::<String>::new());
    console.shutdown().await;
}

/// The colour of the canvas at a part of its width and height.
fn colour(x: f64, y: f64) -> String {
    format!(
        "(() => {{ const canvas = document.querySelector('.plot canvas'); const at = (part, size) => Math.min(size - 1, Math.floor(part * size)); return [...canvas.getContext('2d').getImageData(at({x}, canvas.width), at({y}, canvas.height), 1, 1).data].slice(0, 3); }})()"
    )
}

#[tokio::test]
async fn the_heat_map_shows_the_hot_range_and_zooms() {
    let Some(mut browser) = Browser::start(1280, 900).await else { return };
    let (console, _) = console().await;
    browser.prefer("light").await;
    browser.open(&format!("http://{}/heat/actions", console.address())).await;
    browser.wait("document.querySelector('.heatmap').dataset.drawMs").await;
    // Region 30 of 48 is hot for the last 150 of 360 minutes.
    let [hot, before] =
        [browser.value(&colour(0.9, 29.5 / 48.0)).await, browser.value(&colour(0.2, 29.5 / 48.0)).await];
    let brightness = |colour: &serde_json::Value| (0..3).map(|at| colour[at].as_u64().unwrap()).sum::<u64>();
    assert!(brightness(&hot) + 200 < brightness(&before), "hot {hot}, before {before}");
    // The pointer reads the key and the load.
    let area = browser.value("(() => { const box = document.querySelector('.plot canvas').getBoundingClientRect(); return [box.left, box.top, box.width, box.height]; })()").await;
    let [left, top, width, height] = [0, 1, 2, 3].map(|at| area[at].as_f64().unwrap());
    browser.hover(left + width * 0.9, top + height * 29.5 / 48.0).await;
    browser.wait("!document.querySelector('.tip').hidden").await;
    let tip = browser.text(".tip").await;
    assert!(tip.contains("user=6041666") && tip.contains("region 30") && tip.contains("/s writes"), "{tip}");
    // A drag over the last quarter and the lower half zooms; the answer has fewer rows and columns.
    browser.drag((left + width * 0.75, top + height * 0.5), (left + width - 2.0, top + height - 2.0)).await;
    browser.wait("document.getElementById('unzoom') && document.querySelector('.about').innerText.startsWith('24 key ranges')").await;
    let query = browser.value("Object.fromEntries(new URLSearchParams(location.search))").await;
    let span =
        query["to"].as_str().unwrap().parse::<u64>().unwrap() - query["from"].as_str().unwrap().parse::<u64>().unwrap();
    assert_eq!(span, 90 * 60_000, "{query}");
    let hot = browser.value(&colour(0.5, 5.5 / 24.0)).await;
    assert!(brightness(&hot) < 350, "the hot range is still hot: {hot}");
    browser.press(&["Escape"]).await;
    browser.wait("!document.getElementById('unzoom') && document.querySelector('.about').innerText.startsWith('48 key ranges')").await;
    // The keyboard moves a cursor, and Enter opens the region under it.
    browser.value("document.querySelector('.plot canvas').focus()").await;
    browser.press(&["ArrowDown", "ArrowDown", "Enter"]).await;
    browser.wait("document.querySelector('h1').innerText === 'Region 3'").await;
    assert_eq!(browser.complaints, Vec::<String>::new());
    console.shutdown().await;
}

#[tokio::test]
async fn settings_are_changed_on_the_page() {
    let Some(mut browser) = Browser::start(1280, 900).await else { return };
    let (console, _) = console().await;
    browser.open(&format!("http://{}/settings#server.slow_request_ms", console.address())).await;
    let item = "document.getElementById('server.slow_request_ms')";
    browser.click("[id='server.slow_request_ms'] .edit").await;
    browser.wait(&format!("{item}.querySelector('input') === document.activeElement")).await;
    browser.value("document.activeElement.select()").await;
    browser.press(&["s", "o", "o", "n", "Enter"]).await;
    browser.wait(&format!("{item}.innerText.includes('is not a number of milliseconds')")).await;
    browser.value(&format!("{item}.querySelector('input').select()")).await;
    browser.press(&["9", "9", "Enter"]).await;
    browser
        .wait(&format!(
            "{item}.innerText.includes('Set to 99.') && {item}.innerText.includes('set at run time, default 250')"
        ))
        .await;
    browser.complaints.retain(|complaint| !complaint.contains("400 (Bad Request)"));
    assert_eq!(browser.complaints, Vec::<String>::new());
    console.shutdown().await;
}

#[tokio::test]
async fn a_page_says_when_it_is_out_of_date_and_recovers() {
    let Some(mut browser) = Browser::start(1280, 900).await else { return };
    let (console, cluster) = console().await;
    browser.open(&format!("http://{}/tables/actoins", console.address())).await;
    let missing = browser.text("main").await;
    assert!(missing.contains("There is no table actoins.") && missing.contains("Did you mean actions?"), "{missing}");
    browser.open(&format!("http://{}/", console.address())).await;
    cluster.set_gone(true);
    browser.wait("document.querySelector('.notice')?.innerText.includes('No master answers.')").await;
    assert!(browser.text("main").await.contains("orders-eu"), "the last answer stays");
    cluster.set_gone(false);
    browser.wait("!document.querySelector('.notice')").await;
    // A process that ends is missed, and the page waits for it.
    console.shutdown().await;
    browser.wait("document.querySelector('.notice')?.innerText.includes('This process does not answer.')").await;
}
