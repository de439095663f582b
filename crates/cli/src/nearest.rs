//! Suggestions for unknown names: the most similar known name.

/// The most similar of the known names, if it is similar enough. Part of a path stands for the
/// whole path: `name` for `user.name`. A prefix of an unknown path (`user` for `user.nme`) is
/// suggested if no other name is more similar.
pub(crate) fn nearest<'a>(name: &str, known: impl IntoIterator<Item = &'a str>) -> Option<&'a str> {
    const LEAST: f64 = 0.55;
    let sought = name.to_lowercase();
    let likeness = |known: &str| {
        let known = known.to_lowercase();
        let is_part = |whole: &str, part: &str| {
            whole.ends_with(&format!(".{part}")) || whole.starts_with(&format!("{part}."))
        };
        let similar = strsim::normalized_damerau_levenshtein(&known, &sought);
        match (is_part(&known, &sought), is_part(&sought, &known)) {
            (true, _) => 0.9,
            (false, true) => similar.clamp(0.6, 0.75),
            (false, false) => similar,
        }
    };
    let similar = known
        .into_iter()
        .map(|known| (likeness(known), known))
        .filter(|(likeness, known)| *likeness >= LEAST && *known != name);
    similar
        .max_by(|(a, _), (b, _)| a.total_cmp(b))
        .map(|(_, known)| known)
}

/// ``: did you mean `x`?`` for an error text; empty if no name is similar.
pub(crate) fn meant<'a>(name: &str, known: impl IntoIterator<Item = &'a str>) -> String {
    nearest(name, known)
        .map(|known| format!(": did you mean `{known}`?"))
        .unwrap_or_default()
}
