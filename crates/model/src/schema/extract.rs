//! Extraction of the key and the indexed attributes, in one pass over a record's JSON.
//!
//! Attributes are extracted once, by the write, and stored beside the body, so JSON is not parsed
//! again after the write.

use std::ops::ControlFlow;

use esker_coding::Own;

use super::at_path::Found;
use super::compound::{CombineError, MOST_COMBINATIONS, MOST_COMBINED_BYTES};
use super::depth::{MAX_DEPTH, is_too_deep};
use super::error::{RecordError, RecordErrorKind};
use super::extracted::{Entry, Extracted};
use super::found::{Encoded, describe, encode_found, is_negative_zero, time_of};
use super::key_fields::{encode_number as encode_key_number, encode_text, key_paths};
use super::path::Path;
use super::point::{COORDINATES, coordinate_paths, encode_point};
use super::point_at::{Coordinates, Part, Place};
use super::point_time::{encode_point_time, point_time_paths};
use super::readable::{without_negative_zeros, without_repeated_names};
use super::scalars::encode_int;
use super::time::Offset;
use super::types::{KeyType, MAX_INDEXED_VALUE, MAX_PRIMARY_KEY, Type};
use super::value::{decode_key, stand_in};
use super::walk::{Numbers, Rest, Sink, Trie};
use super::wanted::{Remark, USUAL_MICROS, Wanted};

/// The use of the values at a path.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Target {
    Key,
    /// A field of a composite key.
    KeyField(u32),
    /// A value of the attribute with this number.
    Value(u32),
    /// A part of a point.
    Point(u32, Part),
    /// A time of an attribute that is a point at a time.
    Time(u32),
    /// A value of the field with the second number, of an attribute of several fields.
    Field(u32, u32),
}

/// The key and attributes to extract from each record of a dataset.
#[derive(Debug, Clone)]
pub struct Extraction {
    pub(super) key: (Path, KeyType),
    pub(super) attributes: Vec<Wanted>,
    trie: Trie,
    /// The targets of the trie, by number.
    targets: Vec<Target>,
    /// The paths of the fields of a composite key.
    key_fields: Vec<Path>,
    /// The attributes of several fields.
    compounds: Vec<u32>,
    /// The nodes on the key's path. An array at one of them would give several keys.
    key_nodes: Vec<u32>,
}

impl Extraction {
    /// Compiles the key and non-lenient attributes, which are identified by their index.
    pub fn new(key: (Path, KeyType), attributes: Vec<(Path, Type)>) -> Extraction {
        let wanted = attributes.into_iter();
        Extraction::of(
            key,
            wanted.map(|(path, ty)| Wanted::new(path, ty)).collect(),
        )
    }

    /// Compiles the key and the attributes; an attribute is identified by its index in the list.
    pub fn of(key: (Path, KeyType), attributes: Vec<Wanted>) -> Extraction {
        let (mut trie, mut targets) = (Trie::new(), Vec::new());
        let mut add = |path: &Path, target, numbers| {
            trie.add(path, targets.len() as u32, numbers);
            targets.push(target);
        };
        // A definition with an invalid path is refused, so its errors are ignored here and below.
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
        let mut compounds = Vec::new();
        for (wanted, i) in attributes.iter().zip(0_u32..) {
            let Wanted { path, ty, .. } = wanted;
            if ty.is_compound() {
                for (field, at) in wanted.fields.iter().zip(0..) {
                    add(&field.path, Target::Field(i, at), numbers_of(field.ty));
                }
                compounds.push(i);
                continue;
            }
            let numbers = numbers_of(*ty);
            let place = match (ty.space(), ty.timed_space()) {
                (Some(_), _) => Some(path.clone()),
                (None, None) => None,
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
                        add(x, Target::Point(i, Part::X), numbers);
                        add(y, Target::Point(i, Part::Y), numbers);
                    }
                    _ => {
                        add(path, Target::Point(i, Part::Place), numbers);
                        let below = path.child(COORDINATES);
                        add(&below, Target::Point(i, Part::Next), numbers);
                    }
                },
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
            compounds,
            attributes,
            trie,
            targets,
            key_nodes,
        }
    }

    /// As [`Extraction::extract`], for a record to be written: also refuses a record with fields
    /// that no reader could parse, even if they are not extracted.
    pub fn extract_new(&self, json: &[u8], out: &mut Extracted) -> Result<(), RecordError> {
        self.extract_with(json, Rest::Read, out).map_err(|error| {
            if error.key.is_none() && self.extract(json, out).is_ok() {
                // The key follows the unreadable field.
                let key = decode_key(self.key.1, &out.key).map(|key| key.to_string());
                return RecordError { key, ..error };
            }
            error
        })
    }

    /// Extracts the key and the attributes of the record `json` into `out`, in one pass.
    ///
    /// An attribute that is missing or null has no value; an array, anywhere on its path, gives one
    /// value for each element. An object instead of a value, and an invalid point, are not indexed
    /// ([`Extracted::unindexed`]). If an object has several fields of one name, the last one
    /// counts. Nothing is allocated once the buffers of `out` have grown, except for escaped
    /// strings and skipped nested content.
    /// # Errors
    /// If the record is refused: see [`RecordErrorKind`]. The contents of `out` are then undefined.
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
            is_repeated: false,
        };
        let mut input = serde_json::Deserializer::from_str(text);
        let walked = self
            .trie
            .walk(&mut input, rest, &mut collector)
            .and_then(|()| input.end());
        if collector.is_repeated
            && walked.is_ok()
            && let Some(text) = without_repeated_names(text)
        {
            out.clear();
            return self.extract_text(&text, rest, out);
        }
        if collector.negative_zero
            && let Some(text) = without_negative_zeros(text)
        {
            out.clear();
            return self.extract_text(&text, rest, out);
        }
        if walked.is_ok() {
            collector.points();
            collector.combine();
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
        // The walk continues after an error, so that the message nearly always has the key.
        let key = decode_key(self.key.1, &out.key).map(|key| key.to_string());
        Err(RecordError { key, kind })
    }

    #[cold]
    fn key_missing(&self) -> RecordErrorKind {
        RecordErrorKind::KeyMissing {
            path: self.key.0.clone(),
        }
    }

    /// The path of the key, or of one of its fields.
    fn key_path(&self, field: Option<u32>) -> Path {
        let field = field.and_then(|field| self.key_fields.get(field as usize));
        field.unwrap_or(&self.key.0).clone()
    }
}

