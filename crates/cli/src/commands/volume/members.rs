//! Changes of a cluster's members: in each group one member at a time, a learner first.

use std::sync::atomic::{AtomicUsize, Ordering};
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

/// The most groups whose members are changed at a time, each by a thread with a connection.
const AT_A_TIME: usize = 8;

/// Makes each change in all groups before the next one, so that the groups' data are copied at the
/// same time. What an interrupted call did is not done again.
fn in_all(args: &AskArgs, changes: &[Change]) -> Result<Outcome, Failure> {
    let status = client(args)?.status().map_err(failed)?;
    let groups: Vec<GroupId> = status.groups.iter().map(|of| GroupId(of.group)).collect();
    for change in changes {
        in_each(args, &groups, change)?;
    }
    Ok(Outcome::Done)
}

/// Makes a change in several groups at a time, and returns one of the errors.
fn in_each(args: &AskArgs, groups: &[GroupId], change: &Change) -> Result<(), Failure> {
    let wait = Duration::from_secs(args.wait.max(1));
    let next = AtomicUsize::new(0);
    let work = || -> Result<(), Failure> {
        let mut client = client(args)?;
        while let Some(group) = groups.get(next.fetch_add(1, Ordering::Relaxed)) {
            one(&mut client, *group, change, wait)?;
        }
        Ok(())
    };
    std::thread::scope(|scope| {
        let workers = groups.len().min(AT_A_TIME);
        let workers: Vec<_> = (0..workers).map(|_| scope.spawn(work)).collect();
        workers.into_iter().try_for_each(|worker| {
            worker
                .join()
                .unwrap_or_else(|panic| std::panic::resume_unwind(panic))
        })
    })
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
