//! The JSON API under `/api/v1`: each address is one question to the source. Described in `docs/console.md`.
//!
//! An answer is an object, so that fields can be added. A failure is
//! `{"error":{"status":"not_found","message":"…","next":"…"}}`, both texts sentences, with the HTTP status that fits.

use std::collections::BTreeMap;
use std::sync::Arc;

use axum::Router;
use axum::body::Bytes;
use axum::extract::rejection::{BytesRejection, PathRejection};
use axum::extract::{Path, RawQuery, State};
use axum::http::{Method, StatusCode, Uri, header};
use axum::response::{IntoResponse, Response};
use axum::routing::get;
use serde::{Deserialize, Serialize};

use crate::query::Query;
use crate::shown::Shown;
use crate::source::{
    Answer, Bound, EventKind, EventQuery, Failure, HeatQuery, LoadMeasure, RegionSelection, RowQuery, SettingChange,
    SlowQuery, Source, Status,
};

/// The span of a heat map if a request names none.
const HEAT_SPAN_MS: u64 = 6 * 3_600_000;
/// The most columns of a heat map: the minutes of a day.
const HEAT_COLUMNS_MAX: usize = 1_440;
/// The most rows of a heat map; there are few screens with more pixels in height.
const HEAT_ROWS_MAX: usize = 1_000;
/// The most rows on a page of the data browser.
const ROWS_MAX: usize = 500;
/// A page of the data browser shows this much of a value unless it asks for more.
const VALUE_BYTES: usize = 256;
/// The most of a value that an answer holds.
const VALUE_BYTES_MAX: usize = 64 << 10;
/// The most events or slow requests in an answer.
const EVENTS_MAX: usize = 1_000;

const MEASURES: [(&str, LoadMeasure); 3] =
    [("reads", LoadMeasure::Reads), ("writes", LoadMeasure::Writes), ("bytes", LoadMeasure::Bytes)];

type Asked = State<Arc<Shown>>;
type Named = Result<Path<String>, PathRejection>;

/// The addresses of the API.
pub(crate) fn router() -> Router<Arc<Shown>> {
    Router::new()
        .route("/api/v1/overview", get(overview))
        .route("/api/v1/tables", get(tables))
        .route("/api/v1/tables/{name}", get(table))
        .route("/api/v1/tables/{name}/heat", get(heat))
        .route("/api/v1/tables/{name}/rows", get(rows))
        .route("/api/v1/regions", get(regions))
        .route("/api/v1/regions/{id}", get(region))
        .route("/api/v1/groups", get(groups))
        .route("/api/v1/groups/{id}", get(group))
        .route("/api/v1/events", get(events))
        .route("/api/v1/procedures", get(procedures))
        .route("/api/v1/slow", get(slow))
        .route("/api/v1/settings", get(settings).post(change))
        .route("/api/v1/failovers", get(failovers))
        .route("/api/{*other}", get(no_such_address))
        .method_not_allowed_fallback(no_such_method)
}

async fn overview(State(shown): Asked, RawQuery(query): RawQuery) -> Response {
    simple(&shown, query, |source| source.overview()).await
}

async fn tables(State(shown): Asked, RawQuery(query): RawQuery) -> Response {
    listed(&shown, query, "tables", |source| source.tables()).await
}

async fn table(State(shown): Asked, name: Named, RawQuery(query): RawQuery) -> Response {
    answer(async {
        let name = text_of(name)?;
        Query::parse(query.as_deref(), &[])?;
        shown.ask(|source| boxed(async move { source.table(&name).await })).await
    })
    .await
}

async fn heat(State(shown): Asked, name: Named, RawQuery(query): RawQuery) -> Response {
    answer(async {
        let known = ["measure", "from", "to", "span", "start", "end", "columns", "rows"];
        let query = Query::parse(query.as_deref(), &known)?;
        let query = HeatQuery {
            table: text_of(name)?,
            measure: query.choice("measure", &MEASURES)?.unwrap_or_default(),
            from_ms: query.parsed("from")?,
            to_ms: query.parsed("to")?,
            span_ms: query.parsed("span")?.unwrap_or(HEAT_SPAN_MS).max(60_000),
            start: query.bytes("start")?.unwrap_or_default(),
            end: query.bytes("end")?.unwrap_or_default(),
            columns_max: query.limit("columns", 360, HEAT_COLUMNS_MAX)?,
            rows_max: query.limit("rows", 500, HEAT_ROWS_MAX)?,
        };
        if let (Some(from), Some(to)) = (query.from_ms, query.to_ms)
            && from >= to
        {
            return Err(Failure::bad_input("The span is empty: from is not before to.", "Swap from and to."));
        }
        if !query.end.is_empty() && query.start >= query.end {
            return Err(Failure::bad_input("The key range is empty: start is not before end.", "Swap start and end."));
        }
        shown.ask(|source| source.heat(query)).await
    })
    .await
}

