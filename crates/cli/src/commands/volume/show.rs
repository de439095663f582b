//! Commands that show how volumes and nodes are.

use esker_volume::admin::Status;
use esker_volume::client::ClientError;
use esker_volume::system::State;
use esker_volume::wire::Refusal;
use serde_json::json;

use super::link::{client, failed};
use crate::args::{AskArgs, MapArgs, StatusArgs};
use crate::failure::{Failure, Outcome};
use crate::output::{Output, bytes, columns};

pub(super) fn list(args: &AskArgs) -> Result<Outcome, Failure> {
    let system = client(args)?.volumes().map_err(failed)?;
    let mut rows = vec![["NAME", "SIZE", "BLOCK", "STATE"].map(str::to_string)];
    for volume in system.volumes() {
        let state = match (volume.state, &volume.pending) {
            (State::Creating, _) => "being created",
            (State::Deleting, _) => "being deleted",
            (State::Ready, Some(_)) => "making a snapshot",
            (State::Ready, None) => "ready",
        };
        let block = volume.block_size.to_string();
        rows.push([
            volume.name.clone(),
            bytes(volume.size),
            block.clone(),
            state.to_string(),
        ]);
        for (name, snapshot) in &volume.snapshots {
            let name = format!("{}@{name}", volume.name);
            rows.push([
                name,
                bytes(snapshot.size),
                block.clone(),
                "snapshot".to_string(),
            ]);
        }
    }
    let mut output = Output::new();
    output.text(columns(&rows))?;
    output.finish()?;
    Ok(Outcome::found(rows.len() as u64 - 1))
}

pub(super) fn status(args: &StatusArgs) -> Result<Outcome, Failure> {
    let status = client(&args.ask)?.status().map_err(failed)?;
    let mut output = Output::new();
    if args.json {
        output.line(as_json(&status))?;
    } else {
        say(&mut output, &status)?;
    }
    output.finish()?;
    Ok(Outcome::Done)
}

fn as_json(status: &Status) -> serde_json::Value {
    let groups: Vec<serde_json::Value> = status
        .groups
        .iter()
        .map(|group| {
            let members: Vec<serde_json::Value> = group
                .members
                .iter()
                .map(|(node, learner, address, through)| {
                    json!({ "node": node, "learner": learner, "address": address, "through": through })
                })
                .collect();
            json!({
                "group": group.group,
                "leader": (group.leader != 0).then_some(group.leader),
                "ballot": group.ballot,
                "chosen": group.chosen.0,
                "applied": group.applied.0,
                "last": group.last.0,
                "base": group.base.0,
                "damaged": group.damaged,
                "age_ms": group.age,
                "members": members,
            })
        })
        .collect();
    json!({
        "node": status.node,
        "disk": format!("{:016x}", status.disk),
        "cluster": (status.cluster != 0).then(|| format!("{:016x}", status.cluster)),
        "life": status.life,
        "failed": (!status.failed.is_empty()).then_some(&status.failed),
        "linked": status.linked,
        "segments": status.segments,
        "bytes": status.bytes,
        "live_bytes": status.live,
        "written_bytes": status.written,
        "user_bytes": status.user,
        "map_written_bytes": status.map_written,
        "moved_bytes": status.moved,
        "freed_segments": status.freed,
        "scrubbed_blocks": status.scrubbed,
        "scrubbing": status.scrubbing,
        "healed_blocks": status.healed,
        "lost_blocks": status.lost,
        "outstanding": status.outstanding,
        "groups": groups,
    })
}

fn say(output: &mut Output, status: &Status) -> Result<(), Failure> {
    let disk = format!("{:016x}", status.disk);
    output.line(format_args!(
        "node {}, disk {disk}, start {}",
        status.node, status.life
    ))?;
    match status.cluster {
        0 => output.line("its disk belongs to no cluster")?,
        cluster => output.line(format_args!("cluster {cluster:016x}"))?,
    }
    if !status.failed.is_empty() {
        output.line(format_args!("STEPPED BACK: {}", status.failed))?;
    }
    let linked: Vec<String> = status.linked.iter().map(u32::to_string).collect();
    let linked = if linked.is_empty() {
        "no node".to_string()
    } else {
        linked.join(", ")
    };
    output.line(format_args!("linked with {linked}"))?;
    output.line(format_args!(
        "space: {} in {} segments, {} live; vacuum moved {} and freed {} segments",
        bytes(status.bytes),
        status.segments,
        bytes(status.live),
        bytes(status.moved),
        status.freed
    ))?;
    output.line(format_args!(
        "since the start: {} from users, {} written to segments, {} to the map",
        bytes(status.user),
        bytes(status.written),
        bytes(status.map_written)
    ))?;
    let scrub = if status.scrubbing {
        "running"
    } else {
        "not running"
    };
    output.line(format_args!(
        "scrub {scrub}, {} blocks checked; {} blocks healed, {} lost",
        status.scrubbed, status.healed, status.lost
    ))?;
    let mut rows =
        vec![["GROUP", "LEADER", "BALLOT", "CHOSEN", "APPLIED", "MEMBERS"].map(str::to_string)];
    for group in &status.groups {
        let leads = group.leader == status.node;
        let members = group.members.iter().map(|(node, is_learner, _, through)| {
            let role = if *is_learner { " (learner)" } else { "" };
            let lag = group.last.0.saturating_sub(*through);
            if leads && *node != status.node && lag > 0 {
                format!("{node}{role} {lag} behind")
            } else {
                format!("{node}{role}")
            }
        });
        let members: Vec<String> = members.collect();
        let leader = match group.leader {
            0 => "none".to_string(),
            leader => leader.to_string(),
        };
        let damaged = if group.damaged { " (being healed)" } else { "" };
        rows.push([
            format!("{}{damaged}", group.group),
            leader,
            group.ballot.to_string(),
            group.chosen.to_string(),
            group.applied.to_string(),
            members.join(", "),
        ]);
    }
    output.text(columns(&rows))
}

pub(super) fn map(args: &MapArgs) -> Result<Outcome, Failure> {
    let mut client = client(&args.ask)?;
    let places = match client.map(&args.name, args.first, args.count) {
        Ok(places) => places,
        Err(ClientError::Refused(refusal @ Refusal::NoVolume)) => {
            crate::output::note(format_args!("{}: {refusal}", args.name));
            return Ok(Outcome::NotFound);
        }
        Err(error) => return Err(failed(error)),
    };
    let mut rows = vec![["BLOCK", "LAYER", "SEGMENT", "OFFSET"].map(str::to_string)];
    for (block, layer, segment, offset) in &places {
        rows.push(
            [
                *block,
                u64::from(*layer),
                u64::from(*segment),
                u64::from(*offset),
            ]
            .map(|number| number.to_string()),
        );
    }
    let mut output = Output::new();
    output.text(columns(&rows))?;
    output.finish()?;
    Ok(Outcome::found(places.len() as u64))
}

pub(super) fn scrub(args: &AskArgs) -> Result<Outcome, Failure> {
    client(args)?.scrub().map_err(failed)?;
    crate::output::note(format_args!(
        "scrub has begun: `esker volume status` shows it"
    ));
    Ok(Outcome::Done)
}
