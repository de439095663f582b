//! The memory budget of a store: an account for each holder, and loans for work that needs large
//! buffers.
//!
//! There are two sorts of holders:
//! - *Fixed* holders are counted and never refused: memtables, flushed memtables pinned by
//!   snapshots, obsolete sets ([`Held`]).
//! - *Working* holders borrow ([`Budget::borrow`]) from a share of a quarter of the budget:
//!   queries, builds, repairs, compactions. A loan is between the least that its borrower needs and
//!   what it can use, and at most half of what is free, so that concurrent borrowers get some, too.
//!   Where less than the least is free, borrowers wait in FIFO order.
//!
//! The block cache has half of the budget while fixed and working holders together take less than
//! the other half, and less when they take more, down to an eighth.
//!
//! **No deadlock.** A wait ends after [`MAX_WAIT`] at the latest: then the borrower gets its least
//! as an overdraft, which is counted. A thread that already holds a loan does not wait at all,
//! because others may be waiting for it. In a store without background threads no borrower waits.
//! So a loan may be taken while others are held, but not under a lock that a lender may need to
//! return memory.

use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::thread::ThreadId;
use std::time::{Duration, Instant};

use parking_lot::{Condvar, Mutex};

use crate::cache::BlockCache;

/// How long a borrower waits at most.
const MAX_WAIT: Duration = Duration::from_secs(1);

/// The largest capacity of the cache: its tables are laid out for the blocks that it may hold.
const MAX_CACHE: usize = 1 << 40;

/// Holders of memory.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Account {
    /// Memtables that are filling or waiting for their flush.
    Memtables,
    /// Flushed memtables that snapshots pin.
    PinnedMemtables,
    /// The obsolete sets.
    ObsoleteSets,
    /// Candidates, sorted keys and fetched records of queries.
    Queries,
    /// Sorted runs of index builds.
    Builds,
    /// Sorters and buffers of repairs.
    Repairs,
    /// Read-ahead and output buffers of compactions.
    Compactions,
}

impl Account {
    /// All accounts.
    pub const ALL: [Account; 7] = [
        Account::Memtables,
        Account::PinnedMemtables,
        Account::ObsoleteSets,
        Account::Queries,
        Account::Builds,
        Account::Repairs,
        Account::Compactions,
    ];

    /// Its name in statistics.
    pub fn name(self) -> &'static str {
        match self {
            Account::Memtables => "memtables",
            Account::PinnedMemtables => "pinned_memtables",
            Account::ObsoleteSets => "obsolete_sets",
            Account::Queries => "queries",
            Account::Builds => "builds",
            Account::Repairs => "repairs",
            Account::Compactions => "compactions",
        }
    }

    fn is_fixed(self) -> bool {
        matches!(
            self,
            Account::Memtables | Account::PinnedMemtables | Account::ObsoleteSets
        )
    }
}

/// Use of a budget by account, in bytes.
#[derive(Debug, Clone, Default)]
pub struct MemoryUse {
    /// The whole budget.
    pub total: usize,
    /// Each account.
    pub held: Vec<(Account, usize)>,
    /// What the block cache holds (pinned filters and indexes of tables included), and its current
    /// limit.
    pub cache: usize,
    /// See `cache`.
    pub cache_limit: usize,
    /// Bytes of mapped tables ([`Options::mapped_reads`](crate::Options::mapped_reads)), apart from
    /// the budget: address space, of which the system's page cache holds what is used.
    pub mapped: u64,
    /// Borrowers that are waiting.
    pub waiting: usize,
    /// Loans so far that had to wait.
    pub waits: u64,
    /// Loans so far that were granted although nothing was free.
    pub overdrafts: u64,
}

/// The memory budget of one store, or of several that are opened with it.
pub struct Budget {
    total: usize,
    max_wait: Duration,
    cache: Arc<BlockCache>,
    books: Mutex<Books>,
    returned: Condvar,
    waits: AtomicU64,
    overdrafts: AtomicU64,
}

#[derive(Default)]
struct Books {
    /// By account, in the order of [`Account::ALL`].
    held: [usize; Account::ALL.len()],
    /// The waiting borrowers, in FIFO order.
    queue: VecDeque<u64>,
    next_ticket: u64,
    /// The threads that hold loans.
    borrowers: Vec<ThreadId>,
}

