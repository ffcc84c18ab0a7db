//! `admin repair`: how far the repair of groups that lack copies is, and a wait until all of them are whole. `status` shows the same
//! line. The JSON output is part of the grammar.

use std::time::Duration;

use serde::Serialize;
use terrane_client::{Admin, ClusterStatus, RepairProgress};
use tokio::time::Instant;

use super::connect;
use crate::args::client::Connection;
use crate::failure::{During, Failure};
use crate::output::{Output, bytes_rounded};
use crate::progress::Progress;

/// How often the repair is looked at.
const LOOK_EVERY: Duration = Duration::from_millis(500);

#[derive(Serialize)]
struct RepairLine<'a> {
    done: bool,
    #[serde(flatten)]
    progress: &'a RepairProgress,
}

pub async fn run(wait: Option<Duration>, connection: &Connection) -> Result<(), Failure> {
    let admin = connect(connection).await?.admin();
    let status = match wait {
        Some(longest) => until_whole(&admin, longest).await?,
        None => status(&admin).await?,
    };
    let lacking = status.repair.as_ref().map_or(0, |repair| repair.groups.saturating_sub(repair.whole));
    let progress = status.repair.unwrap_or(RepairProgress {
        whole: status.groups,
        groups: status.groups,
        ..RepairProgress::default()
    });
    let mut output = Output::new(connection.json);
    if output.is_json() {
        output.object(&RepairLine { done: lacking == 0, progress: &progress })?;
    } else if lacking == 0 {
        output
            .line(&format!("every group has all its copies: {} of {} groups whole", progress.whole, progress.groups))?;
    } else {
        output.line(&text(&progress))?;
    }
    output.flush()?;
    match lacking {
        0 => Ok(()),
        1 => Err(Failure::new("a group lacks copies").advise(ADVICE)),
        many => Err(Failure::new(format!("{many} groups lack copies")).advise(ADVICE)),
    }
}

const ADVICE: &str = "`terrane status` says why, and `terrane admin repair --wait 10m` waits for the repair";

/// Shows the progress until every group is whole or the time is over. The repair continues without us.
async fn until_whole(admin: &Admin, longest: Duration) -> Result<ClusterStatus, Failure> {
    let deadline = Instant::now() + longest;
    let mut progress = Progress::with_unknown_total("repair");
    loop {
        let status = status(admin).await?;
        match &status.repair {
            Some(repair) if Instant::now() < deadline => {
                progress.work(u64::from(repair.whole), u64::from(repair.groups), &message(repair));
            }
            _ => {
                progress.finish();
                return Ok(status);
            }
        }
        tokio::time::sleep(LOOK_EVERY).await;
    }
}

async fn status(admin: &Admin) -> Result<ClusterStatus, Failure> {
    admin.status().await.during("look at the repair")
}

/// The line of `status`.
pub fn text(repair: &RepairProgress) -> String {
    format!("repair: {}", message(repair))
}

fn message(repair: &RepairProgress) -> String {
    let RepairProgress { whole, groups, since, left, bytes, copied_bytes, waits_for } = repair;
    let mut text = format!("{whole} of {groups} groups whole, {}", roughly(*since));
    if *bytes > 0 {
        text.push_str(&format!(", {} of {} copied", bytes_rounded(*copied_bytes), bytes_rounded(*bytes)));
    }
    if let Some(left) = left {
        text.push_str(&format!(", about {} left", roughly(*left)));
    }
    if !waits_for.is_empty() {
        text.push_str(&format!("; {waits_for}"));
    }
    text
}

/// A time to the unit that matters.
fn roughly(time: Duration) -> String {
    match time.as_secs() {
        seconds if seconds < 60 => format!("{seconds} s"),
        seconds if seconds < 7_200 => format!("{} min", seconds / 60),
        seconds => format!("{} h {} min", seconds / 3_600, seconds % 3_600 / 60),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_line_says_how_many_groups_are_whole_for_how_long_and_what_is_left() {
        let repair =
            RepairProgress { whole: 41, groups: 44, since: Duration::from_secs(185), ..RepairProgress::default() };
        assert_eq!(text(&repair), "repair: 41 of 44 groups whole, 3 min");
        let copying = RepairProgress {
            left: Some(Duration::from_secs(50)),
            bytes: 4 << 30,
            copied_bytes: 1 << 30,
            ..repair.clone()
        };
        assert_eq!(text(&copying), "repair: 41 of 44 groups whole, 3 min, 1.0 GiB of 4.0 GiB copied, about 50 s left");
        let waits = RepairProgress { waits_for: "server 3 (h:1) is away".to_owned(), ..repair };
        assert_eq!(text(&waits), "repair: 41 of 44 groups whole, 3 min; server 3 (h:1) is away");
        let line = serde_json::to_string(&RepairLine { done: false, progress: &copying }).expect("JSON");
        assert!(
            line.contains(r#""done":false,"whole":41,"groups":44,"since_seconds":185,"left_seconds":50"#),
            "{line}"
        );
        assert_eq!(roughly(Duration::from_secs(7_320)), "2 h 2 min");
    }
}
