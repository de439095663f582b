//! The extraction of the key and the indexed attributes, in one pass over a record's JSON.
//!
//! Attributes are extracted once, at the write, and are stored beside the body, so that JSON is not parsed again
//! after the write.

use std::ops::ControlFlow;

use coding::Reader;

use super::depth::{MAX_DEPTH, is_too_deep};
use super::error::{RecordError, RecordErrorKind};
use super::key_fields::{encode_number, encode_text, key_paths};
use super::path::Path;
use super::point::{COORDINATES, Coordinates, coordinate_paths, encode_point};
use super::point_time::{encode_point_time, point_time_paths};
use super::readable::without_negative_zeros;
use super::time;
use super::types::{KeyType, Type};
use super::value::{
    MAX_INDEXED_VALUE, MAX_PRIMARY_KEY, Value, decode_key, encode_bool, encode_float, encode_int,
    encode_string,
};
use super::walk::{Found, Numbers, Rest, Sink, Trie};

/// What is found at a path.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Target {
    Key,
    /// A field of a key of several.
    KeyField(u32),
    /// A value of the attribute with this number.
    Value(u32),
    /// A coordinate of an attribute that is a point: the first, the second, or the next of the two.
    Coordinate(u32, Option<bool>),
    /// A GeoJSON point, or its coordinates; in the place of an object there are coordinates below it.
    Place(u32),
    /// A time of an attribute that is a point at a time.
    Time(u32),
}

/// The key and attributes to extract from each record of a dataset.
#[derive(Debug, Clone)]
pub struct Extraction {
    pub(super) key: (Path, KeyType),
    pub(super) attributes: Vec<(Path, Type)>,
    trie: Trie,
    /// What the targets of the trie are, in order.
    targets: Vec<Target>,
    /// The paths of the fields of a key of several.
    key_fields: Vec<Path>,
    /// The nodes on the key's path: an array at one of them would give several keys.
    key_nodes: Vec<u32>,
}

/// The values extracted from a record. Reusable: its buffers keep their capacity.
#[derive(Debug, Clone, Default)]
pub struct Extracted {
    key: Vec<u8>,
    /// The fields of a key of several, encoded, as they were found; empty where one was not found.
    key_fields: Vec<Vec<u8>>,
    values: Vec<u8>,
    entries: Vec<Entry>,
    /// What was found of attributes that are points.
    points: Vec<(u32, Coordinates)>,
    /// Times found of attributes that are points at a time.
    times: Vec<(u32, i64)>,
}

#[derive(Debug, Clone, Copy)]
struct Entry {
    attribute: u32,
    start: usize,
    end: usize,
}

impl Extraction {
    /// Compiles the key and the attributes; an attribute is identified by its index in the list.
    pub fn new(key: (Path, KeyType), attributes: Vec<(Path, Type)>) -> Extraction {
        let (mut trie, mut targets) = (Trie::new(), Vec::new());
        let mut add = |path: &Path, target, numbers| {
            trie.add(path, targets.len() as u32, numbers);
            targets.push(target);
        };
        // Definitions with a path that cannot be split are refused.
        let key_fields = match key.1 {
            KeyType::Fields => key_paths(&key.0).unwrap_or_default(),
            KeyType::Int | KeyType::String => Vec::new(),
        };
        match key.1 {
            KeyType::Fields => {
                for (path, i) in key_fields.iter().zip(0_u32..) {
                    add(path, Target::KeyField(i), Numbers::Parsed);
                }
            }
            KeyType::Int | KeyType::String => add(&key.0, Target::Key, Numbers::Parsed),
        }
        for ((path, ty), i) in attributes.iter().zip(0_u32..) {
            let numbers = match ty {
                Type::Int | Type::String | Type::Bool => Numbers::Parsed,
                _ => Numbers::Exact,
            };
            let place = match (ty.space(), ty.timed_space()) {
                (Some(_), _) => Some(path.clone()),
                (None, None) => None,
                // Definitions with a path that cannot be split are refused.
                (None, Some(_)) => match point_time_paths(path) {
                    Ok((point, time)) => {
                        add(&time, Target::Time(i), numbers);
                        Some(point)
                    }
                    Err(_) => continue,
                },
            };
            match place.as_ref().map(|path| (path, coordinate_paths(path))) {
                None => add(path, Target::Value(i), numbers),
                Some((path, Ok(paths))) => match paths.as_slice() {
                    [x, y] => {
                        add(x, Target::Coordinate(i, Some(true)), numbers);
                        add(y, Target::Coordinate(i, Some(false)), numbers);
                    }
                    _ => {
                        add(path, Target::Place(i), numbers);
                        let below = path.child(COORDINATES);
                        add(&below, Target::Coordinate(i, None), numbers);
                    }
                },
                // Definitions with such a path are refused.
                Some((_, Err(_))) => {}
            }
        }
        let key_nodes = match key_fields.as_slice() {
            [] => trie.nodes_of(&key.0),
            fields => fields.iter().flat_map(|path| trie.nodes_of(path)).collect(),
        };
        Extraction {
            key,
            key_fields,
            attributes,
            trie,
            targets,
            key_nodes,
        }
    }

