//! The questions, in the forms of Esker and of SQL, and the form in which answers are compared.

use fastrand::Rng;
use xxhash_rust::xxh3::xxh3_64;

/// The figure that is equal where answers are.
pub(super) const ANSWER: &str = "answer";

/// What is asked.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Operation {
    /// The number of records with each number of likes, which is indexed.
    CountByValue,
    /// The number of records of each hour; their time is indexed.
    CountByHour,
    /// The least and the greatest time.
    Ends,
    /// The ten latest records.
    TopTen,
    /// Languages and sources, which have no index: how many records, and their likes together.
    Groups,
    /// The records with both of two numbers; each has an index.
    Both,
}

/// All operations.
pub(super) const OPERATIONS: [Operation; 6] = [
    Operation::CountByValue,
    Operation::CountByHour,
    Operation::Ends,
    Operation::TopTen,
    Operation::Groups,
    Operation::Both,
];

/// A question.
#[derive(Debug, Clone)]
pub(super) struct Question {
    pub(super) operation: Operation,
    /// For [`Operation::Both`]: likes and retweets.
    pub(super) likes: u64,
    pub(super) retweets: u64,
}

/// An answer.
#[derive(Debug, Default)]
pub(super) struct Answer {
    /// Its rows, a line each, cells separated by bars.
    pub(super) text: String,
    pub(super) rows: u64,
    /// The records that were read for it, where the subject tells.
    pub(super) records_read: Option<u64>,
}

impl Answer {
    pub(super) fn push<C: AsRef<str>>(&mut self, cells: impl IntoIterator<Item = C>) {
        for (at, cell) in cells.into_iter().enumerate() {
            if at > 0 {
                self.text.push('|');
            }
            self.text.push_str(cell.as_ref());
        }
        self.text.push('\n');
        self.rows += 1;
    }
}

impl Operation {
    /// Its name in the rows.
    pub(super) fn name(self) -> &'static str {
        match self {
            Operation::CountByValue => "count by value",
            Operation::CountByHour => "count by hour",
            Operation::Ends => "least and greatest",
            Operation::TopTen => "top ten",
            Operation::Groups => "groups without index",
            Operation::Both => "two conditions",
        }
    }

    /// The questions of a run: the same for all subjects.
    pub(super) fn questions(self, seed: u64, len: usize) -> Vec<Question> {
        let mut rng = Rng::with_seed(seed ^ 0x7175);
        // Counts of many records take as long as hundreds of lookups.
        let times = match self {
            Operation::Both | Operation::TopTen => 200,
            Operation::Ends => 20,
            _ if len >= 100_000 => 5,
            _ => 20,
        };
        let question = |_| Question {
            operation: self,
            likes: rng.u64(..1024),
            retweets: rng.u64(..64),
        };
        (0..times).map(question).collect()
    }
}

impl Question {
    /// The question in SQL, of a table with this name; `over` is the operator that divides integers.
    pub(super) fn sql(&self, table: &str, over: &str) -> String {
        match self.operation {
            Operation::CountByValue => {
                format!("SELECT likes, count(*) FROM {table} GROUP BY likes ORDER BY likes")
            }
            Operation::CountByHour => format!(
                "SELECT created_at {over} 3600 * 3600 AS hour, count(*) FROM {table} GROUP BY hour ORDER BY hour"
            ),
            Operation::Ends => format!(
                "SELECT (SELECT min(created_at) FROM {table}), (SELECT max(created_at) FROM {table})"
            ),
            Operation::TopTen => {
                format!("SELECT id FROM {table} ORDER BY created_at DESC, id LIMIT 10")
            }
            Operation::Groups => format!(
                "SELECT lang, source, count(*), sum(likes) FROM {table} GROUP BY lang, source ORDER BY lang, source"
            ),
            Operation::Both => format!(
                "SELECT id FROM {table} WHERE likes = {} AND retweets = {} ORDER BY id",
                self.likes, self.retweets
            ),
        }
    }
}

/// A number that a figure holds exactly.
pub(super) fn digest(answers: &[u8]) -> f64 {
    (xxh3_64(answers) >> 16) as f64
}
