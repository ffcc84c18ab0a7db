//! Names that do not exist, and the one that was probably meant.

/// Reports an unknown name and suggests a similar one.
pub(crate) fn unknown_name<'n>(kind: &str, name: &str, known: impl IntoIterator<Item = &'n str>) -> String {
    let lower = name.to_lowercase();
    let nearest = known.into_iter().map(|known| (distance(&lower, known), known)).min();
    match nearest {
        Some((away, meant)) if away <= meant.len().div_ceil(3) => {
            format!("there is no {kind} `{name}`; did you mean `{meant}`?")
        }
        _ => format!("there is no {kind} `{name}`"),
    }
}

/// The Levenshtein distance of two words; the same letters in another order count as one edit.
fn distance(left: &str, right: &str) -> usize {
    let sorted = |word: &str| {
        let mut letters = word.as_bytes().to_vec();
        letters.sort_unstable();
        letters
    };
    if left != right && left.len() == right.len() && sorted(left) == sorted(right) {
        return 1;
    }
    // Names are short; a much longer word is not similar to any.
    if left.len() > 32 {
        return left.len();
    }
    let mut row: Vec<usize> = (0..=right.len()).collect();
    for (line, a) in left.bytes().enumerate() {
        let mut diagonal = row[0];
        row[0] = line + 1;
        for (column, b) in right.bytes().enumerate() {
            let replaced = diagonal + usize::from(a != b);
            diagonal = row[column + 1];
            row[column + 1] = replaced.min(diagonal + 1).min(row[column] + 1);
        }
    }
    row[right.len()]
}
