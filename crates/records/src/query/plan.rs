//! Which index drives a query: the one that is expected to make the least work.

use super::predicate::Predicates;
use crate::catalog::{Attribute, Layout};
use crate::error::Result;
use crate::index::{self, Lookup, Range};

/// How candidates are found.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Driver {
    /// By the index of the attribute of this predicate.
    Index(usize),
    /// By reading every record.
    Scan,
}

/// A driver, and what was expected of each index that could have been.
pub(super) struct Plan {
    pub(super) driver: Driver,
    /// (predicate, expected candidates) of those that were compared.
    pub(super) compared: Vec<(usize, u64)>,
}

/// The attributes whose indexes can be asked about the conditions, and what for.
pub(super) fn indexed<'a>(
    layout: &'a Layout,
    predicates: &'a Predicates,
) -> impl Iterator<Item = (&'a Attribute, &'a Range)> {
    predicates.declared.iter().filter_map(|predicate| {
        let attribute = layout.attributes.get(predicate.attribute)?;
        let sought = predicate.sought.as_ref()?;
        attribute.kind.is_indexed().then_some((attribute, sought))
    })
}

pub(super) fn choose(lookup: &Lookup<'_>, predicates: &Predicates) -> Result<Plan> {
    let attributes = &lookup.layout.attributes;
    let indexed: Vec<usize> = predicates
        .declared
        .iter()
        .enumerate()
        .filter(|(_, p)| {
            let attribute = attributes.get(p.attribute);
            p.sought.is_some() && attribute.is_some_and(|a| a.kind.is_indexed())
        })
        .map(|(at, _)| at)
        .collect();
    let mut compared = Vec::new();
    match indexed.as_slice() {
        [] => {
            return Ok(Plan {
                driver: Driver::Scan,
                compared,
            });
        }
        [only] => {
            return Ok(Plan {
                driver: Driver::Index(*only),
                compared,
            });
        }
        _ => {}
    }
    let mut cheapest: Option<(f64, usize)> = None;
    for at in indexed {
        let Some(predicate) = predicates.declared.get(at) else {
            continue;
        };
        let Some(attribute) = attributes.get(predicate.attribute) else {
            continue;
        };
        let Some(index) = index::of(attribute.kind) else {
            continue;
        };
        let Some(sought) = &predicate.sought else {
            continue;
        };
        let expected = index.estimate(lookup, attribute, sought)?;
        compared.push((at, expected));
        let cost = expected as f64 * index.weight();
        if cheapest.is_none_or(|(least, _)| cost < least) {
            cheapest = Some((cost, at));
        }
    }
    let driver = cheapest.map_or(Driver::Scan, |(_, at)| Driver::Index(at));
    Ok(Plan { driver, compared })
}
