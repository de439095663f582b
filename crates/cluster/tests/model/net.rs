//! Simulated time, and three replicas behind it. Clients are threads of which one runs at a time:
//! each call of the store hands over to the client that is due next.

use std::cell::Cell as Local;
use std::collections::{BTreeMap, BTreeSet, HashSet};
use std::sync::Arc;

use esker_cluster::cells::{Cell, Cells, Mark, Page, Read, Swapped, TableKind, Write};
use esker_cluster::{Clocks, Error, Result, millis};
use parking_lot::{Condvar, Mutex};

/// The time at which runs begin, in milliseconds since 1970.
const BEGIN: u64 = 1_800_000_000_000;
const PARTS: u32 = 3;
const HOUR: u64 = 3_600_000;

type Row = (u64, Option<Vec<u8>>);
type Table = BTreeMap<(Vec<u8>, Vec<u8>), Row>;

thread_local! {
    static CLIENT: Local<usize> = const { Local::new(0) };
}

/// What a run is troubled by.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Trouble {
    pub(crate) seed: u64,
    /// Of a thousand writes, those that fail or come late.
    pub(crate) bad: u32,
    /// Of a thousand calls, those at which a client is paused.
    pub(crate) pauses: u32,
    /// True if reads write what they merged before they answer.
    pub(crate) mends: bool,
    /// The steps of all clocks, in milliseconds.
    pub(crate) coarse: u64,
}

struct State {
    /// Tables that were created and not dropped.
    made: BTreeSet<String>,
    now: u64,
    random: fastrand::Rng,
    trouble: Trouble,
    wake: Vec<Option<u64>>,
    dead: Vec<bool>,
    /// Calls until a client is killed.
    left: Vec<Option<u32>>,
    turn: usize,
    replicas: Vec<BTreeMap<String, Table>>,
    swapped: BTreeMap<String, Table>,
    /// What rows were to be set to: each value is proposed once.
    proposed: HashSet<(Vec<u8>, Vec<u8>, Vec<u8>)>,
    late: BTreeMap<(u64, u64), (usize, Write)>,
    sent: u64,
    /// Timestamps of writes of data, by table and key, with the client's mark of then.
    stamps: Vec<(String, Vec<u8>, u64, u64)>,
    marks: Vec<u64>,
}

/// The network that all clients share.
pub(crate) struct Net {
    state: Mutex<State>,
    turns: Condvar,
}

/// The end of a client: the others go on.
struct End<'n> {
    net: &'n Net,
    client: usize,
}

impl Drop for End<'_> {
    fn drop(&mut self) {
        let mut state = self.net.state.lock();
        state.wake[self.client] = None;
        self.net.hand_over(&mut state);
    }
}

fn apply(replica: &mut BTreeMap<String, Table>, write: &Write) {
    let table = replica.entry(write.table.to_string()).or_default();
    let at = (write.partition.clone(), write.row.clone());
    let new = (write.at, write.value.clone());
    let known = table.entry(at).or_insert_with(|| new.clone());
    merge(known, &new);
}

fn merge(known: &mut Row, new: &Row) {
    // A deletion wins a tie, then the greater value.
    let rank = |row: &Row| (row.0, row.1.is_none(), row.1.clone());
    if rank(new) > rank(known) {
        *known = new.clone();
    }
}

fn part(partition: &[u8]) -> u32 {
    partition
        .iter()
        .fold(7_u32, |a, b| a.wrapping_mul(31).wrapping_add(u32::from(*b)))
        % PARTS
}

impl Net {
    pub(crate) fn new(trouble: Trouble, clients: usize) -> Arc<Net> {
        let state = State {
            now: BEGIN,
            random: fastrand::Rng::with_seed(trouble.seed),
            trouble,
            wake: vec![None; clients],
            dead: vec![false; clients],
            left: vec![None; clients],
            turn: usize::MAX,
            replicas: vec![BTreeMap::new(); 3],
            swapped: BTreeMap::new(),
            proposed: HashSet::new(),
            late: BTreeMap::new(),
            sent: 0,
            stamps: Vec::new(),
            made: BTreeSet::new(),
            marks: vec![0; clients],
        };
        Arc::new(Net {
            state: Mutex::new(state),
            turns: Condvar::new(),
        })
    }