impl Books {
    fn of(&mut self, account: Account) -> Option<&mut usize> {
        self.held.get_mut(account as usize)
    }

    fn sum(&self, fixed: bool) -> usize {
        let accounts = Account::ALL.iter().zip(self.held);
        let accounts = accounts.filter(|(account, _)| account.is_fixed() == fixed);
        accounts.map(|(_, bytes)| bytes).sum()
    }

    fn change(&mut self, account: Account, less: usize, more: usize) {
        if let Some(held) = self.of(account) {
            debug_assert!(*held >= less, "more is returned than was taken");
            *held = held.saturating_sub(less).saturating_add(more);
        }
    }
}

impl Budget {
    /// A budget of `bytes`. Without `waits` every loan is granted at once: for stores without
    /// background threads.
    pub fn new(bytes: usize, waits: bool) -> Arc<Budget> {
        Budget::with_max_wait(bytes, if waits { MAX_WAIT } else { Duration::ZERO })
    }

    fn with_max_wait(bytes: usize, max_wait: Duration) -> Arc<Budget> {
        Arc::new(Budget {
            total: bytes,
            max_wait,
            cache: Arc::new(BlockCache::new((bytes / 2).min(MAX_CACHE))),
            books: Mutex::default(),
            returned: Condvar::new(),
            waits: AtomicU64::new(0),
            overdrafts: AtomicU64::new(0),
        })
    }

    /// The whole budget, in bytes.
    pub fn total(&self) -> usize {
        self.total
    }

    /// The block cache, which gets what the other holders leave.
    pub fn cache(&self) -> &Arc<BlockCache> {
        &self.cache
    }

    /// The total of all loans: a quarter of the budget, less where fixed holders have more than
    /// five eighths of it.
    fn share(&self, books: &Books) -> usize {
        let left = self.total.saturating_sub(books.sum(true) + self.total / 8);
        left.clamp(self.total / 16, self.total / 4)
    }

    fn free(&self, books: &Books) -> usize {
        self.share(books).saturating_sub(books.sum(false))
    }

    /// Sets the limit of the cache to what is left.
    fn fit_cache(&self, books: &Books) {
        let left = self
            .total
            .saturating_sub(books.sum(true) + books.sum(false));
        self.cache.limit(left.max(self.total / 8));
    }

    /// Borrows up to `want` bytes for work that needs at least `least`; may wait for `least`.
    pub fn borrow(self: &Arc<Budget>, account: Account, least: usize, want: usize) -> Loan {
        let least = least.min(want);
        let thread = std::thread::current().id();
        let mut books = self.books.lock();
        if !books.queue.is_empty() || self.free(&books) < least {
            let is_nested = books.borrowers.contains(&thread);
            if !is_nested && !self.max_wait.is_zero() {
                self.wait(&mut books, least);
            }
        }
        let free = self.free(&books);
        if free < least {
            self.overdrafts.fetch_add(1, Relaxed);
        }
        let bytes = want.min((free / 2).max(least));
        books.change(account, 0, bytes);
        books.borrowers.push(thread);
        self.fit_cache(&books);
        Loan {
            budget: self.clone(),
            account,
            bytes,
            thread,
        }
    }

    /// Waits until it is this borrower's turn and `least` is free, or until [`MAX_WAIT`] has
    /// passed.
    fn wait(&self, books: &mut parking_lot::MutexGuard<'_, Books>, least: usize) {
        self.waits.fetch_add(1, Relaxed);
        let ticket = books.next_ticket;
        books.next_ticket += 1;
        books.queue.push_back(ticket);
        let until = Instant::now() + self.max_wait;
        while books.queue.front() != Some(&ticket) || self.free(books) < least {
            if self.returned.wait_until(books, until).timed_out() {
                break;
            }
        }
        books.queue.retain(|waiting| *waiting != ticket);
        // The next borrower may be able to proceed.
        self.returned.notify_all();
    }

    /// Counts memory that is allocated anyway, until the value is dropped.
    pub fn hold(self: &Arc<Budget>, account: Account, bytes: usize) -> Held {
        let mut books = self.books.lock();
        books.change(account, 0, bytes);
        self.fit_cache(&books);
        Held {
            budget: self.clone(),
            counted: Mutex::new((account, bytes)),
        }
    }