    /// As [`Extraction::extract`], for a record to be written: also refuses fields that are not extracted and that no
    /// reader could parse.
    pub fn extract_new(&self, json: &[u8], out: &mut Extracted) -> Result<(), RecordError> {
        self.extract_with(json, Rest::Read, out).map_err(|error| {
            if error.key.is_none() && self.extract(json, out).is_ok() {
                // The key is behind the unreadable field.
                let key = decode_key(self.key.1, &out.key).map(|key| key.to_string());
                return RecordError { key, ..error };
            }
            error
        })
    }

    /// Extracts the key and the attributes of the record `json` into `out`, in one pass.
    ///
    /// An attribute that is missing or null has no value; an array, anywhere on its path, gives one value for each
    /// element. Nothing is allocated once the buffers of `out` have grown, except for escaped strings and skipped
    /// nested content.
    /// # Errors
    /// The record is refused: see [`RecordErrorKind`]. The contents of `out` are then undefined.
    pub fn extract(&self, json: &[u8], out: &mut Extracted) -> Result<(), RecordError> {
        self.extract_with(json, Rest::Skipped, out)
    }

    fn extract_with(
        &self,
        json: &[u8],
        rest: Rest,
        out: &mut Extracted,
    ) -> Result<(), RecordError> {
        out.clear();
        let refused = |kind| RecordError { key: None, kind };
        let text = std::str::from_utf8(json).map_err(|e| {
            refused(RecordErrorKind::InvalidUtf8 {
                offset: e.valid_up_to(),
            })
        })?;
        if text
            .bytes()
            .find(|byte| !b" \t\r\n".contains(byte))
            .is_some_and(|byte| byte != b'{')
        {
            return Err(refused(RecordErrorKind::NotAnObject));
        }
        if is_too_deep(json) {
            return Err(refused(RecordErrorKind::TooDeep { limit: MAX_DEPTH }));
        }
        self.extract_text(text, rest, out)
    }

    fn extract_text(&self, text: &str, rest: Rest, out: &mut Extracted) -> Result<(), RecordError> {
        let mut collector = Collector {
            extraction: self,
            out,
            error: None,
            negative_zero: false,
        };
        let mut input = serde_json::Deserializer::from_str(text);
        let walked = self
            .trie
            .walk(&mut input, rest, &mut collector)
            .and_then(|()| input.end());
        if collector.negative_zero
            && let Some(text) = without_negative_zeros(text)
        {
            out.clear();
            return self.extract_text(&text, rest, out);
        }
        if walked.is_ok() {
            collector.points();
            collector.key_of_fields();
        }
        let kind = match (walked, collector.error) {
            (Ok(()), None) if out.key.is_empty() => self.key_missing(),
            (Ok(()), None) => {
                out.normalise();
                return Ok(());
            }
            (Ok(()), Some(kind)) => kind,
            (Err(e), _) => json_error(&e),
        };
        // The walk continues after an error, so that the message can nearly always include the key.
        let key = decode_key(self.key.1, &out.key).map(|key| key.to_string());
        Err(RecordError { key, kind })
    }

    #[cold]
    fn key_missing(&self) -> RecordErrorKind {
        RecordErrorKind::KeyMissing {
            path: self.key.0.clone(),
        }
    }

    /// The path of the key, or of a field of it.
    fn key_path(&self, field: Option<u32>) -> Path {
        let field = field.and_then(|field| self.key_fields.get(field as usize));
        field.unwrap_or(&self.key.0).clone()
    }
}

#[cold]
fn json_error(e: &serde_json::Error) -> RecordErrorKind {
    let (line, column) = (e.line(), e.column());
    let text = e.to_string();
    let place = format!(" at line {line} column {column}");
    let what = text.strip_suffix(&place).unwrap_or(&text).to_owned();
    RecordErrorKind::Json { what, line, column }
}