async fn rows(State(shown): Asked, name: Named, RawQuery(query): RawQuery) -> Response {
    answer(async {
        let known =
            ["prefix", "prefix_bytes", "start", "start_bytes", "after", "columns", "filter", "limit", "value_bytes"];
        let query = Query::parse(query.as_deref(), &known)?;
        let columns = query.text("columns").unwrap_or_default();
        let query = RowQuery {
            table: text_of(name)?,
            prefix: bound(&query, "prefix", "prefix_bytes")?,
            start: bound(&query, "start", "start_bytes")?,
            after: query.text("after").map(str::to_owned),
            columns: columns.split([',', ' ']).filter(|name| !name.is_empty()).map(str::to_owned).collect(),
            filter: query.text("filter").map(str::to_owned),
            limit: query.limit("limit", 50, ROWS_MAX)?,
            value_bytes_max: query.limit("value_bytes", VALUE_BYTES, VALUE_BYTES_MAX)?,
        };
        shown.ask(|source| source.rows(query)).await
    })
    .await
}

async fn regions(State(shown): Asked, RawQuery(query): RawQuery) -> Response {
    answer(async {
        let query = Query::parse(query.as_deref(), &["table", "server", "group"])?;
        let selection = RegionSelection {
            table: query.text("table").map(str::to_owned),
            server: query.parsed("server")?,
            group: query.parsed("group")?,
        };
        let regions = shown.ask(|source| source.regions(selection)).await?;
        Ok(BTreeMap::from([("regions", regions)]))
    })
    .await
}

async fn region(State(shown): Asked, id: Named, RawQuery(query): RawQuery) -> Response {
    answer(async {
        let id = id_of("region", id)?;
        Query::parse(query.as_deref(), &[])?;
        shown.ask(|source| source.region(id)).await
    })
    .await
}

async fn groups(State(shown): Asked, RawQuery(query): RawQuery) -> Response {
    listed(&shown, query, "groups", |source| source.groups()).await
}

async fn group(State(shown): Asked, id: Named, RawQuery(query): RawQuery) -> Response {
    answer(async {
        let id = id_of("group", id)?;
        Query::parse(query.as_deref(), &[])?;
        shown.ask(|source| source.group(id)).await
    })
    .await
}

async fn events(State(shown): Asked, RawQuery(query): RawQuery) -> Response {
    answer(async {
        let query = Query::parse(query.as_deref(), &["kind", "before", "limit"])?;
        // A drain is an event of its server.
        let listed = EventKind::ALL.iter().filter(|kind| **kind != EventKind::Drain);
        let kinds: Vec<(&str, EventKind)> = listed.map(|kind| (kind.name(), *kind)).collect();
        let query = EventQuery {
            kind: query.choice("kind", &kinds)?,
            before_ms: query.parsed("before")?,
            limit: query.limit("limit", 100, EVENTS_MAX)?,
        };
        let events = shown.ask(|source| source.events(query)).await?;
        Ok(BTreeMap::from([("events", events)]))
    })
    .await
}

async fn procedures(State(shown): Asked, RawQuery(query): RawQuery) -> Response {
    listed(&shown, query, "procedures", |source| source.procedures()).await
}

async fn slow(State(shown): Asked, RawQuery(query): RawQuery) -> Response {
    answer(async {
        let query = Query::parse(query.as_deref(), &["table", "order", "limit"])?;
        let query = SlowQuery {
            table: query.text("table").map(str::to_owned),
            slowest_first: query.choice("order", &[("newest", false), ("slowest", true)])?.unwrap_or_default(),
            limit: query.limit("limit", 100, EVENTS_MAX)?,
        };
        shown.ask(|source| source.slow(query)).await
    })
    .await
}

async fn settings(State(shown): Asked, RawQuery(query): RawQuery) -> Response {
    listed(&shown, query, "settings", |source| source.settings()).await
}

async fn change(State(shown): Asked, body: Result<Bytes, BytesRejection>) -> Response {
    answer(async {
        let malformed = |error: &dyn std::fmt::Display| {
            let form = r#"Send {"name":"…","value":"…"}; a value of null means the default."#;
            Failure::bad_input(format!("The body is not a change of a setting: {error}."), form)
        };
        let body = body.map_err(|error| malformed(&error))?;
        let change: ChangeBody = serde_json::from_slice(&body).map_err(|error| malformed(&error))?;
        shown.ask(|source| source.change(SettingChange { name: change.name, value: change.value })).await
    })
    .await
}

