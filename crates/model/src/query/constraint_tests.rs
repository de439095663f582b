//! Conditions on declared attributes find the records that the same conditions find without a
//! declaration.

use super::{Compiled, Estimate, Expected, NoEstimates, Shape};
use crate::condition::{AreaExpr, Expr, Filter, Operand, field};
use crate::definition::{DatasetDef, Index, IndexKind, StoredDef};
use crate::error::{Error, Result};
use crate::range::Range;
use crate::record::{self, RecordRef};
use crate::schema::{KeyType, Type, stand_in};
use crate::tokens::Tokenizer;

/// What an index knows of itself that has these records.
struct Known<'s> {
    shape: &'s Shape,
    stored: &'s [Vec<u8>],
}

impl Known<'_> {
    fn has(&self, attribute: usize, body: &[u8], is_sought: &dyn Fn(&[u8]) -> bool) -> bool {
        let mut has = false;
        let record = RecordRef::parse(body).unwrap();
        let attribute = self.shape.attribute(attribute).unwrap();
        attribute.each_token(&record, &mut |token| has |= is_sought(token));
        has
    }
}

impl Estimate for Known<'_> {
    type Error = Error;

    fn expect(&mut self, _: usize, _: &[Range]) -> Result<Expected> {
        Ok(Expected::default())
    }

    fn has_other(&mut self, at: usize) -> Result<bool> {
        let other = stand_in(self.shape.attribute(at).unwrap().ty).unwrap();
        let mut all = self.stored.iter();
        Ok(all.any(|stored| self.has(at, stored, &|token| token == other)))
    }
}

/// The bodies that a condition finds in a dataset with these attributes, by what was compiled: by
/// the record, and by the entries of each index that must have all matches.
fn found<'b>(indexes: &[(&str, Index)], condition: Expr, bodies: &[&'b str]) -> Vec<&'b str> {
    let mut def = DatasetDef::new("id", KeyType::Int);
    for (path, index) in indexes {
        def = def.index(*path, *index);
    }
    let shape = Shape::new(&StoredDef::new(&def));
    let stored = bodies.iter().map(|body| {
        let mut stored = Vec::new();
        record::encode(&mut stored, 0, std::iter::empty(), body.as_bytes());
        stored
    });
    let stored: Vec<Vec<u8>> = stored.collect();
    let mut known = Known {
        shape: &shape,
        stored: &stored,
    };
    let compiled = Compiled::new(&shape, Some(condition), &mut known).unwrap();
    let meets = |stored: &[u8]| {
        let mut driving = compiled.conjuncts().filter(|one| one.can_drive(&shape));
        let is_there = driving.all(|constraint| {
            let sought = constraint.sought().unwrap();
            known.has(constraint.attribute, stored, &|token| {
                sought.iter().any(|range| range.contains(token))
            })
        });
        let record = RecordRef::parse(stored).unwrap();
        !compiled.is_never() && is_there && compiled.confirm(&record, &shape, None)
    };
    let each = bodies.iter().zip(&stored);
    let found = each.filter(|(_, stored)| meets(stored));
    found.map(|(body, _)| *body).collect()
}

fn by_json<'b>(condition: &Expr, bodies: &[&'b str]) -> Vec<&'b str> {
    let filter = Filter::new(condition);
    let meets = |body: &&str| filter.matches_json(body.as_bytes());
    bodies.iter().copied().filter(meets).collect()
}

#[test]
fn values_of_other_types_are_found_whatever_the_tokenizer_is() {
    let bodies = [
        r#"{"id":1,"name":5}"#,
        r#"{"id":2,"name":"5"}"#,
        r#"{"id":3,"name":[7.5,"a"]}"#,
        r#"{"id":4,"name":true}"#,
        r#"{"id":5,"name":"ann"}"#,
    ];
    for tokenizer in [Tokenizer::Exact, Tokenizer::Prefix] {
        let index = Index::lazy().string().lenient().tokenizer(tokenizer);
        for (condition, some) in [
            (field("name").eq(5), 1),
            (field("name").one_of([5, 6]), 1),
            (field("name").gt(5), 1),
            (field("name").ge(5.0) & field("name").lt(9), 2),
            (field("name").eq(true), 1),
            (field("name").prefix("a"), 2),
        ] {
            let right = by_json(&condition, &bodies);
            assert_eq!(right.len(), some, "{condition}");
            let text = format!("{tokenizer} {condition}");
            let found = found(&[("name", index)], condition, &bodies);
            assert_eq!(found, right, "{text}");
        }
    }
}

#[test]
fn a_number_that_is_beyond_all_times_is_found_beside_an_area() {
    let bodies = [
        r#"{"id":1,"p":[1,1],"t":5}"#,
        r#"{"id":2,"p":[1,1],"t":10000000000000000}"#,
        r#"{"id":3,"p":[1,1],"t":1e300}"#,
        r#"{"id":4,"p":[9,9],"t":10000000000000000}"#,
    ];
    let area = || field("p").within(AreaExpr::rect(0.0, 0.0, 2.0, 2.0));
    let far = || field("t").ge(4) & field("t").le(1e17);
    for (ty, lenient) in [(Type::Int, true), (Type::Float, true), (Type::Float, false)] {
        let time = Index::new(IndexKind::None).of_type(ty);
        let time = if lenient { time.lenient() } else { time };
        // Without lenience such records are refused.
        let bodies = if lenient { &bodies[..] } else { &bodies[..1] };
        for (condition, most) in [
            (area() & field("t").gt(4), 3),
            (area() & field("t").le(1e301), 3),
            (area() & far(), 2),
            (area() & field("t").ge(4) & field("t").lt(6), 1),
        ] {
            let right = by_json(&condition, bodies);
            let text = format!("{ty} {lenient} {condition}");
            let indexes = [("t", time), ("p@t", Index::space_time())];
            assert_eq!(found(&indexes, condition, bodies), right, "{text}");
            assert_eq!(right.len(), if lenient { most } else { 1 }, "{text}");
        }
    }
}

#[test]
fn reversed_bounds_of_one_type_may_hold_for_values_of_another() {
    let bodies = [
        r#"{"id":1,"v":9.5}"#,
        r#"{"id":2,"v":"9.5"}"#,
        r#"{"id":3,"v":"z"}"#,
        r#"{"id":4,"v":7}"#,
    ];
    // As texts the bounds are reversed, as numbers they are not.
    let condition = field("v").ge(Operand::text("9")) & field("v").lt(Operand::text("10"));
    let reversed = field("v").ge(7) & field("v").lt(3);
    for index in [
        Index::lazy().string(),
        Index::lazy().string().tokenizer(Tokenizer::Prefix),
        Index::lazy().int(),
    ] {
        for (condition, some) in [(&condition, 1), (&reversed, 0)] {
            let right = by_json(condition, &bodies);
            assert_eq!(right.len(), some);
            let found = found(&[("v", index.lenient())], condition.clone(), &bodies);
            assert_eq!(found, right, "{index:?} {condition}");
        }
    }
    let shape = Shape::new(&StoredDef::new(
        &DatasetDef::new("id", KeyType::Int).index("v", Index::lazy().string()),
    ));
    let refused = Compiled::new(&shape, Some(condition), &mut NoEstimates).unwrap_err();
    assert!(refused.to_string().contains("reversed"), "{refused}");
}