    /// Runs the clients until all have ended.
    pub(crate) fn run<'s>(&'s self, works: Vec<Box<dyn FnOnce() + Send + 's>>) {
        {
            let mut state = self.state.lock();
            let now = state.now;
            (0..works.len()).for_each(|client| state.wake[client] = Some(now));
            state.turn = usize::MAX;
        }
        std::thread::scope(|scope| {
            for (client, work) in works.into_iter().enumerate() {
                scope.spawn(move || {
                    CLIENT.with(|own| own.set(client));
                    self.wait(client);
                    // A client that panics has ended, too.
                    let _end = End { net: self, client };
                    work();
                });
            }
            self.hand_over(&mut self.state.lock());
        });
    }

    fn wait(&self, client: usize) {
        let mut state = self.state.lock();
        while state.turn != client {
            self.turns.wait(&mut state);
        }
    }

    fn hand_over(&self, state: &mut State) {
        let due = state.wake.iter().flatten().min().copied();
        let Some(due) = due else { return };
        let all: Vec<usize> = (0..state.wake.len())
            .filter(|client| state.wake[*client] == Some(due))
            .collect();
        state.turn = all[state.random.usize(0..all.len())];
        state.advance(due);
        self.turns.notify_all();
    }

    /// Waits in simulated time.
    pub(crate) fn sleep(&self, millis: u64) {
        let client = CLIENT.with(Local::get);
        {
            let mut state = self.state.lock();
            let until = state.now + millis;
            state.wake[client] = Some(until);
            self.hand_over(&mut state);
            if state.turn == client {
                return;
            }
        }
        self.wait(client);
    }

    pub(crate) fn now(&self) -> u64 {
        self.state.lock().now
    }

    /// Kills the client at one of its next calls.
    pub(crate) fn kill_in(&self, calls: u32) {
        self.state.lock().left[CLIENT.with(Local::get)] = Some(calls);
    }

    /// A killed client begins anew.
    pub(crate) fn revive(&self) {
        let mut state = self.state.lock();
        let client = CLIENT.with(Local::get);
        (state.dead[client], state.left[client]) = (false, None);
    }

    pub(crate) fn mark(&self, mark: u64) {
        self.state.lock().marks[CLIENT.with(Local::get)] = mark;
    }

    /// Timestamps of writes of data: table, key, timestamp, the client's mark of then.
    pub(crate) fn stamps(&self) -> Vec<(String, Vec<u8>, u64, u64)> {
        self.state.lock().stamps.clone()
    }

    /// From now on nothing fails; what is late arrives, and the replicas become equal.
    pub(crate) fn heal(&self, after: u64) {
        let mut state = self.state.lock();
        let until = state.now + after;
        state.advance(until);
        (state.trouble.bad, state.trouble.pauses) = (0, 0);
        state.equalise();
    }

    /// The rows that were set by compare-and-set: table, partition, row.
    pub(crate) fn swapped_rows(&self) -> Vec<(String, Vec<u8>, Vec<u8>)> {
        let state = self.state.lock();
        let tables = state.swapped.iter();
        let rows = tables.flat_map(|(name, table)| {
            let rows = table.iter().filter(|(_, row)| row.1.is_some());
            rows.map(move |((partition, row), _)| (name.clone(), partition.clone(), row.clone()))
        });
        rows.collect()
    }

    /// The table of a dataset's records, as the catalog has it.
    pub(crate) fn table_of(&self, dataset: &str) -> Option<String> {
        let state = self.state.lock();
        let rows = state.swapped.get("esker_state")?;
        let (_, catalog) = rows.get(&(b"catalog".to_vec(), vec![0]))?;
        let catalog: serde_json::Value = serde_json::from_slice(catalog.as_deref()?).unwrap();
        let id = catalog["datasets"][dataset]["id"].as_u64()?;
        Some(format!("esker_{id}"))
    }

    /// The keyspace is dropped.
    pub(crate) fn clear(&self) {
        let mut state = self.state.lock();
        (state.replicas, state.swapped) = (vec![BTreeMap::new(); 3], BTreeMap::new());
        state.late.clear();
    }

    /// What the cluster's own repair does: the replicas become equal.
    pub(crate) fn mend(&self) {
        self.state.lock().equalise();
    }

    /// The tables with rows of data or of indexes.
    pub(crate) fn tables(&self) -> BTreeSet<String> {
        let state = self.state.lock();
        let tables = state.replicas.iter().flat_map(BTreeMap::keys);
        tables.cloned().collect()
    }

    /// The tables that were created and not dropped.
    pub(crate) fn made_tables(&self) -> BTreeSet<String> {
        self.state.lock().made.clone()
    }

    /// A replica has a put from now on that no other has.
    pub(crate) fn arrive(&self, replica: usize, write: &Write) {
        apply(&mut self.state.lock().replicas[replica], write);
    }

    /// Deletions that are older than a time are forgotten by all replicas, as by a compaction.
    pub(crate) fn compact(&self, before: u64) {
        for table in self
            .state
            .lock()
            .replicas
            .iter_mut()
            .flat_map(BTreeMap::values_mut)
        {
            table.retain(|_, (at, value)| value.is_some() || millis(*at) >= before);
        }
    }

    /// The rows of the tables of data and of indexes: table, partition, row.
    pub(crate) fn rows(&self, is_index: bool) -> Vec<(String, Vec<u8>, Vec<u8>)> {
        let state = self.state.lock();
        #[allow(clippy::type_complexity)]
        let mut all: BTreeMap<(&String, &(Vec<u8>, Vec<u8>)), Row> = BTreeMap::new();
        for (name, table) in state.replicas.iter().flatten() {
            for (at, row) in table {
                merge(all.entry((name, at)).or_insert_with(|| row.clone()), row);
            }
        }
        let rows = all
            .into_iter()
            .filter(|((name, _), row)| row.1.is_some() && name.contains("index") == is_index);
        let row = |name: &String, (partition, row): &(Vec<u8>, Vec<u8>)| {
            (name.clone(), partition.clone(), row.clone())
        };
        rows.map(|((name, at), _)| row(name, at)).collect()
    }

    /// The way of a request: takes time, and fails if the client is dead.
    fn travel(&self, may_pause: bool) -> Result<()> {
        let client = CLIENT.with(Local::get);
        let time = {
            let mut state = self.state.lock();
            match &mut state.left[client] {
                Some(0) => state.dead[client] = true,
                Some(left) => *left -= 1,
                None => {}
            }
            if state.dead[client] {
                return Err(Error::Unavailable("killed".to_string()));
            }
            let paused = state.random.u32(0..1000) < state.trouble.pauses;
            match (paused && may_pause, state.random.u32(0..4)) {
                (false, _) => state.random.u64(1..12),
                (true, 0) => state.random.u64(500..9_000),
                (true, 1) => state.random.u64(15_000..31_000),
                (true, 2) => state.random.u64(60_000..64_000),
                (true, _) => state.random.u64(62_000..400_000),
            }
        };
        self.sleep(time);
        Ok(())
    }
}

