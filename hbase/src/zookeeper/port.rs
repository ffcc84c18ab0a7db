//! The port that looks like a ZooKeeper.

use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};
use std::time::Duration;

use bytes::BytesMut;
use terrane_env::net::{Connection, Intake, Listener, Unfinished};
use tokio::io::{AsyncRead, AsyncWrite, AsyncWriteExt as _};
use tokio_util::sync::CancellationToken;

use super::nodes::Nodes;
use super::session::{Session, Step};
use crate::limits::SILENCE_MAX;
use crate::serve::{Front, may_continue, read};

/// How often watches are compared with what is known.
const LOOK_EVERY: Duration = Duration::from_millis(100);
/// How long a write may take.
const WRITE_WAIT: Duration = Duration::from_secs(10);

/// Serves the port until it is told to stop.
pub async fn serve(listener: Listener, front: Arc<dyn Front>, stop: CancellationToken) {
    let intake = front.limits().zookeeper.clone();
    let next = AtomicI64::new(i64::try_from(terrane_env::time::wall_ms()).unwrap_or(1));
    loop {
        let (stream, connection, _) = tokio::select! {
            biased;
            () = stop.cancelled() => return,
            accepted = listener.accept_admitted(&intake) => accepted,
        };
        let (front, stop, id) = (front.clone(), stop.clone(), next.fetch_add(1, Ordering::Relaxed));
        let intake = intake.clone();
        terrane_env::task::spawn_named("zookeeper session", async move {
            tokio::select! {
                biased;
                () = stop.cancelled() => {}
                // It gives way to others.
                () = connection.closed() => {}
                () = session(stream, id, front, (&intake, &connection)) => {}
            }
        });
    }
}

async fn session(
    mut stream: impl AsyncRead + AsyncWrite + Unpin,
    id: i64,
    front: Arc<dyn Front>,
    (intake, connection): (&Arc<Intake>, &Arc<Connection>),
) {
    let (mut session, mut received) = (Session::new(id), BytesMut::new());
    let mut arrives = Unfinished::new(intake, Some(connection));
    arrives.begin();
    let mut heard = tokio::time::Instant::now();
    loop {
        // What the cluster is like is of interest to those who ask, or watch.
        if !received.is_empty() || session.is_watching() {
            let (nodes, before) = (Nodes::new(&front.discover().await), received.len());
            while let Some(step) = session.receive(&mut received, &nodes) {
                let (bytes, closes) = match step {
                    Step::Send(bytes) => (bytes, false),
                    Step::SendAndClose(bytes) => (bytes, true),
                    Step::Close => return,
                };
                if !write(&mut stream, &bytes).await || closes {
                    return;
                }
            }
            if received.len() < before {
                arrives.complete();
                connection.is_known();
            }
            for event in session.changes(&nodes) {
                if !write(&mut stream, &event).await {
                    return;
                }
            }
        }
        if !received.is_empty() && !may_continue(&mut arrives, received.len()).await {
            return;
        }
        let wait = if session.is_watching() { LOOK_EVERY } else { SILENCE_MAX };
        match tokio::time::timeout(wait, read(&mut stream, &mut received, &mut arrives)).await {
            Ok(None | Some(0)) => return,
            Ok(Some(_)) => heard = tokio::time::Instant::now(),
            Err(_) if heard.elapsed() >= SILENCE_MAX => return,
            Err(_) => {}
        }
    }
}

async fn write(stream: &mut (impl AsyncWrite + Unpin), bytes: &[u8]) -> bool {
    matches!(tokio::time::timeout(WRITE_WAIT, stream.write_all(bytes)).await, Ok(Ok(())))
}
