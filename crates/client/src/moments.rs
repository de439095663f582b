//! Moments: several reads of a dataset as it was at one time. The server forgets a moment that was
//! not used for a minute, so a thread renews those that a program holds.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::{Duration, Instant};

use esker::{DatasetDef, Result};
use parking_lot::{Condvar, Mutex};
use serde::Deserialize;
use serde_json::json;

use crate::client::{Client, segment};
use crate::wire::At;

/// How often moments are renewed: a third of their life on the server.
const RENEWAL: Duration = Duration::from_secs(20);

/// A moment of a dataset.
pub struct Moment {
    client: Client,
    renewed: Arc<Renewed>,
    id: String,
    def: DatasetDef,
}

/// The moments that a program holds.
#[derive(Default)]
pub(crate) struct Renewed {
    held: Mutex<Held>,
    changed: Condvar,
}

#[derive(Default)]
struct Held {
    ids: BTreeSet<String>,
    has_thread: bool,
}

#[derive(Deserialize)]
struct Taken {
    moment: String,
    definition: DatasetDef,
}

impl Renewed {
    fn add(self: &Arc<Self>, client: &Client, id: String) {
        let mut held = self.held.lock();
        held.ids.insert(id);
        if held.has_thread {
            return;
        }
        let (renewed, client) = (self.clone(), client.clone());
        let begun = std::thread::Builder::new()
            .name("esker-moments".to_string())
            .spawn(move || renewed.run(&client));
        // Without a thread a moment lives as long as it is used at least once a minute.
        held.has_thread = begun.is_ok();
    }

    /// Renews all until there are none.
    fn run(&self, client: &Client) {
        let mut held = self.held.lock();
        let mut due = Instant::now() + RENEWAL;
        loop {
            if held.ids.is_empty() {
                held.has_thread = false;
                return;
            }
            // Moments that go while it waits do not put off the others.
            if !self.changed.wait_until(&mut held, due).timed_out() {
                continue;
            }
            let ids: Vec<String> = held.ids.iter().cloned().collect();
            drop(held);
            for id in ids {
                // The next read of a moment that has gone says so.
                let _ = client.put(&path(&id), &json!({}));
            }
            held = self.held.lock();
            due = Instant::now() + RENEWAL;
        }
    }
}

fn path(id: &str) -> String {
    format!("/v1/moments/{}", segment(id))
}

impl Moment {
    /// The moment now, or that of a named snapshot.
    pub(crate) fn take(
        client: &Client,
        renewed: &Arc<Renewed>,
        dataset: &str,
        snapshot: Option<&str>,
    ) -> Result<Moment> {
        let at = format!("/v1/datasets/{}/moments", segment(dataset));
        let taken: Taken = client.post(&at, &json!({"snapshot": snapshot}))?;
        renewed.add(client, taken.moment.clone());
        Ok(Moment {
            client: client.clone(),
            renewed: renewed.clone(),
            id: taken.moment,
            def: taken.definition,
        })
    }

    /// The moment, for a read.
    pub fn at(&self) -> At {
        At::Moment(self.id.clone())
    }

    /// The definition of the dataset at the moment.
    pub fn def(&self) -> &DatasetDef {
        &self.def
    }
}

impl Drop for Moment {
    fn drop(&mut self) {
        self.renewed.held.lock().ids.remove(&self.id);
        self.renewed.changed.notify_all();
        // The server forgets it by itself a minute later.
        let _ = self.client.delete(&path(&self.id));
    }
}
