//! The port that looks like a ZooKeeper.

use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};
use std::time::Duration;

use bytes::BytesMut;
use terrane_env::net::Listener;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::sync::Semaphore;
use tokio_util::sync::CancellationToken;

use super::nodes::Nodes;
use super::session::{Session, Step};
use crate::serve::Front;

/// Most sessions of a port.
pub const SESSIONS_MAX: usize = 1_024;
/// How often watches are compared with what is known.
const LOOK_EVERY: Duration = Duration::from_millis(100);
/// A session that says nothing for so long is over: clients ping several times within it.
const SILENCE_MAX: Duration = Duration::from_secs(90);
/// How long a write may take.
const WRITE_WAIT: Duration = Duration::from_secs(10);

/// Serves the port until it is told to stop.
pub async fn serve(listener: Listener, front: Arc<dyn Front>, stop: CancellationToken) {
    let sessions = Arc::new(Semaphore::new(SESSIONS_MAX));
    let next = AtomicI64::new(i64::try_from(terrane_env::time::wall_ms()).unwrap_or(1));
    loop {
        let (stream, _) = tokio::select! {
            biased;
            () = stop.cancelled() => return,
            accepted = listener.accept() => accepted,
        };
        let Ok(permit) = sessions.clone().try_acquire_owned() else { continue };
        let (front, stop, id) = (front.clone(), stop.clone(), next.fetch_add(1, Ordering::Relaxed));
        terrane_env::task::spawn_named("zookeeper session", async move {
            tokio::select! {
                biased;
                () = stop.cancelled() => {}
                () = session(stream, id, front) => {}
            }
            drop(permit);
        });
    }
}

async fn session(
    mut stream: impl tokio::io::AsyncRead + tokio::io::AsyncWrite + Unpin,
    id: i64,
    front: Arc<dyn Front>,
) {
    let (mut session, mut received) = (Session::new(id), BytesMut::new());
    let mut heard = tokio::time::Instant::now();
    loop {
        let nodes = Nodes::new(&front.discover().await);
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
        for event in session.changes(&nodes) {
            if !write(&mut stream, &event).await {
                return;
            }
        }
        match tokio::time::timeout(LOOK_EVERY, stream.read_buf(&mut received)).await {
            Ok(Ok(0) | Err(_)) => return,
            Ok(Ok(_)) => heard = tokio::time::Instant::now(),
            Err(_) if heard.elapsed() > SILENCE_MAX => return,
            Err(_) => {}
        }
    }
}

async fn write(stream: &mut (impl tokio::io::AsyncWrite + Unpin), bytes: &[u8]) -> bool {
    matches!(tokio::time::timeout(WRITE_WAIT, stream.write_all(bytes)).await, Ok(Ok(())))
}
