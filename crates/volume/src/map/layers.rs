//! The layers and volumes of a group: which layer stands on which.

use std::collections::{BTreeMap, BTreeSet};

use esker_coding::{Reader, put_varint};

use super::outcome::Refusal;
use super::ranges::Ranges;
use crate::ids::{LayerId, VolumeId};

/// Why a layer is there.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Standing {
    /// A volume writes to it.
    Head,
    /// A snapshot: it is frozen, and commands may name it.
    Snapshot,
    /// It is frozen, and there only because of the layers on it.
    Unnamed,
}

/// A layer.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Layer {
    /// The volume that wrote to it.
    pub(super) volume: VolumeId,
    pub(super) block_size: u32,
    /// The layer below.
    pub(super) base: Option<LayerId>,
    pub(super) standing: Standing,
    /// The volumes whose writes may be in it: its own, and those of layers that were merged into
    /// it.
    pub(super) writers: BTreeSet<VolumeId>,
}

/// A volume.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Volume {
    /// The layer that is written to.
    pub(super) head: LayerId,
    /// The cuts that are not released, by the layer that each put in front.
    pub(super) held: BTreeSet<LayerId>,
}

/// The layers and volumes of a group.
///
/// Commands see volumes and snapshots alone. Unnamed layers are invisible to them, because each
/// replica merges and drops those in its own time.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(super) struct Layers {
    pub(super) layers: BTreeMap<LayerId, Layer>,
    pub(super) volumes: BTreeMap<VolumeId, Volume>,
    /// All volumes that were ever created here, or dropped before they were.
    used_volumes: Ranges,
    /// All layers that were ever given to a volume here.
    used_layers: Ranges,
}

/// What can be done about unnamed layers.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Work {
    /// No layer stands on it: its entries go.
    Drop(LayerId),
    /// Only the second stands on the first: its entries go there.
    Merge(LayerId, LayerId),
}

impl Layers {
    /// The layers that a volume is read through, newest first.
    pub(super) fn chain_of(&self, volume: VolumeId) -> Option<Vec<LayerId>> {
        self.volumes.get(&volume).map(|v| self.chain(v.head))
    }

    /// The layers that a snapshot is read through, newest first.
    pub(super) fn chain_of_snapshot(&self, layer: LayerId) -> Option<Vec<LayerId>> {
        let found = self.layers.get(&layer)?;
        (found.standing == Standing::Snapshot).then(|| self.chain(layer))
    }

    fn chain(&self, top: LayerId) -> Vec<LayerId> {
        let (mut chain, mut next) = (Vec::new(), Some(top));
        while let Some(layer) = next.and_then(|id| self.layers.get(&id).map(|layer| (id, layer))) {
            chain.push(layer.0);
            next = layer.1.base;
        }
        chain
    }

    /// Bytes of a block of a layer; 0 where there is no such layer.
    pub(super) fn block_size(&self, layer: LayerId) -> u32 {
        self.layers.get(&layer).map_or(0, |l| l.block_size)
    }

    /// Creates a volume, unless it was created before.
    pub(super) fn create(
        &mut self,
        volume: VolumeId,
        block_size: u32,
        layer: LayerId,
        origin: Option<LayerId>,
    ) -> Result<(), Refusal> {
        if self.used_volumes.contains(u64::from(volume.0)) {
            return Ok(());
        }
        if block_size == 0 || self.used_layers.contains(u64::from(layer.0)) {
            return Err(Refusal::Malformed);
        }
        if let Some(below) = origin {
            let below = self.layers.get(&below).ok_or(Refusal::NoLayer)?;
            if below.standing != Standing::Snapshot {
                return Err(Refusal::NoLayer);
            }
            if below.block_size != block_size {
                return Err(Refusal::Malformed);
            }
        }
        self.used_volumes.insert(u64::from(volume.0));
        self.put_head(volume, block_size, layer, origin);
        let held = BTreeSet::new();
        self.volumes.insert(volume, Volume { head: layer, held });
        Ok(())
    }

    fn put_head(
        &mut self,
        volume: VolumeId,
        block_size: u32,
        layer: LayerId,
        base: Option<LayerId>,
    ) {
        self.used_layers.insert(u64::from(layer.0));
        let head = Layer {
            volume,
            block_size,
            base,
            standing: Standing::Head,
            writers: BTreeSet::from([volume]),
        };
        self.layers.insert(layer, head);
    }

