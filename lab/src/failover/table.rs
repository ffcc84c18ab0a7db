//! The figures as text: a table, and a histogram for each fault.

use std::fmt::Write as _;

use super::figures::Figures;

/// Length of the longest bar of a histogram.
const BAR: usize = 50;

/// One row per fault, and the histograms below.
pub fn text(measured: &[Figures]) -> String {
    let heading = ["fault", "runs", "p50", "p99", "max", "silence", "longest call", "admin", "failed", "violations"];
    let mut rows = vec![heading.map(str::to_owned).to_vec()];
    rows.extend(measured.iter().map(row));
    let mut text = "\ngaps per region in ms, each figure from its worst run\n".to_owned();
    text.push_str(&aligned(&rows));
    for figures in measured {
        text.push_str(&histogram(figures));
    }
    text
}

fn row(figures: &Figures) -> Vec<String> {
    let ms = |number: f64| format!("{number:.0}");
    vec![
        figures.fault.to_owned(),
        figures.runs.len().to_string(),
        ms(figures.worst_quantile(0.5)),
        ms(figures.worst_quantile(0.99)),
        ms(figures.worst_quantile(1.0)),
        ms(figures.worst(|run| run.silence)),
        ms(figures.worst(|run| run.longest_call)),
        figures.administration().map_or("-".to_owned(), ms),
        figures.failed().to_string(),
        figures.violations().to_string(),
    ]
}

/// The first column to the left, the others to the right.
fn aligned(rows: &[Vec<String>]) -> String {
    let columns = rows.first().map_or(0, Vec::len);
    let width = |column: usize| rows.iter().map(|row| row[column].len()).max().unwrap_or(0);
    let widths: Vec<usize> = (0..columns).map(width).collect();
    let mut text = String::new();
    for row in rows {
        let cells = row.iter().zip(&widths).enumerate().map(|(column, (cell, &width))| match column {
            0 => format!("{cell:<width$}"),
            _ => format!("{cell:>width$}"),
        });
        text.push_str(cells.collect::<Vec<_>>().join("  ").trim_end());
        text.push('\n');
    }
    text
}

/// The regions of all runs by their gaps. Classes outside the first and last filled one are left out.
fn histogram(figures: &Figures) -> String {
    let classes = figures.histogram();
    let is_filled = |(_, count): &(Option<f64>, usize)| *count > 0;
    let first = classes.iter().position(is_filled).unwrap_or(0);
    let last = classes.iter().rposition(is_filled).unwrap_or(0);
    let largest = classes.iter().map(|(_, count)| *count).max().unwrap_or(0).max(1);
    let mut text = format!("\n{}: regions by their longest gap\n", figures.fault);
    for (bound, count) in &classes[first..=last] {
        let class = bound.map_or("longer".to_owned(), |bound| format!("<= {bound:.0} ms"));
        // At least one mark where there is a region.
        let marks = (count * BAR).div_ceil(largest);
        let line = format!("{class:>12} {count:>6} {}", "#".repeat(marks));
        writeln!(text, "{}", line.trim_end()).expect("writing to memory");
    }
    text
}

#[cfg(test)]
mod tests {
    use super::super::figures::Run;
    use super::*;

    #[test]
    fn the_table_has_a_row_and_a_histogram_per_fault() {
        let mut gaps = vec![4.0; 80];
        gaps.extend([700.0; 20]);
        let run = Run { gaps, silence: 650.4, longest_call: 701.0, ..Run::default() };
        let stop = Run { gaps: vec![30.0; 100], administration: Some(12.3), ..Run::default() };
        let measured =
            [Figures { fault: "kill", runs: vec![run] }, Figures { fault: "master", runs: vec![stop.clone(), stop] }];
        let expected = "
gaps per region in ms, each figure from its worst run
fault   runs  p50  p99  max  silence  longest call  admin  failed  violations
kill       1    4  700  700      650           701      -       0           0
master     2   30   30   30        0             0     12       0           0

kill: regions by their longest gap
     <= 5 ms     80 ##################################################
    <= 10 ms      0
    <= 20 ms      0
    <= 50 ms      0
   <= 100 ms      0
   <= 200 ms      0
   <= 500 ms      0
  <= 1000 ms     20 #############

master: regions by their longest gap
    <= 50 ms    200 ##################################################
";
        assert_eq!(text(&measured), expected);
    }
}
