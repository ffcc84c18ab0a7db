//! What protects the pages and the API in a browser.
//!
//! The console has no passwords. A console on loopback relies on the fact that only this machine reaches it, and a browser
//! on this machine runs pages of strangers. Two rules keep those out:
//! - **Host.** A stranger's page can make its own name resolve to 127.0.0.1 and then reads answers as its own (DNS
//!   rebinding). A console on loopback therefore answers only requests for an IP address or `localhost`.
//! - **Changes.** A `POST` has the content type `application/json`, which a browser does not send to another origin without
//!   asking first, and if the browser says where the request comes from, that is the console itself.
//!
//! Answers forbid scripts, styles and frames from elsewhere, so that text from a cell that slipped through as markup would
//! still not run.

use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;

use axum::extract::{Request, State};
use axum::http::{HeaderMap, HeaderName, HeaderValue, Method, StatusCode, header};
use axum::middleware::Next;
use axum::response::{IntoResponse, Response};

/// Only what the console itself serves; data: images are the arrows of selects.
const POLICY: &str = "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; connect-src 'self'; \
                      base-uri 'none'; form-action 'none'; frame-ancestors 'none'";

/// Refuses a request that another site may have sent, and marks the answers of others.
pub(crate) async fn guard(State(address): State<Arc<SocketAddr>>, request: Request, next: Next) -> Response {
    let headers = request.headers();
    if address.ip().is_loopback() && !names_this_machine(headers) {
        return refusal(
            StatusCode::MISDIRECTED_REQUEST,
            "This console listens on loopback and answers only requests for an IP address or localhost.",
            &format!("Open http://{address}/, or start the process with --console on another address."),
        );
    }
    if request.method() == Method::POST {
        if !is_json(headers) {
            return refusal(
                StatusCode::UNSUPPORTED_MEDIA_TYPE,
                "A change needs the content type application/json.",
                "Send the header Content-Type: application/json.",
            );
        }
        if !is_same_origin(headers) {
            return refusal(
                StatusCode::FORBIDDEN,
                "The change comes from a page of another site.",
                "Make it on the console's own page, or with a program that sends no Origin.",
            );
        }
    }
    let mut response = next.run(request).await;
    for (name, value) in [
        (header::CONTENT_SECURITY_POLICY, POLICY),
        (header::X_CONTENT_TYPE_OPTIONS, "nosniff"),
        (header::REFERRER_POLICY, "no-referrer"),
        (HeaderName::from_static("cross-origin-resource-policy"), "same-origin"),
    ] {
        response.headers_mut().insert(name, HeaderValue::from_static(value));
    }
    response
}

fn refusal(status: StatusCode, message: &str, next: &str) -> Response {
    let body = serde_json::json!({ "error": { "status": "refused", "message": message, "next": next } });
    (status, [(header::CONTENT_TYPE, "application/json")], body.to_string()).into_response()
}

fn text(headers: &HeaderMap, name: HeaderName) -> Option<&str> {
    headers.get(name).and_then(|value| value.to_str().ok())
}

fn names_this_machine(headers: &HeaderMap) -> bool {
    let Some(host) = text(headers, header::HOST) else { return false };
    let name = host.rsplit_once(':').filter(|(_, port)| port.parse::<u16>().is_ok()).map_or(host, |(name, _)| name);
    let bare = name.strip_prefix('[').and_then(|name| name.strip_suffix(']')).unwrap_or(name);
    bare.eq_ignore_ascii_case("localhost") || bare.parse::<IpAddr>().is_ok()
}

fn is_json(headers: &HeaderMap) -> bool {
    let kind = text(headers, header::CONTENT_TYPE).and_then(|kind| kind.split(';').next());
    kind.is_some_and(|kind| kind.trim().eq_ignore_ascii_case("application/json"))
}

fn is_same_origin(headers: &HeaderMap) -> bool {
    let site = text(headers, HeaderName::from_static("sec-fetch-site"));
    if site.is_some_and(|site| site != "same-origin" && site != "none") {
        return false;
    }
    match (text(headers, header::ORIGIN), text(headers, header::HOST)) {
        // Not a browser: those send an origin with each POST.
        (None, _) => !headers.contains_key(header::ORIGIN),
        (Some(origin), Some(host)) => origin.split_once("://").is_some_and(|(_, from)| from == host),
        (Some(_), None) => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn headers(pairs: &[(&str, &str)]) -> HeaderMap {
        let parsed = pairs.iter().map(|(name, value)| (name.parse::<HeaderName>().unwrap(), value.parse().unwrap()));
        parsed.collect()
    }

    #[test]
    fn names_of_this_machine() {
        for host in ["localhost", "LOCALHOST:7610", "127.0.0.1:7610", "[::1]:7610", "[::1]", "192.168.0.7"] {
            assert!(names_this_machine(&headers(&[("host", host)])), "{host}");
        }
        for host in ["evil.example", "evil.example:7610", "localhost.evil.example", "127.0.0.1.evil.example", ""] {
            assert!(!names_this_machine(&headers(&[("host", host)])), "{host}");
        }
        assert!(!names_this_machine(&headers(&[])));
    }

    #[test]
    fn changes_come_from_the_console_or_from_no_browser() {
        assert!(is_same_origin(&headers(&[("host", "127.0.0.1:7610")])));
        assert!(is_same_origin(&headers(&[("host", "localhost:7610"), ("origin", "http://localhost:7610")])));
        for (name, value) in [("origin", "http://evil.example"), ("origin", "null"), ("sec-fetch-site", "cross-site")] {
            assert!(!is_same_origin(&headers(&[("host", "localhost:7610"), (name, value)])), "{name}: {value}");
        }
        assert!(is_json(&headers(&[("content-type", "application/json; charset=utf-8")])));
        assert!(!is_json(&headers(&[("content-type", "text/plain")])));
    }
}
