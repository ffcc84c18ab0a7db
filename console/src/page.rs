//! The pages: one HTML document for all addresses, which a script fills from the API, and the assets of both.
//!
//! The document is the same everywhere, so that a click changes the page without loading another. What the server adds is
//! the HTTP status: `/tables/NOPE` is 404 and has the sentence in it, for a person with `curl` as well.
//!
//! The assets are part of the binary. Their address holds a hash of all of them, so that a browser keeps them for good and
//! still never mixes those of two builds.

use std::hash::{DefaultHasher, Hasher};
use std::sync::{Arc, LazyLock};
use std::time::Duration;

use axum::Router;
use axum::extract::{Path, State};
use axum::http::{StatusCode, Uri, header};
use axum::response::{IntoResponse, Response};
use axum::routing::get;

use crate::api::http_status;
use crate::shown::Shown;
use crate::source::{Answer, Failure, Source, Status};

const DOCUMENT: &str = include_str!("../assets/index.html");

/// How long the document waits to learn whether what it shows exists. It is served without that knowledge then.
const CHECK_PATIENCE: Duration = Duration::from_secs(1);

struct Asset {
    name: &'static str,
    kind: &'static str,
    content: &'static str,
}

macro_rules! assets {
    ($kind:literal: $($name:literal),*) => {
        [$(Asset { name: $name, kind: $kind, content: include_str!(concat!("../assets/", $name)) }),*]
    };
}

static SCRIPTS: [Asset; 15] = assets!["text/javascript; charset=utf-8":
    "theme.js", "main.js", "dom.js", "format.js", "parts.js", "chart.js", "heatmap.js", "keyboard.js",
    "page_cluster.js", "page_tables.js", "page_heat.js", "page_regions.js", "page_history.js", "page_data.js",
    "page_settings.js"
];
static STYLES: [Asset; 1] = assets!["text/css; charset=utf-8": "style.css"];
static IMAGES: [Asset; 1] = assets!["image/svg+xml": "icon.svg"];

fn assets() -> impl Iterator<Item = &'static Asset> {
    SCRIPTS.iter().chain(&STYLES).chain(&IMAGES)
}

/// The hash of all assets, part of their addresses.
static BUILD: LazyLock<String> = LazyLock::new(|| {
    let mut hasher = DefaultHasher::new();
    for asset in assets() {
        hasher.write(asset.name.as_bytes());
        hasher.write(asset.content.as_bytes());
    }
    format!("{:016x}", hasher.finish())
});

/// The addresses of the pages and of their assets.
pub(crate) fn router() -> Router<Arc<Shown>> {
    let mut router = Router::new().route("/assets/{build}/{name}", get(asset));
    for address in
        ["/", "/tables", "/heat", "/regions", "/groups", "/events", "/procedures", "/slow", "/data", "/settings"]
    {
        router = router.route(address, get(plain));
    }
    router
        .route("/failovers", get(plain))
        .route("/tables/{name}", get(of_table))
        .route("/heat/{name}", get(of_table))
        .route("/data/{name}", get(of_table))
        .route("/regions/{id}", get(of_region))
        .route("/groups/{id}", get(of_group))
}

/// The page for an address that has none.
pub(crate) async fn no_such_page(uri: Uri) -> Response {
    let message = format!("There is no page {}.", uri.path());
    document(Some(&Failure::not_found(message, "The navigation lists the pages there are.")))
}

async fn plain(State(shown): State<Arc<Shown>>) -> Response {
    checked(&shown, |_| Box::pin(std::future::ready(Ok(())))).await
}

async fn of_table(State(shown): State<Arc<Shown>>, Path(name): Path<String>) -> Response {
    checked(&shown, |source| Box::pin(async move { source.table(&name).await.map(drop) })).await
}

async fn of_region(State(shown): State<Arc<Shown>>, Path(id): Path<String>) -> Response {
    let Ok(id) = id.parse() else { return not_an_id("region", &id) };
    checked(&shown, |source| Box::pin(async move { source.region(id).await.map(drop) })).await
}

async fn of_group(State(shown): State<Arc<Shown>>, Path(id): Path<String>) -> Response {
    let Ok(id) = id.parse() else { return not_an_id("group", &id) };
    checked(&shown, |source| Box::pin(async move { source.group(id).await.map(drop) })).await
}

