//! How long calls and their tries may take.

use std::time::Duration;

use tokio::time::Instant;

/// The longest wait for one answer of a live server; the server receives it as the request's deadline. A dead server is
/// noticed much sooner, by the session's pings (`wire/liveness.rs`).
pub(crate) const TRY_MAX: Duration = Duration::from_secs(5);

/// 30 years, as good as never: a longer timeout would overflow clocks and headers.
const NEVER: Duration = Duration::from_secs(30 * 365 * 24 * 3600);

/// `duration` from now. `Duration::MAX` means never.
pub(crate) fn after(duration: Duration) -> Instant {
    Instant::now() + duration.min(NEVER)
}
