//! What `--only` leaves of a suite.

use crate::failure::{Failure, Result};

/// A choice of names.
#[derive(Debug, Clone, Default)]
pub struct Only {
    /// For each group of names, those that are chosen; a group of which none is has them all.
    chosen: Vec<String>,
}

impl Only {
    /// Understands terms, each a name or a part of several, of any of the groups (subjects,
    /// operations, experiments). A whole name means nothing but that. Within a group that a term names something of, only what terms name
    /// is left; other groups are left whole.
    pub fn new(terms: &[String], groups: &[&[String]]) -> Result<Only> {
        let mut chosen = Vec::new();
        let mut used = vec![false; terms.len()];
        for group in groups {
            let mut of_group = Vec::new();
            for (term, used) in terms.iter().zip(&mut used) {
                let exact = groups.iter().any(|group| group.contains(term));
                let fits = |name: &&String| {
                    if exact {
                        *name == term
                    } else {
                        name.contains(term.as_str())
                    }
                };
                let named: Vec<String> = group.iter().filter(fits).cloned().collect();
                *used |= !named.is_empty();
                of_group.extend(named);
            }
            match of_group.is_empty() {
                true => chosen.extend_from_slice(group),
                false => chosen.append(&mut of_group),
            }
        }
        if let Some((term, _)) = terms.iter().zip(&used).find(|(_, used)| !**used) {
            let all: Vec<&str> = groups
                .iter()
                .flat_map(|g| g.iter())
                .map(String::as_str)
                .collect();
            return Err(Failure::new(format!(
                "--only {term}: there are only {}",
                all.join(", ")
            )));
        }
        Ok(Only { chosen })
    }

    /// Tells whether a name is chosen.
    pub fn has(&self, name: &str) -> bool {
        self.chosen.iter().any(|chosen| chosen == name)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn names(names: &[&str]) -> Vec<String> {
        names.iter().map(|name| name.to_string()).collect()
    }

    #[test]
    fn terms_narrow_the_groups_that_they_name_something_of() {
        let subjects = names(&["esker lazy", "esker lazy+embedded", "rocksdb blind"]);
        let operations = names(&["get", "lookup", "lookup K=10"]);
        let only = |terms: &[&str]| Only::new(&names(terms), &[&subjects, &operations]);
        let chosen = |terms: &[&str]| only(terms).unwrap().chosen;
        assert_eq!(chosen(&[]).len(), 6);
        assert_eq!(
            chosen(&["esker lazy", "get"]),
            names(&["esker lazy", "get"])
        );
        assert_eq!(chosen(&["esker", "get"]).len(), 3);
        assert!(only(&["rocksdb"]).unwrap().has("lookup"));
        assert!(!only(&["rocksdb"]).unwrap().has("esker lazy"));
        assert!(only(&["mongodb"]).is_err());
    }
}
