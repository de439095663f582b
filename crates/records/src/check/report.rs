//! The findings of a check.

/// The findings of a check.
#[derive(Debug, Clone, Default, serde::Serialize, serde::Deserialize)]
#[non_exhaustive]
pub struct CheckReport {
    /// Everything that is wrong, one text each.
    pub errors: Vec<String>,
    /// Table files read.
    pub files: u64,
    /// Bytes of these files.
    pub bytes: u64,
    /// Entries in these files, including index entries.
    pub entries: u64,
    /// Records of all datasets.
    pub records: u64,
    /// Index entries of stand-alone indexes that were compared with the data.
    pub index_entries: u64,
}
