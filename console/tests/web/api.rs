//! The API: its shapes, and what it answers to bad input.

use terrane_console::Console;
use terrane_console::source::{
    Failovers, GroupDetail, Heat, Overview, RegionDetail, RowPage, SlowRequests, TableDetail,
};

use crate::console;
use crate::http::{get, post, send};

#[tokio::test]
async fn each_address_answers_its_shape() {
    let (console, _) = console().await;
    let address = console.address();
    let overview: Overview = serde_json::from_str(&get(address, "/api/v1/overview").await.body).unwrap();
    assert_eq!((overview.servers.len(), overview.problems.len()), (4, 3));
    let table: TableDetail = serde_json::from_str(&get(address, "/api/v1/tables/actions").await.body).unwrap();
    assert_eq!(table.key_parts[1].kind, "desc i64");
    let heat = "/api/v1/tables/actions/heat?measure=reads&span=3600000&columns=30";
    let heat: Heat = serde_json::from_str(&get(address, heat).await.body).unwrap();
    assert_eq!((heat.rows.len(), heat.counts.len(), heat.counts[0].len(), heat.step_ms), (48, 48, 30, 120_000));
    let region: RegionDetail = serde_json::from_str(&get(address, "/api/v1/regions/30").await.body).unwrap();
    assert_eq!(region.region.table, "actions");
    let group: GroupDetail = serde_json::from_str(&get(address, "/api/v1/groups/2").await.body).unwrap();
    assert_eq!(group.group.members.len(), 3);
    let slow: SlowRequests = serde_json::from_str(&get(address, "/api/v1/slow?order=slowest").await.body).unwrap();
    assert_eq!(slow.requests[0].duration_us, 3_810_000);
    let failovers: Failovers = serde_json::from_str(&get(address, "/api/v1/failovers").await.body).unwrap();
    assert_eq!(failovers.failovers[0].blackout_ms, None);
    for (path, name, least) in [
        ("/api/v1/tables", "tables", 4),
        ("/api/v1/regions?table=weather", "regions", 12),
        ("/api/v1/groups", "groups", 8),
        ("/api/v1/events?kind=split&limit=7", "events", 7),
        ("/api/v1/procedures", "procedures", 4),
        ("/api/v1/settings", "settings", 7),
    ] {
        let answer = get(address, path).await;
        assert_eq!((answer.status, answer.json()[name].as_array().unwrap().len()), (200, least), "{path}");
    }
    console.shutdown().await;
}

#[tokio::test]
async fn rows_are_read_page_by_page() {
    let (console, _) = console().await;
    let mut seen = Vec::new();
    let mut after = String::new();
    loop {
        let path = format!("/api/v1/tables/actions/rows?limit=60&after={after}");
        let page: RowPage = serde_json::from_str(&get(console.address(), &path).await.body).unwrap();
        seen.extend(page.rows.iter().map(|row| row.parts[0].parse::<u64>().unwrap()));
        match page.next {
            Some(token) => after = token,
            None => break,
        }
    }
    assert_eq!(seen, (0..130).collect::<Vec<u64>>());
    // A key of an answer is the start of another.
    let one = get(console.address(), "/api/v1/tables/actions/rows?prefix=user%3D7").await.json();
    assert_eq!(one["rows"].as_array().unwrap().len(), 1);
    let bytes = one["rows"][0]["key"]["bytes"].as_str().unwrap().replace('\\', "%5C");
    let path = format!("/api/v1/tables/actions/rows?limit=1&start_bytes={bytes}");
    assert_eq!(get(console.address(), &path).await.json()["rows"][0], one["rows"][0]);
    console.shutdown().await;
}

#[tokio::test]
async fn bad_input_is_answered_in_a_sentence_with_the_next_step() {
    let (console, _) = console().await;
    for (path, status, sentence) in [
        ("/api/v1/tables/actoins", 404, "There is no table actoins. Did you mean actions?"),
        ("/api/v1/regions?table=actoins", 404, "There is no table actoins. Did you mean actions?"),
        ("/api/v1/regions/9999", 404, "There is no region 9999. The page of all regions lists the names there are."),
        (
            "/api/v1/regions/seven",
            400,
            "\"seven\" is not the id of a region. Ids are whole numbers; /api/v1/regions lists them.",
        ),
        (
            "/api/v1/nothing",
            404,
            "There is nothing at /api/v1/nothing. docs/console.md lists the addresses of the API; they start with /api/v1/.",
        ),
        ("/api/v1/slow?tabel=a", 400, "There is no parameter tabel here. Did you mean table?"),
        ("/api/v1/tables/actions/rows?limit=0", 400, "The parameter limit is 0. Give 1 to 500."),
        (
            "/api/v1/tables/actions/rows?prefix=user%3Dx",
            400,
            "Part user (u64): \"x\" is not an integer from 0 to 18446744073709551615. The table's key is `user:u64, time:desc i64, action:u32`.",
        ),
        (
            "/api/v1/tables/actions/rows?prefix=7&prefix_bytes=a",
            400,
            "Both prefix and prefix_bytes are given. Give prefix for key parts, or prefix_bytes for bytes.",
        ),
        (
            "/api/v1/tables/actions/heat?start=b&end=a",
            400,
            "The key range is empty: start is not before end. Swap start and end.",
        ),
        ("/api/v1/tables/actions/heat?from=2&to=1", 400, "The span is empty: from is not before to. Swap from and to."),
    ] {
        assert_eq!(get(console.address(), path).await.failure(), (status, sentence.to_owned()), "{path}");
    }
    let bad_key = get(console.address(), "/api/v1/tables/actions/heat?start=%5Cq").await.failure();
    assert!(bad_key.0 == 400 && bad_key.1.contains(r"Write bytes that are not printable as \xHH"), "{bad_key:?}");
    let method = send(console.address(), "DELETE", "/api/v1/settings", &[], "").await.failure();
    let sentence = "The address /api/v1/settings does not take DELETE. Use GET; only /api/v1/settings takes POST.";
    assert_eq!(method, (405, sentence.to_owned()));
    let bad_name = get(console.address(), "/api/v1/tables/%ff").await.failure();
    assert!(bad_name.0 == 400 && bad_name.1.contains("Percent-encode it as UTF-8."), "{bad_name:?}");
    console.shutdown().await;
}

