//! The console of a real development cluster: its pages, its API, and a range that is driven hot and read back.

mod harness;

use std::io::{Read, Write};
use std::time::Duration;

use harness::{Dev, eventually};
use serde_json::Value;

/// How long the map may take to show a load; reports and looks come twice a second.
const HOT_WITHIN: Duration = Duration::from_secs(60);

/// The status and body of a page.
#[expect(clippy::disallowed_types, reason = "a raw client, which sees what a browser gets")]
fn get(console: &str, path: &str) -> (u16, String) {
    let mut stream = std::net::TcpStream::connect(console).expect("the console listens");
    stream.set_read_timeout(Some(Duration::from_secs(20))).expect("a timeout");
    write!(stream, "GET {path} HTTP/1.1\r\nHost: {console}\r\nConnection: close\r\n\r\n").expect("sent");
    let mut answer = Vec::new();
    stream.read_to_end(&mut answer).expect("an answer");
    let answer = String::from_utf8_lossy(&answer).into_owned();
    let (head, body) = answer.split_once("\r\n\r\n").expect("a head");
    (head.split(' ').nth(1).and_then(|status| status.parse().ok()).expect("a status"), body.to_owned())
}

fn json(console: &str, path: &str) -> Value {
    let (status, body) = get(console, path);
    assert_eq!(status, 200, "{path}: {body}");
    // A long answer comes in chunks, whose sizes stand on lines of their own.
    let object = &body[body.find('{').expect("an object")..=body.rfind('}').expect("an object")];
    serde_json::from_str(object).unwrap_or_else(|error| panic!("{path}: {error}: {body}"))
}

#[test]
fn a_hot_range_is_shown_with_advice_and_rows_are_paged() {
    let directory = tempfile::tempdir().expect("a directory");
    let dev = Dev::start(directory.path(), "lsm");
    // The console of the first master follows its port.
    let port = dev.client.masters.rsplit(':').next().and_then(|port| port.parse::<u16>().ok()).expect("a port");
    let console = &harness::local(port + 10);
    dev.client.succeed(&[
        "table",
        "create",
        "actions",
        "--family",
        "d",
        "--key",
        "user:u64, time:desc i64",
        "--set",
        "split_policy=none",
        "--split-at",
        "1000",
        "--split-at",
        "2000",
    ]);

    assert_eq!(get(console, "/").0, 200);
    let table = json(console, "/api/v1/tables/actions");
    assert_eq!(table["key_parts"][0]["name"], "user");
    assert_eq!(table["regions"].as_array().map(Vec::len), Some(3));

    // Only users from 1000 to 1999 write.
    let lines: String = (0..20_000).map(|number| format!("{},{number},login\n", 1_000 + number % 1_000)).collect();
    let lines = format!("user,time,d:kind\n{lines}");
    let hot = eventually(HOT_WITHIN, "the hot range is the hottest of the map", || {
        let written = dev.client.run_with_input(&["import", "actions", "-", "--format", "csv"], &lines);
        assert!(written.status.success(), "{}", harness::errors_of(&written));
        let heat = json(console, "/api/v1/tables/actions/heat?measure=writes&span=3600000");
        let hottest = heat["hottest"][0].clone();
        if hottest["advice"].is_object() { Ok(hottest) } else { Err(heat.to_string()) }
    });
    assert_eq!((&hot["start"]["text"], &hot["end"]["text"]), (&"user=1000".into(), &"user=2000".into()), "{hot}");
    assert_eq!(hot["advice"]["kind"], "split", "{hot}");
    assert!(hot["share"].as_f64().is_some_and(|share| share > 0.9), "{hot}");

    let first = json(console, "/api/v1/tables/actions/rows?limit=2&prefix=user%3D1005");
    assert_eq!(first["rows"][0]["parts"], serde_json::json!(["1005", "19005"]));
    let token = first["next"].as_str().expect("more rows");
    let second = json(console, &format!("/api/v1/tables/actions/rows?limit=2&prefix=user%3D1005&after={token}"));
    assert_eq!(second["rows"][0]["parts"], serde_json::json!(["1005", "17005"]));
    let (status, body) = get(console, "/api/v1/tables/actions/rows?prefix=user%3Dx");
    assert!(status == 400 && body.contains("user:u64"), "{status}: {body}");
    let (status, body) = get(console, "/api/v1/tables/actoins");
    assert!(status == 404 && body.contains("Did you mean actions?"), "{status}: {body}");

    let events = json(console, "/api/v1/events");
    assert!(events.to_string().contains("table actions was created"), "{events}");
    for path in ["overview", "tables", "regions", "groups", "procedures", "slow", "settings", "failovers"] {
        json(console, &format!("/api/v1/{path}"));
    }
}
