//! The stream of a subscription: the publications that it matches, in the order of their numbers,
//! from a queue or from the store.
//!
//! **Invariants.** Every matching publication with a number up to `position` was taken. Those in
//! the queue are above it, in order. If the source is not behind, those that are not in the queue
//! have not been offered yet. `missed` is the newest publication that was offered and not queued.
//! A publication that is not stored has the number 0; it is queued between those that were offered
//! before and after it, and only while the source is not behind.

use std::collections::{BTreeSet, VecDeque};
use std::sync::Arc;

use esker::Seq;
use parking_lot::Mutex;
use pubsub::{Broker, Notification, Subscription, Time, TopicFilter};
use tokio::sync::Notify;

use super::message::{Message, Shared};
use crate::metrics::Sampled;

/// The most publications in a queue, and in a page.
const MOST: usize = 256;

/// The publications of the first page, whose size is not known.
const FIRST_PAGE: usize = 16;

/// The most bytes in a queue, and about as many in a page.
const MOST_BYTES: usize = 1 << 20;

/// Wakes the connection of a session, and says which of its subscriptions have something.
#[derive(Default)]
pub(super) struct Wakeup {
    pub(super) notify: Notify,
    ready: Mutex<BTreeSet<u32>>,
}

impl Wakeup {
    pub(super) fn add(&self, number: u32) {
        if self.ready.lock().insert(number) {
            self.notify.notify_one();
        }
    }

    /// The first subscription after this number that has something, and then from the first on.
    pub(super) fn take_after(&self, last: u32) -> Option<u32> {
        let mut ready = self.ready.lock();
        let after = last
            .checked_add(1)
            .and_then(|next| ready.range(next..).next());
        let next = after.or_else(|| ready.first()).copied()?;
        ready.remove(&next);
        Some(next)
    }

    pub(super) fn has_some(&self) -> bool {
        !self.ready.lock().is_empty()
    }
}

/// A session that takes from a source.
struct Member {
    wakeup: Arc<Wakeup>,
    /// The number of the subscription in its session.
    number: u32,
    /// True while it can take nothing more.
    is_paused: bool,
}

/// A subscription's stream. That of a shared subscription has several members.
pub(super) struct Source {
    /// What is asked for, for pages.
    subscription: Subscription,
    /// True if the broker has to say whether a publication matches.
    is_conditional: bool,
    /// When the subscription ends.
    ends: Option<Time>,
    state: Mutex<State>,
}

struct State {
    queue: VecDeque<Shared>,
    /// The size of the queue.
    bytes: usize,
    /// The newest number in the queue, or a former one.
    queued: Seq,
    position: Seq,
    /// What is offered up to this number was taken, is in the queue, or does not match.
    floor: Seq,
    is_behind: bool,
    missed: Seq,
    /// True while a page is read.
    is_read: bool,
    /// How many publications the next page may have.
    page: usize,
    members: Vec<Member>,
    /// The member that is woken next.
    turn: usize,
    /// What members have given back.
    returned: VecDeque<Shared>,
    /// Of a shared subscription: what was taken and is not acknowledged.
    outstanding: BTreeSet<Seq>,
    /// Of a shared subscription: what may have been sent before the server started.
    sent: Seq,
}

/// Where a source begins.
#[derive(Debug, Clone, Copy)]
pub(super) enum Begin {
    /// With what is published from now on: [`Source::start`] says when that was.
    Now,
    /// After this number.
    After(Seq),
}

/// Whether a publication that is not stored can be queued.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Room {
    Now,
    /// Once some of the queue was taken.
    Later,
    /// The subscription reads from the store, so it has to be stored.
    Store,
}

/// The next page to be read.
pub(super) struct Read {
    after: Seq,
    most: usize,
}

/// A page that was read.
pub(super) struct Page {
    publications: Vec<Notification>,
    /// Without more, every matching publication up to this number is in the page or before it.
    seen: Seq,
    has_more: bool,
}

/// What was taken, and whether there is more.
pub(super) struct Taken {
    pub(super) messages: Vec<Shared>,
    pub(super) has_more: bool,
}

impl State {
    /// The newest publication that is accounted for.
    fn newest(&self) -> Seq {
        self.queued.max(self.position).max(self.floor)
    }

    fn has_some(&self) -> bool {
        !self.queue.is_empty() || !self.returned.is_empty() || (self.is_behind && !self.is_read)
    }

    fn is_full(&self) -> bool {
        self.queue.len() >= MOST || self.bytes >= MOST_BYTES
    }

    fn push(&mut self, message: Shared) {
        self.bytes += message.size();
        self.queued = self.queued.max(message.seq);
        self.queue.push_back(message);
    }

    /// The next member that can take something.
    fn next_member(&mut self) -> Option<(Arc<Wakeup>, u32)> {
        let all = self.members.len();
        for _ in 0..all {
            self.turn = (self.turn + 1) % all.max(1);
            if let Some(member) = self.members.get(self.turn)
                && !member.is_paused
            {
                return Some((member.wakeup.clone(), member.number));
            }
        }
        None
    }
}

