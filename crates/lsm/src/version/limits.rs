//! Limits of numbers and names on disk.

use crate::batch::TreeId;

/// The longest name of a named snapshot, in bytes.
pub(crate) const MAX_SNAPSHOT_NAME: usize = 255;

/// The largest tree number. Memory is allocated by tree numbers.
pub(crate) const MAX_TREE: TreeId = 1 << 20;

/// The largest file number.
pub(crate) const MAX_FILE: u64 = 1 << 56;
