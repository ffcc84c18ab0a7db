//! Waits for a condition, with a timeout and a description of what did not happen.

use std::time::Duration;

use anyhow::{Result, bail};
use tokio::time::Instant;

/// How often a condition is checked.
const LOOK_EVERY: Duration = Duration::from_millis(20);

/// Calls `look` until it returns `Ok`; after `within`, fails with its last error.
///
/// # Errors
/// If the condition did not hold in time.
pub async fn eventually<T>(what: &str, within: Duration, mut look: impl AsyncFnMut() -> Result<T>) -> Result<T> {
    let deadline = Instant::now() + within;
    loop {
        match look().await {
            Ok(value) => return Ok(value),
            Err(error) if Instant::now() >= deadline => {
                bail!("{what}: not within {} s: {error:#}", within.as_secs())
            }
            Err(_) => tokio::time::sleep(LOOK_EVERY).await,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_condition_is_looked_at_until_it_holds() {
        let mut looks = 0;
        let look = async || {
            looks += 1;
            if looks == 3 { Ok(looks) } else { bail!("not yet") }
        };
        assert_eq!(eventually("the third look", Duration::from_secs(10), look).await.unwrap(), 3);
    }

    #[tokio::test]
    async fn a_condition_that_is_never_met_is_an_error() {
        let never = async || -> Result<()> { bail!("still dark") };
        let error = eventually("morning", Duration::ZERO, never).await.unwrap_err();
        assert_eq!(error.to_string(), "morning: not within 0 s: still dark");
    }
}
