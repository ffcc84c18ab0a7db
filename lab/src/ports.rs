//! Free ports on loopback, below the range from which the system assigns ports to outgoing connections: a process that starts
//! again finds its port free.
//!
//! No two callers in this process get the same port. Each process begins its search elsewhere, and whatever finds its port taken
//! all the same is started on others.

use std::net::TcpListener;
use std::sync::atomic::{AtomicU16, Ordering};

use anyhow::{Context, ensure};

const FIRST: u16 = 10_000;
const PORTS: u16 = 20_000;
/// Distance between the first ports of consecutive processes.
const BETWEEN: u32 = 2_003;
/// `terrane dev` uses ports up to 120 from its first.
const DEV_SPAN: u16 = 131;

/// The next port to try, from where this process begins.
static NEXT: AtomicU16 = AtomicU16::new(0);

/// So many free ports.
pub fn free(count: usize) -> anyhow::Result<Vec<u16>> {
    let free: Vec<u16> = (0..PORTS).map(|_| take(1)).filter(|&port| is_free(port)).take(count).collect();
    ensure!(free.len() == count, "no ports are free");
    Ok(free)
}

/// The first of the ports of a `terrane dev`.
pub fn free_for_dev() -> anyhow::Result<u16> {
    let mut firsts = (0..PORTS / DEV_SPAN).map(|_| take(DEV_SPAN));
    firsts.find(|&port| is_free(port)).context("no port is free")
}

/// The address of a port.
pub fn local(port: u16) -> String {
    format!("127.0.0.1:{port}")
}

fn take(count: u16) -> u16 {
    let begin = std::process::id().wrapping_mul(BETWEEN) % u32::from(PORTS);
    let at = (begin + u32::from(NEXT.fetch_add(count, Ordering::Relaxed))) % u32::from(PORTS);
    FIRST + u16::try_from(at).expect("less than the number of ports")
}

fn is_free(port: u16) -> bool {
    TcpListener::bind(("127.0.0.1", port)).is_ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ports_are_given_once() {
        let mut ports = free(20).unwrap();
        ports.extend(free(20).unwrap());
        ports.push(free_for_dev().unwrap());
        assert!(ports.iter().all(|port| (FIRST..FIRST + PORTS).contains(port)), "{ports:?}");
        ports.sort_unstable();
        ports.dedup();
        assert_eq!(ports.len(), 41);
    }
}
