//! What a server with a damaged disk would answer. It stays away while clients read everything; then it starts once more,
//! alone with the other servers, and what it holds is compared with their rows. It may find the damage and refuse, but must
//! not hold anything else than they do.

use std::time::Duration;

use super::now;
use crate::context::Context;
use crate::nodes::REPORT_EVERY;
use crate::trace;
use terrane_client::Error;

/// Within this the server has started and caught up, unless it refuses to.
const COMPARED_WITHIN: Duration = Duration::from_secs(5);

/// Has all servers compared for a while.
pub async fn compare(context: Context) -> Result<(), Error> {
    let (watch, began) = (&context.watch.inner, now());
    watch.digests_wanted.set(true);
    while now() < began + COMPARED_WITHIN {
        tokio::time::sleep(REPORT_EVERY).await;
    }
    watch.digests_wanted.set(false);
    trace::note(format_args!("the damaged server was compared"));
    Ok(())
}
