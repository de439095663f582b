//! A consumer that mirrors a dataset: a snapshot first, then every change, each once, also after a
//! restart.
//!
//! `cargo run -p esker --example changes`

use std::collections::BTreeMap;
use std::time::Duration;

use esker::{ChangeKind, Database, DatasetDef, Options};
use serde_json::json;

pub(crate) fn main() -> Result<(), Box<dyn std::error::Error>> {
    let folder = tempfile::tempdir()?;
    let db = Database::create_or_open(folder.path().join("shop"), Options::new())?;
    let items = db.dataset_or_create::<String>("items", DatasetDef::key("name"))?;
    items.put(&json!({"name": "pen", "left": 5}))?;

    // The log is kept for the consumer from here on, up to 64 MiB of it.
    let mut consumer = items.consume("mirror", None, 64 << 20)?;
    let mut mirror = BTreeMap::new();
    for record in items.snapshot().scan(..) {
        let record = record?;
        mirror.insert(record.key().clone(), record.json().to_vec());
    }

    items.put(&json!({"name": "ink", "left": 2}))?;
    items.delete("pen".to_string())?;

    while let Some(change) = consumer.wait(Duration::from_millis(10))? {
        match change.kind() {
            ChangeKind::Put => println!("put {}", change.key()),
            _ => println!("gone: {}", change.key()),
        }
        match items.get(change.key().clone())? {
            Some(record) => mirror.insert(change.key().clone(), record.json().to_vec()),
            None => mirror.remove(change.key()),
        };
        consumer.done()?; // once in a while is enough
    }
    assert_eq!(mirror.len(), 1);
    assert!(mirror.contains_key("ink"));
    Ok(())
}