impl Extracted {
    /// The encoded primary key.
    pub fn key(&self) -> &[u8] {
        &self.key
    }

    /// Every attribute value: (index of the attribute in the list, encoded value), ascending and without duplicates.
    pub fn iter(&self) -> impl Iterator<Item = (usize, &[u8])> + Clone {
        self.entries
            .iter()
            .map(|entry| (entry.attribute as usize, bytes_of(&self.values, entry)))
    }

    /// The distinct encoded values of the attribute with index `attribute`, ascending.
    pub fn values(&self, attribute: usize) -> impl Iterator<Item = &[u8]> + Clone {
        self.iter()
            .filter(move |(a, _)| *a == attribute)
            .map(|(_, value)| value)
    }

    /// The earliest of the values of an attribute of type [`Type::Time`]: microseconds since 1970.
    pub fn time(&self, attribute: usize) -> Option<i64> {
        let first = self.values(attribute).next()?;
        match Value::decode(Type::Time, &mut Reader::new(first))? {
            Value::Time(micros) => Some(micros),
            _ => None,
        }
    }

    /// Bytes that the buffers have allocated.
    pub fn memory(&self) -> usize {
        let times = self.times.capacity() * size_of::<(u32, i64)>();
        let points = self.points.capacity() * size_of::<(u32, Coordinates)>();
        let entries = self.entries.capacity() * size_of::<Entry>();
        self.key.capacity() + self.values.capacity() + entries + points + times
    }

    fn clear(&mut self) {
        self.key.clear();
        self.key_fields.iter_mut().for_each(Vec::clear);
        self.values.clear();
        self.entries.clear();
        self.points.clear();
        self.times.clear();
    }

    /// Sorts the entries and drops duplicates. Few entries come in order; many are rare.
    fn normalise(&mut self) {
        let Extracted {
            values, entries, ..
        } = self;
        if entries.len() < 2 {
            return;
        }
        let rank = |entry: &Entry| (entry.attribute, bytes_of(values, entry));
        entries.sort_unstable_by(|a, b| rank(a).cmp(&rank(b)));
        entries.dedup_by(|a, b| rank(a) == rank(b));
    }
}

#[inline]
fn bytes_of<'a>(values: &'a [u8], entry: &Entry) -> &'a [u8] {
    values.get(entry.start..entry.end).unwrap_or_default()
}

/// Encodes the values that the walk finds; keeps the first error.
struct Collector<'a> {
    extraction: &'a Extraction,
    out: &'a mut Extracted,
    error: Option<RecordErrorKind>,
    /// An integer was expected, and the parser found -0.0: the text may say `-0`.
    negative_zero: bool,
}

impl Sink for Collector<'_> {
    #[inline]
    fn found(&mut self, targets: &[u32], found: Found<'_>) -> ControlFlow<()> {
        for target in targets {
            match self.extraction.targets.get(*target as usize) {
                Some(Target::Key) => self.key(found),
                Some(Target::KeyField(field)) => self.key_field(*field, found),
                Some(Target::Value(attribute)) => self.attribute(*attribute, found),
                Some(Target::Time(attribute)) => self.time(*attribute, found),
                Some(target) => self.coordinate(*target, found),
                None => {}
            }
        }
        ControlFlow::Continue(())
    }

    #[inline]
    fn array(&mut self, node: u32) -> ControlFlow<()> {
        if self.extraction.key_nodes.contains(&node) {
            let (path, expected) = self.extraction.key.clone();
            self.refuse(RecordErrorKind::KeyType {
                path,
                expected,
                found: "array",
            });
        }
        ControlFlow::Continue(())
    }

    fn repeated(&mut self, node: u32) -> ControlFlow<()> {
        self.refuse(RecordErrorKind::Repeated {
            path: self.extraction.trie.path_of(node),
        });
        ControlFlow::Continue(())
    }
}

