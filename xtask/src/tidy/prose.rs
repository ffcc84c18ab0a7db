//! Wording that documents, comments and messages avoid. CONTRIBUTING.md has the rules of style; this list holds the
//! phrases that a search can find.

use super::finding::Finding;
use super::text::{code_of, find_word, line_of};

/// Phrases, in lower case, and what to write instead.
const AVOIDED: &[(&str, &str)] = &[
    ("anew", "again, or a new one"),
    ("asks of you", "requires"),
    ("come again", "return"),
    ("comes again", "returns"),
    ("ends well", "succeeds"),
    ("for ever", "forever, permanently"),
    ("how-manieth", "ordinal"),
    ("in vain", "without effect, or what the failure was"),
    ("in words", "as text"),
    ("mends", "repairs"),
    ("nobody", "no client, no server, none"),
    ("reckoned", "computed"),
    ("stands in", "replaces, or is in"),
    ("who asks", "a caller, a client"),
    ("who reads", "a reader"),
    ("who wants", "to ..."),
    ("who waits", "a waiting caller"),
    ("whoever", "the caller, the client"),
];

/// Files that quote the phrases: this one, and the rules of style.
const QUOTING: &[&str] = &["xtask/src/tidy/prose.rs", "CONTRIBUTING.md"];

/// Places with such a phrase: anywhere in a document, in the comments and messages of code.
pub fn examine(file: &str, text: &str) -> Vec<Finding> {
    if QUOTING.contains(&file) {
        return Vec::new();
    }
    let prose = if file.ends_with(".rs") { prose_of(text) } else { text.to_owned() };
    let lower = prose.to_ascii_lowercase();
    let found = AVOIDED.iter().flat_map(|(phrase, instead)| {
        // "Who waits ..." is no sentence; "a caller who waits" is fine.
        let counts = |at: &usize| !phrase.starts_with("who ") || prose[*at..].starts_with('W');
        let at = find_word(&lower, phrase).filter(counts).map(|at| line_of(&lower, at)).collect::<Vec<_>>();
        at.into_iter().map(move |line| Finding::new(file, line, format!("\"{phrase}\": write {instead}")))
    });
    let mut found: Vec<Finding> = found.collect();
    found.sort_by_key(|finding| finding.line);
    found
}

/// What `code_of` leaves out, at the same places: comments and literals.
fn prose_of(text: &str) -> String {
    let code = code_of(text);
    let kept = text.bytes().zip(code.bytes()).map(|(text, code)| if code.is_ascii_whitespace() { text } else { b' ' });
    String::from_utf8_lossy(&kept.collect::<Vec<u8>>()).into_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn lines(file: &str, text: &str) -> Vec<usize> {
        examine(file, text).into_iter().map(|finding| finding.line).collect()
    }

    #[test]
    fn phrases_are_found_in_documents_comments_and_messages() {
        assert_eq!(lines("docs/a.md", "It begins\nanew, in vain.\n"), [2, 2]);
        assert_eq!(lines("a/src/b.rs", "/// Whoever reads.\nfn f() { g(\"for ever\") }\n"), [1, 2]);
        assert_eq!(lines("a/b.proto", "// Nobody\n"), [1]);
        assert_eq!(lines("docs/a.md", "Who waits is told.\nFor anyone who waits.\n"), [1]);
    }

    #[test]
    fn names_in_code_and_longer_words_are_left_alone() {
        assert_eq!(lines("a/src/b.rs", "fn nobody() { anew::anew() } // renewed, anewish\n"), [0; 0]);
        assert_eq!(lines(QUOTING[0], "// anew\n"), [0; 0]);
    }
}