    /// Freezes the head of a volume as a snapshot and puts `layer` before it, unless that happened
    /// before.
    pub(super) fn cut(&mut self, volume: VolumeId, layer: LayerId) -> Result<(), Refusal> {
        if self.used_layers.contains(u64::from(layer.0)) {
            return Ok(());
        }
        let of = self.volumes.get_mut(&volume).ok_or(Refusal::NoVolume)?;
        let frozen = std::mem::replace(&mut of.head, layer);
        of.held.insert(layer);
        let block_size = match self.layers.get_mut(&frozen) {
            Some(below) => {
                below.standing = Standing::Snapshot;
                below.block_size
            }
            None => return Err(Refusal::NoLayer),
        };
        self.put_head(volume, block_size, layer, Some(frozen));
        Ok(())
    }

    /// Ends a cut. True where the volume is not held any more because of it.
    pub(super) fn release(&mut self, volume: VolumeId, layer: LayerId) -> bool {
        let Some(of) = self.volumes.get_mut(&volume) else {
            return false;
        };
        of.held.remove(&layer) && of.held.is_empty()
    }

    /// Drops a volume and its snapshots. True where it was held. A volume that was never created
    /// will not be.
    pub(super) fn drop_volume(&mut self, volume: VolumeId) -> bool {
        self.used_volumes.insert(u64::from(volume.0));
        let Some(dropped) = self.volumes.remove(&volume) else {
            return false;
        };
        let layers = self.layers.values_mut();
        for layer in layers.filter(|layer| layer.volume == volume) {
            layer.standing = Standing::Unnamed;
        }
        !dropped.held.is_empty()
    }

    /// Drops a snapshot, unless it is dropped already.
    pub(super) fn drop_snapshot(&mut self, layer: LayerId) -> Result<(), Refusal> {
        match self.layers.get_mut(&layer) {
            Some(found) if found.standing == Standing::Head => Err(Refusal::NoLayer),
            Some(found) => {
                found.standing = Standing::Unnamed;
                Ok(())
            }
            None => Ok(()),
        }
    }

    /// What is to be done next about unnamed layers: those that nothing stands on first.
    pub(super) fn work(&self) -> Option<Work> {
        let mut on: BTreeMap<LayerId, Vec<LayerId>> = BTreeMap::new();
        for (id, layer) in &self.layers {
            if let Some(base) = layer.base {
                on.entry(base).or_default().push(*id);
            }
        }
        let unnamed = self.layers.iter();
        let unnamed = unnamed.filter(|(_, layer)| layer.standing == Standing::Unnamed);
        let mut merge = None;
        for (id, _) in unnamed {
            match on.get(id).map(Vec::as_slice).unwrap_or_default() {
                [] => return Some(Work::Drop(*id)),
                [one] => merge = merge.or(Some(Work::Merge(*id, *one))),
                _ => {}
            }
        }
        merge
    }

    /// Notes what volumes' writes `into` may have, before entries of `from` go there.
    pub(super) fn begin_merge(&mut self, from: LayerId, into: LayerId) -> bool {
        let writers = self.layers.get(&from).map(|layer| layer.writers.clone());
        let (Some(writers), Some(into)) = (writers, self.layers.get_mut(&into)) else {
            return false;
        };
        let before = into.writers.len();
        into.writers.extend(writers);
        into.writers.len() > before
    }

    /// Removes an unnamed layer that has no entries left.
    pub(super) fn remove(&mut self, id: LayerId) {
        if let Some(removed) = self.layers.remove(&id) {
            for layer in self.layers.values_mut() {
                if layer.base == Some(id) {
                    layer.base = removed.base;
                }
            }
        }
    }

    pub(super) fn encode(&self, out: &mut Vec<u8>) {
        put_varint(out, self.layers.len() as u64);
        for (id, layer) in &self.layers {
            put_varint(out, u64::from(id.0));
            put_varint(out, u64::from(layer.volume.0));
            put_varint(out, u64::from(layer.block_size));
            put_varint(out, layer.base.map_or(0, |base| u64::from(base.0) + 1));
            out.push(match layer.standing {
                Standing::Head => 0,
                Standing::Snapshot => 1,
                Standing::Unnamed => 2,
            });
            put_varint(out, layer.writers.len() as u64);
            for volume in &layer.writers {
                put_varint(out, u64::from(volume.0));
            }
        }
        self.encode_logical(out);
    }

    /// Appends what commands can see, but for the snapshots.
    pub(super) fn encode_logical(&self, out: &mut Vec<u8>) {
        put_varint(out, self.volumes.len() as u64);
        for (id, volume) in &self.volumes {
            put_varint(out, u64::from(id.0));
            put_varint(out, u64::from(volume.head.0));
            put_varint(out, volume.held.len() as u64);
            for layer in &volume.held {
                put_varint(out, u64::from(layer.0));
            }
        }
        self.used_volumes.encode(out);
        self.used_layers.encode(out);
    }

