//! The text files of a data directory.

use std::collections::BTreeMap;

use terrane_types::fuzzing::{Damage, Format, again, no_limits, round_trip};
use terrane_types::{ClusterId, ServerId};

use crate::masters::addresses;
use crate::server::identity::Identity;

/// The `server` file.
pub const SERVER: Format = Format {
    name: "server-file",
    damage: Damage::Refused,
    read: |bytes| again(Identity::decode(bytes), |identity| identity.encode()),
    draw: |dice| {
        let identity = Identity {
            cluster: ClusterId(dice.array()),
            server: ServerId(dice.number()),
            engine: dice.pick(&["lsm", "memory", "sled"]).to_owned(),
            boot: dice.number(),
            level: 1 + u32::try_from(dice.below(3)).unwrap_or_default(),
        };
        round_trip(&identity, identity.encode(), Identity::decode)
    },
    limits: no_limits,
};

/// The `addresses` file.
pub const ADDRESSES: Format = Format {
    name: "addresses-file",
    damage: Damage::Refused,
    read: |bytes| again(addresses::decode(bytes), |known| addresses::encode(&known)),
    draw: |dice| {
        let known = dice.list(5, |dice| (ServerId(dice.number()), format!("{}:{}", dice.name(), dice.below(65_536))));
        let known: BTreeMap<ServerId, String> = known.into_iter().collect();
        round_trip(&known, addresses::encode(&known), addresses::decode)
    },
    limits: || {
        // The longest address that a master accepts, for as many servers as a book holds.
        let address = format!("{}:65535", "a".repeat(506));
        let known = (0..4096).map(|server| (ServerId(u64::MAX - server), address.clone())).collect();
        vec![round_trip(&known, addresses::encode(&known), addresses::decode)]
    },
};
