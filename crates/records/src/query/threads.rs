//! Work on the keys of a tree in several parts of about the same size, by a thread each.
//!
//! Parts begin where partitions of the tables begin, so that no key is read to find them. In a
//! store without threads there is one part.

use esker_lsm::Component;

use crate::error::Result;

/// A part has at least so many entries: starting a thread takes as long as reading some hundred.
const PART: u64 = 8 << 10;

/// The most parts, which share the memory.
const PARTS: usize = 8;

/// The keys from `lo` on, and before `hi` if there is one.
pub(super) struct KeyRange {
    pub(super) lo: Vec<u8>,
    pub(super) hi: Option<Vec<u8>>,
}

/// The parts of the keys before `hi`, or of all. `background` is false in a store without threads.
pub(super) fn ranges(
    background: bool,
    components: &[Component],
    hi: Option<Vec<u8>>,
) -> Result<Vec<KeyRange>> {
    let entries: u64 = components.iter().map(Component::entries).sum();
    let threads = std::thread::available_parallelism().map_or(1, |threads| threads.get());
    let wanted = threads.min(PARTS).min((entries / PART) as usize);
    let mut places = Vec::new();
    if background && wanted > 1 {
        places = Component::cuts_of_all(components, wanted)?;
    }
    places.retain(|place| hi.as_ref().is_none_or(|hi| place < hi));
    let mut ranges = Vec::with_capacity(places.len() + 1);
    let mut lo = Vec::new();
    for place in places {
        let next = place.clone();
        ranges.push(KeyRange {
            lo: std::mem::replace(&mut lo, next),
            hi: Some(place),
        });
    }
    ranges.push(KeyRange { lo, hi });
    Ok(ranges)
}

/// Does the work of each part, the first one in this thread, and returns the results in order.
pub(super) fn each<P: Sync, T: Send>(
    parts: &[P],
    work: &(dyn Fn(&P) -> Result<T> + Sync),
) -> Vec<Result<T>> {
    let [first, others @ ..] = parts else {
        return Vec::new();
    };
    std::thread::scope(|scope| {
        let begin = |part| {
            let made = std::thread::Builder::new().spawn_scoped(scope, move || work(part));
            (part, made)
        };
        let others: Vec<_> = others.iter().map(begin).collect();
        let mut results = vec![work(first)];
        for (part, thread) in others {
            results.push(match thread {
                Ok(thread) => thread.join().unwrap_or_else(|panic| {
                    std::panic::resume_unwind(panic);
                }),
                // Without a thread this one does it.
                Err(_) => work(part),
            });
        }
        results
    })
}
