//! The clients, on threads of their own beside the nemesis: they load the cluster until they are told to stop, and then judge.

use std::path::PathBuf;
use std::sync::mpsc::{self, Receiver, RecvTimeoutError, TryRecvError};
use std::thread;
use std::time::Duration;

use anyhow::{Context, bail};
use terrane_oracle::check::Conclusion;
use tokio::sync::oneshot;

use super::load;

/// For the table to exist.
const LOADING_MAX: Duration = Duration::from_secs(120);
/// For reading everything and for the check, on a healthy cluster.
const JUDGE_MAX: Duration = Duration::from_secs(600);

/// The running clients. When this value is dropped they stop without a verdict.
pub struct Clients {
    stop: oneshot::Sender<()>,
    judged: Receiver<anyhow::Result<Conclusion>>,
}

impl Clients {
    /// Starts them, and waits until they load the cluster.
    pub fn start(masters: String, history: PathBuf, seed: u64) -> anyhow::Result<Self> {
        let (begun, loading) = mpsc::channel();
        let (said, judged) = mpsc::channel();
        let (stop, told) = oneshot::channel();
        thread::spawn(move || {
            let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build();
            let verdict = runtime
                .context("starting the clients")
                .and_then(|runtime| runtime.block_on(load::run(&masters, &history, seed, || _ = begun.send(()), told)));
            // The nemesis may have given up.
            said.send(verdict).ok();
        });
        let clients = Self { stop, judged };
        match loading.recv_timeout(LOADING_MAX) {
            Ok(()) => Ok(clients),
            Err(RecvTimeoutError::Timeout) => bail!("the clients do not begin within {} s", LOADING_MAX.as_secs()),
            Err(RecvTimeoutError::Disconnected) => {
                clients.judged.recv().context("the clients panicked")??;
                bail!("the clients ended before they began")
            }
        }
    }

    /// An error if they have ended.
    pub fn check_running(&self) -> anyhow::Result<()> {
        match self.judged.try_recv() {
            Err(TryRecvError::Empty) => Ok(()),
            Err(TryRecvError::Disconnected) => bail!("the clients panicked"),
            Ok(verdict) => {
                verdict.context("the clients ended early")?;
                bail!("the clients ended early")
            }
        }
    }

    /// Tells them to stop and to check.
    pub fn judge(self) -> anyhow::Result<Conclusion> {
        self.check_running()?;
        // It fails if they have just ended, which the verdict says.
        self.stop.send(()).ok();
        let verdict = self.judged.recv_timeout(JUDGE_MAX);
        verdict.with_context(|| format!("the clients have not judged within {} s", JUDGE_MAX.as_secs()))?
    }
}