#[tokio::test]
async fn a_setting_is_changed_and_a_bad_value_refused() {
    let (console, _) = console().await;
    let address = console.address();
    let change = r#"{"name":"server.slow_request_ms","value":"100"}"#;
    let answer = post(address, "/api/v1/settings", change).await;
    assert_eq!((answer.status, answer.json()["origin"].as_str()), (200, Some("set at run time")));
    let back = post(address, "/api/v1/settings", r#"{"name":"server.slow_request_ms","value":null}"#).await;
    assert_eq!(back.json()["value"], "250");
    for (body, status, sentence) in [
        (
            r#"{"name":"server.slow_request_ms","value":"soon"}"#,
            400,
            "\"soon\" is not a number of milliseconds. Give a whole number, as 250.",
        ),
        (
            r#"{"name":"server.slow_request_sm","value":"1"}"#,
            404,
            "There is no setting server.slow_request_sm. Did you mean server.slow_request_ms?",
        ),
    ] {
        assert_eq!(post(address, "/api/v1/settings", body).await.failure(), (status, sentence.to_owned()));
    }
    for malformed in ["", "{", r#"{"nmae":"a","value":"b"}"#] {
        let (status, text) = post(address, "/api/v1/settings", malformed).await.failure();
        assert!(status == 400 && text.starts_with("The body is not a change of a setting"), "{status} {text}");
    }
    console.shutdown().await;
}

#[tokio::test]
async fn requests_of_other_sites_are_refused() {
    let (console, cluster) = console().await;
    let address = console.address();
    for path in ["/", "/api/v1/overview"] {
        let rebound = send(address, "GET", path, &[("Host", "evil.example")], "").await;
        assert_eq!(rebound.status, 421, "{path}");
    }
    let body = r#"{"name":"log.level","value":"debug"}"#;
    let form = send(address, "POST", "/api/v1/settings", &[("Content-Type", "text/plain")], body).await;
    assert_eq!(form.status, 415);
    let json = ("Content-Type", "application/json");
    let foreign = send(address, "POST", "/api/v1/settings", &[json, ("Origin", "http://evil.example")], body).await;
    assert_eq!(foreign.status, 403);
    assert_eq!(cluster.asked(), 0, "no refused request reached the source");
    let own = format!("http://{address}");
    assert_eq!(send(address, "POST", "/api/v1/settings", &[json, ("Origin", &own)], body).await.status, 200);
    // Scrapers and supervisors use whatever name the machine has.
    assert_eq!(send(address, "GET", "/healthz", &[("Host", "db7.internal")], "").await.status, 200);
    console.shutdown().await;
}

#[tokio::test]
async fn pages_have_the_status_of_what_they_show() {
    let (console, cluster) = console().await;
    let address = console.address();
    for page in [
        "/",
        "/tables",
        "/tables/actions",
        "/heat",
        "/heat/actions",
        "/regions",
        "/regions/30",
        "/groups",
        "/groups/2",
        "/events",
        "/procedures",
        "/slow",
        "/data",
        "/data/actions",
        "/settings",
        "/failovers",
    ] {
        let answer = get(address, page).await;
        assert_eq!(answer.status, 200, "{page}");
        assert!(answer.head.contains("content-security-policy: default-src 'none'"), "{}", answer.head);
    }
    for (page, status, text) in [
        ("/tables/NOPE", 404, "There is no table NOPE."),
        ("/heat/actoins", 404, "Did you mean actions?"),
        ("/regions/9999", 404, "There is no region 9999."),
        ("/regions/seven", 400, "is not the id of a region"),
        ("/tables/%3Cscript%3E", 404, "There is no table &lt;script&gt;."),
        ("/nothing", 404, "There is no page /nothing."),
    ] {
        let answer = get(address, page).await;
        assert!(answer.status == status && answer.body.contains(text), "{page}: {} {}", answer.status, answer.body);
    }
    cluster.set_gone(true);
    let gone = get(address, "/tables/actions").await;
    assert!(gone.status == 503 && gone.body.contains("No master answers."), "{}", gone.body);
    console.shutdown().await;
}

#[tokio::test]
async fn before_there_is_a_source_pages_say_so() {
    let console = Console::start("127.0.0.1:0", std::sync::Arc::new(|| Err("starting".to_owned()))).await.unwrap();
    let page = get(console.address(), "/").await;
    assert!(page.status == 503 && page.body.contains("This process is still starting"), "{}", page.body);
    let (status, text) = get(console.address(), "/api/v1/overview").await.failure();
    assert!(status == 503 && text.contains("/readyz says what the process waits for"), "{text}");
    console.shutdown().await;
}
