//! The subcommands of `esker volume`.

use crate::args::{VolumeArgs, VolumeCommand};
use crate::failure::{Failure, Outcome};

use super::{ask, members, node, show};

/// `esker volume`.
pub(crate) fn volume(args: &VolumeArgs) -> Result<Outcome, Failure> {
    match &args.command {
        VolumeCommand::Node(args) => node::node(args),
        VolumeCommand::Create(args) => ask::create(args),
        VolumeCommand::List(args) => show::list(args),
        VolumeCommand::Status(args) => show::status(args),
        VolumeCommand::Snapshot(args) => ask::snapshot(args),
        VolumeCommand::Clone(args) => ask::clone(args),
        VolumeCommand::Grow(args) => ask::grow(args),
        VolumeCommand::Rename(args) => ask::rename(args),
        VolumeCommand::Delete(args) => ask::delete(args),
        VolumeCommand::Map(args) => show::map(args),
        VolumeCommand::Member(args) => members::member(args),
        VolumeCommand::Scrub(args) => show::scrub(args),
    }
}