    /// Reads what `encode` wrote; `None` where the bytes are no layers, and for layers in a ring.
    pub(super) fn decode(from: &mut Reader<'_>) -> Option<Layers> {
        let mut all = Layers::default();
        for _ in 0..from.varint()? {
            let id = LayerId(number(from)?);
            let volume = VolumeId(number(from)?);
            let block_size = number(from)?;
            let base = match from.varint()? {
                0 => None,
                n => Some(LayerId(u32::try_from(n - 1).ok()?)),
            };
            let standing = match from.u8()? {
                0 => Standing::Head,
                1 => Standing::Snapshot,
                2 => Standing::Unnamed,
                _ => return None,
            };
            let mut writers = BTreeSet::new();
            for _ in 0..from.varint()? {
                writers.insert(VolumeId(number(from)?));
            }
            let layer = Layer {
                volume,
                block_size,
                base,
                standing,
                writers,
            };
            all.layers.insert(id, layer);
        }
        for _ in 0..from.varint()? {
            let id = VolumeId(number(from)?);
            let head = LayerId(number(from)?);
            let mut held = BTreeSet::new();
            for _ in 0..from.varint()? {
                held.insert(LayerId(number(from)?));
            }
            all.volumes.insert(id, Volume { head, held });
        }
        all.used_volumes = Ranges::decode(from)?;
        all.used_layers = Ranges::decode(from)?;
        all.is_sound().then_some(all)
    }

    /// False where a layer or a head is missing, a block size is 0, or layers stand on each other
    /// in a ring.
    fn is_sound(&self) -> bool {
        // Layers from which the bottom is reached.
        let mut sound: BTreeSet<LayerId> = BTreeSet::new();
        for id in self.layers.keys() {
            let (mut path, mut next) = (BTreeSet::new(), Some(*id));
            while let Some(at) = next.filter(|at| !sound.contains(at)) {
                let Some(layer) = self.layers.get(&at).filter(|l| l.block_size > 0) else {
                    return false;
                };
                if !path.insert(at) {
                    return false;
                }
                next = layer.base;
            }
            sound.extend(path);
        }
        let heads = self.volumes.values().map(|volume| volume.head);
        heads.into_iter().all(|head| sound.contains(&head))
    }
}

fn number(from: &mut Reader<'_>) -> Option<u32> {
    u32::try_from(from.varint()?).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn encoded(layers: &Layers) -> Vec<u8> {
        let mut bytes = Vec::new();
        layers.encode(&mut bytes);
        bytes
    }

    #[test]
    fn a_clone_keeps_what_it_stands_on() {
        let (v, w) = (VolumeId(1), VolumeId(2));
        let mut layers = Layers::default();
        layers.create(v, 4096, LayerId(1), None).unwrap();
        layers.cut(v, LayerId(2)).unwrap();
        layers.cut(v, LayerId(2)).unwrap();
        assert!(layers.release(v, LayerId(2)) && !layers.release(v, LayerId(2)));
        let no_head = layers.create(w, 4096, LayerId(3), Some(LayerId(2)));
        assert_eq!(no_head, Err(Refusal::NoLayer));
        layers
            .create(w, 4096, LayerId(3), Some(LayerId(1)))
            .unwrap();
        assert_eq!(layers.work(), None);
        assert!(!layers.drop_volume(v));
        assert_eq!(layers.chain_of(w), Some(vec![LayerId(3), LayerId(1)]));
        assert_eq!(layers.work(), Some(Work::Drop(LayerId(2))));
        layers.remove(LayerId(2));
        assert_eq!(layers.work(), Some(Work::Merge(LayerId(1), LayerId(3))));
        assert!(layers.begin_merge(LayerId(1), LayerId(3)));
        layers.remove(LayerId(1));
        assert_eq!(layers.chain_of(w), Some(vec![LayerId(3)]));
        assert_eq!(layers.work(), None);
        // A late command does not bring the volume back.
        layers.create(v, 4096, LayerId(1), None).unwrap();
        assert_eq!(layers.chain_of(v), None);
        let bytes = encoded(&layers);
        assert_eq!(Layers::decode(&mut Reader::new(&bytes)), Some(layers));
    }

    #[test]
    fn damaged_layers_are_refused() {
        let mut layers = Layers::default();
        layers.create(VolumeId(1), 512, LayerId(1), None).unwrap();
        layers.cut(VolumeId(1), LayerId(2)).unwrap();
        let bytes = encoded(&layers);
        for cut in 0..bytes.len() {
            assert_eq!(Layers::decode(&mut Reader::new(&bytes[..cut])), None);
        }
        layers.layers.get_mut(&LayerId(1)).unwrap().base = Some(LayerId(2));
        assert_eq!(Layers::decode(&mut Reader::new(&encoded(&layers))), None);
    }
}