impl State {
    fn advance(&mut self, to: u64) {
        while let Some(entry) = self.late.first_entry() {
            if entry.key().0 > to {
                break;
            }
            let (replica, write) = entry.remove();
            apply(&mut self.replicas[replica], &write);
        }
        self.now = self.now.max(to);
    }

    fn equalise(&mut self) {
        let all = self.replicas.clone();
        for replica in &mut self.replicas {
            for (name, other) in all.iter().flatten() {
                let table = replica.entry(name.clone()).or_default();
                for (at, row) in other {
                    merge(table.entry(at.clone()).or_insert_with(|| row.clone()), row);
                }
            }
        }
    }

    fn deliver(&mut self, after: u64, replica: usize, write: &Write) {
        match after {
            0 => apply(&mut self.replicas[replica], write),
            after => {
                self.sent += 1;
                self.late
                    .insert((self.now + after, self.sent), (replica, write.clone()));
            }
        }
    }

    fn lateness(&mut self) -> u64 {
        match self.random.u32(0..4) {
            0 => self.random.u64(1..20_000),
            1 => self.random.u64(20_000..200_000),
            _ => self.random.u64(1..3 * HOUR),
        }
    }

    /// Sends a write; returns whether it is acknowledged.
    fn send(&mut self, write: &Write) -> bool {
        let first = self.random.usize(0..3);
        let order = [first, (first + 1) % 3, (first + 2) % 3];
        let bad = self.random.u32(0..1000) < self.trouble.bad;
        // How many replicas have it now; whether the others get it later.
        let (now, later, acknowledged) = match (bad, self.random.u32(0..6)) {
            (false, 0) => (2, self.random.bool(), true),
            (false, _) => (3, true, true),
            (true, 0) => (0, true, false),
            (true, 1) => (1, false, false),
            (true, 2) => (1, true, false),
            (true, 3) => (0, false, false),
            (true, 4) => (3, true, false),
            (true, _) => (2, false, true),
        };
        for (place, replica) in order.into_iter().enumerate() {
            if place < now {
                self.deliver(0, replica, write);
            } else if later {
                let after = self.lateness();
                self.deliver(after, replica, write);
            }
        }
        acknowledged
    }

