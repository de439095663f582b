//! What commands do, in the simplest form: every volume and snapshot has all its blocks.

use std::collections::{BTreeMap, BTreeSet, HashMap};

use crate::command::{Command, Request};
use crate::ids::{LayerId, SessionId, VolumeId};
use crate::map::{Outcome, Refusal};

/// Checksums of blocks.
pub(super) type Content = BTreeMap<u64, u64>;

#[derive(Default)]
pub(super) struct ModelVolume {
    pub(super) content: Content,
    pub(super) block_size: u32,
    pub(super) head: LayerId,
    pub(super) held: BTreeSet<LayerId>,
}

/// A group.
#[derive(Default)]
pub(super) struct Model {
    pub(super) volumes: BTreeMap<VolumeId, ModelVolume>,
    pub(super) snapshots: BTreeMap<LayerId, (VolumeId, u32, Content)>,
    used_volumes: BTreeSet<VolumeId>,
    used_layers: BTreeSet<LayerId>,
    pub(super) sessions: HashMap<SessionId, BTreeSet<u64>>,
    opened: BTreeSet<SessionId>,
}

impl Model {
    fn check(&self, by: &Request, volume: VolumeId) -> Option<Outcome> {
        match self.sessions.get(&by.session) {
            None => Some(Outcome::Refused(Refusal::NoSession)),
            Some(happened) if happened.contains(&by.number) => Some(Outcome::Repeated),
            Some(_) if !self.volumes.contains_key(&volume) => {
                Some(Outcome::Refused(Refusal::NoVolume))
            }
            Some(_) => None,
        }
    }

    pub(super) fn is_held(&self, volume: VolumeId) -> bool {
        self.volumes
            .get(&volume)
            .is_some_and(|v| !v.held.is_empty())
    }

    /// Applies a command, of a session that never says that a number is answered.
    pub(super) fn apply(&mut self, command: &Command) -> Outcome {
        match command {
            Command::Write { by, blocks, .. } | Command::Discard { by, blocks } => {
                if let Some(outcome) = self.check(by, blocks.volume) {
                    return outcome;
                }
                self.sessions
                    .get_mut(&by.session)
                    .unwrap()
                    .insert(by.number);
                let content = &mut self.volumes.get_mut(&blocks.volume).unwrap().content;
                for (at, block) in blocks.range().enumerate() {
                    match command {
                        Command::Write { checksums, .. } => content.insert(block, checksums[at]),
                        _ => content.remove(&block),
                    };
                }
            }
            Command::OpenSession(id) => {
                if self.opened.insert(*id) {
                    self.sessions.insert(*id, BTreeSet::new());
                }
                if !self.sessions.contains_key(id) {
                    return Outcome::Refused(Refusal::NoSession);
                }
            }
            Command::CloseSession(id) => {
                self.opened.insert(*id);
                self.sessions.remove(id);
            }
            Command::CreateVolume {
                volume,
                block_size,
                layer,
                origin,
            } => {
                if self.used_volumes.contains(volume) {
                    return Outcome::Done;
                }
                let content = match origin {
                    None => Content::new(),
                    Some(origin) => match self.snapshots.get(origin) {
                        Some((_, _, content)) => content.clone(),
                        None => return Outcome::Refused(Refusal::NoLayer),
                    },
                };
                self.used_volumes.insert(*volume);
                self.used_layers.insert(*layer);
                let volume_of = ModelVolume {
                    content,
                    block_size: *block_size,
                    head: *layer,
                    held: BTreeSet::new(),
                };
                self.volumes.insert(*volume, volume_of);
            }
            Command::Cut { volume, layer } => {
                if self.used_layers.contains(layer) {
                    return Outcome::Done;
                }
                let Some(of) = self.volumes.get_mut(volume) else {
                    return Outcome::Refused(Refusal::NoVolume);
                };
                self.used_layers.insert(*layer);
                let frozen = (*volume, of.block_size, of.content.clone());
                self.snapshots.insert(of.head, frozen);
                of.head = *layer;
                of.held.insert(*layer);
            }
            Command::Release { volume, layer } => {
                if let Some(of) = self.volumes.get_mut(volume) {
                    of.held.remove(layer);
                }
            }
            Command::DropVolume(volume) => {
                self.used_volumes.insert(*volume);
                self.volumes.remove(volume);
                self.snapshots.retain(|_, (of, ..)| of != volume);
            }
            Command::DropLayer(layer) => {
                self.snapshots.remove(layer);
            }
            Command::Nothing => {}
            other => panic!("{other:?}"),
        }
        Outcome::Done
    }
}
