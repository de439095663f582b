//! A writer of two datasets.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::Ordering::SeqCst;
use std::time::Duration;

use esker::{Database, Durability, ErrorKind, KeyType};

use super::{Alarm, KEYS, Last, NAMES, Shared, VALUES};
use crate::action::{ABSENT, Cell, ONE, PATHS};
use crate::model::{key, row};

impl Shared {
    pub(super) fn write(&self, db: &Database, seed: u64, batches: usize) -> Last {
        let _alarm = Alarm(self);
        let mut rng = fastrand::Rng::with_seed(seed);
        let mut last = Last::default();
        for number in 0..batches {
            if self.failed.load(SeqCst) {
                break;
            }
            let set = rng.usize(0..NAMES.len());
            let Some(dataset) = self.decide(db.dataset::<esker::Key>(NAMES[set]), &[]) else {
                break;
            };
            let mut batch = dataset.batch();
            let mut done = BTreeMap::new();
            for _ in 0..rng.usize(1..6) {
                let id = rng.u8(0..KEYS);
                let key = key(KeyType::Int, id);
                if rng.usize(0..4) == 0 {
                    let api = dataset.parse_key(&key.to_string()).unwrap();
                    batch.delete(&api).unwrap();
                    done.insert((set, id), None);
                    continue;
                }
                let number = self.number.fetch_add(1, SeqCst);
                let mut cells: [Cell; PATHS.len()] = std::array::from_fn(|_| ONE + rng.u8(0..3));
                // The values may be unique, and there are three of them.
                if rng.usize(0..4) > 0 {
                    cells[0] = ABSENT;
                }
                let made = row(
                    &key,
                    &VALUES,
                    &cells,
                    (rng.u16(0..60), 0, None),
                    None,
                    number,
                );
                let body = made.put.body.clone();
                self.made
                    .lock()
                    .unwrap()
                    .insert(number, (key, Arc::new(made)));
                match rng.usize(0..8) {
                    0 => batch.insert_json(body.as_bytes()).unwrap(),
                    _ => batch.put_json(body.as_bytes()).unwrap(),
                }
                done.insert((set, id), Some(number));
            }
            // What a batch notes goes with its records, also where it was overtaken and made again.
            let name = format!("writer {}", seed % 2);
            let noted = (rng.usize(0..4) > 0).then(|| number.to_string().into_bytes());
            let result = batch.note(&name, noted.as_deref());
            let is_noted = self.decide(result, &[ErrorKind::Busy]).is_some();
            let durability = match number % 16 {
                0 => Durability::Sync,
                1 => Durability::Periodic(Duration::from_millis(5)),
                _ => Durability::Os,
            };
            match batch.durability(durability).commit() {
                Ok(()) => {
                    for (key, number) in done {
                        last.sure.insert(key, number);
                        last.unsure.retain(|(other, _)| *other != key);
                    }
                    if is_noted && let Some(mut notes) = self.decide(dataset.notes(), &[]) {
                        assert_eq!(notes.remove(&name), noted, "what batch {number} noted");
                    }
                }
                Err(error) if [ErrorKind::Exists, ErrorKind::NotUnique].contains(&error.kind()) => {
                }
                Err(error) => {
                    self.decide(Err::<(), _>(error), &[]);
                    last.unsure.extend(done);
                    break;
                }
            }
        }
        self.writing.fetch_sub(1, SeqCst);
        last
    }
}
