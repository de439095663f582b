//! A key with a million operands: written, compacted and read in bounded memory.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

use std::alloc::{GlobalAlloc, Layout, System};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use esker_lsm::fs::disk::Disk;
use esker_lsm::merge::MergeOperator;
use esker_lsm::{
    Batch, Cursor, Durability, Group, Kind, Options, Result, Seq, TreeId, TreeOptions, TreeProvider,
};

/// Counts allocated bytes.
struct Counting;

static NOW: AtomicUsize = AtomicUsize::new(0);
static PEAK: AtomicUsize = AtomicUsize::new(0);

#[allow(unsafe_code)]
// SAFETY: all calls are forwarded to the system's allocator.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        let now = NOW.fetch_add(layout.size(), Ordering::Relaxed) + layout.size();
        PEAK.fetch_max(now, Ordering::Relaxed);
        // SAFETY: as above.
        unsafe { System.alloc(layout) }
    }
    unsafe fn dealloc(&self, at: *mut u8, layout: Layout) {
        NOW.fetch_sub(layout.size(), Ordering::Relaxed);
        // SAFETY: as above.
        unsafe { System.dealloc(at, layout) }
    }
}

#[global_allocator]
static ALLOCATOR: Counting = Counting;

const BUDGET: usize = 8 << 20;
/// Memory outside of the budget: buffers of compactions and logs, the test's own batches.
const MARGIN: usize = 4 << 20;
const PIECE: usize = 8 << 10;

/// Appends pieces of a list while they are short.
struct Append;

impl MergeOperator for Append {
    fn combine(&self, _: &[u8], newer: &mut Vec<u8>, _: Seq, older: &[u8], _: Seq) -> bool {
        let fits = newer.len() + older.len() <= PIECE;
        if fits {
            newer.extend_from_slice(older);
        }
        fits
    }
}

/// `list` combines its operands, `apart` does not.
struct Trees;

impl TreeProvider for Trees {
    fn tree_options(&self, name: &str, _: &[u8]) -> Result<TreeOptions> {
        let operator: Option<Arc<dyn MergeOperator>> = match name {
            "list" => Some(Arc::new(Append)),
            _ => None,
        };
        Ok(TreeOptions {
            operator,
            ..TreeOptions::default()
        })
    }
}

fn open(dir: &Path) -> Group {
    let options = Options {
        memory_budget: BUDGET,
        fs: Arc::new(Disk::new()),
        table_size: 1 << 20,
        background: false,
        ..Options::default()
    };
    Group::open(dir, options, Arc::new(Trees), true).unwrap()
}

/// Walks the key from the newest operand to the oldest: they are `count - 1` down to 0.
fn assert_walk(group: &Group, tree: TreeId, count: u32) {
    let mut walk = group.snapshot().walk(tree, b"key");
    let mut left = count;
    while let Some(entry) = walk.next_entry().unwrap() {
        assert_eq!(entry.kind, Kind::Operand);
        for item in entry.value.chunks(4) {
            left -= 1;
            assert_eq!(item, left.to_le_bytes());
        }
    }
    assert_eq!(left, 0);
}

fn run(name: &str, count: u32) {
    let dir = tempfile::tempdir().unwrap();
    let before = NOW.load(Ordering::Relaxed);
    let peak = |what: &str| {
        let peak = PEAK.swap(NOW.load(Ordering::Relaxed), Ordering::Relaxed) - before;
        assert!(peak < BUDGET + MARGIN, "{what}: {peak} bytes");
    };
    PEAK.store(before, Ordering::Relaxed);
    let group = open(dir.path());
    let tree = group.create_trees(&[(name.to_string(), vec![])]).unwrap()[0];
    let mut batch = Batch::new();
    for n in 0..count {
        batch.operand(tree, b"key", &n.to_le_bytes()).unwrap();
        if batch.sequences() == 1000 || n + 1 == count {
            group.write(&mut batch, Durability::Os).unwrap();
            batch.clear();
        }
    }
    peak("writing");
    assert_walk(&group, tree, count);
    peak("reading");
    drop(group);
    let group = open(dir.path());
    peak("opening");
    group.compact(None).unwrap();
    peak("merging");
    assert_walk(&group, tree, count);
    peak("reading what is merged");
    let snapshot = group.snapshot();
    let mut cursor = snapshot.entries(tree, 64 << 10);
    let mut entries = 0_usize;
    cursor.seek_last().unwrap();
    while cursor.valid() {
        entries += 1;
        cursor.prev().unwrap();
    }
    let pieces = (count as usize * 4).div_ceil(PIECE);
    match name {
        "list" => assert!(
            entries < 2 * pieces + 10,
            "{entries} pieces, {pieces} would do"
        ),
        _ => assert_eq!(entries, count as usize),
    }
    // The newest operand, at the cost of one.
    let cost = esker_lsm::Cost::default();
    let found = snapshot.get(tree, b"key", &cost).unwrap().unwrap();
    assert_eq!(found.value[..4], (count - 1).to_le_bytes());
    assert!(cost.blocks_read.get() + cost.blocks_cached.get() <= 3);
    peak("reading backward");
}

/// A single test, because the peak is that of the process.
#[test]
fn a_million_operands() {
    run("list", 1_000_000);
    run("apart", 300_000);
}