impl Collector<'_> {
    #[cold]
    fn refuse(&mut self, kind: RecordErrorKind) {
        self.error.get_or_insert(kind);
    }

    fn key(&mut self, found: Found<'_>) {
        let key = &mut self.out.key;
        key.clear();
        match (self.extraction.key.1, found) {
            (KeyType::Int, Found::Int(v)) => encode_int(v, key),
            (KeyType::String, Found::Str(v)) if !v.is_empty() && v.len() <= MAX_PRIMARY_KEY => {
                key.extend_from_slice(v.as_bytes());
            }
            _ => self.refuse_key(None, found),
        }
    }

    fn key_field(&mut self, field: u32, found: Found<'_>) {
        let fields = &mut self.out.key_fields;
        let at = field as usize;
        if fields.len() <= at {
            fields.resize(at + 1, Vec::new());
        }
        let Some(key) = fields.get_mut(at) else {
            return;
        };
        key.clear();
        match found {
            Found::Int(v) => encode_number(v, key),
            Found::Str(v) if v.len() <= MAX_PRIMARY_KEY => encode_text(v, key),
            _ => self.refuse_key(Some(field), found),
        }
    }

    /// Makes the key of its fields, in the order of the definition.
    fn key_of_fields(&mut self) {
        if self.extraction.key_fields.is_empty() || self.error.is_some() {
            return;
        }
        for (path, at) in self.extraction.key_fields.iter().zip(0..) {
            match self
                .out
                .key_fields
                .get(at)
                .filter(|field| !field.is_empty())
            {
                Some(field) => self.out.key.extend_from_slice(field),
                None => {
                    // A part of a key names no record.
                    self.out.key.clear();
                    let path = path.clone();
                    return self.refuse(RecordErrorKind::KeyMissing { path });
                }
            }
        }
        let length = self.out.key.len();
        if length > MAX_PRIMARY_KEY {
            self.refuse(RecordErrorKind::KeyTooLong {
                path: self.extraction.key.0.clone(),
                limit: MAX_PRIMARY_KEY,
                length,
            });
        }
    }

    #[cold]
    fn refuse_key(&mut self, field: Option<u32>, found: Found<'_>) {
        self.negative_zero |= is_negative_zero(found);
        let (path, expected) = (self.extraction.key_path(field), self.extraction.key.1);
        self.refuse(match found {
            Found::Null => RecordErrorKind::KeyNull { path },
            Found::Str("") if expected == KeyType::String => RecordErrorKind::KeyEmpty { path },
            Found::Str(v) if expected == KeyType::String => RecordErrorKind::KeyTooLong {
                path,
                limit: MAX_PRIMARY_KEY,
                length: v.len(),
            },
            _ => {
                let found = describe(expected.as_type(), found);
                RecordErrorKind::KeyType {
                    path,
                    expected,
                    found,
                }
            }
        });
    }

    #[inline]
    fn attribute(&mut self, attribute: u32, found: Found<'_>) {
        let Some((_, declared)) = self.extraction.attributes.get(attribute as usize) else {
            return;
        };
        let values = &mut self.out.values;
        let start = values.len();
        let fits = match (*declared, found) {
            (_, Found::Null) => return,
            (Type::Int, Found::Int(v)) => {
                encode_int(v, values);
                true
            }
            (Type::Float, Found::Float(v)) => {
                encode_float(v, values);
                true
            }
            (Type::Float, Found::Int(v)) => {
                encode_float(nearest_float(v), values);
                true
            }
            (Type::String, Found::Str(v)) => {
                encode_string(v, values);
                true
            }
            (Type::Bool, Found::Bool(v)) => {
                encode_bool(v, values);
                true
            }
            (Type::Time, found) => match time_of(found) {
                Some(v) => {
                    encode_int(i128::from(v), values);
                    true
                }
                None => false,
            },
            _ => false,
        };
        let end = values.len();
        if fits && end - start <= MAX_INDEXED_VALUE {
            self.out.entries.push(Entry {
                attribute,
                start,
                end,
            });
        } else {
            self.refuse_attribute(attribute, found, fits.then_some(end - start));
        }
    }

    /// A part of a point.
    fn coordinate(&mut self, target: Target, found: Found<'_>) {
        let (attribute, first) = match target {
            Target::Coordinate(attribute, first) => (attribute, first),
            Target::Place(attribute) => (attribute, None),
            Target::Key | Target::KeyField(_) | Target::Value(_) | Target::Time(_) => return,
        };
        let points = &mut self.out.points;
        let at = points.iter().position(|(known, _)| *known == attribute);
        let at = at.unwrap_or_else(|| {
            points.push((attribute, Coordinates::default()));
            points.len() - 1
        });
        let Some((_, point)) = points.get_mut(at) else {
            return;
        };
        match found {
            Found::Null => {}
            Found::Object if matches!(target, Target::Place(_)) => point.begin(),
            Found::Int(v) => point.take(first, nearest_float(v)),
            Found::Float(v) => point.take(first, v),
            found => point.refuse(describe(Type::Float, found)),
        }
    }

    /// A time of a point.
    fn time(&mut self, attribute: u32, found: Found<'_>) {
        match (found, time_of(found)) {
            (Found::Null, _) => {}
            (_, Some(micros)) => self.out.times.push((attribute, micros)),
            (_, None) => {
                let path = self.extraction.attributes.get(attribute as usize);
                let Some(path) = path.map(|(path, _)| path.clone()) else {
                    return;
                };
                self.refuse(RecordErrorKind::AttributeType {
                    path,
                    expected: Type::Time,
                    found: describe(Type::Time, found),
                });
            }
        }
    }

    /// Encodes the points that were found.
    fn points(&mut self) {
        let points = std::mem::take(&mut self.out.points);
        for (attribute, coordinates) in &points {
            let attribute = *attribute;
            let Some((path, ty)) = self.extraction.attributes.get(attribute as usize) else {
                continue;
            };
            let Some(space) = ty.space().or(ty.timed_space()) else {
                continue;
            };
            match coordinates.point(space) {
                Ok(None) => {}
                Ok(Some(point)) if ty.timed_space().is_some() => {
                    let Extracted {
                        values,
                        entries,
                        times,
                        ..
                    } = &mut *self.out;
                    for (_, micros) in times.iter().filter(|(of, _)| *of == attribute) {
                        let start = values.len();
                        encode_point_time(space, point, *micros, values);
                        let end = values.len();
                        entries.push(Entry {
                            attribute,
                            start,
                            end,
                        });
                    }
                }
                Ok(Some(point)) => {
                    let start = self.out.values.len();
                    encode_point(space, point, &mut self.out.values);
                    let end = self.out.values.len();
                    self.out.entries.push(Entry {
                        attribute,
                        start,
                        end,
                    });
                }
                Err(found) => {
                    let (path, expected) = (path.clone(), *ty);
                    self.refuse(RecordErrorKind::AttributeType {
                        path,
                        expected,
                        found,
                    });
                }
            }
        }
        self.out.points = points;
    }

    #[cold]
    fn refuse_attribute(&mut self, attribute: u32, found: Found<'_>, length: Option<usize>) {
        let Some((path, expected)) = self.extraction.attributes.get(attribute as usize) else {
            return;
        };
        let (path, expected) = (path.clone(), *expected);
        self.negative_zero |= is_negative_zero(found);
        self.refuse(match length {
            Some(length) => RecordErrorKind::ValueTooLong {
                path,
                limit: MAX_INDEXED_VALUE,
                length,
            },
            None => {
                let found = describe(expected, found);
                RecordErrorKind::AttributeType {
                    path,
                    expected,
                    found,
                }
            }
        });
    }
}