/// A [`SettingChange`] as a request has it: a misspelt field is refused.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct ChangeBody {
    name: String,
    value: Option<String>,
}

async fn failovers(State(shown): Asked, RawQuery(query): RawQuery) -> Response {
    simple(&shown, query, |source| source.failovers()).await
}

async fn no_such_address(uri: Uri) -> Response {
    failure_response(&Failure::not_found(
        format!("There is nothing at {}.", uri.path()),
        "docs/console.md lists the addresses of the API; they start with /api/v1/.",
    ))
}

async fn no_such_method(method: Method, uri: Uri) -> Response {
    let message = format!("The address {} does not take {method}.", uri.path());
    let next = "Use GET; only /api/v1/settings takes POST.";
    let body = serde_json::json!({ "error": { "status": "refused", "message": message, "next": next } });
    json(StatusCode::METHOD_NOT_ALLOWED, &body)
}

/// An answer to a question without parameters.
async fn simple<'a, T: Serialize>(
    shown: &'a Shown,
    query: Option<String>,
    question: impl FnOnce(&'a dyn Source) -> Answer<'a, T>,
) -> Response {
    answer(async {
        Query::parse(query.as_deref(), &[])?;
        shown.ask(question).await
    })
    .await
}

/// A list, in an object.
async fn listed<'a, T: Serialize>(
    shown: &'a Shown,
    query: Option<String>,
    name: &str,
    question: impl FnOnce(&'a dyn Source) -> Answer<'a, Vec<T>>,
) -> Response {
    answer(async {
        Query::parse(query.as_deref(), &[])?;
        let list = shown.ask(question).await?;
        Ok(BTreeMap::from([(name, list)]))
    })
    .await
}

fn boxed<'a, T>(answer: impl Future<Output = Result<T, Failure>> + Send + 'a) -> Answer<'a, T> {
    Box::pin(answer)
}

fn bound(query: &Query, typed: &str, bytes: &str) -> Result<Option<Bound>, Failure> {
    match (query.text(typed), query.bytes(bytes)?) {
        (Some(_), Some(_)) => Err(Failure::bad_input(
            format!("Both {typed} and {bytes} are given."),
            format!("Give {typed} for key parts, or {bytes} for bytes."),
        )),
        (Some(text), None) => Ok(Some(Bound::Typed(text.to_owned()))),
        (None, found) => Ok(found.map(Bound::Bytes)),
    }
}

fn text_of(name: Named) -> Result<String, Failure> {
    let Path(name) = name.map_err(|error| {
        Failure::bad_input(format!("The name in the address is malformed: {error}."), "Percent-encode it as UTF-8.")
    })?;
    Ok(name)
}

fn id_of(kind: &str, id: Named) -> Result<u64, Failure> {
    let text = text_of(id)?;
    text.parse().map_err(|_| {
        Failure::bad_input(
            format!("\"{text}\" is not the id of a {kind}."),
            format!("Ids are whole numbers; /api/v1/{kind}s lists them."),
        )
    })
}

async fn answer<T: Serialize>(asked: impl Future<Output = Result<T, Failure>>) -> Response {
    match asked.await {
        Ok(answer) => json(StatusCode::OK, &answer),
        Err(failure) => failure_response(&failure),
    }
}

#[derive(Serialize)]
struct Failed<'a> {
    error: &'a Failure,
}

/// A failure as the API answers it.
pub(crate) fn failure_response(failure: &Failure) -> Response {
    json(http_status(failure.status), &Failed { error: failure })
}

/// The HTTP status of a failure.
pub(crate) fn http_status(status: Status) -> StatusCode {
    match status {
        Status::NotFound => StatusCode::NOT_FOUND,
        Status::BadInput => StatusCode::BAD_REQUEST,
        Status::Unavailable => StatusCode::SERVICE_UNAVAILABLE,
    }
}

fn json<T: Serialize>(status: StatusCode, answer: &T) -> Response {
    let headers = [(header::CONTENT_TYPE, "application/json"), (header::CACHE_CONTROL, "no-store")];
    match serde_json::to_vec(answer) {
        Ok(body) => (status, headers, body).into_response(),
        Err(error) => {
            tracing::error!(%error, "console: an answer cannot be written as JSON");
            StatusCode::INTERNAL_SERVER_ERROR.into_response()
        }
    }
}
