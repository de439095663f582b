//! Waiting without threads: a [`Signal`] calls functions, and wakes threads, whenever there is
//! something new.
//!
//! It carries no data. A woken listener looks for itself, and may find nothing, or more than one
//! thing. So a listener first listens, then looks, and looks again after each call: what is
//! published after the look calls it.

use std::any::Any;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Instant;

use parking_lot::{Condvar, Mutex};

/// Called when there may be something new, by the thread that published it, which may hold locks.
/// So it must not block, and not use the store: it notes that there is work, and lets another
/// thread do it (it sends to a channel, wakes a task, unparks a thread).
pub type Wake = dyn Fn() + Send + Sync;

/// The functions that listen, by the order in which they came.
type Listeners = BTreeMap<u64, Arc<Wake>>;

/// Tells listeners and waiting threads that there is something new. Publishing costs one load while
/// there are no listeners.
#[derive(Default)]
pub struct Signal {
    shared: Arc<Shared>,
}

#[derive(Default)]
struct Shared {
    /// Listeners and waiting threads.
    present: AtomicUsize,
    listeners: Mutex<Numbered>,
    /// Belongs to `woken`.
    lock: Mutex<()>,
    woken: Condvar,
}

#[derive(Default)]
struct Numbered {
    next: u64,
    /// Shared with the calls in progress, which are made without the lock.
    all: Arc<Listeners>,
}

impl Signal {
    /// Calls `wake` after each [`notify`](Signal::notify) from now on, until the returned value is
    /// dropped.
    ///
    /// Dropping it waits for nothing, so `wake` itself may do it. A call that has begun by then, or
    /// is about to begin in another thread, still happens: one call for each `notify` that has not
    /// returned. The function lives until those have ended.
    pub fn listen(&self, wake: Arc<Wake>) -> Listening {
        let mut listeners = self.shared.listeners.lock();
        let number = listeners.next;
        listeners.next += 1;
        Arc::make_mut(&mut listeners.all).insert(number, wake);
        drop(listeners);
        self.shared.present.fetch_add(1, Ordering::SeqCst);
        Listening {
            shared: self.shared.clone(),
            number,
            keeps: None,
        }
    }

    /// Wakes all waiting threads and calls all listeners. What it announces must have been stored
    /// with [`Ordering::SeqCst`], or under a lock that listeners take to look.
    #[inline]
    pub fn notify(&self) {
        if self.shared.present.load(Ordering::SeqCst) > 0 {
            self.shared.notify();
        }
    }

    /// Waits until `is_ready` returns true, or until the time: true when it was ready. `is_ready`
    /// is called at the beginning and after each [`notify`](Signal::notify); it must not block, nor
    /// notify this signal.
    pub fn wait_until(&self, until: Instant, mut is_ready: impl FnMut() -> bool) -> bool {
        let _present = Present::new(&self.shared);
        let mut lock = self.shared.lock.lock();
        while !is_ready() {
            if self.shared.woken.wait_until(&mut lock, until).timed_out() {
                return is_ready();
            }
        }
        true
    }
}

impl Shared {
    #[cold]
    fn notify(&self) {
        // A thread that has looked and does not wait yet holds it.
        drop(self.lock.lock());
        self.woken.notify_all();
        let listeners = self.listeners.lock().all.clone();
        for wake in listeners.values() {
            wake();
        }
    }
}

/// Counted as long as this lives.
struct Present<'a>(&'a Shared);

impl Present<'_> {
    fn new(shared: &Shared) -> Present<'_> {
        shared.present.fetch_add(1, Ordering::SeqCst);
        Present(shared)
    }
}

impl Drop for Present<'_> {
    fn drop(&mut self) {
        self.0.present.fetch_sub(1, Ordering::SeqCst);
    }
}

/// Keeps a function listening ([`Signal::listen`]) until it is dropped.
#[must_use = "dropping it ends it"]
pub struct Listening {
    shared: Arc<Shared>,
    number: u64,
    /// What makes the calls happen, and is given up with it.
    #[allow(dead_code, reason = "it is dropped")]
    keeps: Option<Box<dyn Any + Send + Sync>>,
}

impl Listening {
    /// The same, which also keeps `what` until it is dropped.
    pub(crate) fn keeping(mut self, what: impl Any + Send + Sync) -> Listening {
        self.keeps = Some(Box::new(what));
        self
    }
}

