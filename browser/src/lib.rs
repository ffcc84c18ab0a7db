//! A headless Chromium, driven by the DevTools protocol over pipes; for tests only.
//!
//! The tests of the console use it with an invented cluster, those of the command with a real one. Where there is no
//! Chromium, a test says so and is skipped.
//!
//! Pipes rather than the debugging port: nothing listens, and no WebSocket is needed. Chromium takes messages on descriptor
//! 3 and answers on 4, each ended by a zero byte; a shell opens two named pipes as those.

#![allow(clippy::unwrap_used, reason = "what a test helper unwraps is what the test claims")]

use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use serde_json::{Value, json};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::unix::pipe;
use tokio::time::{Instant, timeout_at};

/// The names of Chromium in distributions.
const NAMES: [&str; 3] = ["chromium", "chromium-browser", "google-chrome"];
/// How long a command or a condition may take; the machines of tests are slow and shared.
const PATIENCE: Duration = Duration::from_secs(60);

/// The browser with its one page.
pub struct Browser {
    process: Child,
    commands: pipe::Sender,
    answers: pipe::Receiver,
    unread: Vec<u8>,
    last: u64,
    session: Option<String>,
    /// Errors of the page's console, exceptions, and requests that left the machine.
    pub complaints: Vec<String>,
    _directory: tempfile::TempDir,
}

impl Drop for Browser {
    fn drop(&mut self) {
        // Its helpers end when their pipes to it close. It may have ended by itself.
        self.process.kill().ok();
        self.process.wait().ok();
    }
}

fn installed() -> Option<PathBuf> {
    let path = std::env::var_os("PATH")?;
    let found = std::env::split_paths(&path).flat_map(|folder| NAMES.map(|name| folder.join(name)));
    found.into_iter().find(|program| is_file(program))
}

#[expect(clippy::disallowed_methods, reason = "a program of this machine, not a file of the database")]
fn is_file(path: &Path) -> bool {
    path.is_file()
}

impl Browser {
    /// Starts Chromium with a page of `width` × `height`; `None`, with a line on standard error, where there is none.
    pub async fn start(width: u32, height: u32) -> Option<Browser> {
        let Some(program) = installed() else {
            eprintln!(
                "skipped: no Chromium on this machine ({} in PATH); install the package chromium",
                NAMES.join(", ")
            );
            return None;
        };
        let directory = tempfile::tempdir().unwrap();
        let (inward, outward) = (directory.path().join("in"), directory.path().join("out"));
        let made = Command::new("mkfifo").args([&inward, &outward]).status().unwrap();
        assert!(made.success(), "mkfifo failed");
        let start = r#"exec "$0" --headless=new --no-sandbox --disable-gpu --remote-debugging-pipe --no-first-run \
            --disable-extensions --disable-background-networking --disable-component-update --disable-dev-shm-usage \
            --hide-scrollbars --user-data-dir="$3" --window-size="$4" about:blank 3<"$1" 4>"$2""#;
        let mut command = Command::new("sh");
        command.args(["-c", start]).arg(program).args([&inward, &outward]).arg(directory.path().join("profile"));
        let process =
            command.arg(format!("{width},{height}")).stderr(Stdio::null()).stdin(Stdio::null()).spawn().unwrap();
        // Opened for both directions, which does not wait for the other end.
        let commands = pipe::OpenOptions::new().read_write(true).open_sender(inward).unwrap();
        let answers = pipe::OpenOptions::new().read_write(true).open_receiver(outward).unwrap();
        let mut browser = Browser {
            process,
            commands,
            answers,
            unread: Vec::new(),
            last: 0,
            session: None,
            complaints: Vec::new(),
            _directory: directory,
        };
        let target = browser.call("Target.createTarget", json!({ "url": "about:blank" })).await;
        let attach = json!({ "targetId": target["targetId"], "flatten": true });
        let attached = browser.call("Target.attachToTarget", attach).await;
        browser.session = attached["sessionId"].as_str().map(str::to_owned);
        for domain in ["Page", "Runtime", "Log", "Network", "Performance"] {
            browser.call(&format!("{domain}.enable"), json!({})).await;
        }
        browser.resize(width, height, width < 500).await;
        Some(browser)
    }