    /// Rows of a table as a majority has them, from a place on.
    fn majority(&mut self, table: &str, is_in: &dyn Fn(&[u8], &[u8]) -> bool) -> Vec<Cell> {
        let leave = self.random.usize(0..3);
        let mut found: Table = BTreeMap::new();
        for (number, replica) in self.replicas.iter().enumerate() {
            for (at, row) in replica.get(table).into_iter().flatten() {
                if number != leave && is_in(&at.0, &at.1) {
                    merge(found.entry(at.clone()).or_insert_with(|| row.clone()), row);
                }
            }
        }
        if self.trouble.mends {
            for (number, replica) in self.replicas.iter_mut().enumerate() {
                if number != leave {
                    let table = replica.entry(table.to_string()).or_default();
                    for (at, row) in &found {
                        merge(table.entry(at.clone()).or_insert_with(|| row.clone()), row);
                    }
                }
            }
        }
        let cell = |((partition, row), (_, value)): (_, Row)| {
            value.map(|value| Cell {
                partition,
                row,
                value,
            })
        };
        found.into_iter().filter_map(cell).collect()
    }
}

impl Cells for Net {
    fn now(&self) -> Result<u64> {
        self.travel(true)?;
        let state = self.state.lock();
        Ok(state.now - state.now % state.trouble.coarse)
    }

    fn create_table(&self, table: &str, _: TableKind) -> Result<()> {
        self.travel(true)?;
        self.state.lock().made.insert(table.to_string());
        Ok(())
    }

    fn drop_table(&self, table: &str) -> Result<()> {
        self.travel(true)?;
        self.state.lock().made.remove(table);
        Ok(())
    }

    fn write(&self, writes: Vec<Write>) -> Vec<Result<()>> {
        let failed = |why: &str| Err(Error::Unavailable(why.to_string()));
        if writes.is_empty() {
            return Vec::new();
        }
        if self.travel(true).is_err() {
            return writes.iter().map(|_| failed("killed")).collect();
        }
        let acknowledged: Vec<bool> = {
            let mut state = self.state.lock();
            let mark = state.marks[CLIENT.with(Local::get)];
            for write in writes.iter().filter(|write| !write.table.contains("index")) {
                let is_known = state.stamps.iter().any(|(table, key, at, _)| {
                    (&**table, key, at) == (&*write.table, &write.partition, &write.at)
                });
                if write.value.is_some() && !is_known {
                    let (table, key) = (write.table.to_string(), write.partition.clone());
                    state.stamps.push((table, key, write.at, mark));
                }
            }
            writes.iter().map(|write| state.send(write)).collect()
        };
        let all = acknowledged.iter().all(|done| *done);
        if !all {
            self.sleep(3_000);
        }
        let dead = self.travel(false).is_err();
        let outcome = |done| {
            if done && !dead {
                Ok(())
            } else {
                failed("no answer")
            }
        };
        acknowledged.into_iter().map(outcome).collect()
    }

    fn read(&self, reads: Vec<Read>) -> Vec<Result<Vec<Cell>>> {
        if reads.is_empty() {
            return Vec::new();
        }
        if let Err(error) = self.travel(true) {
            return reads.iter().map(|_| Err(error.clone())).collect();
        }
        let mut answers = Vec::new();
        {
            let mut state = self.state.lock();
            for read in &reads {
                let is_in = |partition: &[u8], row: &[u8]| {
                    partition == read.partition
                        && row >= &read.from[..]
                        && read.to.as_deref().is_none_or(|to| row < to)
                };
                let mut cells = state.majority(&read.table, &is_in);
                if read.reverse {
                    cells.reverse();
                }
                cells.truncate(read.most);
                for cell in &mut cells {
                    cell.partition.clear();
                    if read.rows_only {
                        cell.value.clear();
                    }
                }
                answers.push(Ok(cells));
            }
        }
        let back = self.travel(false);
        answers
            .into_iter()
            .map(|answer| back.clone().and(answer))
            .collect()
    }

    fn parts(&self) -> u32 {
        PARTS
    }

