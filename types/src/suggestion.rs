//! The name that a misspelt one most likely means, for errors that suggest it.

/// The greatest edit distance at which a name counts as a misspelling.
const SLIP_MAX: usize = 2;

/// The known name most similar to `name`, if one is similar enough: at most two letters are wrong, missing, too many or
/// swapped with the next, and fewer than half of the name.
///
/// ```
/// use terrane_types::closest;
/// assert_eq!(closest("read_onyl", ["region_size", "read_only"]), Some("read_only"));
/// assert_eq!(closest("scna", ["scan", "count"]), Some("scan"));
/// assert_eq!(closest("wbe", ["web"]), Some("web"));
/// assert_eq!(closest("colour", ["region_size", "read_only"]), None);
/// ```
pub fn closest<'a>(name: &str, known: impl IntoIterator<Item = &'a str>) -> Option<&'a str> {
    let distances = known.into_iter().map(|known| (slips(name, known), known));
    distances.filter(|(slips, known)| *slips <= SLIP_MAX && *slips * 2 < known.len()).min().map(|(_, known)| known)
}

/// The edit distance of two names, in which a swap of neighbouring letters is one edit.
fn slips(one: &str, other: &str) -> usize {
    let other: Vec<char> = other.chars().collect();
    let (mut before, mut above): (Vec<usize>, Vec<usize>) = (Vec::new(), (0..=other.len()).collect());
    let mut previous = None;
    for (row, letter) in one.chars().enumerate() {
        let mut current = vec![row + 1];
        for (column, against) in other.iter().enumerate() {
            let replaced = above[column] + usize::from(letter != *against);
            let mut least = replaced.min(above[column + 1] + 1).min(current[column] + 1);
            if column > 0 && previous == Some(*against) && other[column - 1] == letter {
                least = least.min(before[column - 1] + 1);
            }
            current.push(least);
        }
        (before, above, previous) = (above, current, Some(letter));
    }
    above[other.len()]
}
