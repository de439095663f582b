//! Files of statements with their answers, in the format of sqllogictest.
//!
//! Each file in `tests/slt` runs over the store that is made of the records in `tests/slt/*.ndjson`:
//! a dataset a file. Answers in files that say so at their head were computed by DuckDB
//! (`tests/slt/beside.py`), which read the same records.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use datafusion::error::DataFusionError;
use esker::{Database, DatasetDef, Index, Key, KeyType, Options};
use esker_sql::Session;
use sqllogictest::{AsyncDB, DBOutput, DefaultColumnType, Runner};

use crate::store::texts;

struct Db(Arc<Session>);

#[async_trait::async_trait]
impl AsyncDB for Db {
    type Error = DataFusionError;
    type ColumnType = DefaultColumnType;

    async fn run(&mut self, sql: &str) -> Result<DBOutput<DefaultColumnType>, DataFusionError> {
        let batches = self.0.sql(sql).await?.collect().await?;
        let columns = batches.first().map_or(0, |batch| batch.num_columns());
        let mut rows = Vec::new();
        for batch in &batches {
            rows.extend(texts(batch)?);
        }
        Ok(DBOutput::Rows {
            types: vec![DefaultColumnType::Any; columns],
            rows,
        })
    }

    async fn shutdown(&mut self) {}
}

fn folder() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/slt")
}

fn files(extension: &str) -> Vec<PathBuf> {
    let entries = std::fs::read_dir(folder()).unwrap();
    let mut files: Vec<PathBuf> = entries
        .map(|entry| entry.unwrap().path())
        .filter(|path| path.extension().is_some_and(|found| found == extension))
        .collect();
    files.sort();
    files
}

/// A store with the records of the files, partly in tables and partly in the log, and indexes on
/// some of the fields.
fn fill(dir: &Path) {
    let db = Database::create_or_open(dir, Options::default()).unwrap();
    for file in files("ndjson") {
        let name = file.file_stem().unwrap().to_str().unwrap();
        let def = match name {
            "visits" => DatasetDef::new("id", KeyType::Int)
                .index("user.name", Index::lazy().string())
                .index("ms", Index::composite().int()),
            _ => DatasetDef::new("id", KeyType::Int),
        };
        let dataset = db.create_dataset::<Key>(name, def).unwrap();
        for (n, line) in std::fs::read_to_string(&file).unwrap().lines().enumerate() {
            dataset.put_json(line).unwrap();
            if n == 20 {
                db.flush().unwrap();
            }
        }
    }
    db.close().unwrap();
}

#[test]
fn statements_have_the_answers_in_the_files() {
    let dir = tempfile::tempdir().unwrap();
    let store = dir.path().join("db");
    fill(&store);
    let runtime = tokio::runtime::Runtime::new().unwrap();
    let scripts = files("slt");
    assert!(!scripts.is_empty());
    for script in scripts {
        let store = store.clone();
        runtime.block_on(async {
            let mut runner = Runner::new(|| async {
                let db = Database::open_reader(&store, Options::default()).unwrap();
                Ok(Db(Arc::new(Session::new(db, 64 << 20)?)))
            });
            runner.run_file_async(&script).await.unwrap();
        });
    }
}
