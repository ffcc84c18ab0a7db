//! The CPU time of this process while it generates load.

use std::time::Duration;

/// CPU time of this process so far, if the system provides it.
pub async fn cpu_time() -> Option<Duration> {
    let stat = terrane_env::fs::read("/proc/self/stat".as_ref()).await.ok()?;
    cpu_time_of(&String::from_utf8_lossy(&stat))
}

/// Parses user and system time, the 14th and 15th field; the second field, in parentheses, may contain spaces. The unit
/// is ticks, a hundredth of a second on all Linux systems.
fn cpu_time_of(stat: &str) -> Option<Duration> {
    let (_, fields) = stat.rsplit_once(')')?;
    let mut fields = fields.split_whitespace().skip(11);
    let ticks: u64 = fields.next()?.parse::<u64>().ok()? + fields.next()?.parse::<u64>().ok()?;
    Some(Duration::from_millis(ticks * 10))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cpu_time_is_read_past_a_name_with_blanks() {
        let stat = "42 (a b) c) S 1 2 3 4 5 6 7 8 9 10 250 50 0 0 20 0 1 0 100";
        assert_eq!(cpu_time_of(stat), Some(Duration::from_secs(3)));
        assert_eq!(cpu_time_of(""), None);
        assert_eq!(cpu_time_of("1 (x) S 1"), None);
    }

    #[tokio::test]
    async fn a_linux_process_knows_its_cpu_time() {
        if cfg!(target_os = "linux") {
            assert!(cpu_time().await.is_some());
        }
    }
}
