//! Entry points for fuzzing: each feeds any bytes to decoders. None may panic, hang or allocate
//! without bound; their assertions must hold for all bytes.
//!
//! Only with the feature `fuzzing`, and in tests. The targets for `cargo fuzz` are in `fuzz/`.

use esker::extension::attributes::Extractor;
use esker::extension::merge::MergeOperator;

use crate::forms::config::Config;
use crate::forms::element::{Elements, Time};
use crate::forms::keys::ListKey;
use crate::forms::topic::{Topic, TopicFilter};
use crate::lists::directory::SubscriptionEntry;
use crate::lists::merging::ValueLists;
use crate::lists::shape::Shape;
use crate::lists::times::ListTimes;

#[cfg(test)]
#[path = "fuzzing_tests.rs"]
mod tests;

/// Decodes the bytes as everything that publish/subscribe stores: elements and keys of lists,
/// subscriptions of the directory, settings, topics. Returns the number of decoders that accepted
/// the bytes; each element counts separately.
pub fn stored(data: &[u8]) -> usize {
    let mut decoded = 0;
    for element in Elements::of(data) {
        let Ok(raw) = element else { break };
        let _ = (raw.target(), raw.voids(), raw.is_tombstone(), raw.times());
        decoded += usize::from(raw.decode().is_ok());
    }
    decoded += usize::from(ListKey::parse(data).is_ok());
    decoded += usize::from(Shape::decode(data).is_some());
    decoded += usize::from(Config::decode(data).is_ok());
    decoded += usize::from(SubscriptionEntry::decode(data).is_ok());
    decoded += usize::from(TopicFilter::decode(data).is_some());
    if let Some(topic) = Topic::decode(data) {
        assert_eq!(topic.encoded(), data, "a topic has one encoding");
        let _ = topic.to_string();
    }
    let mut operand = data.to_vec();
    let left = ValueLists.prune(b"", data, 1);
    assert!(
        left.is_none_or(|left| left.len() < data.len()),
        "nothing has expired"
    );
    let _ = ValueLists.finish(b"", 1, &mut operand, true);
    ListTimes.extract(b"", data, &mut |slot, time| {
        assert!(slot < ListTimes.ids().len() && time.len() == size_of::<Time>());
    });
    decoded
}
