//! The page that lists every metric is written from the list in `metrics/`, and checked to be up to date.

use super::finding::Finding;

/// The page.
pub const FILE: &str = "docs/metrics.md";

/// The page as it should be.
pub fn render() -> String {
    terrane_metrics::page::render()
}

/// Compares the page with the list.
pub fn examine(page: &str) -> Option<Finding> {
    let differs = page.lines().zip(render().lines()).position(|(is, should)| is != should);
    (page != render()).then(|| {
        let line = differs.map_or(0, |line| line + 1);
        Finding::new(FILE, line, "is not what the list of metrics gives: run `cargo xtask fix`".to_owned())
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_rendered_page_passes() {
        assert!(examine(&render()).is_none());
        let finding = examine(&render().replacen("`get`", "`got`", 1)).or_else(|| examine("")).unwrap();
        assert_eq!(finding.file, FILE);
    }
}
