//! Parts of definitions as people write them: `id:int`, `user.name:lazy:string`, `until:time_ms`.
//!
//! A type that is left out is open, and is inferred from records.

use std::fmt;
use std::str::FromStr;

use super::{DatasetDef, Index, IndexDef, IndexKind, Layout};
use crate::schema::{KeyType, Path, Type, compound_paths, point_time_paths};
use crate::suggest::meant;
use crate::tokens::Tokenizer;

/// The index kinds for users, as help and errors list them.
pub const KINDS: &str =
    "lazy, recent, composite, embedded, fingerprint, filter, spatial, space-time";

/// The end of the text of an index with unique values.
const UNIQUE: &str = ":unique";

/// The types of fields, as errors list them.
const TYPES: [&str; 9] = [
    "int", "float", "string", "bool", "time", "time_s", "time_ms", "time_us", "time_ns",
];

/// A primary key: `FIELD[:TYPE]`, several fields with commas between them, or `auto`.
///
/// ```
/// use esker_model::definition::KeyText;
/// use esker_model::schema::KeyType;
///
/// let key: KeyText = "user.id:int".parse()?;
/// assert_eq!((key.path.to_string().as_str(), key.ty), ("user.id", Some(KeyType::Int)));
/// assert!("id:integer".parse::<KeyText>().is_err());
/// # Ok::<(), String>(())
/// ```
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct KeyText {
    /// Its path in the record.
    pub path: Path,
    /// Its type, if given.
    pub ty: Option<KeyType>,
    /// True if records without a key get a generated one.
    pub is_auto: bool,
}

/// The parts of the text between commas; a comma behind a backslash is part of a name.
fn between_commas(text: &str) -> Vec<&str> {
    let mut is_escaped = false;
    let is_comma = |c| {
        let is_comma = c == ',' && !is_escaped;
        is_escaped = c == '\\' && !is_escaped;
        is_comma
    };
    text.split(is_comma).collect()
}

/// True if the text has a comma that is not part of a name.
fn has_commas(text: &str) -> bool {
    between_commas(text).len() > 1
}

/// The text before a question mark at the end. Behind a backslash, unless that is escaped itself,
/// the mark is part of the name.
fn before_mark(text: &str) -> Option<&str> {
    let rest = text.strip_suffix('?')?;
    let backslashes = rest.len() - rest.trim_end_matches('\\').len();
    backslashes.is_multiple_of(2).then_some(rest)
}

/// The name with a backslash before a question mark at its end, which is part of it.
fn without_mark(path: &str) -> String {
    match path.strip_suffix('?') {
        Some(name) => format!("{name}\\?"),
        None => path.to_owned(),
    }
}

impl FromStr for KeyText {
    type Err = String;

    fn from_str(text: &str) -> Result<KeyText, String> {
        if text == "auto" {
            let made = DatasetDef::auto_key();
            return Ok(KeyText {
                path: made.key,
                ty: Some(made.key_type),
                is_auto: true,
            });
        }
        let (path, ty) = match text.rsplit_once(':') {
            Some((path, ty)) => {
                let refuse = |_| {
                    let meant = meant(ty, ["int", "string"]);
                    format!("unknown key type `{ty}`{meant} (int or string)")
                };
                (path, Some(ty.parse().map_err(refuse)?))
            }
            None => (text, None),
        };
        let ty = match (has_commas(path), ty) {
            (false, ty) => ty,
            (true, None | Some(KeyType::Fields)) => Some(KeyType::Fields),
            (true, Some(ty)) => {
                return Err(format!(
                    "the fields of a composite key can be whole numbers or texts: leave :{ty} out"
                ));
            }
        };
        Ok(KeyText {
            path: Path::parse(path)?,
            ty,
            is_auto: false,
        })
    }
}

impl fmt::Display for KeyText {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.ty {
            _ if self.is_auto => write!(f, "auto"),
            Some(KeyType::Fields) | None => write!(f, "{}", self.path),
            Some(ty) => write!(f, "{}:{ty}", self.path),
        }
    }
}

/// The path of a time at which records expire: `PATH[:TYPE]`, where `TYPE` is a type of times.
///
/// ```
/// use esker_model::definition::ExpiresText;
/// use esker_model::schema::Type;
///
/// let expires: ExpiresText = "until:time_ms".parse()?;
/// assert_eq!((expires.path.to_string().as_str(), expires.ty), ("until", Some(Type::TimeMs)));
/// # Ok::<(), String>(())
/// ```
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ExpiresText {
    /// Its path in the record.
    pub path: Path,
    /// Its type, if given.
    pub ty: Option<Type>,
}