    fn scan(
        &self,
        table: &Arc<str>,
        number: u32,
        from: Option<&Mark>,
        most: usize,
        rows_only: bool,
    ) -> Result<Page> {
        self.travel(true)?;
        let mut state = self.state.lock();
        let most = most.min(state.random.usize(1..40));
        let behind = from.map(|mark| {
            let (length, rest) = mark.0.split_at(1);
            let (partition, row) = rest.split_at(usize::from(length[0]));
            (partition.to_vec(), row.to_vec())
        });
        let is_in = |partition: &[u8], row: &[u8]| {
            let is_behind = |(p, r): &(Vec<u8>, Vec<u8>)| (partition, row) > (&p[..], &r[..]);
            part(partition) == number && behind.as_ref().is_none_or(is_behind)
        };
        let mut cells = state.majority(table, &is_in);
        let more = cells.len() > most;
        cells.truncate(most);
        let next = cells.last().filter(|_| more).map(|last| {
            let length = u8::try_from(last.partition.len()).unwrap();
            Mark([&[length], &last.partition[..], &last.row[..]].concat())
        });
        if rows_only {
            cells.iter_mut().for_each(|cell| cell.value.clear());
        }
        drop(state);
        self.travel(false)?;
        Ok(Page { cells, next })
    }

    fn swap(
        &self,
        table: &Arc<str>,
        partition: &[u8],
        row: &[u8],
        expected: Option<&[u8]>,
        to: Option<&[u8]>,
    ) -> Result<Swapped> {
        // A change of the catalog that takes effect minutes after it was decided is not modelled.
        self.travel(&**table != "esker_state")?;
        let (outcome, lost) = {
            let mut state = self.state.lock();
            let roll = state.random.u32(0..2000);
            if let Some(to) = to {
                let place = [table.as_bytes(), partition].concat();
                let is_new = state.proposed.insert((place, row.to_vec(), to.to_vec()));
                assert!(is_new, "{table}: two swaps of row {row:?} are to {to:?}");
            }
            let (bad, mark) = (state.trouble.bad, state.marks[CLIENT.with(Local::get)]);
            if roll < bad / 2 {
                return Err(Error::Unavailable("no answer".to_string()));
            }
            let rows = state.swapped.entry(table.to_string()).or_default();
            let at = (partition.to_vec(), row.to_vec());
            let known = rows.get(&at).and_then(|(_, value)| value.clone());
            let outcome = if known.as_deref() == expected {
                rows.insert(at, (0, to.map(<[u8]>::to_vec)));
                Swapped::Done
            } else {
                Swapped::Other(known)
            };
            let is_head = table.ends_with("heads") && outcome == Swapped::Done;
            if let (true, Some(head)) = (is_head, to) {
                let at = !u64::from_be_bytes(head[..8].try_into().unwrap());
                let data = table.trim_end_matches("_heads").to_string();
                state.stamps.push((data, partition.to_vec(), at, mark));
            }
            (outcome, roll < bad)
        };
        self.travel(false)?;
        if !lost {
            return Ok(outcome);
        }
        // Whether it has happened is read, as the real stores do.
        self.sleep(200);
        let rows = self.swapped(table, partition)?;
        let now = rows.into_iter().find(|cell| cell.row == row);
        let now = now.map(|cell| cell.value);
        if now.as_deref() == to {
            Ok(Swapped::Done)
        } else if now.as_deref() != expected {
            Ok(Swapped::Other(now))
        } else {
            Err(Error::Unavailable("no answer".to_string()))
        }
    }

    fn swapped(&self, table: &Arc<str>, partition: &[u8]) -> Result<Vec<Cell>> {
        self.travel(true)?;
        let rows: Vec<Cell> = {
            let state = self.state.lock();
            let rows = state.swapped.get(&**table).into_iter().flatten();
            let rows = rows.filter(|((p, _), _)| p == partition);
            let cell = |((_, row), (_, value)): (&(Vec<u8>, Vec<u8>), &Row)| {
                let (row, partition) = (row.clone(), Vec::new());
                value.clone().map(|value| Cell {
                    partition,
                    row,
                    value,
                })
            };
            rows.filter_map(cell).collect()
        };
        self.travel(false)?;
        Ok(rows)
    }
}

/// The clocks of a client.
pub(crate) struct Skewed {
    pub(crate) net: Arc<Net>,
    pub(crate) ahead: i64,
}

impl Clocks for Skewed {
    fn wall(&self) -> u64 {
        let state = self.net.state.lock();
        let now = state.now.saturating_add_signed(self.ahead);
        now - now % state.trouble.coarse
    }

    fn steady(&self) -> u64 {
        self.net.now() - BEGIN
    }

    fn sleep(&self, millis: u64) {
        self.net.sleep(millis);
    }
}
