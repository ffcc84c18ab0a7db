//! Pictures of all pages, for people: `target/console-screens/`, light and dark, wide and narrow.

use terrane_browser::Browser;

use crate::console;

const FOLDER: &str = "console-screens";
const PAGES: [(&str, &str); 17] = [
    ("overview", "/"),
    ("tables", "/tables"),
    ("table", "/tables/actions"),
    ("heat", "/heat/actions"),
    ("heat-day", "/heat/telemetry?span=24"),
    ("heat-week", "/heat/weather?span=168"),
    ("regions", "/regions"),
    ("region", "/regions/30"),
    ("groups", "/groups"),
    ("group", "/groups/2"),
    ("events", "/events"),
    ("procedures", "/procedures"),
    ("slow", "/slow"),
    ("data", "/data/actions?limit=20"),
    ("settings", "/settings"),
    ("failovers", "/failovers"),
    ("missing", "/tables/actoins"),
];

/// Each page in light and dark, at 1280 and 390 pixels; none is wider than its window.
#[tokio::test]
async fn pages_fit_wide_and_narrow_screens() {
    let Some(mut browser) = Browser::start(1280, 900).await else { return };
    let (console, _) = console().await;
    for (width, height, scheme) in [(1280, 900, "light"), (1280, 900, "dark"), (390, 844, "light"), (390, 844, "dark")]
    {
        browser.resize(width, height, width < 500).await;
        browser.prefer(scheme).await;
        for (name, path) in PAGES {
            browser.open(&format!("http://{}{path}", console.address())).await;
            browser.value("new Promise((shown) => requestAnimationFrame(() => requestAnimationFrame(shown)))").await;
            let content = browser.value("document.documentElement.scrollWidth").await;
            assert_eq!(content, width, "{path} is wider than {width} pixels");
            let background = browser.value("getComputedStyle(document.documentElement).backgroundColor").await;
            assert_eq!(background, if scheme == "dark" { "rgb(18, 24, 27)" } else { "rgb(250, 249, 246)" });
            browser.keep_picture(FOLDER, &format!("{name}-{width}-{scheme}")).await;
        }
        if width < 500 {
            browser.click("#menu").await;
            browser.wait("document.querySelector('nav a').getBoundingClientRect().height > 0").await;
            browser.keep_picture(FOLDER, &format!("menu-{width}-{scheme}")).await;
        }
        browser.press(&["?"]).await;
        browser.wait("document.getElementById('keys').open").await;
        browser.keep_picture(FOLDER, &format!("keys-{width}-{scheme}")).await;
    }
    // The page of a table that does not exist is a 404, which the browser logs; nothing else is wrong.
    browser.complaints.retain(|complaint| !complaint.contains("actoins"));
    assert_eq!(browser.complaints, Vec::<String>::new());
    console.shutdown().await;
}
