//! Paths of fields in a record.

use std::fmt;
use std::str::FromStr;

use crate::error::Error;

/// The characters that a backslash may escape in a path: the dot, the backslash, and the operators
/// of conditions.
const ESCAPED: &str = ".\\=<>^";

/// Further characters that it may escape: those that end a path in a condition, in the text of an
/// index, or in a list of fields.
const ALSO_ESCAPED: &str = "!()\"', ?/@:";

/// The path of a field: the names of its enclosing objects, and its own. As text the names are
/// joined by dots: `user.name`. A backslash escapes a dot, a backslash, and the characters of
/// operators (`=`, `<`, `>`, `^`): `a\.b` is one name.
///
/// Arrays on the path have no name: `tags.text` reaches into each element of an array `tags`.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Path {
    names: Vec<String>,
}

impl Path {
    /// Parses a path.
    ///
    /// # Errors
    /// The reason: a name is empty, or a backslash precedes a character that it cannot escape.
    pub fn parse(text: &str) -> Result<Path, String> {
        let mut names = Vec::new();
        let mut name = String::new();
        let mut chars = text.chars();
        loop {
            match chars.next() {
                Some('\\') => match chars.next() {
                    Some(c) if ESCAPED.contains(c) || ALSO_ESCAPED.contains(c) => name.push(c),
                    _ => {
                        return Err(format!(
                            "path {text:?}: a backslash must stand before one of {ESCAPED}"
                        ));
                    }
                },
                end @ (Some('.') | None) => {
                    if name.is_empty() {
                        return Err(format!("path {text:?}: a field name is empty"));
                    }
                    names.push(std::mem::take(&mut name));
                    if end.is_none() {
                        return Ok(Path { names });
                    }
                }
                Some(c) => name.push(c),
            }
        }
    }

    /// Parses paths with commas between them. A comma behind a backslash is part of a name.
    ///
    /// ```
    /// use esker_model::schema::Path;
    ///
    /// let paths = Path::parse_list("user.name,n")?;
    /// assert_eq!(paths, [Path::parse("user.name")?, Path::parse("n")?]);
    /// # Ok::<(), String>(())
    /// ```
    ///
    /// # Errors
    /// As [`Path::parse`].
    pub fn parse_list(text: &str) -> Result<Vec<Path>, String> {
        let mut is_escaped = false;
        let is_comma = |c| {
            let is_comma = c == ',' && !is_escaped;
            is_escaped = c == '\\' && !is_escaped;
            is_comma
        };
        text.split(is_comma).map(Path::parse).collect()
    }

    /// The names, outermost first; at least one.
    pub fn names(&self) -> impl ExactSizeIterator<Item = &str> {
        self.names.iter().map(String::as_str)
    }

    /// A placeholder for a path that could not be read.
    pub(crate) fn stand_in() -> Path {
        Path {
            names: vec!["?".to_string()],
        }
    }

    /// The path of the field `name` of the object at this path.
    pub(super) fn child(&self, name: &str) -> Path {
        let mut names = self.names.clone();
        names.push(name.to_owned());
        Path { names }
    }
}

/// A value accepted as a path: a [`Path`], or its text.
pub trait IntoPath {
    /// The path.
    ///
    /// # Errors
    /// [`Error::BadInput`] if the text is not a path.
    fn into_path(self) -> Result<Path, Error>;
}

impl IntoPath for Path {
    fn into_path(self) -> Result<Path, Error> {
        Ok(self)
    }
}

impl IntoPath for &Path {
    fn into_path(self) -> Result<Path, Error> {
        Ok(self.clone())
    }
}

impl IntoPath for &str {
    fn into_path(self) -> Result<Path, Error> {
        self.parse()
    }
}

impl IntoPath for &String {
    fn into_path(self) -> Result<Path, Error> {
        self.parse()
    }
}

impl FromStr for Path {
    type Err = Error;

    fn from_str(text: &str) -> Result<Path, Error> {
        Path::parse(text).map_err(Error::bad_input)
    }
}

impl fmt::Display for Path {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (i, name) in self.names.iter().enumerate() {
            if i > 0 {
                f.write_str(".")?;
            }
            for c in name.chars() {
                if ESCAPED.contains(c) {
                    f.write_str("\\")?;
                }
                write!(f, "{c}")?;
            }
        }
        Ok(())
    }
}