    /// Sends a command and answers its result.
    pub async fn call(&mut self, method: &str, parameters: Value) -> Value {
        self.last += 1;
        let id = self.last;
        let mut message = json!({ "id": id, "method": method, "params": parameters });
        if let Some(session) = &self.session {
            message["sessionId"] = json!(session);
        }
        let mut bytes = message.to_string().into_bytes();
        bytes.push(0);
        self.commands.write_all(&bytes).await.unwrap();
        let deadline = Instant::now() + PATIENCE;
        loop {
            let heard = self.next(deadline).await.unwrap_or_else(|| panic!("no answer to {method}"));
            if heard["id"] == json!(id) {
                assert!(heard.get("error").is_none(), "{method}: {}", heard["error"]);
                return heard["result"].clone();
            }
            self.note(&heard);
        }
    }

    async fn next(&mut self, deadline: Instant) -> Option<Value> {
        loop {
            if let Some(end) = self.unread.iter().position(|byte| *byte == 0) {
                let message: Vec<u8> = self.unread.drain(..=end).collect();
                return Some(serde_json::from_slice(&message[..end]).unwrap());
            }
            let mut block = vec![0; 64 << 10];
            let read = timeout_at(deadline, self.answers.read(&mut block)).await.ok()?.unwrap();
            self.unread.extend(&block[..read]);
        }
    }

    fn note(&mut self, event: &Value) {
        let parameters = &event["params"];
        match event["method"].as_str() {
            Some("Runtime.exceptionThrown") => {
                self.complaints.push(format!("exception: {}", parameters["exceptionDetails"]));
            }
            Some("Runtime.consoleAPICalled") if parameters["type"] == "error" || parameters["type"] == "warning" => {
                self.complaints.push(format!("console: {}", parameters["args"]));
            }
            Some("Log.entryAdded") if parameters["entry"]["level"] == "error" => {
                self.complaints.push(format!("log: {}", parameters["entry"]));
            }
            Some("Network.requestWillBeSent") => {
                let address = parameters["request"]["url"].as_str().unwrap_or_default();
                if !["http://127.0.0.1:", "about:", "data:"].iter().any(|own| address.starts_with(own)) {
                    self.complaints.push(format!("request to {address}"));
                }
            }
            _ => {}
        }
    }

    pub async fn resize(&mut self, width: u32, height: u32, mobile: bool) {
        let metrics = json!({ "width": width, "height": height, "deviceScaleFactor": 1, "mobile": mobile });
        self.call("Emulation.setDeviceMetricsOverride", metrics).await;
    }

    /// The system's preference for light or dark, as pages see it.
    pub async fn prefer(&mut self, scheme: &str) {
        let features = json!({ "features": [{ "name": "prefers-color-scheme", "value": scheme }] });
        self.call("Emulation.setEmulatedMedia", features).await;
    }

    /// Opens an address and waits until the console shows the page.
    pub async fn open(&mut self, address: &str) {
        self.call("Page.navigate", json!({ "url": address })).await;
        self.wait("document.readyState === 'complete' && ['shown', 'failed'].includes(document.getElementById('main')?.dataset.state)")
            .await;
    }

    /// The value of an expression in the page; a promise is awaited.
    pub async fn value(&mut self, expression: &str) -> Value {
        let parameters = json!({ "expression": expression, "awaitPromise": true, "returnByValue": true });
        let result = self.call("Runtime.evaluate", parameters).await;
        assert!(result.get("exceptionDetails").is_none(), "{expression}: {}", result["exceptionDetails"]);
        result["result"]["value"].clone()
    }

    pub async fn text(&mut self, selector: &str) -> String {
        let found = self.value(&format!("document.querySelector({})?.innerText", json!(selector))).await;
        found.as_str().unwrap_or_else(|| panic!("no {selector}")).to_owned()
    }

