//! Gathers the fields of many records that resemble each other.
//!
//! **Templates.** Between the values of a record stands the same text as in other records of its
//! form: names, quotes, commas, and the brackets of objects. So the text around the values of some
//! records is kept, and a record whose text is the same between its values needs no look at its
//! names. Where it differs the record is read anew, and its text may become a template. What was
//! gathered up to a difference is right: the text before it was that of the same fields.

use esker_coding::Own;

use super::scan::{Scan, Slot};
use super::tree::Fields;

/// Templates that are kept.
const TEMPLATES: usize = 4;
/// Values and bytes of a template at most.
const MAX_SLOTS: usize = 256;
const MAX_TEXT: usize = 8 << 10;
/// After so many records without a template, only one of so many becomes one.
const OFTEN: u32 = 32;

/// A set of fields to which many records are added. It gives the same set as [`Fields::add`], at a
/// fraction of the cost.
#[derive(Debug, Default)]
pub struct FieldGatherer {
    fields: Fields,
    /// The last one that fitted is the first.
    templates: Vec<Template>,
    /// Records in succession that fitted no template.
    misses: u32,
}

#[derive(Debug)]
struct Template {
    /// The text before each value, and behind the last.
    text: Vec<u8>,
    /// Per value: where the text before it ends, and its place.
    values: Vec<(usize, Slot)>,
}

impl FieldGatherer {
    /// Adds the fields of a record.
    pub fn add(&mut self, json: &[u8]) {
        for at in 0..self.templates.len() {
            if self.templates.own(at).fits(&mut self.fields, json) {
                self.templates.own_mut(..=at).rotate_right(1);
                self.misses = 0;
                return;
            }
        }
        self.misses = self.misses.saturating_add(1);
        let learns = self.misses <= OFTEN || self.misses.is_multiple_of(OFTEN);
        let mut slots = learns.then(Vec::new);
        self.fields.add_with(json, &mut slots);
        if let Some(slots) = slots
            && let Some(template) = Template::new(json, &slots)
        {
            self.templates.truncate(TEMPLATES - 1);
            self.templates.insert(0, template);
        }
    }

    /// The fields so far.
    pub fn fields(&self) -> &Fields {
        &self.fields
    }

    /// The set.
    pub fn into_fields(self) -> Fields {
        self.fields
    }

    /// Adds the fields of a set.
    pub fn absorb(&mut self, fields: &Fields) {
        self.fields.absorb(fields);
    }
}

impl Template {
    /// The template of a record with these values; `None` if it would be too large.
    fn new(json: &[u8], slots: &[(Slot, usize, usize)]) -> Option<Template> {
        if slots.is_empty() || slots.len() > MAX_SLOTS {
            return None;
        }
        let (mut text, mut values, mut behind) = (Vec::new(), Vec::new(), 0);
        for (slot, begin, end) in slots {
            text.extend_from_slice(json.get(behind..*begin)?);
            values.push((text.len(), *slot));
            behind = *end;
        }
        text.extend_from_slice(json.get(behind..)?);
        (text.len() <= MAX_TEXT).then_some(Template { text, values })
    }

    /// Adds the fields of a record of this form; false if it has another.
    fn fits(&self, fields: &mut Fields, json: &[u8]) -> bool {
        let mut scan = Scan::new(fields, json);
        let mut from = 0;
        for (end, slot) in &self.values {
            if !scan.is_next(self.text.own(from..*end)) || scan.known(*slot).is_none() {
                return false;
            }
            from = *end;
        }
        scan.is_next(self.text.own(from..)) && scan.is_at_end()
    }
}
