//! The expiry time of a stored record: whether it has passed, and the key of its entry in
//! `d/expiry`.

use esker_lsm::Snapshot;
use esker_lsm::entry::Time;
use esker_model::record::RecordRef;

/// True if a stored record has expired for the snapshot.
#[inline]
pub(crate) fn has_expired(snapshot: &Snapshot, stored: &[u8]) -> bool {
    // Time 0: no record of the store expires.
    snapshot.time() > 0
        && RecordRef::expiry_of(stored).is_some_and(|expires| snapshot.has_expired(expires))
}

/// The key of a record in `d/expiry`: the time, big-endian, then the primary key. So entries lie in
/// the order of their times.
pub(crate) fn expiry_key(expires: Time, key: &[u8]) -> Vec<u8> {
    [&expires.to_be_bytes(), key].concat()
}