    /// Waits until an expression in the page is true.
    pub async fn wait(&mut self, condition: &str) {
        let deadline = Instant::now() + PATIENCE;
        // A page that is being replaced has no document for a moment.
        let guarded =
            format!("(() => {{ try {{ return Boolean({condition}); }} catch (error) {{ return false; }} }})()");
        loop {
            let result = self.call("Runtime.evaluate", json!({ "expression": guarded, "returnByValue": true })).await;
            if result["result"]["value"] == json!(true) {
                return;
            }
            if Instant::now() > deadline {
                let shown = self.value("document.body.innerText").await;
                panic!("{condition} did not become true; the page shows: {shown}\ncomplaints: {:?}", self.complaints);
            }
            // The condition is in another process, which does not say when it changes.
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    }

    pub async fn click(&mut self, selector: &str) {
        let place = format!(
            "(() => {{ const found = document.querySelector({}); found.scrollIntoView({{ block: 'center' }}); const box = found.getBoundingClientRect(); return [box.left + box.width / 2, box.top + box.height / 2]; }})()",
            json!(selector)
        );
        let place = self.value(&place).await;
        let (x, y) = (place[0].as_f64().unwrap(), place[1].as_f64().unwrap());
        self.drag((x, y), (x, y)).await;
    }

    /// Presses the mouse at one point and releases it at another.
    pub async fn drag(&mut self, from: (f64, f64), to: (f64, f64)) {
        let event = |kind: &str, (x, y): (f64, f64), buttons: u8| json!({ "type": kind, "x": x, "y": y, "button": "left", "buttons": buttons, "clickCount": 1 });
        self.call("Input.dispatchMouseEvent", event("mousePressed", from, 1)).await;
        if from != to {
            self.call("Input.dispatchMouseEvent", event("mouseMoved", to, 1)).await;
        }
        self.call("Input.dispatchMouseEvent", event("mouseReleased", to, 0)).await;
    }

    pub async fn hover(&mut self, x: f64, y: f64) {
        self.call("Input.dispatchMouseEvent", json!({ "type": "mouseMoved", "x": x, "y": y })).await;
    }

    /// Types keys, one by one; names longer than a character are keys such as `Enter`.
    pub async fn press(&mut self, keys: &[&str]) {
        for key in keys {
            let text = match *key {
                "Enter" => "\r",
                name if name.chars().count() > 1 => "",
                character => character,
            };
            let mut down = json!({ "type": "keyDown", "key": key, "text": text });
            if *key == "Enter" {
                down["windowsVirtualKeyCode"] = json!(13);
            }
            self.call("Input.dispatchKeyEvent", down).await;
            self.call("Input.dispatchKeyEvent", json!({ "type": "keyUp", "key": key })).await;
        }
    }

    /// Keeps a picture of the page, as long as it is, up to a limit, for people: `target/FOLDER/NAME.png`.
    pub async fn keep_picture(&mut self, folder: &str, name: &str) {
        let parameters = json!({ "format": "png", "captureBeyondViewport": true, "clip": self.clip().await });
        let shot = self.call("Page.captureScreenshot", parameters).await;
        write(folder, name, &decoded(shot["data"].as_str().unwrap()));
    }

    async fn clip(&mut self) -> Value {
        let size = self
            .value("[document.documentElement.clientWidth, Math.min(2200, document.documentElement.scrollHeight)]")
            .await;
        json!({ "x": 0, "y": 0, "width": size[0], "height": size[1], "scale": 1 })
    }
}

#[expect(clippy::disallowed_methods, reason = "pictures for people, not files of the database")]
fn write(folder: &str, name: &str, picture: &[u8]) {
    // Beside the test's own program: target/debug/deps/web-… .
    let program = std::env::current_exe().unwrap();
    let folder = program.ancestors().nth(3).unwrap().join(folder);
    std::fs::create_dir_all(&folder).unwrap();
    std::fs::write(folder.join(format!("{name}.png")), picture).unwrap();
}

/// Base64, as the protocol sends pictures.
fn decoded(text: &str) -> Vec<u8> {
    const DIGITS: &[u8] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    let mut bytes = Vec::with_capacity(text.len() * 3 / 4);
    let (mut bits, mut held) = (0_u32, 0);
    for digit in text.bytes().filter(|digit| *digit != b'=') {
        let value = DIGITS.iter().position(|known| *known == digit).unwrap();
        bits = bits << 6 | u32::try_from(value).unwrap();
        held += 6;
        if held >= 8 {
            held -= 8;
            bytes.push((bits >> held & 0xFF) as u8);
        }
    }
    bytes
}
