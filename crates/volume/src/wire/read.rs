//! Numbers and texts of frames.

use esker_coding::Reader;

use crate::ids::GroupId;

pub(super) fn small(from: &mut Reader<'_>) -> Option<u32> {
    u32::try_from(from.varint()?).ok()
}

pub(super) fn group(from: &mut Reader<'_>) -> Option<GroupId> {
    Some(GroupId(u16::try_from(from.varint()?).ok()?))
}

pub(super) fn text(from: &mut Reader<'_>) -> Option<String> {
    String::from_utf8(from.bytes()?.to_vec()).ok()
}