/// How the numbers of a path of this type are read.
fn numbers_of(ty: Type) -> Numbers {
    match ty {
        Type::Int | Type::String | Type::Bool => Numbers::Parsed,
        _ => Numbers::Exact,
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

/// Encodes the values that the walk finds, and keeps the first error.
struct Collector<'a> {
    extraction: &'a Extraction,
    out: &'a mut Extracted,
    error: Option<RecordErrorKind>,
    /// The parser found -0.0 where an integer was expected: the text may be `-0`.
    negative_zero: bool,
    /// An object has a name twice.
    is_repeated: bool,
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
                Some(Target::Field(attribute, field)) => self.field(*attribute, *field, found),
                Some(Target::Point(attribute, part)) => self.point(*attribute, *part, found),
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

    /// The walk continues, because values that do not count must be readable, too.
    fn repeated(&mut self) -> ControlFlow<()> {
        self.is_repeated = true;
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
        fields.resize(fields.len().max(at + 1), Vec::new());
        let key = fields.own_mut(at);
        key.clear();
        match found {
            Found::Int(v) => encode_key_number(v, key),
            Found::Str(v) if v.len() <= MAX_PRIMARY_KEY => encode_text(v, key),
            _ => self.refuse_key(Some(field), found),
        }
    }

    /// Concatenates the fields of a composite key, in the order of the definition.
    fn key_of_fields(&mut self) {
        if self.extraction.key_fields.is_empty() || self.error.is_some() {
            return;
        }
        for (path, at) in self.extraction.key_fields.iter().zip(0..) {
            let field = self.out.key_fields.get(at);
            match field.filter(|field| !field.is_empty()) {
                Some(field) => self.out.key.extend_from_slice(field),
                None => {
                    // An incomplete key identifies no record.
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
        let wanted = self.extraction.attributes.own(attribute as usize);
        let values = &mut self.out.values;
        let start = values.len();
        match found {
            Found::Null => return,
            Found::Object if !wanted.refuses_objects => {
                self.out.unindexed.push(attribute);
                self.out.remarks.push((attribute, Remark::Object));
                return;
            }
            _ => {}
        }
        let fits = match encode_found(wanted.ty, wanted.rounds, found, values) {
            Encoded::Value => true,
            Encoded::Time(micros, offset) => {
                if offset == Offset::Assumed {
                    self.out.remarks.push((attribute, Remark::NoOffset));
                }
                if !USUAL_MICROS.contains(&micros) {
                    let remark = match found {
                        Found::Str(_) => Remark::FarText(micros),
                        _ => Remark::FarNumber(micros),
                    };
                    self.out.remarks.push((attribute, remark));
                }
                true
            }
            Encoded::Nothing => false,
        };
        let mut end = values.len();
        let mut is_indexed = fits && end - start <= MAX_INDEXED_VALUE;
        if !is_indexed
            && wanted.lenient
            && let Some(other) = stand_in(wanted.ty)
        {
            values.truncate(start);
            values.extend_from_slice(other);
            (end, is_indexed) = (values.len(), true);
        }
        if is_indexed {
            self.out.entries.push(Entry {
                attribute,
                start,
                end,
            });
        } else {
            self.refuse_attribute(attribute, found, fits.then_some(end - start));
        }
    }

    /// Takes a value of a field of an attribute that has several. One that does not fit is refused
    /// by the attribute of the field itself, unless the record was replaced before that was
    /// declared: then the field has no values.
    fn field(&mut self, attribute: u32, field: u32, found: Found<'_>) {
        if matches!(found, Found::Null | Found::Object) {
            return;
        }
        let wanted = self.extraction.attributes.own(attribute as usize);
        let wanted = wanted.fields.own(field as usize);
        let fits = self.out.fields.add(attribute, field, wanted.ty, |out| {
            let start = out.len();
            let is_value = !matches!(encode_found(wanted.ty, false, found, out), Encoded::Nothing);
            if is_value && out.len() - start <= MAX_INDEXED_VALUE {
                return true;
            }
            let stand_in = stand_in(wanted.ty).filter(|_| wanted.lenient);
            out.truncate(start);
            out.extend_from_slice(stand_in.unwrap_or_default());
            stand_in.is_some()
        });
        self.negative_zero |= !fits && is_negative_zero(found);
    }

    /// Combines the values of attributes of several fields, unless the record is refused.
    fn combine(&mut self) {
        if self.extraction.compounds.is_empty() || self.error.is_some() {
            return;
        }
        self.out.fields.sort();
        for attribute in &self.extraction.compounds {
            let attribute = *attribute;
            let Wanted { path, fields, .. } = self.extraction.attributes.own(attribute as usize);
            let Extracted {
                fields: found,
                values,
                entries,
                ..
            } = &mut *self.out;
            let mut start = values.len();
            let combined = found.combine(attribute, fields.len(), values, &mut |end| {
                entries.push(Entry {
                    attribute,
                    start,
                    end,
                });
                start = end;
            });
            let path = path.clone();
            match combined {
                Ok(()) => {}
                Err(CombineError::Count(count)) => {
                    self.refuse(RecordErrorKind::TooManyCombinations {
                        path,
                        limit: MOST_COMBINATIONS,
                        count,
                    });
                }
                Err(CombineError::Longest(length)) => {
                    self.refuse(RecordErrorKind::ValueTooLong {
                        path,
                        limit: MAX_INDEXED_VALUE,
                        length,
                    });
                }
                Err(CombineError::Bytes(length)) => {
                    self.refuse(RecordErrorKind::CombinationsTooLarge {
                        path,
                        limit: MOST_COMBINED_BYTES,
                        length,
                    });
                }
            }
        }
    }

    /// Takes a part of a point.
    fn point(&mut self, attribute: u32, part: Part, found: Found<'_>) {
        let points = &mut self.out.points;
        let at = points.iter().position(|(known, _)| *known == attribute);
        let at = at.unwrap_or_else(|| {
            points.push((attribute, Coordinates::default()));
            points.len() - 1
        });
        let (_, point) = points.own_mut(at);
        point.see(part, found);
    }

    /// Takes the time of a point.
    fn time(&mut self, attribute: u32, found: Found<'_>) {
        let wanted = self.extraction.attributes.own(attribute as usize);
        let (ty, lenient) = wanted.time;
        match (found, time_of(ty, found)) {
            (Found::Null, _) => {}
            (Found::Object, _) => self.out.unindexed.push(attribute),
            (_, Some((micros, _))) => self.out.times.push((attribute, micros)),
            (_, None) if lenient => self.out.unindexed.push(attribute),
            (_, None) => {
                let path = wanted.path.clone();
                self.refuse(RecordErrorKind::AttributeType {
                    path,
                    expected: ty,
                    found: describe(ty, found),
                    strict: false,
                });
            }
        }
    }

    /// Encodes the points found.
    fn points(&mut self) {
        let points = std::mem::take(&mut self.out.points);
        for (attribute, coordinates) in &points {
            let attribute = *attribute;
            let Wanted { path, ty, .. } = self.extraction.attributes.own(attribute as usize);
            let Some(space) = ty.space().or(ty.timed_space()) else {
                continue;
            };
            match coordinates.point(space) {
                Ok(Place::Nowhere) => {}
                Ok(Place::NoPoint) => {
                    self.out.unindexed.push(attribute);
                    self.out.remarks.push((attribute, Remark::NoPoint));
                }
                Ok(Place::At(point)) if ty.timed_space().is_some() => {
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
                Ok(Place::At(point)) => {
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
                        strict: false,
                    });
                }
            }
        }
        self.out.points = points;
    }

    #[cold]
    fn refuse_attribute(&mut self, attribute: u32, found: Found<'_>, length: Option<usize>) {
        let wanted = self.extraction.attributes.own(attribute as usize);
        let (path, expected) = (wanted.path.clone(), wanted.ty);
        let strict = !wanted.refuses_objects;
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
                    strict,
                }
            }
        });
    }
}
