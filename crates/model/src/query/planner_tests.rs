//! Which lists are combined, by estimates that a test gives.

use super::{Compiled, Driver, Estimate, Expected, Lists, NoEstimates, Plan, Shape};
use crate::condition::Expr;
use crate::definition::{DatasetDef, Index, StoredDef};
use crate::error::{Error, Result};
use crate::range::Range;
use crate::schema::KeyType;

const RECORDS: u64 = 100_000;

/// Attributes and the entries of any range of them; one brings its records, and the last two are
/// compound.
const ENTRIES: [(&str, u64); 9] = [
    ("few", 10),
    ("a", 1000),
    ("b", 2000),
    ("most", 50_000),
    ("brings", 1500),
    ("c", 1200),
    ("d", 40_000),
    ("c,d", 300),
    ("v,w", 400),
];

/// Counts what is asked.
#[derive(Default)]
struct Given {
    asked: Vec<usize>,
}

impl Estimate for Given {
    type Error = Error;

    fn expect(&mut self, attribute: usize, _: &[Range]) -> Result<Expected> {
        self.asked.push(attribute);
        let (name, candidates) = ENTRIES[attribute];
        Ok(Expected {
            candidates,
            work: 2.0 * candidates as f64,
            listing: (name != "brings").then_some(20.0 + 0.2 * candidates as f64),
        })
    }

    fn records(&mut self) -> Result<Option<u64>> {
        Ok(Some(RECORDS))
    }

    fn has_other(&mut self, _: usize) -> Result<bool> {
        Ok(false)
    }
}

fn shape() -> Shape {
    let mut def = DatasetDef::new("id", KeyType::Int);
    for (name, _) in ENTRIES {
        let index = Index::recent();
        def = def.index(
            name,
            if name.contains(',') {
                index.compound()
            } else {
                index.int()
            },
        );
    }
    for field in ["v", "w"] {
        def = def.index(field, Index::none().int());
    }
    Shape::new(&StoredDef::new(&def))
}

/// The plan in words, and the attributes whose estimates were asked for.
fn planned(text: &str) -> (String, Vec<usize>) {
    let (shape, mut given) = (shape(), Given::default());
    let condition: Expr = text.parse().unwrap();
    let compiled = Compiled::new(&shape, Some(condition), &mut given).unwrap();
    let plan = Plan::choose(&shape, &compiled, &mut given).unwrap();
    let name = |at: &usize| ENTRIES[compiled.constraints[*at].attribute].0;
    let words = match &plan.driver {
        Driver::Scan => "scan".to_owned(),
        Driver::Index(at) => name(at).to_owned(),
        Driver::Union(all) => all.iter().map(name).collect::<Vec<_>>().join("|"),
        Driver::Combined(combined) => in_words(&combined.lists, &name),
    };
    let is_answered = compiled.is_answered_by(&plan.driver);
    (
        format!("{words}{}", if is_answered { "." } else { "" }),
        given.asked,
    )
}

fn in_words(lists: &Lists, name: &dyn Fn(&usize) -> &'static str) -> String {
    match lists {
        Lists::One(at) => name(at).to_owned(),
        Lists::Any(parts) => {
            let parts: Vec<String> = parts.iter().map(|part| in_words(part, name)).collect();
            format!("({})", parts.join("|"))
        }
        Lists::All { of, but } => {
            let of = of.iter().map(|part| in_words(part, name));
            let but = but.iter().map(|at| format!("!{}", name(at)));
            of.chain(but).collect::<Vec<_>>().join("&")
        }
    }
}

#[test]
fn lists_are_combined_where_that_saves_twice_what_it_costs() {
    for (condition, plan) in [
        ("a = 1", "a."),
        ("a = 1 and b = 1", "a&b."),
        ("b = 1 and a = 1 and x = 1", "a&b"),
        // Ten records are read sooner than a second list.
        ("few = 1 and a = 1", "few"),
        // Half of the records would be left, for a list fifty times as long.
        ("a = 1 and most = 1", "a"),
        ("a = 1 and b = 1 and most = 1", "a&b"),
        ("a = 1 and brings = 1", "a"),
        ("(a = 1 or b = 1) and b = 2", "b&(a|b)."),
        ("(a = 1 and b = 1) or few = 1", "(a&b|few)."),
        ("(a = 1 and b = 1) or x = 1", "scan"),
        ("most = 1 and not a = 1", "most&!a"),
        ("a = 1 and not most = 1", "a"),
        ("most = 1 and not most = 2", "most&!most"),
        ("most = 1 and not (most = 2 or x = 1)", "most&!most"),
        ("most = 1 and not (most = 2 and x = 1)", "most"),
        ("not a = 1 and not b = 1", "scan"),
    ] {
        assert_eq!(planned(condition).0, plan, "{condition}");
    }
}