impl Drop for Listening {
    fn drop(&mut self) {
        let mut listeners = self.shared.listeners.lock();
        let wake = Arc::make_mut(&mut listeners.all).remove(&self.number);
        drop(listeners);
        self.shared.present.fetch_sub(1, Ordering::SeqCst);
        // Without the lock: dropping what it holds may drop other listeners.
        drop(wake);
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Weak;
    use std::sync::atomic::AtomicBool;
    use std::time::Duration;

    use super::*;

    fn counter() -> (Arc<AtomicUsize>, Arc<Wake>) {
        let count = Arc::new(AtomicUsize::new(0));
        let counted = count.clone();
        let wake = move || {
            counted.fetch_add(1, Ordering::SeqCst);
        };
        (count, Arc::new(wake))
    }

    #[test]
    fn each_listener_is_called_once_for_each_notification_until_it_is_dropped() {
        let signal = Signal::default();
        signal.notify();
        let (a, wake) = counter();
        let first = signal.listen(wake);
        let (b, wake) = counter();
        let second = signal.listen(wake);
        signal.notify();
        drop(first);
        signal.notify();
        drop(second);
        signal.notify();
        let counts = [a, b].map(|count| count.load(Ordering::SeqCst));
        assert_eq!(counts, [1, 2]);
        assert_eq!(signal.shared.present.load(Ordering::SeqCst), 0);
    }

    #[test]
    fn a_listener_may_be_dropped_by_its_own_call_and_by_that_of_another() {
        let signal = Signal::default();
        let kept: Arc<Mutex<Vec<Listening>>> = Arc::default();
        let (count, _) = counter();
        for _ in 0..3 {
            let (weak, count) = (Arc::downgrade(&kept), count.clone());
            let wake = move || {
                count.fetch_add(1, Ordering::SeqCst);
                let all = weak.upgrade().map(|all| std::mem::take(&mut *all.lock()));
                drop(all);
            };
            kept.lock().push(signal.listen(Arc::new(wake)));
        }
        signal.notify();
        // All were chosen before the first dropped them.
        assert_eq!(count.load(Ordering::SeqCst), 3);
        signal.notify();
        assert_eq!(count.load(Ordering::SeqCst), 3);
    }

    #[test]
    fn a_function_lives_until_its_last_call_has_ended() {
        let signal = Arc::new(Signal::default());
        let (begun, go) = (
            Arc::new(AtomicBool::new(false)),
            Arc::new(AtomicBool::new(false)),
        );
        let (in_begun, in_go) = (begun.clone(), go.clone());
        let wake: Arc<Wake> = Arc::new(move || {
            in_begun.store(true, Ordering::SeqCst);
            while !in_go.load(Ordering::SeqCst) {
                std::thread::yield_now();
            }
        });
        let weak: Weak<Wake> = Arc::downgrade(&wake);
        let listening = signal.listen(wake);
        std::thread::scope(|scope| {
            let notifies = scope.spawn(|| signal.notify());
            while !begun.load(Ordering::SeqCst) {
                std::thread::yield_now();
            }
            drop(listening);
            assert!(weak.upgrade().is_some());
            go.store(true, Ordering::SeqCst);
            notifies.join().unwrap();
        });
        assert!(weak.upgrade().is_none());
    }

    #[test]
    fn no_notification_is_lost_beside_waiting_and_listening() {
        let signal = Signal::default();
        let published = AtomicUsize::new(0);
        std::thread::scope(|scope| {
            for _ in 0..2 {
                scope.spawn(|| {
                    let mut seen = 0;
                    while seen < 10_000 {
                        let until = Instant::now() + Duration::from_secs(60);
                        let is_ready = || published.load(Ordering::SeqCst) > seen;
                        assert!(signal.wait_until(until, is_ready), "lost after {seen}");
                        seen = published.load(Ordering::SeqCst);
                    }
                });
            }
            scope.spawn(|| {
                let here = std::thread::current();
                let mut seen = 0;
                while seen < 10_000 {
                    let here = here.clone();
                    let _listening = signal.listen(Arc::new(move || here.unpark()));
                    let begun = Instant::now();
                    while published.load(Ordering::SeqCst) <= seen {
                        std::thread::park_timeout(Duration::from_secs(60));
                        assert!(
                            begun.elapsed() < Duration::from_secs(60),
                            "lost after {seen}"
                        );
                    }
                    seen = published.load(Ordering::SeqCst);
                }
            });
            for _ in 0..10_000 {
                published.fetch_add(1, Ordering::SeqCst);
                signal.notify();
            }
        });
    }

    #[test]
    fn waiting_ends_with_its_time() {
        let signal = Signal::default();
        let begun = Instant::now();
        let wait = Duration::from_millis(20);
        assert!(!signal.wait_until(begun + wait, || false));
        assert!(begun.elapsed() >= wait);
    }
}
