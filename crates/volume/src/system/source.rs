//! What can be read: a volume, or a snapshot of one. Their names, sizes and groups.

use super::state::{State, System, Volume};
use crate::ids::{LayerId, VolumeId};

/// A volume, or the frozen layer of a snapshot.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Source {
    /// The volume as it is.
    Volume(VolumeId),
    /// A snapshot of a volume.
    Layer(VolumeId, LayerId),
}

impl Source {
    /// The volume.
    pub fn volume(self) -> VolumeId {
        match self {
            Source::Volume(volume) | Source::Layer(volume, _) => volume,
        }
    }
}

/// How large a source is, and where its blocks are.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Shape {
    /// Bytes.
    pub size: u64,
    /// Bytes of a block.
    pub block_size: u32,
    /// The volume that decides which group a block is in.
    pub placement: VolumeId,
}

impl System {
    /// The names of what can be read: volumes that are ready, and snapshots as `NAME@SNAPSHOT`.
    pub fn names(&self) -> Vec<String> {
        let mut names = Vec::new();
        for volume in self.volumes().filter(|volume| volume.state == State::Ready) {
            names.push(volume.name.clone());
            let snapshots = volume.snapshots.keys();
            names.extend(snapshots.map(|snapshot| format!("{}@{snapshot}", volume.name)));
        }
        names
    }

    /// What has this name: a volume that is ready, or `NAME@SNAPSHOT`.
    pub fn source(&self, name: &str) -> Option<Source> {
        let ready = |volume: &&Volume| volume.state == State::Ready;
        match name.split_once('@') {
            None => Some(Source::Volume(self.named(name).filter(ready)?.id)),
            Some((name, snapshot)) => {
                let volume = self.named(name).filter(ready)?;
                Some(Source::Layer(
                    volume.id,
                    volume.snapshots.get(snapshot)?.layer,
                ))
            }
        }
    }

    /// How large a source is; `None` where it does not exist any more.
    pub fn shape(&self, source: Source) -> Option<Shape> {
        let volume = self.volume(source.volume())?;
        let size = match source {
            Source::Volume(_) => volume.size,
            Source::Layer(_, layer) => {
                let mut snapshots = volume.snapshots.values();
                snapshots.find(|snapshot| snapshot.layer == layer)?.size
            }
        };
        let (block_size, placement) = (volume.block_size, volume.placement);
        Some(Shape {
            size,
            block_size,
            placement,
        })
    }
}
