//! Patterns of tables' names, in Java's syntax.

use terrane_types::{Invalid, TableName};

use crate::filter::Pattern;

/// Tables whose whole names match a regular expression. As in HBase, names in the default namespace are matched without it and
/// with it, and the empty pattern matches no table.
pub struct NamePattern(Pattern);

impl NamePattern {
    /// The pattern of this expression.
    ///
    /// # Errors
    /// If the expression is malformed, too long or not supported.
    pub fn new(java: &str) -> Result<Self, Invalid> {
        Pattern::whole(java).map(Self)
    }

    /// Whether a table's name matches.
    ///
    /// # Errors
    /// If that takes more steps than a search may.
    pub fn matches(&self, name: &TableName) -> Result<bool, Invalid> {
        self.matches_parts(name.namespace(), name.table())
    }

    pub(crate) fn matches_parts(&self, namespace: &str, table: &str) -> Result<bool, Invalid> {
        let has_default = namespace == TableName::DEFAULT_NAMESPACE;
        if has_default && self.0.is_match(table.as_bytes())? {
            return Ok(true);
        }
        self.0.is_match(format!("{namespace}:{table}").as_bytes())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn matches(pattern: &str, name: &str) -> bool {
        NamePattern::new(pattern).unwrap().matches(&name.parse().unwrap()).unwrap()
    }

    #[test]
    fn a_pattern_matches_whole_names() {
        assert!(matches(".*", "n:t") && matches("t|u", "u") && matches("n:.*", "n:t"));
        assert!(!matches("t", "tt") && !matches("t", "n:t") && !matches("t|u", "tu"));
    }

    #[test]
    fn the_empty_pattern_matches_no_table() {
        assert!(!matches("", "t") && !matches("", "n:t"));
    }

    #[test]
    fn names_in_the_default_namespace_match_with_it_and_without_it() {
        assert!(matches("default:t.*", "t1") && matches("t.*", "t1") && matches("(default:)?t1", "t1"));
        assert!(!matches("other:t.*", "t1") && !matches("default:t", "n:t"));
    }

    #[test]
    fn patterns_are_those_of_java() {
        assert!(matches(r"\Qa.b\E", "a.b") && !matches(r"\Qa.b\E", "axb"));
        assert!(matches("(?!tmp|default:).*", "data") && !matches("(?!tmp|default:).*", "tmp1"));
        assert!(matches(r"\p{Alpha}++", "data"));
        for refused in ["(", "a)|(b", "*a"] {
            assert!(NamePattern::new(refused).is_err(), "{refused}");
        }
    }
}