impl FromStr for ExpiresText {
    type Err = String;

    fn from_str(text: &str) -> Result<ExpiresText, String> {
        let (path, ty) = match text.rsplit_once(':') {
            Some((path, name)) => {
                let ty = name.parse().ok().filter(|ty: &Type| ty.is_time());
                let ty = ty.ok_or_else(|| {
                    let meant = meant(name, TYPES.into_iter().filter(|t| t.starts_with("time")));
                    format!(
                        "records expire at a time, but `{name}` is not a type of times{meant} (time, time_s, time_ms, time_us or time_ns)"
                    )
                })?;
                (path, Some(ty))
            }
            None => (text, None),
        };
        Ok(ExpiresText {
            path: Path::parse(path)?,
            ty,
        })
    }
}

impl fmt::Display for ExpiresText {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.ty {
            Some(ty) => write!(f, "{}:{ty}", self.path),
            None => write!(f, "{}", self.path),
        }
    }
}

/// An attribute and how to index it: `PATH[?][:KIND[:TYPE[:TOKENIZER]]][:unique]`, or for points
/// `PATH:spatial[:LAYOUT][:plane]` and `POINT@TIME:space-time[:LAYOUT][:plane]`. The question mark
/// allows values of other types; a question mark that is part of the name is escaped by a
/// backslash. `unique` refuses a second record with the same value. Several paths with commas
/// between them are a compound index, `PATH,PATH[:KIND][:unique]`; a comma that is part of a name
/// is escaped.
///
/// ```
/// use esker_model::definition::{IndexKind, IndexText};
/// use esker_model::schema::Type;
///
/// let index: IndexText = "code?:composite:int".parse()?;
/// assert_eq!((index.kind, index.ty), (IndexKind::Composite, Some(Type::Int)));
/// assert!(index.lenient);
/// assert_eq!(index.to_string(), "code?:composite:int");
/// // The default kind is lazy, and the type is left open.
/// assert_eq!("user.name".parse::<IndexText>()?.kind, IndexKind::Lazy);
/// # Ok::<(), String>(())
/// ```
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct IndexText {
    /// Its path in the record.
    pub path: Path,
    /// The kind of its index.
    pub kind: IndexKind,
    /// The type of its values, if given.
    pub ty: Option<Type>,
    /// The tokenizer of its values.
    pub tokenizer: Tokenizer,
    /// True if records with values of other types are kept.
    pub lenient: bool,
    /// True if no two records may have the same value.
    pub unique: bool,
}

impl IndexText {
    /// The default index kind: of the kinds that read little beside the matches, the fastest to
    /// query.
    pub const USUAL: IndexKind = IndexKind::Lazy;

    /// The type, if it is given or follows from the kind.
    pub fn known_type(&self) -> Option<Type> {
        self.kind.type_for(self.ty)
    }

    /// True if the type, or the unit of its times, is to be inferred from records.
    pub fn is_open(&self) -> bool {
        self.known_type().is_none_or(|ty| ty == Type::Time)
    }

    /// The attribute, of this type.
    pub fn to_def(&self, ty: Type) -> IndexDef {
        IndexDef::new(self.path.clone(), self.kind, ty)
            .tokenizer(self.tokenizer)
            .lenient(self.lenient)
            .unique(self.unique)
    }

    /// The index, to be added to a dataset.
    pub fn to_index(&self) -> Index {
        Index::new(self.kind)
            .of_type(self.ty)
            .tokenizer(self.tokenizer)
            .lenient_if(self.lenient)
            .unique_if(self.unique)
    }

    /// The text of a declared attribute.
    pub fn of(def: &IndexDef) -> IndexText {
        IndexText {
            path: def.path.clone(),
            kind: def.kind,
            ty: Some(def.ty),
            tokenizer: def.tokenizer,
            lenient: def.lenient,
            unique: def.unique,
        }
    }

