//! The explanation of a query: its plan, its steps and its cost.

use std::fmt;

use esker_lsm::Cost;
use esker_model::schema::Path;
use serde::{Deserialize, Deserializer, Serialize, Serializer};

/// The plan of a query, its steps so far and their cost. `Display` formats it for people; programs
/// can serialise it, and read it again.
///
/// ```
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// # let dir = tempfile::tempdir()?;
/// use esker::{Database, DatasetDef, Options, field};
///
/// let db = Database::create_or_open(dir.path(), Options::default())?;
/// let events = db.create_dataset::<u64>("events", DatasetDef::key("id"))?;
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
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
#[non_exhaustive]
pub struct Explain {
    /// The source of the candidates.
    pub plan: ExplainedPlan,
    /// Remarks for people.
    pub notes: Vec<Note>,
    /// Counts of the steps of the query.
    pub steps: Steps,
    /// The reads.
    pub cost: ExplainedCost,
}

/// A remark about how a query is answered.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum Note {
    /// A scan answers the query, because these paths of its condition have no index.
    NoIndex {
        /// The paths.
        paths: Vec<Path>,
    },
    /// A scan answers the query, because no index can: a condition such as `not` or `is null`.
    NotIndexable,
    /// The aggregates were computed of the values in an index, without the records.
    FromIndex,
    /// The first rows were found by reading an index in the order of its values.
    InIndexOrder {
        /// The path of the field.
        path: Path,
    },
    /// Before records were read, the indexes of further conditions were probed for the candidates.
    Intersected {
        /// The conditions.
        conditions: Vec<String>,
        /// The candidates that one of these indexes has ruled out.
        ruled_out: u64,
    },
    /// The text of a note, which a server sent.
    Text(String),
}

impl fmt::Display for Note {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Note::NoIndex { paths } => {
                let paths: Vec<String> = paths.iter().map(|path| format!("`{path}`")).collect();
                let paths = paths.join(", ");
                write!(f, "no index on {paths}: answered by a scan")
            }
            Note::NotIndexable => {
                f.write_str("no index answers this condition: answered by a scan")
            }
            Note::FromIndex => f.write_str("computed of the values in the index, without records"),
            Note::InIndexOrder { path } => {
                write!(
                    f,
                    "the index of `{path}` was read in its order, up to the last row"
                )
            }
            Note::Intersected {
                conditions,
                ruled_out,
            } => {
                let conditions = conditions.join(", ");
                write!(
                    f,
                    "candidates without an entry for {conditions} are dropped before records are read: {ruled_out}"
                )
            }
            Note::Text(text) => f.write_str(text),
        }
    }
}

impl Serialize for Note {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for Note {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Note, D::Error> {
        String::deserialize(deserializer).map(Note::Text)
    }
}

/// The source of a query's candidates: a scan, one index, or several indexes whose candidates are
/// combined.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
#[non_exhaustive]
pub struct ExplainedPlan {
    /// The records that a scan reads, if the query scans.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub scan: Option<String>,
    /// The index that is read.
    #[serde(flatten, skip_serializing_if = "Option::is_none")]
    pub index: Option<ExplainedIndex>,
    /// The indexes that are read, one for each alternative.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub union: Vec<ExplainedIndex>,
    /// The indexes whose entries rule each other out before records are read.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub combined: Option<ExplainedCombination>,
    /// The alternatives that the planner weighed, with their estimates; empty if it had no choice.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub alternatives: Vec<Alternative>,
    /// The conditions that an index could have answered, with the expected number of candidates of
    /// each.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub compared: Vec<Compared>,
}

/// An index that a query reads.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct ExplainedIndex {
    /// The path of its attribute.
    pub index: String,
    /// Its kind.
    pub kind: String,
    /// The condition that it answers.
    pub condition: String,
    /// The order of a field in which it is read, up to the last row that is wanted, as in
    /// `at:desc`; `None` if its values have no part in the order of the answer.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub order: Option<String>,
}

/// Indexes whose entries rule each other out.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
#[non_exhaustive]
pub struct ExplainedCombination {
    /// The condition that the remaining entries meet.
    pub condition: String,
    /// The indexes that are read.
    pub indexes: Vec<ExplainedIndex>,
}

/// A way to find the candidates of a query, which the planner weighed.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
#[non_exhaustive]
pub struct Alternative {
    /// `index`, `union`, `combination`, `order` (an index in the order of a field) or `scan`.
    pub way: String,
    /// The paths of the indexes that are read, each once; none for a scan.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub indexes: Vec<String>,
    /// The condition that the candidates meet, or the records that are scanned.
    pub condition: String,
    /// The expected number of candidates whose records are read.
    pub expected: u64,
    /// The expected work, in about microseconds; `None` for a scan, which is chosen only if no
    /// index can answer the query.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub work: Option<u64>,
    /// The outcome of the query, if this alternative was chosen.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub outcome: Option<Outcome>,
}

/// The outcome of the alternative that was chosen.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
#[non_exhaustive]
pub struct Outcome {
    /// Candidates that the index returned, or the first of several.
    pub candidates: u64,
    /// Of these, candidates that the entries of other indexes ruled out.
    pub ruled_out: u64,
    /// Records read for candidates.
    pub fetched: u64,
}

