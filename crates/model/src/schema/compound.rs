//! The values of several fields together, as compound indexes have them: ordered by the first
//! field, then by the next one.
//!
//! | bytes | content |
//! | --- | --- |
//! | 1 | the number of fields |
//! | | for each field: `00` where it has no value, otherwise its tag and the encoded value |
//!
//! A tag says how the value is encoded: `01` int, `02` float, `03` string, `04` bool, `05` time. A
//! field has one type, so its tag does not change the order of its values, and the whole is
//! delimited without knowledge of the types. The value may be the stand-in of
//! [`stand_in`](super::stand_in) values.
//!
//! A field with several values, an array, gives a combination with each: a condition on a field
//! holds if one of its values meets it, whichever values of the other fields meet theirs, so all
//! combinations are needed. A record without a value of the first field has no combination:
//! conditions on the first field are what leads to an entry.
//!
//! A record with several values of a field behind the first one also has the mark `fe` and the
//! number of the field, behind all combinations. Where no record has it, an order by the field can
//! be read from within a range.

use esker_coding::{Own, Reader};

use super::key_fields::{MOST, several_paths};
use super::path::Path;
use super::scalars::{split_int, take_string};
use super::types::{MAX_INDEXED_VALUE, Type};
use crate::error::{Error, Result};

/// The most combinations of a record in which several fields have several values.
pub(super) const MOST_COMBINATIONS: usize = 64;

/// The most bytes of all combinations of a record: a long value is in as many combinations as an
/// array beside it has elements.
pub(super) const MOST_COMBINED_BYTES: usize = 16 << 20;

/// The reason why the values of a record are not combined.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum CombineError {
    /// Several fields have several values, and there are this many combinations.
    Count(usize),
    /// The longest combination has this many bytes.
    Longest(usize),
    /// All combinations have this many bytes together.
    Bytes(usize),
}

/// Begins a mark, in the place of the number of fields.
const SEVERAL: u8 = 0xfe;

const ABSENT: u8 = 0;
const INT: u8 = 1;
const FLOAT: u8 = 2;
const STRING: u8 = 3;
const BOOL: u8 = 4;
const TIME: u8 = 5;

/// The paths of the fields of a compound index, from a path that separates them by commas.
///
/// # Errors
/// If one of them is not a valid path, a path occurs twice, or there are too many or too few.
pub fn compound_paths(path: &Path) -> Result<Vec<Path>> {
    let paths = several_paths(path, "a compound index")?;
    if paths.len() < 2 {
        return Err(Error::bad_input(format!(
            "a compound index is of several fields separated by commas, but `{path}` is one field"
        )));
    }
    Ok(paths)
}

/// The tag of a field of this type; `None` for types that a field cannot have.
pub(crate) fn compound_tag(ty: Type) -> Option<u8> {
    match ty {
        Type::Int => Some(INT),
        Type::Float => Some(FLOAT),
        Type::String => Some(STRING),
        Type::Bool => Some(BOOL),
        ty if ty.is_time() => Some(TIME),
        _ => None,
    }
}

/// The beginning of all values of this many fields.
pub(crate) fn compound_begin(fields: usize) -> Vec<u8> {
    vec![fields as u8]
}

/// The type by which a value with this tag is read.
fn type_of(tag: u8) -> Option<Type> {
    match tag {
        INT => Some(Type::Int),
        FLOAT => Some(Type::Float),
        STRING => Some(Type::String),
        BOOL => Some(Type::Bool),
        TIME => Some(Type::Time),
        _ => None,
    }
}

/// The fields of a compound value.
pub(super) struct Fields<'a> {
    left: u8,
    input: Reader<'a>,
}

