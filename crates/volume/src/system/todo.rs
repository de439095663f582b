//! What is left to be done in data groups. It follows from the state, so any leader of the system
//! group goes on with it.

use super::command::SystemCommand;
use super::state::{State, System, Volume};
use crate::command::Command;
use crate::ids::GroupId;

/// Commands that have to be chosen, each in its group, and what the system group has to choose
/// then. All of them may be chosen again.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Task {
    /// The commands.
    pub commands: Vec<(GroupId, Command)>,
    /// What the system group chooses when all of them are applied.
    pub then: SystemCommand,
}

impl System {
    /// The tasks that are left. Changes of members are not among them: see [`System::change`].
    pub fn todo(&self) -> Vec<Task> {
        let volumes = self.volumes.values().filter_map(|volume| self.task(volume));
        let dropped = self.dropping.iter().map(|layer| {
            self.in_all(
                &Command::DropLayer(*layer),
                SystemCommand::LayerDropped(*layer),
            )
        });
        volumes.chain(dropped).collect()
    }

    fn task(&self, volume: &Volume) -> Option<Task> {
        let id = volume.id;
        match (volume.state, &volume.pending) {
            (State::Creating, _) => {
                let command = Command::CreateVolume {
                    volume: id,
                    block_size: volume.block_size,
                    layer: volume.first_layer,
                    origin: volume.origin,
                };
                Some(self.in_all(&command, SystemCommand::Created(id)))
            }
            (State::Deleting, _) => {
                let command = Command::DropVolume(id);
                Some(self.in_all(&command, SystemCommand::Deleted(id)))
            }
            (State::Ready, Some(pending)) => {
                let (volume, layer) = (id, pending.layer);
                Some(if pending.is_cut {
                    self.in_all(
                        &Command::Release { volume, layer },
                        SystemCommand::SnapshotDone { volume, layer },
                    )
                } else {
                    self.in_all(
                        &Command::Cut { volume, layer },
                        SystemCommand::SnapshotCut { volume, layer },
                    )
                })
            }
            (State::Ready, None) => None,
        }
    }

    fn in_all(&self, command: &Command, then: SystemCommand) -> Task {
        let groups = self.data_groups();
        Task {
            commands: groups.map(|group| (group, command.clone())).collect(),
            then,
        }
    }
}