fn not_an_id(kind: &str, id: &str) -> Response {
    let message = format!("\"{id}\" is not the id of a {kind}.");
    document(Some(&Failure::bad_input(message, "Ids are whole numbers; the list of all has them.")))
}

/// The document, with the failure of `check` if it has one.
async fn checked<'a>(shown: &'a Shown, check: impl FnOnce(&'a dyn Source) -> Answer<'a, ()>) -> Response {
    match tokio::time::timeout(CHECK_PATIENCE, shown.ask(check)).await {
        // A cluster that is slow or has no master has its say on the page, which asks again.
        Ok(Ok(())) | Err(_) => document(None),
        Ok(Err(failure)) => document(Some(&failure)),
    }
}

fn document(failure: Option<&Failure>) -> Response {
    let (status, notice) = match failure {
        None => (StatusCode::OK, String::new()),
        Some(failure) => {
            let title = match failure.status {
                Status::NotFound => "Not found",
                Status::BadInput => "That address does not work",
                Status::Unavailable => "Not available now",
            };
            let text = format!(
                "<section class=\"failure\"><h1>{title}</h1><p>{}</p><p>{}</p></section>",
                marked_up(&failure.message),
                marked_up(&failure.next)
            );
            (http_status(failure.status), text)
        }
    };
    let body = DOCUMENT.replace("{{build}}", &BUILD).replace("{{notice}}", &notice);
    let headers = [(header::CONTENT_TYPE, "text/html; charset=utf-8"), (header::CACHE_CONTROL, "no-store")];
    (status, headers, body).into_response()
}

/// A sentence in which backquotes mark commands and names.
fn marked_up(sentence: &str) -> String {
    let parts = sentence.split('`').map(markup_escaped).enumerate();
    parts.map(|(at, part)| if at % 2 == 1 { format!("<code>{part}</code>") } else { part }).collect()
}

fn markup_escaped(text: &str) -> String {
    let mut escaped = String::with_capacity(text.len());
    for character in text.chars() {
        match character {
            '&' => escaped.push_str("&amp;"),
            '<' => escaped.push_str("&lt;"),
            '>' => escaped.push_str("&gt;"),
            '"' => escaped.push_str("&quot;"),
            '\'' => escaped.push_str("&#39;"),
            _ => escaped.push(character),
        }
    }
    escaped
}

async fn asset(Path((build, name)): Path<(String, String)>) -> Response {
    let found = assets().find(|asset| build == *BUILD && asset.name == name);
    let Some(asset) = found else {
        return (StatusCode::NOT_FOUND, "this build of the console has no such file; load the page again\n")
            .into_response();
    };
    let headers = [(header::CONTENT_TYPE, asset.kind), (header::CACHE_CONTROL, "public, max-age=31536000, immutable")];
    (headers, asset.content).into_response()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What a viewer loads in all.
    const ASSETS_BYTES_MAX: usize = 200 << 10;

    #[test]
    fn assets_stay_small() {
        let total: usize = assets().map(|asset| asset.content.len()).sum::<usize>() + DOCUMENT.len();
        assert!(total <= ASSETS_BYTES_MAX, "the assets have {total} bytes");
    }

    #[test]
    fn assets_load_nothing_from_elsewhere() {
        for asset in assets() {
            let text = asset.content.replace("http://www.w3.org/2000/svg", "");
            for address in ["http://", "https://", "src=\"//", "url(//"] {
                assert!(!text.contains(address), "{} has {address}", asset.name);
            }
        }
        assert!(!DOCUMENT.contains("://"));
    }

    #[test]
    fn the_document_names_only_assets_there_are() {
        let named = DOCUMENT.split("{{build}}/").skip(1).filter_map(|rest| rest.split('"').next());
        let named: Vec<&str> = named.collect();
        assert!(named.len() > 3, "{named:?}");
        for name in named {
            assert!(assets().any(|asset| asset.name == name), "{name}");
        }
    }

    #[test]
    fn notices_are_escaped() {
        assert_eq!(markup_escaped("<b a='\"'>&"), "&lt;b a=&#39;&quot;&#39;&gt;&amp;");
        assert_eq!(marked_up("See `a<b` now."), "See <code>a&lt;b</code> now.");
    }
}
