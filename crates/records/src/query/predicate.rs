//! Conditions made ready for evaluation: ranges of declared attributes, and a filter of the body for
//! the others.

use std::ops::Bound;

use model::condition::{Condition, JsonFilter, Op};
use model::record::RecordRef;
use model::schema::Path;
use model::tokens::{Tokenizer, prefix_token};

use crate::catalog::Layout;
use crate::error::{Error, Result};
use crate::index::Range;

/// "Some value of the attribute lies in the range."
pub(super) struct Predicate {
    /// Position in the layout.
    pub(super) attribute: usize,
    pub(super) range: Range,
    /// The tokens that records which meet it have, where the attribute's index can be asked for them.
    pub(super) sought: Option<Range>,
    /// All records with such a token meet it.
    pub(super) answered: bool,
    /// The conditions it came from, for people.
    pub(super) text: String,
}

/// All conditions of a query.
pub(super) struct Predicates {
    pub(super) declared: Vec<Predicate>,
    /// Paths without a declared attribute.
    pub(super) undeclared: Vec<Path>,
    filter: Option<JsonFilter>,
}

impl Predicates {
    pub(super) fn new(layout: &Layout, conditions: &[Condition]) -> Result<Predicates> {
        let mut declared: Vec<Predicate> = Vec::new();
        let mut ranged: Vec<(usize, usize)> = Vec::new();
        let mut others: Vec<Condition> = Vec::new();
        for condition in conditions {
            let Some(at) = layout
                .attributes
                .iter()
                .position(|a| a.path == condition.path)
            else {
                others.push(condition.clone());
                continue;
            };
            let Some(attribute) = layout.attributes.get(at) else {
                continue;
            };
            let (lo, hi) = condition
                .to_range(attribute.ty)
                .map_err(|why| Error::bad_input(format!("{}: {why}", condition.path)))?;
            let range = Range { lo, hi };
            let joins = condition.op.bounds_a_range();
            let same = ranged
                .iter()
                .find(|(known, _)| joins && *known == at)
                .map(|(_, index)| *index);
            let (sought, answered) = sought(attribute.tokenizer, condition, &range);
            if let Some(predicate) = same.and_then(|index| declared.get_mut(index)) {
                predicate.range = predicate.range.clone().and(range);
                predicate.sought = sought.map(|_| predicate.range.clone());
                predicate.text = format!("{} {condition}", predicate.text);
                refuse_upside_down(&predicate.range, conditions, &condition.path)?;
                continue;
            }
            if joins {
                ranged.push((at, declared.len()));
            }
            declared.push(Predicate {
                attribute: at,
                range,
                sought,
                answered,
                text: condition.to_string(),
            });
        }
        let mut undeclared: Vec<Path> = others
            .iter()
            .map(|condition| condition.path.clone())
            .collect();
        undeclared.dedup();
        let filter = if others.is_empty() {
            None
        } else {
            Some(JsonFilter::new(&others))
        };
        Ok(Predicates {
            declared,
            undeclared,
            filter,
        })
    }

    /// True when there is no condition but the one that the driving index has answered.
    pub(super) fn is_answered_by(&self, driver: Option<usize>) -> bool {
        let driver = driver.and_then(|driver| self.declared.get(driver));
        driver.is_some_and(|driver| driver.answered)
            && self.declared.len() == 1
            && self.filter.is_none()
    }

    /// True when a record meets all conditions but the one that the driving index has answered.
    pub(super) fn confirm(
        &self,
        record: &RecordRef<'_>,
        layout: &Layout,
        answered: Option<usize>,
    ) -> bool {
        self.declared.iter().enumerate().all(|(index, predicate)| {
            (answered == Some(index) && predicate.answered)
                || layout
                    .attributes
                    .get(predicate.attribute)
                    .is_some_and(|attribute| {
                        attribute.any_value(record, |value| predicate.range.contains(value))
                    })
        }) && self
            .filter
            .as_ref()
            .is_none_or(|filter| filter.matches(record.body()))
    }
}

/// What an index with this tokenizer is asked for, and whether that answers the condition.
fn sought(tokenizer: Tokenizer, condition: &Condition, range: &Range) -> (Option<Range>, bool) {
    if tokenizer != Tokenizer::Prefix {
        return (Some(range.clone()), true);
    }
    let (token, whole) = prefix_token(&condition.text);
    let point = Range {
        lo: Bound::Included(token.clone()),
        hi: Bound::Included(token),
    };
    match condition.op {
        // Every string begins with the empty one, which is the token of no other.
        Op::Prefix if condition.text.is_empty() => (None, false),
        Op::Prefix => (Some(point), whole),
        Op::Eq => (Some(point), false),
        Op::Ge | Op::Le | Op::Gt | Op::Lt => (None, false),
    }
}

fn refuse_upside_down(range: &Range, conditions: &[Condition], path: &Path) -> Result<()> {
    let (Bound::Included(lo) | Bound::Excluded(lo), Bound::Included(hi) | Bound::Excluded(hi)) =
        (&range.lo, &range.hi)
    else {
        return Ok(());
    };
    if lo <= hi {
        return Ok(());
    }
    let text = |ops: [Op; 2]| {
        let named = conditions
            .iter()
            .find(|c| c.path == *path && ops.contains(&c.op));
        named
            .map(|condition| condition.text.clone())
            .unwrap_or_default()
    };
    Err(super::upside_down(
        path,
        &text([Op::Ge, Op::Gt]),
        &text([Op::Le, Op::Lt]),
    ))
}
