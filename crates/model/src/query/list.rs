//! Lists of fields as text.

use crate::schema::Path;

/// The parts between commas, but for commas in brackets and behind a backslash.
pub(super) fn split_list(text: &str) -> impl Iterator<Item = &str> {
    let (mut depth, mut is_escaped) = (0_usize, false);
    text.split(move |c: char| {
        let is_literal = is_escaped;
        is_escaped = c == '\\' && !is_literal;
        match c {
            _ if is_literal => false,
            '(' => {
                depth += 1;
                false
            }
            ')' => {
                depth = depth.saturating_sub(1);
                false
            }
            ',' => depth == 0,
            _ => false,
        }
    })
    .map(str::trim)
}

/// A path as text in a list: with a backslash before the characters that structure lists.
pub(super) fn escape(path: &Path) -> String {
    let text = path.to_string();
    let mut escaped = String::with_capacity(text.len());
    for c in text.chars() {
        if ",()/@:".contains(c) {
            escaped.push('\\');
        }
        escaped.push(c);
    }
    escaped
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lists_are_split_at_their_commas() {
        let parts = |text| split_list(text).collect::<Vec<_>>();
        assert_eq!(parts("a"), ["a"]);
        assert_eq!(parts("a, b,c"), ["a", "b", "c"]);
        assert_eq!(parts("sum(a,b),count"), ["sum(a,b)", "count"]);
        assert_eq!(parts(r"a\,b,c"), [r"a\,b", "c"]);
        assert_eq!(parts(r"a\\,b"), [r"a\\", "b"]);
        assert_eq!(parts(r"f\(x,y"), [r"f\(x", "y"]);
        let odd: Path = r"a\,b\(\/.c\:d".parse().unwrap();
        assert_eq!(escape(&odd), r"a\,b\(\/.c\:d");
    }
}
