//! The caller's deadline: the gRPC header `grpc-timeout`, digits and a unit.

use std::time::Duration;

use tokio::time::Instant;
use tonic::metadata::MetadataMap;

/// How long a call without a deadline may wait.
const WAIT_DEFAULT: Duration = Duration::from_secs(30);
/// The longest wait.
const WAIT_MAX: Duration = Duration::from_secs(600);
/// Subtracted from the caller's time, so that the reply, which says what is waited for, arrives in time.
const ANSWER_TIME_MAX: Duration = Duration::from_millis(250);

/// The deadline of a call.
pub fn of(metadata: &MetadataMap) -> Instant {
    let named = metadata.get("grpc-timeout").and_then(|value| value.to_str().ok()).and_then(parse);
    let wait = named.map_or(WAIT_DEFAULT, |wait| wait - ANSWER_TIME_MAX.min(wait / 10));
    Instant::now() + wait.min(WAIT_MAX)
}

fn parse(text: &str) -> Option<Duration> {
    let (digits, unit) = text.split_at_checked(text.len().checked_sub(1)?)?;
    let count: u64 = digits.parse().ok().filter(|_| digits.len() <= 8)?;
    Some(match unit {
        "H" => Duration::from_secs(count * 3_600),
        "M" => Duration::from_secs(count * 60),
        "S" => Duration::from_secs(count),
        "m" => Duration::from_millis(count),
        "u" => Duration::from_micros(count),
        "n" => Duration::from_nanos(count),
        _ => return None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn grpc_timeouts_are_parsed() {
        assert_eq!(parse("30S"), Some(Duration::from_secs(30)));
        assert_eq!(parse("1500m"), Some(Duration::from_millis(1_500)));
        assert_eq!(parse("99999999u"), Some(Duration::from_micros(99_999_999)));
        for text in ["", "S", "5", "5x", "-1S", "999999999S", "é"] {
            assert_eq!(parse(text), None, "{text}");
        }
    }
}
