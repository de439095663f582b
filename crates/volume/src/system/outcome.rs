//! Answers of the system group.

use std::fmt;

use esker_coding::{Reader, put_bytes, put_varint};

use super::command::{number, text};
use crate::ids::VolumeId;

/// A volume, as an answer describes it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct VolumeInfo {
    /// The volume.
    pub id: VolumeId,
    /// Its name.
    pub name: String,
    /// Bytes.
    pub size: u64,
    /// Bytes of a block.
    pub block_size: u32,
    /// False while data groups have to do something first: create the volume, or cut it for the
    /// snapshot that was asked for.
    pub is_ready: bool,
}

/// What a command of the system group did.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum SystemOutcome {
    /// It took effect, or the effect was there. The volume that it is about, where there is one.
    Ok(Option<VolumeInfo>),
    /// It did nothing.
    Error(SystemError),
}

/// Why a command of the system group did nothing.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SystemError {
    /// The kind.
    pub kind: SystemErrorKind,
    /// The reason, for people.
    pub text: String,
}

/// Kinds of errors of the system group.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum SystemErrorKind {
    /// There is no such volume, snapshot or member.
    NotFound,
    /// There is a different one of that name.
    Exists,
    /// A name, size or number that is not allowed.
    Invalid,
    /// Something else has to end first; the command may succeed later.
    Busy,
}

impl SystemError {
    pub(super) fn new(kind: SystemErrorKind, text: impl Into<String>) -> SystemError {
        let text = text.into();
        SystemError { kind, text }
    }
}

impl fmt::Display for SystemError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}

impl std::error::Error for SystemError {}

impl SystemOutcome {
    /// The encoding.
    pub fn encode(&self) -> Vec<u8> {
        let mut out = Vec::new();
        match self {
            SystemOutcome::Ok(None) => out.push(0),
            SystemOutcome::Ok(Some(info)) => {
                out.push(1);
                put_varint(&mut out, u64::from(info.id.0));
                put_bytes(&mut out, info.name.as_bytes());
                put_varint(&mut out, info.size);
                put_varint(&mut out, u64::from(info.block_size));
                out.push(u8::from(info.is_ready));
            }
            SystemOutcome::Error(error) => {
                out.push(match error.kind {
                    SystemErrorKind::NotFound => 2,
                    SystemErrorKind::Exists => 3,
                    SystemErrorKind::Invalid => 4,
                    SystemErrorKind::Busy => 5,
                });
                put_bytes(&mut out, error.text.as_bytes());
            }
        }
        out
    }

    /// Reads what `encode` wrote; `None` where the bytes are no outcome.
    pub fn decode(bytes: &[u8]) -> Option<SystemOutcome> {
        let from = &mut Reader::new(bytes);
        let kind = match from.u8()? {
            0 => return Some(SystemOutcome::Ok(None)),
            1 => {
                return Some(SystemOutcome::Ok(Some(VolumeInfo {
                    id: VolumeId(number(from)?),
                    name: text(from)?,
                    size: from.varint()?,
                    block_size: number(from)?,
                    is_ready: from.u8()? != 0,
                })));
            }
            2 => SystemErrorKind::NotFound,
            3 => SystemErrorKind::Exists,
            4 => SystemErrorKind::Invalid,
            5 => SystemErrorKind::Busy,
            _ => return None,
        };
        let text = text(from)?;
        Some(SystemOutcome::Error(SystemError { kind, text }))
    }
}
