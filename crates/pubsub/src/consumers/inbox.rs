//! Inboxes: the notifications of stored subscriptions, in the process that publishes.
//!
//! A publisher puts a match into the short queue of each consumer, in the order of the
//! publications' numbers. A full queue takes no more: its consumer reads the missing publications
//! from the lists, in pages, until it has caught up. So a slow consumer delays no publisher and
//! takes no memory, and a consumer that was away resumes at its last number.

use std::collections::HashSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use esker::changes::{Listening, Wake};
use esker::{Result, Seq};
use esker_coding::Misplaced;

use crate::broker::{Broker, Inner, View};
use crate::deliver::{MAX_QUEUED, Queue};
use crate::forms::element::{StoredSubscription, Tick};
use crate::forms::message::Notification;
use crate::lists::directory::{SubscriptionEntry, read_late};
use crate::search::publications::Page;
use crate::search::self_join::JoinPrecedence;

/// The longest wait, a century: the end of the wait must be a representable time.
const MAX_WAIT: Duration = Duration::from_secs(100 * 365 * 24 * 60 * 60);

/// How a consumer continues.
enum Step {
    Return(Notification),
    /// It skipped a notification, and looks again.
    Again,
    /// It reads a page of the lists.
    ReadPage,
    /// It waits for a publisher.
    Wait,
}

/// A page of the lists.
struct ListPage {
    /// At most [`MAX_QUEUED`], sorted by number.
    notifications: Vec<Notification>,
    /// The numbers of those among them that came too late.
    too_late: HashSet<Seq>,
}

/// The notifications of a stored subscription, in the order of the publications' numbers
/// ([`Broker::inbox`]).
pub struct Inbox {
    inner: Arc<Inner>,
    subscription: Seq,
    queue: Arc<Queue>,
    /// The last known directory entry: the subscription may have ended before all its notifications
    /// are returned.
    entry: Option<Arc<[u8]>>,
    /// True if the lists may have more notifications.
    has_more: bool,
    /// Notifications up to this number were returned.
    seen: Seq,
    /// The lists were read up to this number; 0 before the first page.
    read: Seq,
}

impl Broker {
    /// The notifications of a subscription, from the publication after number `after` on; without
    /// `after`, from the creation of the subscription on. A consumer that stores the number of the
    /// last notification that it has processed misses nothing and receives nothing twice, even
    /// after a crash, with these exceptions: publications that expire before they are read are
    /// lost, and with them the values that a subscription to changes compares with; for a
    /// subscription that [moves](Broker::move_to), the store knows the last sixteen places, so an
    /// inbox that is further behind misses publications for earlier places. Publications returned
    /// by a [renewal](Broker::renew) are not repeated.
    ///
    /// The queue holds 1,024 notifications; a slower consumer reads the rest from the store.
    ///
    /// # Errors
    /// Any read error. The inbox of a subscription that does not exist or has ended is empty.
    pub fn inbox(&self, subscription: Seq, after: Option<Seq>) -> Result<Inbox> {
        let queue = Arc::<Queue>::default();
        // Before the lookup: later changes are passed to the queue.
        self.inner.deliveries.add(subscription, &queue);
        let mut inbox = Inbox {
            inner: self.inner.clone(),
            subscription,
            queue,
            entry: None,
            has_more: true,
            seen: after.unwrap_or(subscription),
            read: 0,
        };
        // The latest state: changes that are not acknowledged yet may be older than the queue.
        let latest = self.inner.store.latest();
        inbox.entry = self
            .inner
            .stored_entry(&latest, subscription)?
            .map(Arc::from);
        Ok(inbox)
    }

    /// Calls `call` with each notification of an [inbox](Broker::inbox), on a separate thread,
    /// until the returned guard is dropped or the store is closed. Dropping the guard waits for a
    /// running call. An error is the last call. The callback may use the broker, and may drop the
    /// guard.
    ///
    /// # Errors
    /// If the thread cannot be started; also the errors of [`Broker::inbox`].
    pub fn notify(
        &self,
        subscription: Seq,
        after: Option<Seq>,
        mut call: impl FnMut(Result<Notification>) + Send + 'static,
    ) -> Result<Notifier> {
        let mut inbox = self.inbox(subscription, after)?;
        let ended = Arc::new(AtomicBool::new(false));
        let (ends, queue) = (ended.clone(), inbox.queue.clone());
        let run = move || {
            while !ends.load(Ordering::SeqCst) {
                match inbox.take(Some(Instant::now() + MAX_WAIT), &ends) {
                    Ok(Some(notification)) => call(Ok(notification)),
                    Ok(None) => {}
                    Err(esker::Error::Closed) => return,
                    Err(error) => return call(Err(error)),
                }
            }
        };
        let thread = std::thread::Builder::new().name("esker-inbox".to_owned());
        let thread = thread.spawn(run).map_err(|source| esker::Error::Io {
            path: format!("the inbox of subscription {subscription}").into(),
            op: "start a thread",
            source: Arc::new(source),
        })?;
        Ok(Notifier {
            ended,
            queue,
            thread: Some(thread),
        })
    }
}