#[test]
fn compound_indexes_drive_branches_and_are_combined_with_others() {
    for (condition, plan) in [
        ("v = 1 and w = 1", "v,w."),
        ("v = 1", "v,w."),
        ("w = 1", "scan"),
        // Instead of the indexes of its fields.
        ("c = 1 and d = 1", "c,d."),
        ("c = 1 and d = 1 and a = 1", "c,d&a."),
        ("a = 1 and v = 1 and w = 1", "v,w&a."),
        // In a branch.
        ("(v = 1 and w = 1) or few = 1", "v,w|few."),
        ("(c = 1 and d = 1) or few = 1", "c,d|few."),
        ("(c = 1 and d = 1 and a = 1) or few = 1", "(c,d&a|few)."),
        ("(v = 1 and w = 1) or w = 2", "scan"),
        // With a condition on all branches.
        ("v = 1 and (w = 1 or w = 2)", "v,w"),
        ("v = 1 and (w = 1 or few = 1)", "v,w&(v,w|few)."),
        ("w = 1 and (v = 1 or v = 2)", "v,w|v,w."),
        ("(v = 1 or few = 1) and not most = 1", "v,w|few"),
    ] {
        assert_eq!(planned(condition).0, plan, "{condition}");
    }
}

#[test]
fn estimates_are_asked_for_only_where_there_is_a_choice() {
    for (condition, asked) in [
        ("a = 1", &[][..]),
        ("a = 1 and x = 1", &[]),
        ("a = 1 or b = 1", &[]),
        ("a = 1 and b = 1", &[1, 2]),
        // What so few records would save is no reason to look at another index.
        ("few = 1 and not b = 1", &[0]),
        ("a = 1 and not b = 1", &[1, 2]),
    ] {
        assert_eq!(planned(condition).1, asked, "{condition}");
    }
}

#[test]
fn stores_without_estimates_of_lists_combine_none() {
    let shape = shape();
    for condition in [
        "a = 1 and b = 1",
        "a = 1 and not b = 1",
        "a = 1 or (b = 1 and few = 1)",
    ] {
        let condition: Expr = condition.parse().unwrap();
        let compiled = Compiled::new(&shape, Some(condition.clone()), &mut NoEstimates).unwrap();
        let plan = Plan::choose(&shape, &compiled, &mut NoEstimates).unwrap();
        assert!(plan.driver.combined().is_none(), "{condition}");
        assert!(!plan.driver.constraints().is_empty(), "{condition}");
    }
}

#[test]
fn what_was_weighed_has_the_plan_and_the_others() {
    let (shape, mut given) = (shape(), Given::default());
    for (condition, drivers) in [
        ("a = 1 and b = 1", 4),
        ("a = 1 and most = 1", 4),
        ("a = 1", 0),
    ] {
        let condition: Expr = condition.parse().unwrap();
        let compiled = Compiled::new(&shape, Some(condition.clone()), &mut given).unwrap();
        let plan = Plan::choose(&shape, &compiled, &mut given).unwrap();
        assert_eq!(plan.weighed.len(), drivers, "{condition}: {plan:?}");
        let chosen = plan.weighed.iter().filter(|one| one.driver == plan.driver);
        assert_eq!(chosen.count(), drivers.min(1), "{condition}: {plan:?}");
    }
}

#[test]
fn conditions_of_many_branches_are_planned_in_little_time_and_memory() {
    let (shape, mut given) = (shape(), Given::default());
    let branches = |count: usize| {
        let one = |n: usize| format!("(v = {n} and w = {n})");
        (0..count).map(one).collect::<Vec<_>>().join(" or ")
    };
    let condition: Expr = branches(2_000).parse().unwrap();
    let compiled = Compiled::new(&shape, Some(condition), &mut given).unwrap();
    let plan = Plan::choose(&shape, &compiled, &mut given).unwrap();
    assert_eq!(plan.driver.constraints().len(), 2_000);
    assert!(compiled.is_answered_by(&plan.driver));
    // Each branch would have 1,000 ranges.
    let values: Vec<String> = (0..1_000).map(|n| n.to_string()).collect();
    let wide = format!("v in ({}) and ({})", values.join(","), branches(500));
    let compiled = Compiled::new(&shape, Some(wide.parse().unwrap()), &mut given).unwrap();
    let ranges: usize = compiled
        .constraints
        .iter()
        .map(|one| one.ranges.len())
        .sum();
    assert!(ranges < 20_000, "{ranges}");
    Plan::choose(&shape, &compiled, &mut given).unwrap();
}
