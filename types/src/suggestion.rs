//! The name that a misspelt one most likely means, for errors that suggest it.

/// The greatest edit distance at which a name counts as a misspelling.
const SLIP_MAX: usize = 2;

/// The known name most similar to `name`, if one is similar enough: at most two letters are wrong, missing or too many, and
/// fewer than half of the name.
///
/// ```
/// use terrane_types::closest;
/// assert_eq!(closest("read_onyl", ["region_size", "read_only"]), Some("read_only"));
/// assert_eq!(closest("colour", ["region_size", "read_only"]), None);
/// ```
pub fn closest<'a>(name: &str, known: impl IntoIterator<Item = &'a str>) -> Option<&'a str> {
    let distances = known.into_iter().map(|known| (slips(name, known), known));
    distances.filter(|(slips, known)| *slips <= SLIP_MAX && *slips < known.len() / 2).min().map(|(_, known)| known)
}

/// The Levenshtein distance of two names.
fn slips(one: &str, other: &str) -> usize {
    let other: Vec<char> = other.chars().collect();
    let mut above: Vec<usize> = (0..=other.len()).collect();
    for (row, letter) in one.chars().enumerate() {
        let mut current = vec![row + 1];
        for (column, against) in other.iter().enumerate() {
            let replaced = above[column] + usize::from(letter != *against);
            current.push(replaced.min(above[column + 1] + 1).min(current[column] + 1));
        }
        above = current;
    }
    above[other.len()]
}
