//! Records as values of a Rust type, with an expiry and batches.
//!
//! `cargo run -p esker --example typed`

use std::time::Duration;

use esker::{Database, Dataset, DatasetDef, Durability, Index, Options, field};
use serde::{Deserialize, Serialize};

#[derive(Debug, PartialEq, Serialize, Deserialize)]
struct Session {
    id: String,
    user: u64,
    at: String,
}

pub(crate) fn main() -> Result<(), Box<dyn std::error::Error>> {
    let folder = tempfile::tempdir()?;
    let db = Database::create_or_open(folder.path().join("sessions"), Options::new())?;
    let def = DatasetDef::key("id")
        .index("user", Index::recent().int())
        .index("at", Index::embedded().time())
        .ttl(Duration::from_secs(3600));
    let sessions = db.dataset_or_create::<String>("sessions", def)?;
    let sessions: Dataset<String, Session> = sessions.typed();

    let mut batch = sessions.batch();
    for n in 0..100_u64 {
        batch.put(&Session {
            id: format!("s{n}"),
            user: n % 7,
            at: "2026-11-21T09:00:00Z".to_string(),
        })?;
    }
    // Synced within a second, not before the call returns.
    batch.durability(Durability::Periodic(Duration::from_secs(1)));
    batch.commit()?;

    let one: Option<Session> = sessions.get("s8".to_string())?;
    assert_eq!(one.map(|session| session.user), Some(1));
    let latest = sessions.find(field("user").eq(3)).limit(2);
    for session in latest {
        let session: Session = session?;
        println!("{} of user {}", session.id, session.user);
    }
    sessions.sync()?;
    Ok(())
}
