//! Carries out each action: finds the store and the dataset that it refers to, and calls the module
//! that does the work.

use crate::action::{Action, Write};
use crate::data::{During, Prepared};
use crate::model::KEYS;
use crate::world::{MOST_SETS, World};

impl World {
    pub(crate) fn act(&mut self, action: &Action) {
        match action {
            Action::Create { store, name, def } => {
                let at = self.store_at(*store);
                if self.stores[at].sets.len() < MOST_SETS {
                    self.create(at, &format!("d{}", name % 4), def);
                }
            }
            Action::DropSet { store, set } => {
                let at = self.store_at(*store);
                if let Some(set) = self.set_at(at, *set) {
                    self.drop_set(at, set);
                }
            }
            Action::Rename { store, set, name } => {
                let at = self.store_at(*store);
                if let Some(set) = self.set_at(at, *set) {
                    self.rename_set(at, set, &format!("d{}", name % 4));
                }
            }
            Action::Batch {
                store,
                set,
                writes,
                durability,
            } => {
                let at = self.store_at(*store);
                if let Some(set) = self.set_at(at, *set) {
                    let (mut batch, effects) = self.fill(at, set, writes);
                    self.commit(at, &mut batch, &[effects], *durability);
                }
            }
            Action::Over {
                store,
                sets,
                writes,
                durability,
            } => self.over(self.store_at(*store), sets, writes, *durability),
            Action::Tick {
                store,
                millis,
                confirm,
            } => self.tick(self.store_at(*store), *millis, *confirm),
            Action::Expire { store, set } => {
                let at = self.store_at(*store);
                if let Some(set) = self.set_at(at, *set) {
                    self.expire(at, set);
                }
            }
            Action::Ttl { store, set, ttl } => {
                let at = self.store_at(*store);
                if let Some(set) = self.set_at(at, *set) {
                    self.set_ttl(at, set, *ttl);
                }
            }
            Action::Clear {
                store,
                set,
                durability,
            } => {
                let at = self.store_at(*store);
                if let Some(set) = self.set_at(at, *set) {
                    let deletes: Vec<Write> = (0..KEYS).map(|key| Write::Delete { key }).collect();
                    let (mut batch, effects) = self.fill(at, set, &deletes);
                    self.commit(at, &mut batch, &[effects], *durability);
                }
            }
            Action::Prepare { store, set, writes } => {
                let at = self.store_at(*store);
                if let Some(set) = self.set_at(at, *set)
                    && self.prepared.len() < 2
                {
                    let (batch, effects) = self.fill(at, set, writes);
                    self.prepared.push(Prepared {
                        store: self.stores[at].born,
                        batch,
                        effects,
                    });
                }
            }
            Action::Commit { which, durability } => {
                if !self.prepared.is_empty() {
                    let which = usize::from(*which) % self.prepared.len();
                    let mut prepared = self.prepared.remove(which);
                    let at = self.stores.iter().position(|s| s.born == prepared.store);
                    if let Some(at) = at
                        && self.stores[at].db.is_some()
                        && self.stores[at].is_as_prepared(&prepared.effects)
                    {
                        let (batch, effects) = (&mut prepared.batch, prepared.effects);
                        self.commit(at, batch, &[effects], *durability);
                    }
                }
            }
            Action::Flush { store } => {
                let at = self.store_at(*store);
                self.flush(at);
            }
            Action::Settle { store } => {
                let at = self.store_at(*store);
                self.on_store(at, true, &[], |db| {
                    db.flush()?;
                    Ok(db.group().run_compactions()?)
                });
            }
            Action::Compact { store, set } => {
                let at = self.store_at(*store);
                let name = set.and_then(|set| self.set_at(at, set));
                let name = name.map(|set| self.stores[at].sets[set].name.clone());
                self.on_store(at, false, &[], |db| db.compact(name.as_deref()));
            }
            Action::SyncLog { store } => {
                let at = self.store_at(*store);
                self.on_store(at, true, &[], |db| db.sync());
            }
            Action::Check { store } => self.check(self.store_at(*store)),
            Action::Hold { store, set } => {
                let at = self.store_at(*store);
                if let Some(set) = self.set_at(at, *set) {
                    self.hold(at, set);
                }
            }
            Action::Release { which } => {
                if !self.held.is_empty() {
                    let which = usize::from(*which) % self.held.len();
                    self.held.remove(which);
                }
            }
            Action::Look { .. } => {}
            Action::Index { .. } | Action::Strategy { .. } | Action::RepairSet { .. } => {
                self.change(action);
            }
            Action::Backup { store, kept } => self.backup(self.store_at(*store), *kept, None),
            Action::BackupDuring {
                store,
                set,
                kept,
                call,
                writes,
                known,
                flush,
            } => {
                let at = self.store_at(*store);
                if let Some(set) = self.set_at(at, *set) {
                    let (batch, effects) = self.fill(at, set, writes);
                    let during = During {
                        call: u64::from(*call),
                        batch,
                        effects,
                        known: *known,
                        flush: *flush,
                    };
                    self.backup(at, *kept, Some(during));
                }
            }
            Action::Snapshot { store, name, drops } => {
                let at = self.store_at(*store);
                self.snapshot(at, &format!("s{}", name % 3), *drops);
            }
            Action::Beside {
                store,
                writes,
                durability,
            } => self.write_beside(self.store_at(*store), writes, *durability),
            Action::Consume {
                store,
                set,
                name,
                bytes,
                most,
                forget,
            } => {
                let at = self.store_at(*store);
                let Some(set) = self.set_at(at, *set) else {
                    return;
                };
                let name = crate::consumers::name(*name);
                match forget {
                    true => self.forget(at, set, name),
                    false => self.consume(at, set, name, *bytes, most.map(u64::from)),
                }
            }
            Action::Reopen { store, close } => self.reopen(self.store_at(*store), *close),
            Action::Cut { .. }
            | Action::CutInstalled { .. }
            | Action::Fail { .. }
            | Action::Full { .. }
            | Action::Room { .. }
            | Action::Damage { .. } => self.fault(action),
        }
    }
}
