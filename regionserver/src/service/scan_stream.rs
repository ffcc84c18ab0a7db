//! The blocks of a scan, each produced when the previous one has been taken: flow control is the transport's.
//!
//! Blocks are produced by a task, so that the stream ends when its reader stalls: otherwise what it holds, such as a
//! snapshot, would be held until the connection ends. The last block then says so, and the reader continues with
//! the token of the block before.
//!
//! One read point at the beginning is enough: every row is read at a snapshot taken after it, so no block shows less than
//! what was acknowledged before the scan began. Region and epoch are checked again for each block.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use futures::Stream;
use terrane_env::budget::Share;
use terrane_proto::{error, v1};
use terrane_types::Error;
use tokio::sync::{mpsc, oneshot};
use tonic::Status;

use super::encode;
use crate::edge::consistency::ReadTime;
use crate::edge::error_mapping::stopping;
use crate::edge::{Edge, Header};
use crate::region::read::ROOM_RETRY;
use crate::region::scan::{Block, Cursor, ScanRequest};

/// How long the reader of a stream that ended this way waits.
const IDLE_RETRY: Duration = Duration::from_millis(10);

/// An encoded block, with its share of the server's budget of answers.
type Encoded = (v1::ScanBlock, Share);

/// A decoded scan call.
pub struct Scan {
    pub header: Header,
    pub request: Arc<ScanRequest>,
    pub cursor: Cursor,
    pub messages: bool,
}

/// The time a scan reads at.
pub async fn begin(edge: &Edge, scan: &Scan) -> Result<ReadTime, Error> {
    let (hosted, group) = edge.find(&scan.header)?;
    let consistency = edge.consistency(&hosted, scan.header.consistency);
    edge.read_point(&group, consistency, scan.header.deadline).await
}

/// Opens the stream.
pub fn open(edge: Arc<Edge>, scan: Scan) -> impl Stream<Item = Result<v1::ScanBlock, Status>> + Send + 'static {
    let (sender, mut made) = mpsc::channel(1);
    let (last_sender, last) = oneshot::channel();
    let (tasks, closing) = (edge.tasks.clone(), edge.closing.clone());
    tasks.spawn(async move {
        let mut maker = Maker { edge, resume: None };
        let ended = tokio::select! {
            biased;
            () = closing.cancelled() => None,
            ended = maker.run(scan, &sender) => Some(ended),
        };
        // The reader may have gone.
        last_sender.send(ended.unwrap_or_else(|| maker.refusal(stopping()))).ok();
    });
    async_stream::stream! {
        while let Some((block, share)) = made.recv().await {
            // From here on the transport counts it.
            drop(share);
            yield Ok(block);
        }
        if let Ok(Some(last)) = last.await {
            yield last;
        }
    }
}

/// Produces the blocks of one stream.
struct Maker {
    edge: Arc<Edge>,
    /// The token of the last block sent, which stays usable after an error in the middle of a scan.
    resume: Option<Bytes>,
}

impl Maker {
    /// Sends blocks until the scan is done. Returns what is sent last.
    async fn run(&mut self, scan: Scan, sender: &mpsc::Sender<Encoded>) -> Option<Result<v1::ScanBlock, Status>> {
        let time = match begin(&self.edge, &scan).await {
            Ok(time) => time,
            Err(refused) => return self.refusal(refused),
        };
        let mut cursor = scan.cursor.clone();
        // For a snapshot scan: while the stream is open, nothing that the scan must see is collected.
        let mut held = None;
        loop {
            if terrane_env::buggify!("a scan's stream ends early", 4) {
                return self.refusal(idle(self.edge.scan_idle));
            }
            let place = match tokio::time::timeout(self.edge.scan_idle, sender.reserve()).await {
                Ok(Ok(place)) => place,
                // The reader has gone.
                Ok(Err(_)) => return None,
                Err(_) => return self.refusal(idle(self.edge.scan_idle)),
            };
            match self.make(&scan, cursor, time).await {
                Ok((mut block, share)) => {
                    held = block.snapshot.take().or(held);
                    let (after, done) = (block.cursor.clone(), block.done);
                    let encoded = match encode::scan(block, scan.request.reverse, scan.messages) {
                        Ok(encoded) => v1::ScanBlock { as_of_ms: time.as_of_ms, ..encoded },
                        Err(refused) => return self.refusal(refused),
                    };
                    self.resume = Some(encoded.resume.clone());
                    place.send((encoded, share));
                    if done {
                        return None;
                    }
                    cursor = after;
                }
                Err(refused) => {
                    // The reader continues with its token: here again, or where the region goes.
                    self.edge.hold_for_return(scan.header.region, held);
                    return self.refusal(refused);
                }
            }
        }
    }

    async fn make(&self, scan: &Scan, cursor: Cursor, time: ReadTime) -> Result<(Block, Share), Error> {
        if self.edge.intake.answers_are_full() {
            return Err(Error::Busy { retry_after: ROOM_RETRY });
        }
        let block = self.edge.scan(&scan.header, &scan.request, cursor, time.now_ms).await?;
        let share = self.edge.intake.count_answer(block.rows.len() as u64);
        Ok((block, share))
    }

    /// The end of a stream that cannot continue: a status before the first block, later a block with the token.
    fn refusal(&self, refused: Error) -> Option<Result<v1::ScanBlock, Status>> {
        Some(match &self.resume {
            None => Err(error::status(&refused)),
            Some(resume) => {
                let resume = resume.clone();
                Ok(v1::ScanBlock { resume, error: Some(error::detail(&refused)), ..Default::default() })
            }
        })
    }
}

fn idle(patience: Duration) -> Error {
    let message = format!("the scan stream ended because it was not read for {patience:?}; continue with its token");
    Error::Unavailable { message, retry_after: IDLE_RETRY }
}
