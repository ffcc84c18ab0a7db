//! What the ports for HBase's clients may hold: limits of their own beside those of the gRPC ports, and one budget of answers for
//! all ports of a process.

use std::net::SocketAddr;
use std::sync::Arc;

use terrane_env::budget::{Budget, Unit};
use terrane_env::net::{BudgetNames, Connection, Intake, IntakeLimits};

use crate::limits::{
    BLOCK_BYTES_MAX, CALL_BYTES_MAX, CONNECTIONS_MAX, FRAME_BYTES_MAX, PACKETS_BYTES_MAX, SESSIONS_MAX,
};

/// The limits of a process's ports.
#[derive(Clone, Debug)]
pub struct Limits {
    /// Of the RPC port.
    pub intake: Arc<Intake>,
    /// Bytes of cell blocks that are decompressed and whose calls run.
    pub decompressed: Arc<Budget>,
    /// Of the port that looks like a ZooKeeper.
    pub zookeeper: Arc<Intake>,
}

impl Limits {
    /// Limits beside those of the gRPC ports.
    #[must_use]
    pub fn beside(grpc: &Intake) -> Self {
        let limits = IntakeLimits {
            connections: terrane_env::limit!("connections of HBase's clients", CONNECTIONS_MAX, 6..=20),
            body_bytes: CALL_BYTES_MAX,
            request_bytes: CALL_BYTES_MAX,
            message_bytes: FRAME_BYTES_MAX,
            ..IntakeLimits::default()
        };
        let names = BudgetNames {
            connections: "hbase_connections",
            calls: Some("hbase_calls"),
            bodies: Some("hbase_bodies"),
            requests: Some("hbase_requests"),
            answers: None,
        };
        let intake = grpc.beside(names, limits);
        let decompressed = Budget::new("hbase_decompressed", Unit::Bytes, BLOCK_BYTES_MAX as u64);
        let names = BudgetNames {
            connections: "zookeeper_connections",
            calls: None,
            bodies: Some("zookeeper_bodies"),
            requests: None,
            answers: None,
        };
        let limits = IntakeLimits { connections: SESSIONS_MAX, body_bytes: PACKETS_BYTES_MAX, ..limits };
        let zookeeper = grpc.beside(names, limits);
        Self { intake, decompressed, zookeeper }
    }

    /// The budgets of the RPC port, for metrics and status.
    pub fn budgets(&self) -> impl Iterator<Item = Arc<Budget>> {
        self.intake.budgets().chain([self.decompressed.clone()])
    }
}

/// One client: where it is, and what its connection holds.
#[derive(Clone, Debug)]
pub struct Client {
    /// Its address.
    pub address: SocketAddr,
    /// Its connection.
    pub connection: Arc<Connection>,
    /// What connections of the port may hold.
    pub intake: Arc<Intake>,
}