/// Calls back with notifications until it is dropped ([`Broker::notify`]).
pub struct Notifier {
    ended: Arc<AtomicBool>,
    queue: Arc<Queue>,
    thread: Option<std::thread::JoinHandle<()>>,
}

impl Drop for Notifier {
    fn drop(&mut self) {
        self.ended.store(true, Ordering::SeqCst);
        self.queue.signal.notify();
        // If its callback drops the guard, the thread ends when the callback returns.
        let is_own = |thread: &std::thread::JoinHandle<()>| {
            thread.thread().id() == std::thread::current().id()
        };
        if let Some(thread) = self.thread.take().filter(|thread| !is_own(thread)) {
            let _ = thread.join();
        }
    }
}

impl Inbox {
    /// The next notification, or `None` if there is none yet.
    ///
    /// # Errors
    /// Any read error.
    #[allow(
        clippy::should_implement_trait,
        reason = "it can be called again after `None`"
    )]
    pub fn next(&mut self) -> Result<Option<Notification>> {
        self.take(None, &AtomicBool::new(false))
    }

    /// The next notification; waits for it for at most `most`. `None` if that time has passed;
    /// there can still be more if many of the publications read had expired.
    ///
    /// # Errors
    /// Any read error; [`Error::Closed`](esker::Error::Closed) if the store is closed while it
    /// waits.
    pub fn wait(&mut self, most: Duration) -> Result<Option<Notification>> {
        let until = (!most.is_zero()).then(|| Instant::now() + most.min(MAX_WAIT));
        self.take(until, &AtomicBool::new(false))
    }

    /// The next notification. Waits for it until a time, or until `stop` is set; setting it must be
    /// followed by a notification of the queue's signal. Without a time, does not wait, and `None`
    /// means that there is none yet.
    fn take(&mut self, until: Option<Instant>, stop: &AtomicBool) -> Result<Option<Notification>> {
        let mut has_read = false;
        loop {
            match self.step() {
                Step::Return(next) => return Ok(Some(next)),
                Step::Again => {}
                Step::ReadPage => {
                    // The whole page may have expired. The next call continues behind it.
                    if has_read && until.is_some_and(|until| Instant::now() >= until) {
                        return Ok(None);
                    }
                    self.read_page()?;
                    has_read = true;
                }
                Step::Wait => {
                    let Some(until) = until.filter(|_| !stop.load(Ordering::SeqCst)) else {
                        return Ok(None);
                    };
                    if !self.wait_for_publisher(until, stop)? {
                        return Ok(None);
                    }
                }
            }
        }
    }

    /// Takes the next notification: from the page that was read, then from the queue.
    fn step(&mut self) -> Step {
        let mut state = self.queue.state.lock();
        if let Some(next) = state.page.pop_front() {
            drop(state);
            self.seen = next.seq;
            return if self.inner.has_expired(&next) {
                Step::Again
            } else {
                Step::Return(next)
            };
        }
        if self.has_more {
            return Step::ReadPage;
        }
        if let Some(next) = state.waiting.pop_front() {
            drop(state);
            // A page of the lists had it, too.
            if next.seq <= self.seen {
                return Step::Again;
            }
            self.seen = next.seq;
            return if self.inner.has_expired(&next) {
                Step::Again
            } else {
                Step::Return((*next).clone())
            };
        }
        if state.is_behind {
            self.has_more = true;
            return Step::Again;
        }
        Step::Wait
    }

    /// Waits until a publisher has filled the queue, the store has ended, or `stop` is set. Returns
    /// false if none of these has happened by `until`.
    ///
    /// # Errors
    /// [`Error::Closed`](esker::Error::Closed) if the store was closed.
    fn wait_for_publisher(&self, until: Instant, stop: &AtomicBool) -> Result<bool> {
        let (inner, queue) = (&self.inner, &self.queue);
        let is_filled = || {
            let state = queue.state.lock();
            !state.waiting.is_empty() || state.is_behind
        };
        let is_ready = || is_filled() || inner.store.is_ended() || stop.load(Ordering::SeqCst);
        if !queue.signal.wait_until(until, is_ready) {
            return Ok(false);
        }
        // No publication comes to a store that has ended.
        if !is_filled() && inner.store.is_ended() {
            inner.acknowledged_snapshot()?;
        }
        Ok(true)
    }

    /// Calls `wake` whenever there may be a notification, until the returned value is dropped: when
    /// a notification enters the inbox, when the store is closed, and when it refuses writes after
    /// a failure. So one thread can serve any number of inboxes, and a publication wakes only the
    /// inboxes that receive it: after `listen` and after each call of `wake` it calls
    /// [`Inbox::next`] until that returns `None`. `wake` must not block and not use the store
    /// ([`Wake`]).
    pub fn listen(&self, wake: Arc<Wake>) -> Listening {
        self.queue.signal.listen(wake)
    }

    /// True if the store was closed or refuses writes. If [`Inbox::next`] then returns `None`, no
    /// more notifications come.
    pub fn is_ended(&self) -> bool {
        self.inner.store.is_ended()
    }

    /// The number of the last notification that it returned.
    pub fn seen(&self) -> Seq {
        self.seen
    }

    /// Reads the next page of the lists into the queue's state.
    fn read_page(&mut self) -> Result<()> {
        // From here on publishers fill the queue again; the notifications before are in the lists.
        // Withdrawals from here on are collected, since the page may contain their publications.
        {
            let mut state = self.queue.state.lock();
            state.waiting.clear();
            state.is_behind = false;
            state.withdrawn = Some(HashSet::new());
        }
        let page = self.read_lists();
        let mut state = self.queue.state.lock();
        let withdrawn = state.withdrawn.take();
        let ListPage {
            mut notifications,
            too_late,
        } = page?;
        // Only the consumer takes it.
        let withdrawn = withdrawn.ok_or_else(|| Misplaced::here())?;
        self.has_more = notifications.len() == MAX_QUEUED;
        self.read = notifications.last().map_or(self.read, |last| last.seq);
        // From here on withdrawals change the page itself.
        notifications.retain(|new| !withdrawn.contains(&new.seq) && !too_late.contains(&new.seq));
        state.page.extend(notifications);
        Ok(())
    }

    /// Reads the next notifications in the lists.
    fn read_lists(&mut self) -> Result<ListPage> {
        let view = self.inner.view(&self.inner.acknowledged_snapshot()?)?;
        match self.inner.stored_entry(&view.snapshot, self.subscription)? {
            Some(entry) => self.entry = Some(entry.into()),
            // The subscription has expired or was ended, perhaps after other changes, each of which
            // passed its entry to the queue in its turn. An entry newer than the snapshot does no
            // harm: it has the bounds of the publications that each form receives.
            None => {
                let _turn = self.inner.change_turns.take(self.subscription);
                let changed = self.queue.state.lock().changed.clone();
                self.entry = changed.or(self.entry.take());
            }
        }
        let Some(entry) = &self.entry else {
            // The subscription does not exist any more.
            return Ok(ListPage {
                notifications: Vec::new(),
                too_late: HashSet::new(),
            });
        };
        let entry = SubscriptionEntry::decode(entry)?;
        let mut notifications = Vec::new();
        for form in entry.forms() {
            let mut prepared = self.inner.prepare_form(&entry.topics, form)?;
            prepared.made_at = self.inner.now();
            if form.form != form.id {
                // The renewal returned earlier publications.
                prepared.begins = form.form;
            }
            let page = Page {
                after: self.seen.max(self.read),
                max_len: MAX_QUEUED,
                precedence: JoinPrecedence::AsPublished {
                    id: form.id,
                    form: form.form,
                },
            };
            notifications.extend(self.inner.page(&view, &prepared, page)?);
        }
        notifications.sort_by_key(|notification| notification.seq);
        notifications.dedup_by_key(|notification| notification.seq);
        notifications.truncate(MAX_QUEUED);
        let too_late = self.too_late(&view, &entry, &notifications)?;
        Ok(ListPage {
            notifications,
            too_late,
        })
    }

    /// The late publications among these that were written when the store had forgotten the
    /// subscription, so that publishers did not find it.
    fn too_late(
        &self,
        view: &View,
        entry: &SubscriptionEntry<'_>,
        notifications: &[Notification],
    ) -> Result<HashSet<Seq>> {
        let (Some(first), Some(last)) = (notifications.first(), notifications.last()) else {
            return Ok(HashSet::new());
        };
        let inner = &self.inner;
        let directory = inner.trees.directory;
        let late = read_late(&view.snapshot, directory, first.seq, last.seq)?;
        let is_too_late = |new: &&Notification| {
            let was_stored = |form: &StoredSubscription<'_>, clock: Tick| {
                let until = inner.remembered_until(form.to, form.user);
                form.has_met(new.seq, new.time) && inner.drop_time(until) > clock
            };
            let clock = late.get(&new.seq);
            clock.is_some_and(|clock| !entry.forms().any(|form| was_stored(form, *clock)))
        };
        let too_late = notifications.iter().filter(is_too_late);
        Ok(too_late.map(|new| new.seq).collect())
    }
}

impl Drop for Inbox {
    fn drop(&mut self) {
        self.inner.deliveries.remove(self.subscription, &self.queue);
    }
}

#[cfg(test)]
#[path = "inbox_tests.rs"]
mod tests;
