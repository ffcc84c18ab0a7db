//! A few calls of HBase's protocol by hand, since this crate builds no protobuf: messages are fields behind their numbers.

use std::io::{Read, Write};
use std::net::TcpStream;
use std::time::Duration;

use anyhow::{Context, ensure};

const PUT: u64 = 2;
const REGION_NAME: u64 = 1;

/// A region of a table with one.
pub struct Region(Vec<u8>);

impl Region {
    pub fn new(table: &str, id: u64) -> Self {
        // Servers look at the parts of the name, not at its hash.
        let name = format!("{table},,{id}.{:032}.", 0);
        Self([number(1, REGION_NAME), field(2, name.as_bytes())].concat())
    }

    /// A batch of gets of one row.
    pub fn gets(&self, row: &[u8], count: usize) -> Vec<u8> {
        let action =
            |index: usize| field(3, &[number(1, u64::try_from(index).unwrap_or(0)), field(3, &field(1, row))].concat());
        let actions: Vec<u8> = (0..count).flat_map(action).collect();
        field(1, &[field(1, &self.0), actions].concat())
    }
}

/// What opens a connection.
pub fn hello() -> Vec<u8> {
    let header = [field(1, &field(1, b"xtask")), field(2, b"ClientService")].concat();
    [&b"HBas\x00\x50"[..], &behind_length(&header)].concat()
}

/// A call.
pub fn call(id: u64, method: &str, parameter: &[u8]) -> Vec<u8> {
    let header = [number(1, id), field(3, method.as_bytes()), number(4, 1)].concat();
    let parts = [varint(header.len() as u64), header, varint(parameter.len() as u64), parameter.to_vec()];
    behind_length(&parts.concat())
}

/// A connection that makes one call after the other.
pub struct Client {
    stream: TcpStream,
    calls: u64,
}

impl Client {
    pub fn connect(address: &str) -> anyhow::Result<Self> {
        let mut stream = TcpStream::connect(address).context("connecting")?;
        stream.set_read_timeout(Some(Duration::from_secs(20))).context("a time limit")?;
        stream.set_nodelay(true).context("no delay")?;
        stream.write_all(&hello()).context("opening")?;
        Ok(Self { stream, calls: 0 })
    }

    pub fn put(&mut self, region: &Region, row: &[u8], value: &[u8]) -> anyhow::Result<()> {
        let cell = [field(1, b"f"), field(2, &[field(1, b"q"), field(2, value)].concat())].concat();
        let mutation = [field(1, row), number(2, PUT), field(3, &cell)].concat();
        self.call("Mutate", &[field(1, &region.0), field(2, &mutation)].concat())
    }

    pub fn get(&mut self, region: &Region, row: &[u8]) -> anyhow::Result<()> {
        self.call("Get", &[field(1, &region.0), field(2, &field(1, row))].concat())
    }

    fn call(&mut self, method: &str, parameter: &[u8]) -> anyhow::Result<()> {
        self.calls += 1;
        self.stream.write_all(&call(self.calls, method, parameter)).context("a call")?;
        let mut length = [0; 4];
        self.stream.read_exact(&mut length).context("an answer")?;
        let mut answer = vec![0; usize::try_from(u32::from_be_bytes(length)).context("a length")?];
        self.stream.read_exact(&mut answer).context("an answer")?;
        let text = String::from_utf8_lossy(&answer[..answer.len().min(400)]);
        ensure!(!text.contains("Exception"), "{method} failed: {text}");
        Ok(())
    }
}

fn behind_length(bytes: &[u8]) -> Vec<u8> {
    [&u32::try_from(bytes.len()).unwrap_or(u32::MAX).to_be_bytes()[..], bytes].concat()
}

fn varint(mut number: u64) -> Vec<u8> {
    let mut bytes = Vec::new();
    while number >= 0x80 {
        bytes.push((number & 0x7f) as u8 | 0x80);
        number >>= 7;
    }
    bytes.push(number as u8);
    bytes
}

fn number(field: u8, number: u64) -> Vec<u8> {
    [vec![field << 3], varint(number)].concat()
}

fn field(field: u8, bytes: &[u8]) -> Vec<u8> {
    [vec![field << 3 | 2], varint(bytes.len() as u64), bytes.to_vec()].concat()
}