// Kept out of line: inlined, the optimiser runs the slow conversions ahead of the match, for values of every type.

#[inline(never)]
fn nearest_float(v: i128) -> f64 {
    v as f64
}

#[inline(never)]
fn time_of(found: Found<'_>) -> Option<i64> {
    match found {
        Found::Str(text) => time::parse_rfc3339(text),
        Found::Int(seconds) => time::from_seconds(seconds),
        Found::Float(seconds) => time::from_decimal_seconds(seconds),
        Found::Null | Found::Bool(_) | Found::Object => None,
    }
}

fn is_negative_zero(found: Found<'_>) -> bool {
    matches!(found, Found::Float(v) if v == 0.0 && v.is_sign_negative())
}

/// Names the value found where `expected` should have been.
fn describe(expected: Type, found: Found<'_>) -> &'static str {
    match (expected, found) {
        (_, Found::Null) => "null",
        (_, Found::Bool(_)) => "bool",
        (_, Found::Object) => "object",
        (Type::Time, Found::Str(_)) => "a string that is not an RFC 3339 time",
        (Type::Time, Found::Int(_) | Found::Float(_)) => "a number of seconds out of range",
        (_, Found::Str(_)) => "string",
        (_, Found::Int(_)) => "int",
        // The parser turns integers that do not fit 64 bits into floats.
        (Type::Int, Found::Float(v)) if v.fract() == 0.0 && v.abs() >= 9.2e18 => {
            "a number beyond 64 bits"
        }
        (_, Found::Float(_)) => "float",
    }
}