/// A condition that an index could have answered.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
#[non_exhaustive]
pub struct Compared {
    /// The condition.
    pub condition: String,
    /// The path of the index that answers it.
    pub index: String,
    /// The expected number of candidates.
    pub expected: u64,
    /// The actual number of candidates, if the index of this condition was read to its end.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub found: Option<u64>,
}

/// Counts of the steps of the query.
#[derive(Debug, Default, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
#[non_exhaustive]
pub struct Steps {
    /// Candidates that the index (or the scan) returned.
    pub candidates: u64,
    /// Candidates of obsolete writes: replaced, deleted or expired records.
    pub obsolete: u64,
    /// Records that a scan read, whether or not they met the condition.
    #[serde(skip_serializing_if = "is_zero")]
    pub scanned: u64,
    /// Entries of further indexes, which were read to rule out candidates.
    #[serde(skip_serializing_if = "is_zero")]
    pub listed: u64,
    /// Candidates that these entries ruled out.
    #[serde(skip_serializing_if = "is_zero")]
    pub ruled_out: u64,
    /// Candidates looked up in a tree of keys.
    pub probed: u64,
    /// Records read for candidates.
    pub fetched: u64,
    /// Of these, records of obsolete writes.
    #[serde(skip)]
    pub(super) wasted: u64,
    /// Records that did not meet another condition.
    pub discarded: u64,
    /// Records in the answer.
    pub answers: u64,
    /// How many times the index was read.
    pub rounds: u64,
}

/// Lets serialisation skip counts of zero.
fn is_zero(number: &u64) -> bool {
    *number == 0
}

/// The reads of a query: of the records, of the index, and of a tree of keys. In a dataset stored
/// by location ([`DatasetDef::cluster`](crate::DatasetDef::cluster)), `data` counts reads of the
/// records' attributes; the records themselves are read with the index of an area, or looked up by
/// location.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
#[non_exhaustive]
pub struct ExplainedCost {
    /// Reads of the records.
    pub data: ReadCost,
    /// Reads of records that were looked up by location.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub place: Option<ReadCost>,
    /// Reads of the index.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub index: Option<ReadCost>,
    /// Reads of a tree of keys.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub keys: Option<ReadCost>,
}

/// The cost of reads in one tree.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
#[non_exhaustive]
pub struct ReadCost {
    /// Blocks found in the cache.
    pub blocks_cached: u64,
    /// Blocks read from files.
    pub blocks_read: u64,
    /// Bytes of the blocks read from files.
    pub bytes_read: u64,
    /// Of all these blocks, data blocks.
    pub data_blocks: u64,
    /// Key filters probed.
    pub filters_probed: u64,
    /// Of these, filters that excluded the key.
    pub filters_negative: u64,
    /// Of these, filters that wrongly admitted the key.
    pub filters_false: u64,
    /// Value summaries (synopses) probed.
    pub synopses_probed: u64,
    /// Of these, summaries that excluded the value.
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
    /// Writes the conditions that were compared.
    fn fmt_compared(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for compared in &self.plan.compared {
            let (condition, expected) = (&compared.condition, compared.expected);
            write!(f, "expected of {condition}")?;
            if !compared.index.is_empty() {
                write!(f, " in the index of {}", compared.index)?;
            }
            write!(f, ": {expected} candidates")?;
            match compared.found {
                Some(found) => writeln!(f, ", there were {found}")?,
                None => writeln!(f)?,
            }
        }
        Ok(())
    }

    /// Writes the alternatives that were weighed, if one of them reads several indexes.
    fn fmt_alternatives(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let all = &self.plan.alternatives;
        let is_several = |one: &Alternative| one.way == "union" || one.way == "combination";
        for one in all.iter().filter(|_| all.iter().any(is_several)) {
            f.write_str(&one.way)?;
            if !one.indexes.is_empty() {
                write!(f, " of {}", one.indexes.join(" and "))?;
            }
            write!(f, ", {}: {} records expected", one.condition, one.expected)?;
            if let Some(work) = one.work {
                write!(f, ", about {work} us")?;
            }
            match &one.outcome {
                Some(outcome) => writeln!(f, "; chosen, {} were read", outcome.fetched)?,
                None => writeln!(f)?,
            }
        }
        Ok(())
    }

    /// Explains a scan by key. `cost` counts reads of the data tree, `place` reads of records by
    /// location.
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
        let combined = plan.combined.iter().flat_map(|combined| &combined.indexes);
        for index in plan.index.iter().chain(&plan.union).chain(combined) {
            write!(f, "{} index of {}", index.kind, index.index)?;
            if let Some(order) = &index.order {
                write!(f, " in the order {order}")?;
            }
            writeln!(f, ": {}", index.condition)?;
        }
        self.fmt_compared(f)?;
        self.fmt_alternatives(f)?;
        let steps = &self.steps;
        if steps.ruled_out + steps.listed > 0 {
            writeln!(
                f,
                "ruled out before records were read: {}, by {} further entries",
                steps.ruled_out, steps.listed
            )?;
        }
        write!(
            f,
            "candidates: {}, of them obsolete: {}; records read: {}, of them discarded: {}; answers: {}",
            steps.candidates, steps.obsolete, steps.fetched, steps.discarded, steps.answers
        )?;
        let parts = [
            ("records", Some(self.cost.data)),
            ("records by location", self.cost.place),
            ("index", self.cost.index),
            ("keys", self.cost.keys),
        ];
        for (part, cost) in parts {
            // A tree that the query does not read has no cost.
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
