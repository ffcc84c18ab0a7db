//! The console of a real development cluster: its pages, its API, and a range that is driven hot and read back.

use std::io::{Read, Write};
use std::time::Duration;

use serde_json::Value;

use crate::harness::{Dev, eventually};

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

/// The words of a command that the console advises, which quotes no word here.
fn words(command: &str) -> Vec<&str> {
    command.strip_prefix("terrane ").expect("a command of ours").split(' ').collect()
}

/// Carries the advice out: each daughter then has a part of the load.
fn halve_as_advised(dev: &Dev, console: &str, command: &str, lines: &str) {
    let at = command.split_once(" --at user=").expect("the advice names a key by its parts").1;
    let user: u64 = at.split(',').next().and_then(|user| user.parse().ok()).expect("a user");
    assert!((1_200..1_800).contains(&user), "{command}");
    dev.client.succeed(&words(command));
    eventually(HOT_WITHIN, "both daughters are written", || {
        dev.client.import_csv("actions", lines);
        let regions = json(console, "/api/v1/regions?table=actions");
        let rates = regions["regions"].as_array().expect("a list").iter().map(|region| &region["load"]);
        let rates: Vec<f64> = rates.map(|load| load["writes_per_second"].as_f64().expect("a rate")).collect();
        // The first and the last have none.
        let &[_, one, other, _] = &rates[..] else { return Err(format!("not four regions: {regions}")) };
        if one.min(other) * 5.0 > one + other { Ok(()) } else { Err(format!("{rates:?}")) }
    });
}

/// One row is written much: it is named by its key parts, with advice for the application and none to split.
fn name_a_hot_key(dev: &Dev, console: &str) {
    dev.client.succeed(&["table", "create", "profiles", "--family", "d", "--key", "user:u64"]);
    let lines = format!("user,d:name\n{}", "7,Ada\n".repeat(20_000));
    let spot = eventually(HOT_WITHIN, "the hot row is named", || {
        dev.client.import_csv("profiles", &lines);
        let heat = json(console, "/api/v1/tables/profiles/heat?measure=writes&span=3600000");
        let spots = heat["hottest"].as_array().expect("a list").clone();
        let named = spots.into_iter().find(|spot| spot["end"].is_null() && spot["advice"].is_object());
        named.ok_or_else(|| heat.to_string())
    });
    assert_eq!((&spot["start"]["text"], &spot["advice"]["kind"]), (&"user=7".into(), &"spread_key".into()), "{spot}");
    assert!(spot["advice"]["command"].is_null(), "{spot}");
    let hot = dev.client.json_lines(&["admin", "hot", "profiles"]);
    let row = hot.iter().find(|line| line["kind"] == "row").expect("a hot row");
    assert_eq!((&row["access"], &row["key"]["user"]), (&"write".into(), &7.into()), "{row}");
    assert!(row["share"].as_f64().is_some_and(|share| share > 0.9), "{row}");
    assert!(hot.iter().all(|line| line["kind"] != "split"), "{hot:?}");
    let text = dev.client.succeed(&["admin", "hot", "profiles"]);
    assert!(text.starts_with("SHARE") && text.contains("user=7"), "{text}");
    dev.client.succeed(&["table", "create", "quiet", "--family", "d"]);
    let quiet = dev.client.succeed(&["admin", "hot", "quiet"]);
    assert!(quiet.contains("no row stands out"), "{quiet}");
}

#[test]
fn a_hot_range_is_shown_with_advice_and_rows_are_paged() {
    let dev = Dev::start("lsm");
    // The console of the first master follows its port.
    let port = dev.client.masters.rsplit(':').next().and_then(|port| port.parse::<u16>().ok()).expect("a port");
    let console = &crate::harness::local(port + 10);
    dev.client.create_actions();

    assert_eq!(get(console, "/").0, 200);
    let table = json(console, "/api/v1/tables/actions");
    assert_eq!(table["key_parts"][0]["name"], "user");
    assert_eq!(table["regions"].as_array().map(Vec::len), Some(3));

    // Only users from 1000 to 1999 write.
    let lines: String = (0..20_000).map(|number| format!("{},{number},login\n", 1_000 + number % 1_000)).collect();
    let lines = format!("user,time,d:kind\n{lines}");
    let hot = eventually(HOT_WITHIN, "the hot range is the hottest of the map", || {
        dev.client.import_csv("actions", &lines);
        let heat = json(console, "/api/v1/tables/actions/heat?measure=writes&span=3600000");
        let hottest = heat["hottest"][0].clone();
        if hottest["advice"].is_object() { Ok(hottest) } else { Err(heat.to_string()) }
    });
    assert_eq!((&hot["start"]["text"], &hot["end"]["text"]), (&"user=1000".into(), &"user=2000".into()), "{hot}");
    assert_eq!(hot["advice"]["kind"], "split", "{hot}");
    assert!(hot["share"].as_f64().is_some_and(|share| share > 0.9), "{hot}");

    halve_as_advised(&dev, console, hot["advice"]["command"].as_str().expect("a command"), &lines);
    name_a_hot_key(&dev, console);

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
    let procedures = json(console, "/api/v1/procedures");
    let ended = procedures["procedures"]
        .as_array()
        .expect("a list")
        .iter()
        .find(|known| known["what"] == "create table actions" && known["done"] == true);
    let ended = ended.unwrap_or_else(|| panic!("the create has not ended: {procedures}"));
    assert_eq!(
        (&ended["state"], &ended["failed"], &ended["places"][0]["table"]),
        (&"done".into(), &false.into(), &"actions".into())
    );
    assert!(ended["started_ms"].as_u64() <= ended["ended_ms"].as_u64(), "{ended}");
    let listed = dev.client.json_lines(&["admin", "procedures", "--ended"]);
    assert!(listed.iter().any(|line| line["subject"] == "table actions" && line["outcome"] == "done"), "{listed:?}");
    assert!(dev.client.succeed(&["admin", "procedures", "--ended"]).starts_with("ID"));
    let settings = json(console, "/api/v1/settings");
    let settings = settings["settings"].as_array().expect("a list");
    let named =
        |name: &str| settings.iter().find(|setting| setting["name"] == name).unwrap_or_else(|| panic!("no {name}"));
    assert_eq!((&named("cluster.balancing")["live"], &settings[0]["live"]), (&true.into(), &true.into()));
    let engine = named("dev.engine");
    assert_eq!((&engine["live"], &engine["value"]), (&false.into(), &"lsm".into()));
    assert_eq!(named("dev.data")["origin"], "flag --data");
    assert_eq!(named("dev.slow-request")["origin"], "default");
    for path in ["overview", "tables", "regions", "groups", "procedures", "slow", "settings", "failovers"] {
        json(console, &format!("/api/v1/{path}"));
    }
}