impl<'a> Fields<'a> {
    pub(super) fn new(bytes: &'a [u8]) -> Option<Fields<'a>> {
        let mut input = Reader::new(bytes);
        let left = input.u8().filter(|fields| *fields != SEVERAL)?;
        Some(Fields { left, input })
    }

    /// True behind the last field.
    pub(super) fn is_end(&self) -> bool {
        self.left == 0
    }

    /// The next field: its type and encoded value, `None` inside where it has none. `None` behind
    /// the last field and where the bytes are malformed.
    pub(super) fn next(&mut self) -> Option<Option<(Type, &'a [u8])>> {
        self.left = self.left.checked_sub(1)?;
        let tag = self.input.u8()?;
        if tag == ABSENT {
            return Some(None);
        }
        let ty = type_of(tag)?;
        let rest = self.input.rest();
        let length = match ty {
            Type::Int | Type::Time => 1 + split_int(*rest.first()?)?,
            Type::Float => 8,
            Type::Bool => 1,
            _ => take_string(&mut Reader::new(rest))?.len() + 2,
        };
        Some(Some((ty, self.input.take(length)?)))
    }
}

/// The length of the compound value at the start of `bytes`; `None` if they are malformed.
pub(super) fn compound_length(bytes: &[u8]) -> Option<usize> {
    if bytes.first() == Some(&SEVERAL) {
        return Some(several(0).len());
    }
    let mut fields = Fields::new(bytes)?;
    while !fields.is_end() {
        fields.next()?;
    }
    Some(bytes.len() - fields.input.rest().len())
}

/// The mark of a record with several values of a field.
pub(crate) fn several(field: usize) -> [u8; 2] {
    [SEVERAL, field as u8]
}

/// The bytes of the number of fields and of the first `fields` of them; `None` if `bytes` do not
/// begin with these.
pub(crate) fn compound_head(bytes: &[u8], fields: usize) -> Option<&[u8]> {
    let mut read = Fields::new(bytes)?;
    for _ in 0..fields {
        read.next()?;
    }
    bytes.get(..bytes.len() - read.input.rest().len())
}

/// The encoded value of the field with this number in a compound value; `None` if it has none.
pub fn compound_field(value: &[u8], field: usize) -> Option<&[u8]> {
    let mut fields = Fields::new(value)?;
    for _ in 0..field {
        fields.next()?;
    }
    Some(fields.next()??.1)
}

/// The values of fields that were found in a record, to be combined. A buffer for the next record.
#[derive(Debug, Clone, Default)]
pub(super) struct FoundFields {
    /// The tags and values, one after the other.
    bytes: Vec<u8>,
    found: Vec<FoundField>,
    /// Fields with a value that does not fit: the attribute, and the number of the field.
    unfit: Vec<(u32, u32)>,
}

#[derive(Debug, Clone, Copy)]
struct FoundField {
    attribute: u32,
    field: u32,
    from: usize,
    to: usize,
}

impl FoundFields {
    pub(super) fn clear(&mut self) {
        self.bytes.clear();
        self.found.clear();
        self.unfit.clear();
    }

    /// The bytes that are allocated.
    pub(super) fn memory(&self) -> usize {
        let unfit = self.unfit.capacity() * size_of::<(u32, u32)>();
        self.bytes.capacity() + self.found.capacity() * size_of::<FoundField>() + unfit
    }

    /// Adds a value of a field of an attribute, which `encode` appends. If it returns false, the
    /// value does not fit, and the field has none.
    pub(super) fn add(
        &mut self,
        attribute: u32,
        field: u32,
        ty: Type,
        encode: impl FnOnce(&mut Vec<u8>) -> bool,
    ) -> bool {
        let from = self.bytes.len();
        self.bytes.extend(compound_tag(ty));
        let fits = encode(&mut self.bytes);
        if fits {
            let to = self.bytes.len();
            self.found.push(FoundField {
                attribute,
                field,
                from,
                to,
            });
        } else {
            self.bytes.truncate(from);
            if self.unfit.last() != Some(&(attribute, field)) {
                self.unfit.push((attribute, field));
            }
        }
        fits
    }

    /// To be called once when all values are added.
    pub(super) fn sort(&mut self) {
        let FoundFields {
            bytes,
            found,
            unfit,
        } = self;
        // An array may have many of both.
        unfit.sort_unstable();
        unfit.dedup();
        let is_unfit = |one: &FoundField| unfit.binary_search(&(one.attribute, one.field)).is_ok();
        found.retain(|one| !is_unfit(one));
        let rank = |one: &FoundField| (one.attribute, one.field, bytes.own(one.from..one.to));
        found.sort_unstable_by(|a, b| rank(a).cmp(&rank(b)));
        found.dedup_by(|a, b| rank(a) == rank(b));
    }

