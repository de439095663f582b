//! Commands that change volumes.

use esker_volume::system::SystemCommand;

use super::link::system;
use crate::args::{
    CloneArgs, CreateVolumeArgs, DeleteVolumeArgs, GrowArgs, RenameVolumeArgs, SnapshotVolumeArgs,
};
use crate::failure::{Failure, Outcome};

pub(super) fn create(args: &CreateVolumeArgs) -> Result<Outcome, Failure> {
    let (name, size, block_size) = (args.name.clone(), args.size as u64, args.block_size);
    system(
        &args.ask,
        &SystemCommand::Create {
            name,
            size,
            block_size,
        },
    )
}

pub(super) fn snapshot(args: &SnapshotVolumeArgs) -> Result<Outcome, Failure> {
    let (volume, snapshot) = (args.name.clone(), args.snapshot.clone());
    system(&args.ask, &SystemCommand::Snapshot { volume, snapshot })
}

pub(super) fn clone(args: &CloneArgs) -> Result<Outcome, Failure> {
    let Some((volume, snapshot)) = args.from.split_once('@') else {
        let text = format!("{}: a snapshot is NAME@SNAPSHOT", args.from);
        return Err(Failure::Usage(text));
    };
    let (volume, snapshot) = (volume.to_string(), snapshot.to_string());
    system(
        &args.ask,
        &SystemCommand::Clone {
            volume,
            snapshot,
            name: args.name.clone(),
        },
    )
}

pub(super) fn grow(args: &GrowArgs) -> Result<Outcome, Failure> {
    let (name, size) = (args.name.clone(), args.size as u64);
    system(&args.ask, &SystemCommand::Grow { name, size })
}

pub(super) fn rename(args: &RenameVolumeArgs) -> Result<Outcome, Failure> {
    let (from, to) = (args.from.clone(), args.to.clone());
    system(&args.ask, &SystemCommand::Rename { from, to })
}

pub(super) fn delete(args: &DeleteVolumeArgs) -> Result<Outcome, Failure> {
    let command = match args.name.split_once('@') {
        None => SystemCommand::Delete(args.name.clone()),
        Some((volume, snapshot)) => SystemCommand::DeleteSnapshot {
            volume: volume.to_string(),
            snapshot: snapshot.to_string(),
        },
    };
    system(&args.ask, &command)
}
