//! A store, a dataset with two indexes, some records and questions.
//!
//! `cargo run -p esker --example quickstart`

use esker::{Database, DatasetDef, Index, Options, Order, field};
use serde::{Deserialize, Serialize};

#[derive(Debug, Serialize, Deserialize)]
struct Visit {
    id: u64,
    user: String,
    page: String,
    ms: i64,
}

pub(crate) fn main() -> Result<(), Box<dyn std::error::Error>> {
    let folder = tempfile::tempdir()?;
    let db = Database::create_or_open(folder.path().join("site"), Options::new())?;
    let def = DatasetDef::key("id")
        .index("user", Index::recent().string())
        .index("ms", Index::composite().int());
    let visits = db.dataset_or_create::<u64>("visits", def)?;

    for (id, user, page, ms) in [
        (1, "ann", "/", 12),
        (2, "bob", "/prices", 80),
        (3, "ann", "/prices", 210),
    ] {
        visits.put(&Visit {
            id,
            user: user.into(),
            page: page.into(),
            ms,
        })?;
    }

    // Newest first, unless you ask for another order.
    for record in visits.find(field("user").eq("ann")).limit(10) {
        let visit: Visit = record?.parse()?;
        println!("ann: {} took {} ms", visit.page, visit.ms);
    }

    // Conditions can also be text, as in `esker find`.
    let slow = visits.find("ms >= 80".parse()?).order(Order::Oldest);
    let slow: Vec<u64> = slow.keys()?.collect::<Result<_, _>>()?;
    assert_eq!(slow, [2, 3]);

    // What answers a question: an index, or a scan.
    println!("{}", visits.find(field("ms").gt(100)).explain()?);
    db.close()?;
    Ok(())
}
