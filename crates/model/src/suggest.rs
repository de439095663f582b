//! Suggestions for unknown names in error texts.

/// ``: did you mean `x`?`` with the known name that is most similar to `name`; empty if none is
/// similar.
pub fn meant<'a>(name: &str, known: impl IntoIterator<Item = &'a str>) -> String {
    match nearest(name, known) {
        Some(known) => format!(": did you mean `{known}`?"),
        None => String::new(),
    }
}

/// The known name that is most similar to `name`, if one is similar.
pub fn nearest<'a>(name: &str, known: impl IntoIterator<Item = &'a str>) -> Option<&'a str> {
    let sought: Vec<char> = name.to_lowercase().chars().collect();
    let near = known.into_iter().filter_map(|known| {
        let letters: Vec<char> = known.to_lowercase().chars().collect();
        let longest = letters.len().max(sought.len());
        let distance = edits(&letters, &sought);
        // More than half of the name must be right.
        (known != name && distance * 9 <= longest * 4)
            .then(|| (distance * 1000 / longest.max(1), known))
    });
    let nearest = near.min_by_key(|(distance, _)| *distance);
    nearest.map(|(_, known)| known)
}

/// The number of edits between two words: changed, added, removed, or swapped adjacent letters.
fn edits(a: &[char], b: &[char]) -> usize {
    let mut before: Vec<usize> = Vec::new();
    let mut last: Vec<usize> = (0..=b.len()).collect();
    let mut previous = None;
    for (i, x) in a.iter().enumerate() {
        let mut row = vec![i + 1];
        for (j, y) in b.iter().enumerate() {
            let at = |row: &[usize], at: usize| row.get(at).copied().unwrap_or(usize::MAX / 2);
            let mut least = (at(&last, j) + usize::from(x != y))
                .min(at(&last, j + 1) + 1)
                .min(at(&row, j) + 1);
            let other = j.checked_sub(1).and_then(|j| b.get(j));
            if previous == Some(y) && other == Some(x) {
                least = least.min(at(&before, j - 1) + 1);
            }
            row.push(least);
        }
        before = std::mem::replace(&mut last, row);
        previous = Some(x);
    }
    last.last().copied().unwrap_or(a.len())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn near_names_are_suggested_and_others_are_not() {
        let known = ["int", "float", "string", "bool", "time", "time_ms"];
        for (name, near) in [
            ("strnig", "string"),
            ("strng", "string"),
            ("integer", ""),
            ("timems", "time_ms"),
            ("Float", "float"),
            ("xyzzy", ""),
            ("boolean", "bool"),
            ("", ""),
        ] {
            let said = meant(name, known);
            match near {
                "" => assert_eq!(said, "", "{name}"),
                near => assert_eq!(said, format!(": did you mean `{near}`?"), "{name}"),
            }
        }
    }

    #[test]
    fn exchanged_letters_are_one_edit() {
        let edits = |a: &str, b: &str| {
            let letters = |text: &str| text.chars().collect::<Vec<_>>();
            super::edits(&letters(a), &letters(b))
        };
        assert_eq!(edits("", "abc"), 3);
        assert_eq!(edits("abc", ""), 3);
        assert_eq!(edits("abc", "acb"), 1);
        assert_eq!(edits("abcd", "abcd"), 0);
        assert_eq!(edits("kitten", "sitting"), 3);
    }
}
