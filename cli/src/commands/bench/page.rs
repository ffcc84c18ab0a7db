//! Reports as files: JSON, or a page to look at.
//!
//! The page is a template with the reports inside of it, as JSON, and draws them in the browser. It fetches nothing, so it can
//! be kept, sent and opened anywhere.

use std::path::Path;

use serde::Serialize;

use super::compare::Comparison;
use super::report::Report;
use crate::args::bench::run::{ReportFile, ReportForm};
use crate::failure::Failure;

/// The page, with the places of its title and its data.
const PAGE: &str = include_str!("page/page.html");
const TITLE_PLACE: &str = "{{title}}";
const DATA_PLACE: &str = "{{data}}";

/// Writes a report to a file in the form that its name says.
pub async fn save(report: &Report, file: &ReportFile) -> Result<(), Failure> {
    let text = match file.form {
        ReportForm::Json => json(report)? + "\n",
        ReportForm::Html => page(&[report], None)?,
    };
    write(&file.path, &text).await
}

/// What a page shows: one run, or two and their differences.
#[derive(Serialize)]
struct PageData<'a> {
    reports: &'a [&'a Report],
    #[serde(skip_serializing_if = "Option::is_none")]
    comparison: Option<&'a Comparison>,
}

/// A page that shows one run, or two and their differences.
pub fn page(reports: &[&Report], comparison: Option<&Comparison>) -> Result<String, Failure> {
    let names: Vec<&str> = reports.iter().map(|report| report.parameters.workload.as_str()).collect();
    let title = match names[..] {
        [one] => format!("terrane bench: {one}"),
        _ => format!("terrane bench compare: {}", names.join(", ")),
    };
    // A text in the data, such as a table's name, must not end the element.
    let data = json(&PageData { reports, comparison })?.replace('<', "\\u003c");
    let escaped = title.replace('&', "&amp;").replace('<', "&lt;");
    Ok(PAGE.replacen(TITLE_PLACE, &escaped, 1).replacen(DATA_PLACE, &data, 1))
}

/// Writes the text into a file, whole or not at all.
pub async fn write(path: &Path, text: &str) -> Result<(), Failure> {
    terrane_env::fs::write_durable(path, text.as_bytes()).await.map_err(|error| {
        Failure::new(format!("cannot write {}: {error}", path.display()))
            .advise("check that its directory exists and can be written to")
    })
}

fn json(object: &impl Serialize) -> Result<String, Failure> {
    serde_json::to_string(object).map_err(|error| Failure::new(format!("cannot write the report as JSON: {error}")))
}

#[cfg(test)]
mod tests {
    use super::super::compare::compare;
    use super::super::report::DATA_BEGIN;
    use super::super::report::tests::report;
    use super::*;

    #[test]
    fn a_page_fetches_nothing_and_its_data_cannot_end_it() {
        let page = page(&[&report("ycsb-a", &[(1.0, 1)])], None).expect("a page");
        for fetch in ["http://", "https://", "src=", "@import", "url(", "fetch(", "XMLHttpRequest", "<link"] {
            let found =
                page.match_indices(fetch).filter(|(at, _)| !page[*at..].starts_with("http://www.w3.org/2000/svg"));
            assert_eq!(found.count(), 0, "{fetch}");
        }
        assert!(!page.contains("{{") && !page.contains("t</script>"));
    }

    #[test]
    fn a_page_of_one_run_is_a_report_and_one_of_two_is_not() {
        let report = report("ycsb-a", &[(1.0, 1)]);
        let one = page(&[&report], None).expect("a page");
        assert!(one.contains(DATA_BEGIN));
        assert_eq!(Report::parse(one.as_bytes()), Ok(report.clone()));
        let two = page(&[&report, &report], Some(&compare(&report, &report))).expect("a page");
        assert!(Report::parse(two.as_bytes()).expect_err("two").contains("holds 2 reports"));
    }
}
