//! Parts of documents that a list in the code gives, between two comments: checked to be what the list gives, and written by
//! `cargo xtask fix`.

use super::finding::Finding;

const END: &str = "<!-- End of what is rendered. -->";

/// A document and the part of it that is rendered.
pub struct Rendered {
    /// The document.
    pub file: &'static str,
    /// The source file of the list.
    pub list: &'static str,
    /// Renders the part.
    pub text: fn() -> String,
}

impl Rendered {
    /// The document with its part as the list has it; `None` if it has no place for it.
    pub fn render(&self, document: &str) -> Option<String> {
        let mark = self.begin();
        let begin = document.find(&mark)? + mark.len();
        let end = begin + document[begin..].find(END)?;
        Some(format!("{}{}\n{}", &document[..begin], (self.text)(), &document[end..]))
    }

    /// A finding if the document's part is not the one of the list.
    pub fn examine(&self, document: &str) -> Option<Finding> {
        let Some(rendered) = self.render(document) else {
            let message = format!("has no place between `{}` and `{END}`", self.begin().trim());
            return Some(Finding::new(self.file, 1, message));
        };
        if rendered == document {
            return None;
        }
        let same = document.lines().zip(rendered.lines()).take_while(|(ours, theirs)| ours == theirs).count();
        Some(Finding::new(self.file, same + 1, format!("differs from {}: run `cargo xtask fix`", self.list)))
    }

    fn begin(&self) -> String {
        format!("<!-- Rendered from {} by `cargo xtask fix`; do not edit. -->\n", self.list)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LIST: Rendered = Rendered { file: "docs/list.md", list: "list.rs", text: || "\nfresh\n".to_owned() };

    #[test]
    fn the_list_is_between_its_marks() {
        let document = format!("# List\n{}old\n{END}\nThe rest.\n", LIST.begin());
        let stale = LIST.examine(&document).unwrap();
        assert_eq!((stale.file.as_str(), stale.line), ("docs/list.md", 3));
        let rendered = LIST.render(&document).unwrap();
        assert!(LIST.examine(&rendered).is_none());
        assert_eq!(rendered, format!("# List\n{}\nfresh\n\n{END}\nThe rest.\n", LIST.begin()));
    }

    #[test]
    fn a_document_without_a_place_for_it_is_found() {
        assert!(LIST.examine("# List\n").is_some());
    }
}