impl Source {
    pub(super) fn new(
        subscription: Subscription,
        is_conditional: bool,
        ends: Option<Time>,
        begin: Begin,
    ) -> Source {
        let (position, is_behind) = match begin {
            Begin::Now => (0, false),
            Begin::After(position) => (position, true),
        };
        Source {
            subscription,
            is_conditional,
            ends,
            state: Mutex::new(State {
                queue: VecDeque::new(),
                bytes: 0,
                queued: 0,
                position,
                floor: position,
                is_behind,
                missed: 0,
                is_read: false,
                page: FIRST_PAGE,
                members: Vec::new(),
                turn: 0,
                returned: VecDeque::new(),
                outstanding: BTreeSet::new(),
                sent: 0,
            }),
        }
    }

    /// When the subscription ends.
    pub(super) fn ends(&self) -> Option<Time> {
        self.ends
    }

    /// A source that began [now](Begin::Now) has what was published after this number.
    pub(super) fn start(&self, after: Seq) {
        let mut state = self.state.lock();
        state.position = state.position.max(after);
        state.floor = state.floor.max(after);
        while state.queue.front().is_some_and(|first| first.seq <= after) {
            if let Some(first) = state.queue.pop_front() {
                state.bytes -= first.size();
            }
        }
    }

    /// What was published up to this number may have been sent already.
    pub(super) fn mark_sent(&self, sent: Seq) {
        let mut state = self.state.lock();
        state.sent = state.sent.max(sent);
    }

    /// Moves the position of a source without members on.
    pub(super) fn advance(&self, position: Seq) {
        let mut state = self.state.lock();
        if state.position < position {
            state.position = position;
            state.floor = position;
        }
    }

    pub(super) fn join(&self, wakeup: &Arc<Wakeup>, number: u32) {
        let mut state = self.state.lock();
        state.members.push(Member {
            wakeup: wakeup.clone(),
            number,
            is_paused: false,
        });
        let has_some = state.has_some();
        drop(state);
        if has_some {
            wakeup.add(number);
        }
    }

    /// A member leaves, and gives back what it has not acknowledged.
    pub(super) fn leave(&self, wakeup: &Arc<Wakeup>, unacknowledged: Vec<Shared>) {
        let mut state = self.state.lock();
        (state.members).retain(|member| !Arc::ptr_eq(&member.wakeup, wakeup));
        for message in unacknowledged {
            state.outstanding.remove(&message.seq);
            state.returned.push_back(message);
        }
        if state.members.is_empty() {
            // The store keeps the rest: what was given back is below the position.
            let first = state.returned.iter().map(|message| message.seq).min();
            if let Some(first) = first {
                state.sent = state.sent.max(state.position);
                state.position = first.saturating_sub(1);
                state.floor = state.position;
            }
            let newest = state.queue.iter().map(|message| message.seq).max();
            let newest = newest.unwrap_or(0);
            state.missed = state.missed.max(newest);
            state.is_behind |= newest > 0 || first.is_some();
            state.queued = 0;
            state.returned.clear();
            state.queue = VecDeque::new();
            state.bytes = 0;
            return;
        }
        let next = if state.has_some() {
            state.next_member()
        } else {
            None
        };
        drop(state);
        wake(next);
    }

    /// A publication on one of the topics.
    pub(super) fn offer(&self, message: &Shared) {
        let mut state = self.state.lock();
        let is_over = self.ends.is_some_and(|ends| message.time > ends);
        if message.seq <= state.newest() || is_over {
            return;
        }
        if self.is_conditional || state.is_behind || state.is_full() || state.members.is_empty() {
            state.is_behind = true;
            state.missed = message.seq;
        } else {
            state.push(message.clone());
        }
        let next = state.next_member();
        drop(state);
        wake(next);
    }

    /// Whether a publication that is not stored can be queued.
    pub(super) fn room(&self) -> Room {
        let state = self.state.lock();
        if self.is_conditional || state.is_behind || state.members.is_empty() {
            Room::Store
        } else if state.is_full() {
            Room::Later
        } else {
            Room::Now
        }
    }

    /// Queues a publication that is not stored, if there still is a session for it.
    pub(super) fn pass(&self, message: &Shared) {
        let mut state = self.state.lock();
        let is_over = self.ends.is_some_and(|ends| message.time > ends);
        if is_over || state.is_behind || state.members.is_empty() {
            return;
        }
        state.push(message.clone());
        let next = state.next_member();
        drop(state);
        wake(next);
    }

