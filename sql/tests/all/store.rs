//! Stores to ask, and what a statement read of them.

use std::sync::Arc;

use datafusion::arrow::array::RecordBatch;
use datafusion::arrow::util::display::{ArrayFormatter, FormatOptions};
use datafusion::error::Result;
use datafusion::physical_plan::{ExecutionPlan, collect, displayable};
use esker::{Database, Dataset, DatasetDef, Key, KeyType, Options};
use esker_sql::Session;
use tempfile::TempDir;

/// A store of its own, open for writing.
pub(crate) struct Store {
    pub(crate) db: Database,
    pub(crate) session: Session,
    runtime: tokio::runtime::Runtime,
    pub(crate) dir: TempDir,
}

/// An answer.
pub(crate) struct Answer {
    pub(crate) rows: Vec<Vec<String>>,
    pub(crate) batches: Vec<RecordBatch>,
    /// The physical plan.
    pub(crate) plan: String,
    /// Records that datasets read, in whole or in part, for it.
    pub(crate) records_read: usize,
}

impl Store {
    pub(crate) fn new() -> Store {
        let dir = tempfile::tempdir().unwrap();
        let options = esker_pubsub::PubSub::register(Options::default());
        let db = Database::create_or_open(dir.path().join("db"), options).unwrap();
        Store {
            session: Session::new(db.clone(), 64 << 20).unwrap(),
            db,
            runtime: tokio::runtime::Runtime::new().unwrap(),
            dir,
        }
    }

    /// A dataset with whole numbers as keys.
    pub(crate) fn dataset(
        &self,
        name: &str,
        indexes: impl FnOnce(DatasetDef) -> DatasetDef,
    ) -> Dataset {
        let def = indexes(DatasetDef::new("id", KeyType::Int));
        self.db.create_dataset::<Key>(name, def).unwrap()
    }

    pub(crate) fn run<T>(&self, future: impl Future<Output = T>) -> T {
        self.runtime.block_on(future)
    }

    pub(crate) fn ask(&self, sql: &str) -> Result<Answer> {
        self.run(async {
            let rows = self.session.sql(sql).await?;
            let context = Arc::new(rows.task_ctx());
            let plan = rows.create_physical_plan().await?;
            let batches = collect(plan.clone(), context).await?;
            let mut rows = Vec::new();
            for batch in &batches {
                rows.extend(texts(batch)?);
            }
            Ok(Answer {
                rows,
                batches,
                plan: displayable(plan.as_ref()).indent(false).to_string(),
                records_read: records_read(&plan),
            })
        })
    }

    /// The first column of an answer.
    pub(crate) fn first(&self, sql: &str) -> Vec<String> {
        let answer = self
            .ask(sql)
            .unwrap_or_else(|error| panic!("{sql}: {error}"));
        answer
            .rows
            .into_iter()
            .map(|mut row| row.remove(0))
            .collect()
    }
}

fn records_read(plan: &Arc<dyn ExecutionPlan>) -> usize {
    let own = plan.metrics().and_then(|metrics| {
        let metric = metrics.sum_by_name("records_read")?;
        (plan.name() == "DatasetExec").then(|| metric.as_usize())
    });
    let below = plan.children().into_iter().map(records_read);
    own.unwrap_or(0) + below.sum::<usize>()
}

/// The cells of a batch as text.
pub(crate) fn texts(batch: &RecordBatch) -> Result<Vec<Vec<String>>> {
    let options = FormatOptions::default().with_null("NULL");
    let columns = batch.columns().iter();
    let columns = columns.map(|column| ArrayFormatter::try_new(column, &options));
    let columns = columns.collect::<std::result::Result<Vec<_>, _>>()?;
    let row = |at| {
        let cells = columns.iter().map(|column| column.value(at).to_string());
        let shown = cells.map(|cell| match cell.as_str() {
            "" => "(empty)".to_string(),
            _ => cell,
        });
        shown.collect()
    };
    Ok((0..batch.num_rows()).map(row).collect())
}
