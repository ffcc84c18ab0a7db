//! The window as scripts.
//!
//! ```text
//! apply CLIENT NUMBERS at=MS [lowest=N] [result=BYTES]    numbers are `7` or `7-9`; client `nonces`: they are nonces
//! settle CLIENT at=MS below=N [waits=A-B,C-D]             the client reports what it waits for
//! look CLIENT NUMBER first=MS                             what is known of a number first tried then
//! aside                                                   exchanges the window with the one of the right neighbour
//! unite                                                   merges it with the one of the right neighbour
//! restart                                                 the window is encoded and decoded
//! show                                                    the floor, and a line per client
//! ```

use std::fmt::Write as _;

use terrane_testscript::check_scripts;

use super::*;

fn client(name: &str) -> ClientId {
    match name {
        "-" => NO_CLIENT,
        "nonces" => NONCE_CLIENT,
        name => [name.as_bytes()[0]; 16],
    }
}

fn option<'l>(words: &[&'l str], name: &str) -> Option<&'l str> {
    words.iter().find_map(|word| word.strip_prefix(name)?.strip_prefix('='))
}

fn number(words: &[&str], name: &str) -> Option<u64> {
    option(words, name).map(|text| text.parse().expect("a number"))
}

fn range(text: &str) -> (u64, u64) {
    let (first, last) = text.split_once('-').unwrap_or((text, text));
    (first.parse().expect("a number"), last.parse().expect("a number"))
}

fn ranges(ranges: &Ranges) -> String {
    let range = |(first, last)| if first == last { format!("{first}") } else { format!("{first}-{last}") };
    format!("[{}]", ranges.iter().map(range).collect::<Vec<_>>().join(" "))
}

fn command(window: &mut Window, aside: &mut Window, line: &str, out: &mut String) {
    let words: Vec<&str> = line.split(' ').collect();
    let at = number(&words, "at").unwrap_or_default();
    match words[0] {
        "apply" => {
            let result = number(&words, "result").map(|bytes| Bytes::from(vec![7; bytes as usize]));
            let (first, last) = range(words[2]);
            let mut twice = Vec::new();
            for operation in first..=last {
                let mut update = window.update(client(words[1]), number(&words, "lowest").unwrap_or_default(), at);
                if !update.applied(operation, result.as_ref()) {
                    twice.push(operation);
                }
            }
            if !twice.is_empty() {
                writeln!(out, "already applied: {twice:?}").expect("writing to a string");
            }
        }
        "settle" => {
            let waits = option(&words, "waits").map(|waits| waits.split(',').map(range).collect()).unwrap_or_default();
            let below = number(&words, "below").expect("below=N");
            match UnderWay::new(below, waits) {
                Ok(under_way) => window.update(client(words[1]), 0, at).settle(&under_way),
                Err(malformed) => writeln!(out, "{malformed}").expect("writing to a string"),
            }
        }
        "look" => {
            let operation = words[2].parse().expect("a number");
            let known = match window.look_up(&client(words[1]), operation, number(&words, "first").expect("first=MS")) {
                Known::New => "new".to_owned(),
                Known::TooOld => "too old".to_owned(),
                Known::Applied(Kept::Nothing) => "applied".to_owned(),
                Known::Applied(Kept::Gone) => "applied, result gone".to_owned(),
                Known::Applied(Kept::Result(result)) => format!("applied, result of {} bytes", result.len()),
            };
            writeln!(out, "{} {operation}: {known}", words[1]).expect("writing to a string");
        }
        "aside" => std::mem::swap(window, aside),
        "unite" => *window = Window::united(std::mem::take(window), std::mem::take(aside)),
        "restart" => *window = Window::decode(window.encode()).expect("a window decodes"),
        "show" => {
            writeln!(out, "floor={} bytes={}", window.floor, window.bytes).expect("writing to a string");
            if !window.nonces.is_empty() {
                let nonces: Vec<_> = window.nonces.iter().map(|(stamp, number)| format!("{number}@{stamp}")).collect();
                writeln!(out, "nonces {}", nonces.join(" ")).expect("writing to a string");
            }
            for (id, client) in &window.clients {
                let Client { last, since, settled, gone_below, .. } = client;
                let (name, applied) = (char::from(id[0]), ranges(&client.applied));
                let (above, results) = (ranges(&client.settled_above), client.results.len());
                write!(out, "{name} last={last} since={since} settled={settled}").expect("writing to a string");
                writeln!(out, " above={above} applied={applied} results={results} gone-below={gone_below}")
                    .expect("writing to a string");
            }
        }
        _ => panic!("no such command: {line}"),
    }
}

#[test]
fn windows_behave_as_recorded() {
    check_scripts(concat!(env!("CARGO_MANIFEST_DIR"), "/src/window/testdata"), || {
        let (mut window, mut aside) = (Window::default(), Window::default());
        move |line: &str, out: &mut String| command(&mut window, &mut aside, line, out)
    });
}
