//! A plain HTTP client that shows status, head and body as they are.

use std::net::SocketAddr;

use serde_json::Value;
use tokio::io::{AsyncReadExt, AsyncWriteExt};

#[expect(clippy::disallowed_types, reason = "a raw client, to see the bytes of the responses")]
type RawStream = tokio::net::TcpStream;

pub struct Response {
    pub status: u16,
    pub head: String,
    pub body: String,
}

impl Response {
    pub fn json(&self) -> Value {
        serde_json::from_str(&self.body).unwrap()
    }

    /// The sentences of a failure.
    pub fn failure(&self) -> (u16, String) {
        let error = &self.json()["error"];
        (self.status, format!("{} {}", error["message"].as_str().unwrap(), error["next"].as_str().unwrap()))
    }
}

pub async fn get(address: SocketAddr, path: &str) -> Response {
    send(address, "GET", path, &[], "").await
}

pub async fn post(address: SocketAddr, path: &str, body: &str) -> Response {
    send(address, "POST", path, &[("Content-Type", "application/json")], body).await
}

/// Sends a request; a header `Host` replaces the address.
pub async fn send(address: SocketAddr, method: &str, path: &str, headers: &[(&str, &str)], body: &str) -> Response {
    let mut stream = RawStream::connect(address).await.unwrap();
    let host = address.to_string();
    let host = headers.iter().find(|(name, _)| *name == "Host").map_or(host.as_str(), |(_, host)| host);
    let mut text =
        format!("{method} {path} HTTP/1.1\r\nHost: {host}\r\nConnection: close\r\nContent-Length: {}\r\n", body.len());
    for (name, value) in headers.iter().filter(|(name, _)| *name != "Host") {
        text.push_str(&format!("{name}: {value}\r\n"));
    }
    stream.write_all(format!("{text}\r\n{body}").as_bytes()).await.unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).await.unwrap();
    let (head, body) = answer.split_once("\r\n\r\n").unwrap();
    let status = head.split(' ').nth(1).unwrap().parse().unwrap();
    let chunked = head.to_ascii_lowercase().contains("transfer-encoding: chunked");
    assert!(!chunked, "answers have a length: {head}");
    Response { status, head: head.to_owned(), body: body.to_owned() }
}