    /// True if an attribute agrees with this text; parts that the text leaves open agree with
    /// anything.
    pub fn agrees(&self, def: &IndexDef) -> bool {
        let ty = self.ty.and_then(|ty| self.kind.type_for(Some(ty)));
        def.path == self.path
            && def.ty.is_compound() == self.is_compound()
            && def.kind == self.kind
            && def.tokenizer == self.tokenizer
            && def.lenient == self.lenient
            && def.unique == self.unique
            && ty.is_none_or(|ty| def.ty.is_allowed_by(ty))
    }

    /// Parses `PATH[:plane]` or `POINT@TIME[:plane]`: the points by which records are stored.
    ///
    /// # Errors
    /// If the path is invalid.
    pub fn cluster(text: &str) -> Result<IndexText, String> {
        let ty = text
            .rsplit_once(':')
            .and_then(|(path, ty)| Some((path, ty.parse::<Type>().ok()?)));
        let (path, ty) = match ty {
            Some((path, ty)) => (path, Some(ty)),
            None => (text, None),
        };
        let path = Path::parse(path)?;
        let kind = match point_time_paths(&path) {
            Ok(_) => IndexKind::SpaceTime(Layout::Clustered),
            Err(_) => IndexKind::Spatial(Layout::Clustered),
        };
        Ok(IndexText::new(path, kind, ty))
    }

    /// True for a compound index.
    pub fn is_compound(&self) -> bool {
        self.ty == Some(Type::Compound)
    }

    /// Declares the times of indexes over place and time, as type time, and the fields of compound
    /// indexes, whose types are left open, if they are not declared yet.
    pub fn declare_parts(indexes: &mut Vec<IndexText>) {
        let compounds = indexes.iter().filter(|index| index.is_compound());
        let fields = compounds.flat_map(|index| compound_paths(&index.path).unwrap_or_default());
        for path in fields.collect::<Vec<Path>>() {
            if indexes.iter().all(|index| index.path != path) {
                indexes.push(IndexText::new(path, IndexKind::None, None));
            }
        }
        let timed = indexes
            .iter()
            .filter(|index| matches!(index.kind, IndexKind::SpaceTime(_)));
        let times = timed.filter_map(|index| Some(point_time_paths(&index.path).ok()?.1));
        for path in times.collect::<Vec<Path>>() {
            if indexes.iter().all(|index| index.path != path) {
                indexes.push(IndexText::new(path, IndexKind::None, Some(Type::Time)));
            }
        }
    }

    fn new(path: Path, kind: IndexKind, ty: Option<Type>) -> IndexText {
        IndexText {
            path,
            kind,
            ty,
            tokenizer: Tokenizer::default(),
            lenient: false,
            unique: false,
        }
    }

    /// From the paths of the fields as written.
    fn compound(path: &str, kind: IndexKind, ty: Option<Type>) -> Result<IndexText, String> {
        if let Some(ty) = ty.filter(|ty| !ty.is_compound()) {
            return Err(format!(
                "`{path}` is a compound index, whose fields have types of their own: leave :{ty} out, and declare a field that needs it, as in --index at:none:time; a comma that is part of a name is written \\,"
            ));
        }
        let fields = between_commas(path);
        if fields.iter().any(|field| field.contains(',')) {
            return Err(format!(
                "`{path}`: a field whose name has a comma cannot be part of a compound index"
            ));
        }
        if let Some(plain) = fields.iter().find_map(|field| before_mark(field)) {
            return Err(format!(
                "`{path}`: leave the question mark out, and declare the field that may have values of other types, as in --index {plain}?:none"
            ));
        }
        let path = Path::parse(path)?;
        compound_paths(&path).map_err(|error| error.to_string())?;
        Ok(IndexText::new(path, kind, Some(Type::Compound)))
    }

    /// From the path as written, which may end with a question mark.
    fn at(path: &str, kind: IndexKind, ty: Option<Type>) -> Result<IndexText, String> {
        let is_place = kind.is_spatial() || ty.is_some_and(Type::has_place);
        if !is_place && has_commas(path) {
            return IndexText::compound(path, kind, ty);
        }
        let without = before_mark(path);
        let lenient = without.is_some();
        if lenient && kind.is_spatial() {
            return Err(
                "an index of points cannot be lenient: leave the question mark out; records without a valid position are kept in any case"
                    .to_owned(),
            );
        }
        Ok(IndexText {
            lenient,
            ..IndexText::new(Path::parse(without.unwrap_or(path))?, kind, ty)
        })
    }
}

impl FromStr for IndexText {
    type Err = String;

