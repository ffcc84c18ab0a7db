//! `hbase wide-row`: ten columns of a row of very many, and the whole row in pages, in every way that HBase's client offers;
//! alone, or beside another cluster that speaks HBase's protocol (see [`super::bench`]).

use std::path::Path;
use std::process::Command;
use std::time::Duration;

use super::SOURCES;
use super::bench::{Asked, on_both};

/// Time limit on one cluster. Pages at an offset read what they skip.
const READS_MAX: Duration = Duration::from_secs(900);
/// Columns of the row, unless it is said how many.
const COLUMNS: u64 = 300_000;

/// One way of reading, and its median and slowest read in milliseconds.
#[derive(Clone, Debug, PartialEq)]
struct Line {
    read: String,
    median: f64,
    slowest: f64,
}

pub fn run(root: &Path, binary: &Path, jars: &Path, asked: &Asked) -> anyhow::Result<()> {
    let (ours, theirs) = on_both(binary, asked, READS_MAX, |path, _| {
        let mut java = Command::new("java");
        java.args(["-Xmx1500m", "-cp"]).arg(format!("{path}{}/*", jars.display()));
        java.arg(root.join(SOURCES).join("WideRow.java")).arg(asked.rows.unwrap_or(COLUMNS).to_string());
        Ok(java)
    })?;
    print!("{}", table(&lines(&ours), theirs.as_deref().map(lines).as_deref()));
    Ok(())
}

fn lines(said: &str) -> Vec<Line> {
    let line = |text: &str| {
        let mut words = text.split_whitespace();
        let read = words.next()?.to_owned();
        let numbers: Vec<f64> = words.map_while(|word| word.parse().ok()).collect();
        let &[median, slowest] = &numbers[..] else { return None };
        Some(Line { read, median, slowest })
    };
    said.lines().filter_map(line).collect()
}

/// Medians, as multiples of the read that gets the same by name or at once, and beside the other cluster's.
fn table(ours: &[Line], theirs: Option<&[Line]>) -> String {
    let mut text =
        String::from("| read | ours ms (slowest) | of the plain read | beside ms (slowest) |\n|---|---|---|---|\n");
    for our in ours {
        let plain = if our.read.starts_with("ten-") { "ten-by-name" } else { "all-one-get" };
        let plain = ours.iter().find(|line| line.read == plain).map_or(f64::NAN, |line| line.median);
        let beside = theirs.and_then(|lines| lines.iter().find(|their| their.read == our.read));
        let beside = beside.map_or("-".to_owned(), |their| format!("{:.2} ({:.2})", their.median, their.slowest));
        text.push_str(&format!(
            "| {} | {:.2} ({:.2}) | {:.2}x | {beside} |\n",
            our.read,
            our.median,
            our.slowest,
            our.median / plain
        ));
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_read_is_compared_with_the_plain_one_and_with_the_other_cluster() {
        let ours = lines("ten-by-name 1.00 2.00\nten-ColumnRangeFilter 1.50 3.00\nall-one-get 200.00 300.00\n");
        let theirs = lines("ten-ColumnRangeFilter 3.00 4.00\n");
        let text = table(&ours, Some(&theirs));
        assert!(text.contains("| ten-ColumnRangeFilter | 1.50 (3.00) | 1.50x | 3.00 (4.00) |\n"), "{text}");
        assert!(text.ends_with("| all-one-get | 200.00 (300.00) | 1.00x | - |\n"), "{text}");
    }
}
