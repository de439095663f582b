//! The worked example of FORMAT.md, `docs/format-example.txt`: a small store, taken apart field by
//! field. The decoder here is its own, written after FORMAT.md, so that the text, the example and
//! the code are held together. `ESKER_BLESS=1` writes the example instead of comparing it.

mod dump;

use std::path::Path;
use std::sync::Arc;

use dump::Dump;
use esker::{Database, DatasetDef, Durability, IndexKind, KeyType, Options, Type};
use esker_sim::memory::Memory;

const EXAMPLE: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/format-example.txt");
const HEAD: &str = "The store of the worked example in FORMAT.md, taken apart. A test writes this file:\n\
                    ESKER_BLESS=1 cargo test -p esker --test all format::\n\n";

/// A store with attributes of four kinds: two records in tables, a third in the log, closed.
fn store(dir: &Path) -> Memory {
    let fs = Memory::new();
    let options = Options::new().fs(Arc::new(fs.clone())).background(false);
    let db = Database::create_or_open(dir, options).unwrap();
    let def = DatasetDef::new("id", KeyType::Int)
        .index(
            "user",
            esker::Index::new(IndexKind::Lazy).of_type(Type::String),
        )
        .index(
            "at",
            esker::Index::new(IndexKind::Embedded).of_type(Type::Int),
        )
        .index(
            "tag",
            esker::Index::new(IndexKind::Composite).of_type(Type::String),
        )
        .index(
            "team",
            esker::Index::new(IndexKind::Eager).of_type(Type::String),
        );
    let dataset = db.create_dataset::<esker::Key>("d", def).unwrap();
    let mut batch = dataset.batch();
    batch
        .put_json(br#"{"id":1,"user":"ann","at":500,"tag":["x","y"],"team":"red"}"#)
        .unwrap();
    batch
        .put_json(br#"{"id":2,"user":"ann","at":501}"#)
        .unwrap();
    batch.durability(Durability::Sync).commit().unwrap();
    db.flush().unwrap();
    dataset.put_json(br#"{"id":-1,"user":"bob"}"#).unwrap();
    let two = dataset.parse_key("2").unwrap();
    dataset.delete(&two).unwrap();
    db.close().unwrap();
    fs
}

fn example() -> String {
    let dir = Path::new("/store");
    let fs = store(dir);
    let mut out = HEAD.to_string();
    for path in fs.paths() {
        let Some(bytes) = fs.read(&path) else {
            continue;
        };
        let name = path.file_name().unwrap().to_string_lossy();
        if name == "USAGE" {
            // Statistics: text that says what it is, and no part of the store.
            continue;
        }
        out += &format!("== {name}, {} bytes\n\n", bytes.len());
        let mut dump = Dump::new(&bytes);
        match name.as_ref() {
            "LOCK" => {}
            "CURRENT" => dump.current(),
            name if name.starts_with("MANIFEST-") => dump.log(Dump::edit),
            name if name.ends_with(".log") => dump.log(Dump::batch),
            name if name.ends_with(".tbl") => dump.table(),
            name => panic!("FORMAT.md does not know {name}"),
        }
        let text = dump.finish();
        if !text.is_empty() {
            out += &format!("{text}\n");
        }
    }
    out
}

#[test]
fn the_example_of_format_md_is_what_is_written() {
    let written = example();
    assert_eq!(written, example(), "the store is not deterministic");
    if std::env::var_os("ESKER_BLESS").is_some() {
        std::fs::write(EXAMPLE, written).unwrap();
        return;
    }
    let found = std::fs::read_to_string(EXAMPLE).unwrap();
    let mut pairs = found.lines().zip(written.lines());
    let different = pairs.find(|(found, written)| found != written);
    assert!(
        found == written,
        "docs/format-example.txt is not what is written (found, written): {different:?}; \
         if the format changed on purpose, raise its version and run with ESKER_BLESS=1"
    );
}