    fn from_str(text: &str) -> Result<IndexText, String> {
        if let Some(rest) = text.strip_suffix(UNIQUE) {
            return Ok(IndexText {
                unique: true,
                ..rest.parse()?
            });
        }
        if let Some(spatial) = spatial(text) {
            return spatial;
        }
        let Some((head, last)) = text.rsplit_once(':') else {
            return IndexText::at(text, IndexText::USUAL, None);
        };
        if let Ok(kind) = last.parse() {
            return IndexText::at(head, kind, None);
        }
        // A tokenizer follows a type, so a name with a colon is not taken for one.
        if let Ok(tokenizer) = last.parse()
            && let Some((_, ty)) = head.rsplit_once(':')
            && ty.parse::<Type>().is_ok()
        {
            return Ok(IndexText {
                tokenizer,
                ..head.parse()?
            });
        }
        let (head, kind) = head.rsplit_once(':').unwrap_or((head, last));
        let kind = kind.parse().map_err(|_| match kind.parse::<Type>() {
            // The kind is missing.
            Ok(_) if kind == last => {
                let usual = IndexText::USUAL;
                format!("unknown index kind `{kind}`: did you mean `{head}:{usual}:{kind}`? (kinds: {KINDS})")
            }
            _ => {
                let meant = meant(kind, KINDS.split(", ").chain(["eager"]));
                format!("unknown index kind `{kind}`{meant} (kinds: {KINDS})")
            }
        })?;
        let ty = last.parse().map_err(|_| {
            let meant = meant(last, TYPES);
            format!("unknown type `{last}`{meant} (int, float, string, bool or time; times in other units than seconds are time_ms, time_us, time_ns)")
        })?;
        IndexText::at(head, kind, Some(ty))
    }
}

impl fmt::Display for IndexText {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut path = self.path.to_string();
        let is_place = self.kind.is_spatial() || self.ty.is_some_and(Type::has_place);
        if self.is_compound() {
            let fields: Vec<String> = path.split(',').map(without_mark).collect();
            path = fields.join(",");
        } else {
            if !is_place {
                path = path.replace(',', "\\,");
            }
            path = if self.lenient {
                path + "?"
            } else {
                without_mark(&path)
            };
        }
        f.write_str(&path)?;
        write!(f, ":{}", self.kind)?;
        if let Some(ty) = self.ty.filter(|ty| !ty.is_compound()) {
            write!(f, ":{ty}")?;
        }
        if self.tokenizer != Tokenizer::default() {
            write!(f, ":{}", self.tokenizer)?;
        }
        if self.unique {
            f.write_str(UNIQUE)?;
        }
        Ok(())
    }
}

/// Parses a spatial index; `None` for other indexes.
fn spatial(text: &str) -> Option<Result<IndexText, String>> {
    const NAMES: [&str; 2] = ["spatial", "space-time"];
    let found = |name: &'static str| Some((name, text.rfind(&format!(":{name}"))?));
    let (name, at) = NAMES
        .into_iter()
        .filter_map(found)
        .max_by_key(|(_, at)| *at)?;
    let (path, said) = (text.get(..at)?, text.get(at + 1 + name.len()..)?);
    let mut said = match said.strip_prefix(':') {
        None if said.is_empty() => Vec::new(),
        None => return None,
        Some(said) => said.split(':').collect(),
    };
    let ty = said.last().and_then(|last| last.parse::<Type>().ok());
    if ty.is_some() {
        said.pop();
    }
    let kind = |text: &str| text.parse::<IndexKind>();
    let kind = match said.as_slice() {
        [] => kind(name).map_err(|error| error.to_string()),
        [layout] => kind(&format!("{name}:{layout}")).map_err(|_| {
            let layouts = Layout::ALL.map(|layout| match name {
                "spatial" => IndexKind::Spatial(layout).to_string(),
                _ => IndexKind::SpaceTime(layout).to_string(),
            });
            let layouts = layouts.join(", ");
            format!("unknown layout or type `{layout}` (use one of {layouts}, with `:plane` after it for points of the plane)")
        }),
        _ => Err(format!("write such an index as PATH:{name}[:LAYOUT][:plane]")),
    };
    Some(kind.and_then(|kind| IndexText::at(path, kind, ty)))
}

#[cfg(test)]
#[path = "text_tests.rs"]
mod tests;
