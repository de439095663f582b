//! The paper's cost model (its tables 3 and 5), with this run's own parameters, beside the data
//! blocks that were accessed. Formulas count blocks of records and of index entries; filters, zone maps
//! and block indexes are in memory for them, and are not counted here either.

use std::time::Duration;

use esker::IndexKind;
use serde_json::Value as Json;

use super::data::Set;
use super::phases::{Session, draw};
use super::store::{Shape, Spent};
use crate::failure::Result;
use crate::measure::Row;
use crate::meter::{Io, Latency, Measured};
use crate::suites::session::Questions;
use crate::workload::Attribute;

/// The experiment of these rows.
pub const EXPERIMENT: &str = "cost-model";
/// What the subject of a row is called that a formula made.
pub const FORMULA: &str = ", by the formula";

/// What the formulas are given.
#[derive(Debug, Clone, Copy)]
pub struct Given {
    /// Records that match a question, on average.
    pub matches: f64,
    /// Those that are asked for: `K`, or all.
    pub wanted: f64,
    /// Records in all.
    pub records: f64,
    /// The data tree.
    pub data: Shape,
    /// The index tree.
    pub index: Shape,
    /// Bits of a value filter per value.
    pub bits: f64,
}

/// The block accesses that the paper expects of a question; `None` for kinds that it does not know.
pub fn expected(kind: IndexKind, attribute: Attribute, range: bool, given: &Given) -> Option<f64> {
    let runs = given.index.runs as f64;
    // M: the blocks of the index that hold keys of the range, of each run at least one.
    let share = given.matches / given.records.max(1.0);
    let in_range = (given.index.blocks as f64 * share).ceil() + runs;
    Some(match (kind.to_string().as_str(), range) {
        ("embedded", false) => {
            let false_positive = 2f64.powf(-given.bits * std::f64::consts::LN_2);
            given.wanted + false_positive * given.data.blocks as f64
        }
        // Records of one time lie in blocks next to each other; each K may still be in its own.
        ("embedded", true) if attribute == Attribute::Time => given.wanted,
        ("embedded", true) => given.data.blocks as f64,
        ("eager", false) => given.wanted + 1.0,
        ("lazy", false) => given.wanted + runs,
        // It cannot stop before it has seen every match.
        ("composite", false) => given.matches + runs,
        ("eager" | "lazy" | "composite", true) => given.matches + in_range,
        _ => return None,
    })
}

/// Reports what a question of this shape cost, and what the model says.
pub fn report(
    session: &Session<'_>,
    attribute: Attribute,
    (operation, width, limit): (&str, u64, Option<usize>),
    row: &Row,
    spent: &Spent,
) -> Result<()> {
    let Some((_, kind)) = session.task.index()? else {
        return Ok(());
    };
    if session.task.set != Set::Tweets || limit == Some(100) {
        return Ok(());
    }
    let history = session.data.history();
    let questions = Questions::new(history, session.writes);
    let mut rng = session.questioner();
    let mut matches = 0.0;
    for _ in 0..spent.questions {
        let find = draw(&questions, &mut rng, attribute, width, None);
        matches += history.find(&find, session.writes).len() as f64 / spent.questions as f64;
    }
    let (data, index) = session.store.shapes()?;
    let given = Given {
        matches,
        wanted: limit.map_or(matches, |limit| matches.min(limit as f64)),
        records: session.writes as f64,
        data,
        index,
        bits: session.task.value_filter_bits as f64,
    };
    let Some(expected) = expected(kind, attribute, operation == "range", &given) else {
        return Ok(());
    };
    let mut parameters = row.parameters.clone();
    parameters.insert("index".into(), Json::from(session.indexed()[0]));
    let nothing = Measured {
        latency: Latency::new()?,
        cpu: Duration::ZERO,
        io: Io::default(),
    };
    for (subject, blocks) in [
        (row.subject.clone(), spent.data_blocks + spent.index_blocks),
        (format!("{}{FORMULA}", row.subject), expected),
    ] {
        let mut row = session.row(EXPERIMENT, operation, parameters.clone(), &nothing);
        row.subject = subject;
        row.figures.extend([
            ("blocks".to_string(), blocks),
            ("matches".to_string(), matches),
            ("data_blocks_in_all".to_string(), data.blocks as f64),
            ("index_runs".to_string(), index.runs as f64),
        ]);
        session.report(&row)?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_formulas_are_those_of_the_paper() {
        let given = Given {
            matches: 30.0,
            wanted: 10.0,
            records: 3000.0,
            data: Shape {
                runs: 4,
                blocks: 1000,
                entries: 3000,
                bytes: 0,
            },
            index: Shape {
                runs: 3,
                blocks: 100,
                entries: 3000,
                bytes: 0,
            },
            bits: 10.0,
        };
        let of = |kind: &str, attribute, range| {
            expected(kind.parse().unwrap(), attribute, range, &given)
        };
        assert_eq!(of("eager", Attribute::User, false), Some(11.0));
        assert_eq!(of("lazy", Attribute::User, false), Some(13.0));
        assert_eq!(of("composite", Attribute::User, false), Some(33.0));
        // 2^(-10 ln 2) is 0.0082 of 1000 blocks.
        let embedded = of("embedded", Attribute::User, false).unwrap();
        assert!((embedded - 18.2).abs() < 0.1, "{embedded}");
        assert_eq!(of("embedded", Attribute::User, true), Some(1000.0));
        assert_eq!(of("embedded", Attribute::Time, true), Some(10.0));
        assert_eq!(of("lazy", Attribute::User, true), Some(30.0 + 1.0 + 3.0));
        assert_eq!(of("none", Attribute::User, false), None);
    }
}