    /// Takes up to `most` publications. `holds` says that they are to be settled one by one.
    pub(super) fn take(&self, most: usize, holds: bool) -> Taken {
        let mut state = self.state.lock();
        let mut messages = Vec::new();
        while messages.len() < most {
            let message = if let Some(returned) = state.returned.pop_front() {
                returned
            } else if let Some(next) = state.queue.pop_front() {
                state.bytes -= next.size();
                state.position = state.position.max(next.seq);
                next
            } else {
                break;
            };
            if holds && message.seq > 0 {
                state.outstanding.insert(message.seq);
            }
            messages.push(message);
        }
        if state.queue.is_empty() && state.queue.capacity() > 16 {
            state.queue = VecDeque::new();
        }
        Taken {
            has_more: state.has_some(),
            messages,
        }
    }

    /// A publication of a shared subscription was acknowledged.
    pub(super) fn settle(&self, seq: Seq) {
        self.state.lock().outstanding.remove(&seq);
    }

    /// All matching publications up to this number were taken; of a shared subscription,
    /// acknowledged.
    pub(super) fn settled(&self) -> Seq {
        let state = self.state.lock();
        let returned = state.returned.iter().map(|message| message.seq).min();
        let outstanding = state.outstanding.first().copied();
        let open = returned.into_iter().chain(outstanding).min();
        open.map_or(state.position, |open| {
            state.position.min(open.saturating_sub(1))
        })
    }

    /// All that may have been sent has numbers up to this one.
    pub(super) fn sent(&self) -> Seq {
        let state = self.state.lock();
        state.position.max(state.sent)
    }

    /// Adds this source to what is measured.
    pub(super) fn sample(&self, sampled: &mut Sampled) {
        let state = self.state.lock();
        sampled.subscriptions += 1;
        sampled.behind += u64::from(state.is_behind);
        sampled.queued += (state.queue.len() + state.returned.len()) as u64;
        sampled.queued_bytes += state.bytes as u64;
    }

    /// A member can take nothing more for now, or again. Another one is woken.
    pub(super) fn pause(&self, wakeup: &Arc<Wakeup>, is_paused: bool) {
        let mut state = self.state.lock();
        for member in &mut state.members {
            if Arc::ptr_eq(&member.wakeup, wakeup) {
                member.is_paused = is_paused;
            }
        }
        let next = if state.has_some() {
            state.next_member()
        } else {
            None
        };
        drop(state);
        wake(next);
    }

    /// Wakes another member if there is something.
    pub(super) fn pass_on(&self) {
        let mut state = self.state.lock();
        let next = if state.has_some() {
            state.next_member()
        } else {
            None
        };
        drop(state);
        wake(next);
    }

    /// The page to be read, if the queue is empty and the source is behind. Then
    /// [`Source::finish`] must follow.
    pub(super) fn begin(&self) -> Option<Read> {
        let mut state = self.state.lock();
        if !state.queue.is_empty() || !state.is_behind || state.is_read {
            return None;
        }
        state.is_read = true;
        Some(Read {
            after: state.position,
            most: state.page,
        })
    }

    /// Reads a page. Everything up to `position`, a number of the store from before the call, is in
    /// the store. Calls the store.
    ///
    /// # Errors
    /// Any read error.
    pub(super) fn read(&self, broker: &Broker, read: &Read, position: Seq) -> esker::Result<Page> {
        let publications = broker.query_after(&self.subscription, read.after, read.most)?;
        let has_more = publications.len() >= read.most;
        Ok(Page {
            publications,
            seen: position,
            has_more,
        })
    }

    /// Takes a page that was read; `None` if that failed.
    pub(super) fn finish(&self, page: Option<Page>) {
        let mut state = self.state.lock();
        state.is_read = false;
        let Some(page) = page else {
            return;
        };
        let len = page.publications.len().max(1);
        let mut bytes = 0;
        let newest = state.newest();
        for notification in page.publications {
            let mut message = Message::of(notification);
            message.may_be_duplicate = message.seq <= state.sent;
            bytes += message.size();
            if message.seq > newest {
                state.push(Arc::new(message));
            }
        }
        // About so many bytes in the next page.
        state.page = (MOST_BYTES / (bytes / len).max(1)).clamp(1, MOST);
        if !page.has_more {
            state.floor = state.floor.max(page.seen);
            state.is_behind = state.missed > page.seen;
            if state.queue.is_empty() {
                state.position = state.position.max(page.seen);
            }
        }
        let next = if state.has_some() {
            state.next_member()
        } else {
            None
        };
        drop(state);
        wake(next);
    }
}

/// One publication, if it has not expired. The subscription for which it was sent may have ended
/// or changed since. Calls the store.
///
/// # Errors
/// Any read error.
pub(super) fn published(broker: &Broker, seq: Seq) -> esker::Result<Option<Message>> {
    let all = Subscription::to(TopicFilter::everything()).from(Time::MIN);
    let page = broker.query_after(&all, seq.saturating_sub(1), 1)?;
    let found = page.into_iter().next();
    Ok(found.filter(|found| found.seq == seq).map(Message::of))
}

fn wake(member: Option<(Arc<Wakeup>, u32)>) {
    if let Some((wakeup, number)) = member {
        wakeup.add(number);
    }
}