    /// Appends the combinations of the values of an attribute of `fields` fields to `out`, then the
    /// marks, and passes the end of each to `each`. If they exceed a limit, nothing is appended.
    pub(super) fn combine(
        &self,
        attribute: u32,
        fields: usize,
        out: &mut Vec<u8>,
        each: &mut dyn FnMut(usize),
    ) -> std::result::Result<(), CombineError> {
        let mut spans = [(0, 0); MOST];
        let mut used = 0;
        for (span, field) in spans.iter_mut().zip(0..fields as u32) {
            let rank = |found: &FoundField| (found.attribute, found.field);
            let begin = self.found.partition_point(|f| rank(f) < (attribute, field));
            let end = self
                .found
                .partition_point(|f| rank(f) <= (attribute, field));
            *span = (begin, end);
            used += 1;
        }
        let spans = spans.own(..used);
        let lists = || {
            spans
                .iter()
                .map(|(begin, end)| self.found.own(*begin..*end))
        };
        if lists().next().is_none_or(|first| first.is_empty()) {
            return Ok(());
        }
        let lengths = || lists().map(|list| list.len().max(1));
        let count = lengths().fold(1, usize::saturating_mul);
        let arrays = lengths().filter(|length| *length > 1).count();
        if arrays > 1 && count > MOST_COMBINATIONS {
            return Err(CombineError::Count(count));
        }
        // Every value of a field is in equally many combinations; an absent one takes a byte. The
        // byte that begins a combination is the number of fields.
        let (mut longest, mut bytes) = (1, count);
        for list in lists() {
            let lengths = || list.iter().map(|one| one.to - one.from);
            longest += lengths().max().unwrap_or(1);
            let each = count / list.len().max(1);
            let all = lengths().sum::<usize>().max(1);
            bytes = all.saturating_mul(each).saturating_add(bytes);
        }
        if longest > MAX_INDEXED_VALUE {
            return Err(CombineError::Longest(longest));
        }
        if bytes > MOST_COMBINED_BYTES {
            return Err(CombineError::Bytes(bytes));
        }
        let begin = out.len();
        for number in 0..count {
            out.push(fields as u8);
            // The number of a combination has a digit for each field.
            let mut left = number;
            for list in lists() {
                match list.get(left % list.len().max(1)) {
                    Some(one) => out.extend_from_slice(self.bytes.own(one.from..one.to)),
                    None => out.push(ABSENT),
                }
                left /= list.len().max(1);
            }
            each(out.len());
        }
        debug_assert_eq!(out.len() - begin, bytes, "the bytes were counted exactly");
        for (field, list) in lists().enumerate().skip(1) {
            if list.len() > 1 {
                out.extend_from_slice(&several(field));
                each(out.len());
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::super::compound_values::{compound_is_whole, compound_text};
    use super::super::value::Value;
    use super::*;

    /// The combinations of values that are given for each field.
    fn combined(fields: &[(Type, Vec<Value>)]) -> std::result::Result<Vec<Vec<u8>>, CombineError> {
        let mut found = FoundFields::default();
        for (field, (ty, values)) in fields.iter().enumerate() {
            for value in values {
                found.add(3, field as u32, *ty, |out| {
                    value.encode(out);
                    true
                });
            }
        }
        found.sort();
        let (mut out, mut all, mut begin) = (Vec::new(), Vec::new(), 0);
        let mut ends = Vec::new();
        found.combine(3, fields.len(), &mut out, &mut |end| ends.push(end))?;
        for end in ends {
            all.push(out[begin..end].to_vec());
            begin = end;
        }
        all.sort();
        Ok(all)
    }

    fn one(user: &str, at: Option<i64>) -> Vec<u8> {
        let user = (Type::String, vec![Value::String(user.to_string())]);
        let at = (Type::Time, at.map(Value::Time).into_iter().collect());
        combined(&[user, at]).unwrap().remove(0)
    }

    #[test]
    fn values_are_ordered_by_the_first_field_then_by_the_next() {
        let ordered = [
            one("", None),
            one("", Some(0)),
            one("a", None),
            one("a", Some(-5)),
            one("a", Some(5)),
            one("a", Some(1 << 40)),
            one("a\0", None),
            one("ab", Some(-7)),
        ];
        for pair in ordered.windows(2) {
            assert!(pair[0] < pair[1], "{pair:?}");
        }
        for value in &ordered {
            let longer = [value.as_slice(), b"key"].concat();
            assert_eq!(
                Value::split(Type::Compound, &longer),
                Some((value.as_slice(), b"key".as_slice()))
            );
            for cut in 0..value.len() {
                assert_eq!(Value::split(Type::Compound, &value[..cut]), None);
            }
        }
        assert_eq!(
            compound_text(&ordered[3]).unwrap(),
            "a, 1969-12-31T23:59:59.999995Z"
        );
        assert_eq!(compound_text(&ordered[2]).unwrap(), "a, (none)");
        assert_eq!(
            compound_field(&ordered[4], 1),
            Some(&Value::Time(5).encoded()[..])
        );
        assert_eq!(compound_field(&ordered[2], 1), None);
        assert!(compound_is_whole(&ordered[4]) && !compound_is_whole(&ordered[2]));
    }

    #[test]
    fn arrays_give_all_combinations_up_to_a_limit() {
        let ints = |n: i128| (Type::Int, (0..n).map(Value::Int).collect::<Vec<_>>());
        let (none, flags) = ((Type::Int, Vec::new()), vec![Value::Bool(false)]);
        let all = combined(&[ints(3), none.clone(), ints(2), (Type::Bool, flags)]).unwrap();
        assert_eq!(all.len(), 6 + 1);
        assert_eq!(all[6], several(2));
        assert_eq!(
            Value::split(Type::Compound, &all[6]),
            Some((&all[6][..], &[][..]))
        );
        assert!(!compound_is_whole(&all[6]));
        assert!(all.windows(2).all(|pair| pair[0] < pair[1]));
        // Without a value of the first field there is none.
        assert_eq!(combined(&[none.clone(), ints(2)]), Ok(Vec::new()));
        // A list that is alone may be of any length.
        assert_eq!(combined(&[ints(1), none, ints(5000)]).unwrap().len(), 5001);
        assert_eq!(combined(&[ints(8), ints(8)]).unwrap().len(), 65);
        assert_eq!(combined(&[ints(5), ints(13)]), Err(CombineError::Count(65)));
    }

    /// Each with each would take hours.
    #[test]
    fn values_that_do_not_fit_cost_no_more_than_those_that_do() {
        const MANY: u32 = 1 << 20;
        let mut found = FoundFields::default();
        for n in 0..MANY {
            found.add(1, 0, Type::Int, |out| {
                Value::Int(i128::from(n)).encode(out);
                true
            });
            found.add(n & 1, 1, Type::Int, |_| false);
            found.add(2, 0, Type::Int, |_| false);
            found.add(2, 0, Type::Bool, |out| {
                Value::Bool(true).encode(out);
                true
            });
        }
        found.sort();
        let (mut out, mut ends) = (Vec::new(), 0);
        let combined = found.combine(1, 1, &mut out, &mut |_| ends += 1);
        assert_eq!((combined, ends), (Ok(()), MANY));
        let combined = found.combine(2, 1, &mut out, &mut |_| ends += 1);
        assert_eq!(
            (combined, ends),
            (Ok(()), MANY),
            "a field with a value that does not fit"
        );
    }

    #[test]
    fn combinations_are_refused_before_they_are_made() {
        let mut found = FoundFields::default();
        let mut add = |field, ty, value: Value| {
            found.add(0, field, ty, |out| {
                value.encode(out);
                true
            });
        };
        // A value that is itself within the limit, and beside it an array: 3 GB together.
        add(0, Type::String, Value::String("x".repeat(30_000)));
        (0..100_000).for_each(|n| add(1, Type::Int, Value::Int(n)));
        // Of two fields none is too long, but both are.
        for field in [0, 1] {
            found.add(1, field, Type::String, |out| {
                Value::String("x".repeat(MAX_INDEXED_VALUE / 2)).encode(out);
                true
            });
        }
        found.sort();
        let mut out = vec![7];
        let mut each = |_| panic!("nothing is made");
        let large: usize = (0..100_000)
            .map(|n| 1 + 1 + 30_000 + 2 + 1 + Value::Int(n).encoded().len())
            .sum();
        assert_eq!(
            found.combine(0, 2, &mut out, &mut each),
            Err(CombineError::Bytes(large))
        );
        assert_eq!(
            found.combine(1, 2, &mut out, &mut each),
            Err(CombineError::Longest(MAX_INDEXED_VALUE + 7))
        );
        assert_eq!((out.len(), out.capacity()), (1, 1));
    }

    #[test]
    fn the_bytes_of_combinations_have_an_exact_limit() {
        // A combination is 8 KiB: beside the text are the number of fields, both tags, the end of
        // the text and the integer.
        let one = Value::Int(1);
        let length = (8 << 10) - 5 - one.encoded().len();
        let texts = |n: usize| {
            let texts = (0..n).map(|n| Value::String(format!("{n:0length$}")));
            (Type::String, texts.collect::<Vec<_>>())
        };
        let one = (Type::Int, vec![one]);
        let most = MOST_COMBINED_BYTES / (8 << 10);
        let all = combined(&[texts(most), one.clone()]).unwrap();
        assert_eq!(all.len(), most);
        assert!(all.iter().all(|combination| combination.len() == 8 << 10));
        let larger = MOST_COMBINED_BYTES + (8 << 10);
        assert_eq!(
            combined(&[texts(most + 1), one]).err(),
            Some(CombineError::Bytes(larger))
        );
    }

    #[test]
    fn a_path_names_the_fields() {
        let paths = |text: &str| compound_paths(&text.parse().unwrap());
        assert_eq!(paths("user.name,at").unwrap().len(), 2);
        for wrong in ["a", "a,a", "a,"] {
            assert!(paths(wrong).is_err(), "{wrong}");
        }
    }
}
