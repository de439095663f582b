//! Changes of a cluster's members: group by group, one member at a time, a learner first.

use std::time::{Duration, Instant};

use esker_volume::client::{Client, ClientError};
use esker_volume::ids::{GroupId, NodeId};
use esker_volume::wire::{Change, Refusal};

use super::link::{client, failed};
use crate::args::{AskArgs, MemberArgs, MemberCommand};
use crate::failure::{Failure, Outcome};

pub(super) fn member(args: &MemberArgs) -> Result<Outcome, Failure> {
    match &args.change {
        MemberCommand::Add(args) | MemberCommand::Replace(args) => {
            let node = NodeId(args.id);
            let add = Change::Add(node, args.address.clone());
            in_all(&args.ask, &[add, Change::Promote(node)])
        }
        MemberCommand::Remove(args) => in_all(&args.ask, &[Change::Remove(NodeId(args.id))]),
    }
}

/// Makes each change in all groups before the next one, so that the groups' data are copied at the
/// same time. What an interrupted call did is not done again.
fn in_all(args: &AskArgs, changes: &[Change]) -> Result<Outcome, Failure> {
    let mut client = client(args)?;
    let status = client.status().map_err(failed)?;
    // A node that forms no cluster yet, or has none of its groups, knows nothing to change.
    if status.groups.is_empty() {
        return Err(Failure::Store(format!(
            "node {} has no groups, so nothing was changed: ask a member of the cluster",
            args.node
        )));
    }
    let wait = Duration::from_secs(args.wait.max(1));
    for change in changes {
        for group in &status.groups {
            one(&mut client, GroupId(group.group), change, wait)?;
        }
    }
    Ok(Outcome::Done)
}

/// Makes a change, and waits where the group is busy with another or the learner has not caught up.
fn one(
    client: &mut Client,
    group: GroupId,
    change: &Change,
    wait: Duration,
) -> Result<(), Failure> {
    let end = Instant::now() + wait;
    loop {
        match client.member(group, change.clone()) {
            Ok(()) => return Ok(()),
            Err(ClientError::Refused(Refusal::Busy)) if Instant::now() < end => {
                std::thread::sleep(Duration::from_millis(20));
            }
            Err(error) => return Err(failed(error)),
        }
    }
}
