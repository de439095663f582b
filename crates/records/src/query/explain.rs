//! What a query did and what it cost.

use std::fmt;

use lsm::Cost;
use serde::Serialize;

/// How a query was answered, what it did so far, and what that cost. Shown as text for people, serialised for programs.
///
/// ```
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// # let dir = tempfile::tempdir()?;
/// use esker::{Database, DatasetDef, KeyType, Options, field};
///
/// let db = Database::create_or_open(dir.path(), Options::default())?;
/// let events = db.create_dataset::<u64>("events", DatasetDef::new("id", KeyType::Int))?;
/// events.put_json(br#"{"id": 1, "n": 5}"#)?;
///
/// let mut answer = events.find(field("n").gt(3)).run()?;
/// assert_eq!(answer.by_ref().count(), 1);
/// let explain = answer.explain();
/// assert_eq!(explain.steps.answers, 1);
/// assert_eq!(explain.plan.scan.as_deref(), Some("all records"));
/// # Ok(())
/// # }
/// ```
#[derive(Debug, Clone, Default, PartialEq, Serialize)]
#[non_exhaustive]
pub struct Explain {
    /// Where the candidates come from.
    pub plan: ExplainedPlan,
    /// Remarks for people.
    pub notes: Vec<String>,
    /// How many candidates passed each step.
    pub steps: Steps,
    /// What was read.
    pub cost: ExplainedCost,
}

/// Where the candidates of a query come from: a scan, one index, or several whose candidates are united.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct ExplainedPlan {
    /// What is scanned.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub scan: Option<String>,
    /// The index that is read.
    #[serde(flatten, skip_serializing_if = "Option::is_none")]
    pub index: Option<ExplainedIndex>,
    /// The indexes that are read, one for each alternative.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub union: Vec<ExplainedIndex>,
    /// The conditions that could have been answered by an index, with the number of candidates that was expected of each.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub compared: Vec<Compared>,
}

/// An index that a query reads.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct ExplainedIndex {
    /// The path of its attribute.
    pub index: String,
    /// Its kind.
    pub kind: String,
    /// What is sought in it.
    pub condition: String,
}

/// A condition that could have been answered by an index.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct Compared {
    /// The condition.
    pub condition: String,
    /// About so many candidates.
    pub expected: u64,
    /// How many there were: of the condition whose index was read, and read to the end.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub found: Option<u64>,
}

/// How many candidates passed each step.
#[derive(Debug, Default, Clone, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct Steps {
    /// Given by the index (or by the scan).
    pub candidates: u64,
    /// Of writes that are obsolete: replaced, deleted or expired.
    pub obsolete: u64,
    /// Records that a scan looked at, whether or not they met the condition.
    #[serde(skip_serializing_if = "is_zero")]
    pub scanned: u64,
    /// Looked up in a tree of keys.
    pub probed: u64,
    /// Records read for them.
    pub fetched: u64,
    /// Of these, those of obsolete writes.
    #[serde(skip)]
    pub(super) wasted: u64,
    /// Another condition did not hold.
    pub discarded: u64,
    /// Answered.
    pub answers: u64,
    /// Times that the index was read.
    pub rounds: u64,
}

/// For what is left out where it says nothing.
fn is_zero(number: &u64) -> bool {
    *number == 0
}

/// What a query read: of the records, of the index, and of a tree of keys. In a dataset that is stored by place
/// ([`DatasetDef::cluster`](crate::DatasetDef::cluster)) what is read of the records are their attributes; the records themselves
/// are read with the index of an area, or looked up at their place.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct ExplainedCost {
    /// Of the records.
    pub data: ReadCost,
    /// Of records that were looked up at their place.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub place: Option<ReadCost>,
    /// Of the index.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub index: Option<ReadCost>,
    /// Of a tree of keys.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub keys: Option<ReadCost>,
}

/// The cost of reads in one tree.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct ReadCost {
    /// Blocks that were in the cache.
    pub blocks_cached: u64,
    /// Blocks that were read from files.
    pub blocks_read: u64,
    /// Bytes of these.
    pub bytes_read: u64,
    /// Of all these blocks, those of data.
    pub data_blocks: u64,
    /// Key filters that were read.
    pub filters_probed: u64,
    /// Of these, those that excluded the key.
    pub filters_negative: u64,
    /// Of these, those that did not and were wrong.
    pub filters_false: u64,
    /// Summaries of values that were read.
    pub synopses_probed: u64,
    /// Of these, those that excluded the value.
    pub synopses_negative: u64,
}

impl From<&Cost> for ReadCost {
    fn from(cost: &Cost) -> ReadCost {
        ReadCost {
            blocks_cached: cost.blocks_cached.get(),
            blocks_read: cost.blocks_read.get(),
            bytes_read: cost.bytes_read.get(),
            data_blocks: cost.data_blocks.get(),
            filters_probed: cost.filters_probed.get(),
            filters_negative: cost.filters_negative.get(),
            filters_false: cost.filters_false.get(),
            synopses_probed: cost.synopses_probed.get(),
            synopses_negative: cost.synopses_negative.get(),
        }
    }
}

impl Explain {
    /// Of a scan over the keys that read so much, and so much of records that are stored by place.
    pub(super) fn of_scan(order: &str, answers: u64, cost: &Cost, place: Option<&Cost>) -> Explain {
        Explain {
            plan: ExplainedPlan {
                scan: Some(format!("keys, {order}")),
                ..ExplainedPlan::default()
            },
            steps: Steps {
                candidates: answers,
                answers,
                ..Steps::default()
            },
            cost: ExplainedCost {
                data: cost.into(),
                place: place.map(ReadCost::from),
                ..ExplainedCost::default()
            },
            notes: Vec::new(),
        }
    }
}

impl fmt::Display for Explain {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let plan = &self.plan;
        if let Some(scan) = &plan.scan {
            write!(f, "scan of {scan}")?;
            match self.steps.scanned {
                0 => writeln!(f)?,
                1 => writeln!(f, ": 1 was read")?,
                scanned => writeln!(f, ": {scanned} were read")?,
            }
        }
        for index in plan.index.iter().chain(&plan.union) {
            writeln!(
                f,
                "{} index of {}: {}",
                index.kind, index.index, index.condition
            )?;
        }
        for Compared {
            condition,
            expected,
            found,
        } in &plan.compared
        {
            write!(f, "expected of {condition}: {expected} candidates")?;
            match found {
                Some(found) => writeln!(f, ", there were {found}")?,
                None => writeln!(f)?,
            }
        }
        let steps = &self.steps;
        write!(
            f,
            "candidates: {}, of them obsolete: {}; records read: {}, of them discarded: {}; answers: {}",
            steps.candidates, steps.obsolete, steps.fetched, steps.discarded, steps.answers
        )?;
        let parts = [
            ("records", Some(self.cost.data)),
            ("records by place", self.cost.place),
            ("index", self.cost.index),
            ("keys", self.cost.keys),
        ];
        for (part, cost) in parts {
            let Some(cost) = cost else { continue };
            let (read, cached) = (cost.blocks_read, cost.blocks_cached);
            if read + cached > 0 {
                write!(f, "\n{part}: {read} blocks read, {cached} from the cache")?;
            }
        }
        self.notes
            .iter()
            .try_for_each(|note| write!(f, "\nnote: {note}"))
    }
}
