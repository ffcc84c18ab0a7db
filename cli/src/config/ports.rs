//! The addresses of a process: whom they expose it to, and whether others can connect to them.

use std::net::IpAddr;

use super::Settings;
use crate::args::values::address_parts;

/// Who can connect to an address.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Exposure {
    Loopback,
    Network,
    /// Every address of the machine; others cannot connect to it by this name.
    Wildcard,
}

/// The address of a setting, which was checked when it was read.
fn exposure(address: &str) -> Exposure {
    let Ok((host, _)) = address_parts(address) else { return Exposure::Network };
    match host.parse::<IpAddr>() {
        Ok(ip) if ip.is_loopback() => Exposure::Loopback,
        Ok(ip) if ip.is_unspecified() => Exposure::Wildcard,
        Ok(_) => Exposure::Network,
        Err(_) if host == "localhost" => Exposure::Loopback,
        Err(_) => Exposure::Network,
    }
}

/// Whether an address is every address of the machine.
pub fn is_wildcard(address: &str) -> bool {
    exposure(address) == Exposure::Wildcard
}

/// A setting and the address that it names.
pub type Named<'a> = (&'static str, &'a str);

/// Finds addresses that would expose a process unintentionally, or that others could not connect to. The others connect to the
/// first one, or to the advertised one if there is one. A warning says what the user has allowed.
pub fn check_exposure(
    settings: &mut Settings,
    ports: &[Named<'_>],
    (advertise_key, advertise): (&'static str, Option<&str>),
    insecure: bool,
) {
    if let Some((key, listen)) = ports.first()
        && is_wildcard(listen)
        && advertise.is_none()
    {
        settings.mistake(
            &[*key, advertise_key],
            format!("is {listen}, a wildcard address, which others cannot connect to"),
            Some(format!("add --{advertise_key} HOST:PORT with the address at which others reach this process")),
        );
    }
    if let Some(advertise) = advertise {
        if is_wildcard(advertise) {
            settings.mistake(
                &[advertise_key],
                format!("is {advertise}, a wildcard address, which others cannot connect to"),
                Some("advertise the address at which others reach this process".to_owned()),
            );
        }
        check_connectable(settings, advertise_key, [advertise]);
    }
    let exposed: Vec<&Named<'_>> =
        ports.iter().filter(|(_, address)| exposure(address) != Exposure::Loopback).collect();
    let Some((key, _)) = exposed.first() else { return };
    let shown = exposed.iter().map(|(_, address)| *address).collect::<Vec<_>>().join(" and ");
    if insecure {
        settings.warn(format!(
            "warning: {shown} can be reached from other machines: traffic is not encrypted, and everyone who can connect can \
             read and write all data (--insecure)"
        ));
    } else {
        settings.mistake(
            &[*key],
            format!("exposes this process: {shown} can be reached from other machines, and Terrane has no TLS yet"),
            Some(
                "listen on 127.0.0.1, or add --insecure if everyone on that network may read and write all data"
                    .to_owned(),
            ),
        );
    }
}

/// Finds addresses that no client can connect to.
pub fn check_connectable<'a>(settings: &mut Settings, key: &'static str, addresses: impl IntoIterator<Item = &'a str>) {
    for address in addresses {
        if address_parts(address).is_ok_and(|(_, port)| port == 0) {
            settings.mistake(&[key], format!("names {address}, and no client can connect to port 0"), None);
        }
    }
}

/// Finds ports that the process would open twice.
pub fn check_distinct(settings: &mut Settings, ports: &[Named<'_>]) {
    for (at, (key, address)) in ports.iter().enumerate() {
        for (other_key, other) in &ports[..at] {
            if is_same_port(address, other) {
                settings.mistake(
                    &[*key, *other_key],
                    format!("is {address}, and {other_key} is {other}: one process cannot open a port twice"),
                    Some("give each its own port".to_owned()),
                );
            }
        }
    }
}

/// Whether the second of these cannot be bound beside the first. Two names may be of one machine, too; the start finds out.
fn is_same_port(one: &str, other: &str) -> bool {
    let (Ok((host, port)), Ok((other_host, other_port))) = (address_parts(one), address_parts(other)) else {
        return false;
    };
    let local = |host: &str| if host == "localhost" { "127.0.0.1".to_owned() } else { host.to_ascii_lowercase() };
    port != 0 && port == other_port && (local(host) == local(other_host) || is_wildcard(one) || is_wildcard(other))
}