    fn return_memory(&self, mut books: parking_lot::MutexGuard<'_, Books>) {
        self.fit_cache(&books);
        let is_awaited = !books.queue.is_empty();
        if books.borrowers.is_empty() {
            books.borrowers.shrink_to_fit();
        }
        drop(books);
        if is_awaited {
            self.returned.notify_all();
        }
    }

    /// The use by account.
    pub fn memory(&self) -> MemoryUse {
        let books = self.books.lock();
        MemoryUse {
            total: self.total,
            held: Account::ALL.into_iter().zip(books.held).collect(),
            cache: self.cache.used_bytes(),
            cache_limit: self.cache.limited_to(),
            mapped: self.cache.mapped_bytes(),
            waiting: books.queue.len(),
            waits: self.waits.load(Relaxed),
            overdrafts: self.overdrafts.load(Relaxed),
        }
    }
}

/// Borrowed memory, returned on drop.
pub struct Loan {
    budget: Arc<Budget>,
    account: Account,
    bytes: usize,
    /// The borrowing thread.
    thread: ThreadId,
}

impl Loan {
    /// The size of the loan.
    pub fn bytes(&self) -> usize {
        self.bytes
    }

    /// Returns everything over `bytes`.
    pub fn shrink(&mut self, bytes: usize) {
        if bytes < self.bytes {
            let mut books = self.budget.books.lock();
            books.change(self.account, self.bytes, bytes);
            self.bytes = bytes;
            self.budget.return_memory(books);
        }
    }
}

impl Drop for Loan {
    fn drop(&mut self) {
        let mut books = self.budget.books.lock();
        books.change(self.account, self.bytes, 0);
        let at = books.borrowers.iter().position(|by| *by == self.thread);
        debug_assert!(at.is_some(), "a loan of no borrower");
        if let Some(at) = at {
            books.borrowers.swap_remove(at);
        }
        self.budget.return_memory(books);
    }
}

/// Memory of a fixed holder, counted until this is dropped.
pub struct Held {
    budget: Arc<Budget>,
    counted: Mutex<(Account, usize)>,
}

impl Held {
    /// Moves the memory to `account` and sets it to `bytes`.
    pub fn set(&self, account: Account, bytes: usize) {
        let mut counted = self.counted.lock();
        let (before, less) = std::mem::replace(&mut *counted, (account, bytes));
        let mut books = self.budget.books.lock();
        books.change(before, less, 0);
        books.change(account, 0, bytes);
        self.budget.return_memory(books);
    }
}

impl Drop for Held {
    fn drop(&mut self) {
        let (account, bytes) = *self.counted.get_mut();
        let mut books = self.budget.books.lock();
        books.change(account, bytes, 0);
        self.budget.return_memory(books);
    }
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc;

    use super::*;

    const LONG: Duration = Duration::from_secs(600);

    fn held(budget: &Budget, account: Account) -> usize {
        let held = budget.memory().held;
        held.iter().find(|(of, _)| *of == account).unwrap().1
    }

    /// Waits until `count` borrowers wait.
    fn until_waiting(budget: &Budget, count: usize) {
        while budget.memory().waiting != count {
            std::thread::yield_now();
        }
    }

    #[test]
    fn a_loan_is_between_the_least_and_what_is_wanted_and_leaves_half() {
        let budget = Budget::with_max_wait(1 << 20, Duration::ZERO);
        let first = budget.borrow(Account::Queries, 1 << 10, 1 << 20);
        assert_eq!(first.bytes(), 128 << 10);
        let second = budget.borrow(Account::Builds, 1 << 10, 10 << 10);
        assert_eq!(second.bytes(), 10 << 10);
        let third = budget.borrow(Account::Queries, 100 << 10, 200 << 10);
        assert_eq!(third.bytes(), 100 << 10);
        assert_eq!(held(&budget, Account::Queries), 228 << 10);
        drop((first, third));
        assert_eq!(held(&budget, Account::Queries), 0);
        assert_eq!(held(&budget, Account::Builds), 10 << 10);
        assert_eq!(budget.memory().overdrafts, 0);
        assert_eq!(budget.borrow(Account::Queries, 0, 0).bytes(), 0);
    }

