//! Retained messages on their way: a publication and the message that it retains are two writes.
//!
//! **Invariants.** What a topic retains is its last publication that asked for it: the two writes
//! of one are done before those of the next to the topic begin. A subscription that begins behind a
//! publication finds what that retains: before it looks, it waits for those on their way
//! ([`Retaining::settle`]). If the server ends between the two, the publication is stored and not
//! retained; one of QoS 1 was not acknowledged then.

use std::collections::BTreeMap;

use parking_lot::{Condvar, Mutex};

use super::outgoing::Outgoing;

/// The retained messages on their way.
#[derive(Default)]
pub(super) struct Retaining {
    state: Mutex<State>,
    ended: Condvar,
}

#[derive(Default)]
struct State {
    /// How many have begun.
    begun: u64,
    /// The topics of those that have not ended, by their numbers.
    running: BTreeMap<u64, Vec<String>>,
}

/// Messages on their way, until this is dropped.
pub(super) struct Running<'r> {
    retaining: &'r Retaining,
    number: u64,
}

impl Retaining {
    /// Waits until none of the topics to which these publications retain has a message on its way,
    /// and begins theirs. `None` if none of them is retained. Blocks the thread.
    pub(super) fn begin(&self, all: &[Outgoing]) -> Option<Running<'_>> {
        let retained = all.iter().filter(|outgoing| outgoing.meta.retain);
        let topics: Vec<String> = retained.map(|outgoing| outgoing.topic.clone()).collect();
        if topics.is_empty() {
            return None;
        }
        let mut state = self.state.lock();
        let is_running = |state: &mut State| {
            let mut running = state.running.values().flatten();
            running.any(|topic| topics.contains(topic))
        };
        self.ended.wait_while(&mut state, is_running);
        let number = state.begun;
        state.begun += 1;
        state.running.insert(number, topics);
        drop(state);
        Some(Running {
            retaining: self,
            number,
        })
    }

    /// Waits until all that had begun have ended. Blocks the thread.
    pub(super) fn settle(&self) {
        let until = self.state.lock().begun;
        self.settle_until(until);
    }

    /// The same of those with numbers below `until`.
    fn settle_until(&self, until: u64) {
        let mut state = self.state.lock();
        let has_earlier = |state: &mut State| {
            let oldest = state.running.first_key_value();
            oldest.is_some_and(|(number, _)| *number < until)
        };
        self.ended.wait_while(&mut state, has_earlier);
    }
}

impl Drop for Running<'_> {
    fn drop(&mut self) {
        self.retaining.state.lock().running.remove(&self.number);
        self.retaining.ended.notify_all();
    }
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc::channel;
    use std::thread;

    use super::super::message::Meta;
    use super::*;

    fn to(topic: &str, retain: bool) -> Outgoing {
        Outgoing {
            topic: topic.to_owned(),
            payload: Vec::new(),
            meta: Meta {
                qos: 0,
                retain,
                has_expiry: false,
                publisher: None,
                properties: Vec::new(),
            },
            lifetime: None,
            place: None,
        }
    }

    /// Runs `waits` beside `running`, which ends when `waits` has had the time to end before.
    fn in_order(running: Option<Running<'_>>, waits: impl FnOnce() + Send) {
        let (said, hears) = channel();
        thread::scope(|scope| {
            let waiting = said.clone();
            scope.spawn(move || {
                waiting.send("begins").unwrap();
                waits();
                waiting.send("has waited").unwrap();
            });
            assert_eq!(hears.recv().unwrap(), "begins");
            (0..1000).for_each(|_| thread::yield_now());
            said.send("ends").unwrap();
            drop(running);
            assert_eq!(hears.recv().unwrap(), "ends");
            assert_eq!(hears.recv().unwrap(), "has waited");
        });
    }

    #[test]
    fn messages_to_one_topic_go_one_after_the_other() {
        let retaining = Retaining::default();
        assert!(retaining.begin(&[to("a", false)]).is_none());
        let first = retaining.begin(&[to("a", true), to("b", true)]);
        // Another topic does not wait.
        drop(retaining.begin(&[to("c", true)]));
        in_order(first, || drop(retaining.begin(&[to("b", true)])));
        assert!(retaining.state.lock().running.is_empty());
    }

    #[test]
    fn a_look_waits_for_those_that_have_begun_and_for_no_later_ones() {
        let retaining = Retaining::default();
        retaining.settle();
        in_order(retaining.begin(&[to("a", true)]), || retaining.settle());
        let first = retaining.begin(&[to("a", true)]);
        let (waits, is_waiting) = channel();
        thread::scope(|scope| {
            let looks = scope.spawn(|| {
                let until = retaining.state.lock().begun;
                waits.send(()).unwrap();
                retaining.settle_until(until);
            });
            is_waiting.recv().unwrap();
            let later = retaining.begin(&[to("b", true)]);
            drop(first);
            looks.join().unwrap();
            drop(later);
        });
    }
}