    #[test]
    fn no_borrower_waits_without_threads_or_with_a_loan() {
        for max_wait in [Duration::ZERO, LONG] {
            let budget = Budget::with_max_wait(64, max_wait);
            let first = budget.borrow(Account::Queries, 16, 16);
            let second = budget.borrow(Account::Repairs, 5, 100);
            assert_eq!((first.bytes(), second.bytes()), (16, 5));
            let memory = budget.memory();
            assert_eq!((memory.waits, memory.overdrafts), (0, 1));
        }
    }

    #[test]
    fn a_borrower_gets_its_least_after_the_longest_wait() {
        let budget = Budget::with_max_wait(64, Duration::from_millis(1));
        let first = budget.borrow(Account::Queries, 16, 16);
        let other = budget.clone();
        let second = std::thread::spawn(move || other.borrow(Account::Queries, 7, 16).bytes());
        assert_eq!(second.join().unwrap(), 7);
        drop(first);
        let memory = budget.memory();
        assert_eq!((memory.waits, memory.overdrafts, memory.waiting), (1, 1, 0));
        assert_eq!(held(&budget, Account::Queries), 0);
    }

    #[test]
    fn borrowers_are_served_in_the_order_in_which_they_came() {
        let budget = Budget::with_max_wait(64, LONG);
        let first = budget.borrow(Account::Queries, 12, 12);
        let (send, served) = mpsc::channel();
        let mut threads = Vec::new();
        // The first borrower wants everything; those behind it would fit now, but do not overtake
        // it.
        for (nth, least) in [16, 2, 2].into_iter().enumerate() {
            let (budget, send) = (budget.clone(), send.clone());
            threads.push(std::thread::spawn({
                let budget = budget.clone();
                move || {
                    let loan = budget.borrow(Account::Builds, least, least);
                    send.send(nth).unwrap();
                    drop(loan);
                }
            }));
            until_waiting(&budget, nth + 1);
        }
        assert!(served.try_recv().is_err());
        drop(first);
        assert_eq!(served.recv().unwrap(), 0);
        for thread in threads {
            thread.join().unwrap();
        }
        assert_eq!(served.try_iter().count(), 2);
        assert_eq!(budget.memory().overdrafts, 0);
    }

    #[test]
    fn no_wake_up_is_lost_and_nothing_is_lent_twice() {
        let budget = Budget::with_max_wait(64 << 10, LONG);
        std::thread::scope(|scope| {
            for seed in 0..8 {
                let budget = &budget;
                scope.spawn(move || {
                    let mut rng = fastrand::Rng::with_seed(seed);
                    for _ in 0..500 {
                        let least = rng.usize(1..8 << 10);
                        let loan = budget.borrow(Account::Queries, least, 2 * least);
                        assert!((least..=2 * least).contains(&loan.bytes()));
                        assert!(held(budget, Account::Queries) <= 16 << 10);
                        if rng.bool() {
                            std::thread::yield_now();
                        }
                    }
                });
            }
        });
        let memory = budget.memory();
        assert_eq!((memory.overdrafts, memory.waiting), (0, 0));
        assert_eq!(held(&budget, Account::Queries), 0);
    }

    #[test]
    fn the_cache_has_what_others_leave() {
        let budget = Budget::with_max_wait(1 << 20, Duration::ZERO);
        assert_eq!(budget.memory().cache_limit, 512 << 10);
        let memtables = budget.hold(Account::Memtables, 384 << 10);
        let loan = budget.borrow(Account::Queries, 0, 128 << 10);
        assert_eq!(budget.memory().cache_limit, 512 << 10);
        let more = budget.borrow(Account::Queries, 64 << 10, 64 << 10);
        assert!(budget.memory().cache_limit <= 448 << 10);
        memtables.set(Account::PinnedMemtables, 900 << 10);
        assert_eq!(held(&budget, Account::Memtables), 0);
        assert_eq!(budget.memory().cache_limit, 128 << 10);
        drop((loan, more));
        // Borrowers still get a little.
        assert_eq!(
            budget.borrow(Account::Queries, 0, 1 << 20).bytes(),
            32 << 10
        );
        drop(memtables);
        assert_eq!(budget.memory().cache_limit, 512 << 10);
    }
}
