//! Runs that failed once, shrunk: as [`crate::runner::as_test`] prints them.

use crate::action::Settings;
#[allow(unused_imports)]
use crate::action::{Action::*, Change::*, Def, Fault::*, Inside, Method::*, Step, Write::*, list};
use crate::runner::{run, run_with};

/// Counts and keys of an embedded index showed replaced records after a change of strategy to
/// mutable-bitmap.
#[test]
fn seed_339() {
    run(
        8192,
        65536,
        true,
        &[
            Step(
                0,
                Create {
                    store: 0,
                    name: 2,
                    def: Def {
                        keys: 1,
                        kinds: [3, 2, 6],
                        types: [0, 0, 0],
                        tokenizers: [1, 0, 2],
                        maintenance: 1,
                        repair: 0,
                        merging: 2,
                        versions: 2,
                        expiry: 0,
                        old_records: false,
                        point: 0,
                        lenient: false,
                    },
                },
            ),
            Step(
                0,
                Batch {
                    store: 0,
                    set: 2,
                    writes: list([Put {
                        key: 4,
                        cells: [0, 3, 0, 0, 0],
                        pad: 0,
                        style: 0,
                    }]),
                    durability: 2,
                },
            ),
            Step(0, Flush { store: 0 }),
            Step(
                0,
                Batch {
                    store: 0,
                    set: 2,
                    writes: list([Put {
                        key: 4,
                        cells: [0, 206, 0, 0, 0],
                        pad: 0,
                        style: 0,
                    }]),
                    durability: 1,
                },
            ),
            Step(
                0,
                Strategy {
                    store: 0,
                    set: 2,
                    to: 2,
                    inside: Inside {
                        steps: list([]),
                        stop_after: None,
                    },
                },
            ),
        ],
    );
}

/// A backup forgot the last write number: repair watermarks were ahead of the copy's numbers.
#[test]
fn seed_9() {
    run(
        2048,
        65536,
        true,
        &[
            Step(
                0,
                Create {
                    store: 0,
                    name: 3,
                    def: Def {
                        keys: 1,
                        kinds: [4, 6, 6],
                        types: [4, 4, 4],
                        tokenizers: [0, 0, 2],
                        maintenance: 0,
                        repair: 2,
                        merging: 2,
                        versions: 1,
                        expiry: 0,
                        old_records: false,
                        point: 0,
                        lenient: false,
                    },
                },
            ),
            Step(
                0,
                Batch {
                    store: 0,
                    set: 1,
                    writes: list([Delete { key: 10 }]),
                    durability: 2,
                },
            ),
            Step(
                0,
                Backup {
                    store: 0,
                    kept: false,
                },
            ),
        ],
    );
}

/// The same, by the repair watermark of the obsolete set.
#[test]
fn seed_46() {
    run(
        8192,
        24576,
        true,
        &[
            Step(
                0,
                Create {
                    store: 1,
                    name: 0,
                    def: Def {
                        keys: 0,
                        kinds: [2, 0, 0],
                        types: [2, 0, 0],
                        tokenizers: [0, 0, 0],
                        maintenance: 4,
                        repair: 0,
                        merging: 0,
                        versions: 0,
                        expiry: 0,
                        old_records: false,
                        point: 0,
                        lenient: false,
                    },
                },
            ),
            Step(
                0,
                Batch {
                    store: 1,
                    set: 0,
                    writes: list([Delete { key: 32 }]),
                    durability: 2,
                },
            ),
            Step(
                0,
                Strategy {
                    store: 1,
                    set: 0,
                    to: 3,
                    inside: Inside {
                        steps: list([]),
                        stop_after: None,
                    },
                },
            ),
            Step(
                0,
                Backup {
                    store: 0,
                    kept: true,
                },
            ),
        ],
    );
}

/// Without reports of compactions, an emptied primary-key index no longer showed that older entries
/// are obsolete.
#[test]
fn seed_157() {
    run(
        300,
        65536,
        false,
        &[
            Step(
                0,
                Create {
                    store: 0,
                    name: 1,
                    def: Def {
                        keys: 0,
                        kinds: [8, 7, 4],
                        types: [2, 3, 3],
                        tokenizers: [2, 0, 2],
                        maintenance: 5,
                        repair: 2,
                        merging: 2,
                        versions: 0,
                        expiry: 0,
                        old_records: false,
                        point: 0,
                        lenient: false,
                    },
                },
            ),
            Step(
                0,
                Batch {
                    store: 0,
                    set: 1,
                    writes: list([Put {
                        key: 5,
                        cells: [0, 15, 0, 0, 0],
                        pad: 0,
                        style: 0,
                    }]),
                    durability: 2,
                },
            ),
            Step(0, Flush { store: 1 }),
            Step(
                0,
                Clear {
                    store: 0,
                    set: 1,
                    durability: 2,
                },
            ),
            Step(
                0,
                Compact {
                    store: 1,
                    set: Some(1),
                },
            ),
            Step(
                0,
                Batch {
                    store: 1,
                    set: 1,
                    writes: list([Put {
                        key: 2,
                        cells: [0, 4, 0, 0, 0],
                        pad: 0,
                        style: 0,
                    }]),
                    durability: 2,
                },
            ),
        ],
    );
}

/// The same, for an entry from before the last repair.
#[test]
fn seed_429() {
    run(
        300,
        65536,
        true,
        &[
            Step(
                0,
                Create {
                    store: 0,
                    name: 0,
                    def: Def {
                        keys: 0,
                        kinds: [1, 6, 6],
                        types: [3, 3, 3],
                        tokenizers: [0, 1, 2],
                        maintenance: 5,
                        repair: 2,
                        merging: 2,
                        versions: 0,
                        expiry: 0,
                        old_records: false,
                        point: 0,
                        lenient: false,
                    },
                },
            ),
            Step(
                0,
                Batch {
                    store: 0,
                    set: 0,
                    writes: list([Put {
                        key: 11,
                        cells: [0, 5, 0, 0, 0],
                        pad: 0,
                        style: 0,
                    }]),
                    durability: 2,
                },
            ),
            Step(
                0,
                RepairSet {
                    store: 1,
                    set: 0,
                    method: Auto,
                    memory: 1,
                    lookups: 0,
                    bloom: true,
                    inside: Inside {
                        steps: list([]),
                        stop_after: None,
                    },
                },
            ),
            Step(
                0,
                Clear {
                    store: 1,
                    set: 0,
                    durability: 1,
                },
            ),
        ],
    );
}

/// A drop whose manifest record was not synced is seen when the store is opened again, and undone
/// by a power cut.
#[test]
fn seed_3085() {
    run(
        300,
        16384,
        true,
        &[
            Step(
                0,
                Create {
                    store: 0,
                    name: 0,
                    def: Def {
                        keys: 1,
                        kinds: [5, 0, 0],
                        types: [4, 0, 0],
                        tokenizers: [1, 0, 0],
                        maintenance: 2,
                        repair: 1,
                        merging: 1,
                        versions: 1,
                        expiry: 0,
                        old_records: false,
                        point: 0,
                        lenient: false,
                    },
                },
            ),
            Step(
                0,
                Batch {
                    store: 0,
                    set: 0,
                    writes: list([Delete { key: 1 }]),
                    durability: 2,
                },
            ),
            Step(
                0,
                Fail {
                    store: 2,
                    after: 5,
                    fault: Call,
                },
            ),
            Step(0, DropSet { store: 1, set: 0 }),
            Step(
                0,
                Reopen {
                    store: 2,
                    close: true,
                },
            ),
            Step(
                0,
                Cut {
                    store: 1,
                    after: 18,
                    mode: 0,
                    seed: 4972,
                },
            ),
        ],
    );
}

/// A damaged byte of the obsolete set's table that no read meets: after a repair `check` found it.
#[test]
fn seed_22844() {
    run(
        8192,
        65536,
        false,
        &[
            Step(
                0,
                Create {
                    store: 0,
                    name: 0,
                    def: Def {
                        keys: 0,
                        kinds: [7, 8, 5],
                        types: [4, 3, 4],
                        tokenizers: [0, 1, 0],
                        maintenance: 1,
                        repair: 1,
                        merging: 1,
                        versions: 0,
                        expiry: 0,
                        old_records: false,
                        point: 0,
                        lenient: false,
                    },
                },
            ),
            Step(
                0,
                Batch {
                    store: 0,
                    set: 0,
                    writes: list([
                        Put {
                            key: 9,
                            cells: [0, 0, 0, 0, 0],
                            pad: 0,
                            style: 0,
                        },
                        Put {
                            key: 9,
                            cells: [0, 2, 0, 0, 0],
                            pad: 0,
                            style: 0,
                        },
                    ]),
                    durability: 2,
                },
            ),
            Step(
                0,
                Batch {
                    store: 0,
                    set: 1,
                    writes: list([Put {
                        key: 3,
                        cells: [2, 0, 3, 0, 0],
                        pad: 0,
                        style: 0,
                    }]),
                    durability: 2,
                },
            ),
            Step(
                0,
                RepairSet {
                    store: 0,
                    set: 1,
                    method: Auto,
                    memory: 1,
                    lookups: 2,
                    bloom: false,
                    inside: Inside {
                        steps: list([]),
                        stop_after: None,
                    },
                },
            ),
            Step(
                0,
                Damage {
                    store: 0,
                    file: 34026,
                    at: 1037708121,
                    cut: false,
                    seed: 9503,
                },
            ),
        ],
    );
}

/// An index built after all records were deleted lacked the older versions that are kept.
#[test]
fn seed_702110() {
    run(
        8192,
        65536,
        false,
        &[
            Step(
                0,
                Create {
                    store: 0,
                    name: 0,
                    def: Def {
                        keys: 0,
                        kinds: [0, 0, 0],
                        types: [0, 0, 0],
                        tokenizers: [0, 0, 0],
                        maintenance: 3,
                        repair: 0,
                        merging: 1,
                        versions: 1,
                        expiry: 0,
                        old_records: false,
                        point: 0,
                        lenient: false,
                    },
                },
            ),
            Step(
                0,
                Batch {
                    store: 2,
                    set: 0,
                    writes: list([Put {
                        key: 61,
                        cells: [0, 0, 2, 2, 0],
                        pad: 0,
                        style: 0,
                    }]),
                    durability: 2,
                },
            ),
            Step(
                0,
                Clear {
                    store: 0,
                    set: 0,
                    durability: 2,
                },
            ),
            Step(
                0,
                Index {
                    store: 1,
                    set: 0,
                    path: 3,
                    kind: 7,
                    tokenizer: 0,
                    change: Add,
                    inside: Inside {
                        steps: list([]),
                        stop_after: None,
                    },
                },
            ),
            Step(
                1163,
                Prepare {
                    store: 1,
                    set: 0,
                    writes: list([]),
                },
            ),
        ],
    );
}

/// A log was reported as shorter than its synced bytes.
#[test]
fn seed_1009173() {
    run(
        2048,
        24576,
        false,
        &[
            Step(
                0,
                Create {
                    store: 0,
                    name: 0,
                    def: Def {
                        keys: 0,
                        kinds: [1, 6, 0],
                        types: [4, 4, 0],
                        tokenizers: [1, 1, 0],
                        maintenance: 5,
                        repair: 2,
                        merging: 2,
                        versions: 0,
                        expiry: 0,
                        old_records: false,
                        point: 0,
                        lenient: false,
                    },
                },
            ),
            Step(
                0,
                Create {
                    store: 0,
                    name: 2,
                    def: Def {
                        keys: 0,
                        kinds: [6, 3, 8],
                        types: [4, 4, 4],
                        tokenizers: [1, 1, 1],
                        maintenance: 2,
                        repair: 0,
                        merging: 2,
                        versions: 2,
                        expiry: 0,
                        old_records: false,
                        point: 0,
                        lenient: false,
                    },
                },
            ),
            Step(
                0,
                Batch {
                    store: 0,
                    set: 2,
                    writes: list([Put {
                        key: 3,
                        cells: [0, 2, 0, 0, 0],
                        pad: 0,
                        style: 0,
                    }]),
                    durability: 2,
                },
            ),
            Step(
                0,
                Fail {
                    store: 0,
                    after: 37,
                    fault: Call,
                },
            ),
            Step(0, Flush { store: 0 }),
            Step(
                0,
                Batch {
                    store: 0,
                    set: 0,
                    writes: list([Put {
                        key: 42,
                        cells: [0, 0, 0, 0, 0],
                        pad: 0,
                        style: 0,
                    }]),
                    durability: 2,
                },
            ),
            Step(
                0,
                Batch {
                    store: 0,
                    set: 0,
                    writes: list([Put {
                        key: 55,
                        cells: [0, 2, 0, 0, 0],
                        pad: 0,
                        style: 0,
                    }]),
                    durability: 2,
                },
            ),
            Step(
                0,
                Strategy {
                    store: 0,
                    set: 0,
                    to: 1,
                    inside: Inside {
                        steps: list([]),
                        stop_after: None,
                    },
                },
            ),
            Step(
                0,
                Batch {
                    store: 0,
                    set: 1,
                    writes: list([Put {
                        key: 2,
                        cells: [0, 0, 0, 0, 0],
                        pad: 0,
                        style: 0,
                    }]),
                    durability: 2,
                },
            ),
            Step(
                0,
                Full {
                    store: 0,
                    room: 100,
                },
            ),
            Step(0, DropSet { store: 0, set: 1 }),
            Step(
                0,
                Reopen {
                    store: 0,
                    close: true,
                },
            ),
        ],
    );
}

/// A batch that inserts an existing key and deletes it again was accepted after an index change.
#[test]
fn seed_4017666() {
    run(
        8192,
        65536,
        false,
        &[
            Step(
                0,
                Create {
                    store: 0,
                    name: 1,
                    def: Def {
                        keys: 0,
                        kinds: [1, 3, 3],
                        types: [2, 3, 3],
                        tokenizers: [2, 1, 2],
                        maintenance: 0,
                        repair: 0,
                        merging: 2,
                        versions: 1,
                        expiry: 0,
                        old_records: false,
                        point: 0,
                        lenient: false,
                    },
                },
            ),
            Step(
                0,
                Batch {
                    store: 1,
                    set: 0,
                    writes: list([Put {
                        key: 3,
                        cells: [0, 0, 0, 0, 0],
                        pad: 0,
                        style: 0,
                    }]),
                    durability: 2,
                },
            ),
            Step(
                0,
                Prepare {
                    store: 1,
                    set: 0,
                    writes: list([
                        Insert {
                            key: 3,
                            cells: [3, 15, 12, 4, 1],
                            pad: 21,
                            style: 0,
                        },
                        Delete { key: 3 },
                    ]),
                },
            ),
            Step(
                0,
                Index {
                    store: 1,
                    set: 0,
                    path: 6,
                    kind: 2,
                    tokenizer: 1,
                    change: Switch,
                    inside: Inside {
                        steps: list([]),
                        stop_after: None,
                    },
                },
            ),
            Step(
                0,
                Commit {
                    which: 0,
                    durability: 2,
                },
            ),
        ],
    );
}

/// A tail could not open a segment of the log.
#[test]
fn seed_1129() {
    run(
        2048,
        65536,
        false,
        &[
            Step(
                0,
                Create {
                    store: 0,
                    name: 0,
                    def: Def {
                        keys: 0,
                        kinds: [5, 1, 1],
                        types: [4, 3, 4],
                        tokenizers: [0, 0, 0],
                        maintenance: 2,
                        repair: 0,
                        merging: 0,
                        versions: 0,
                        expiry: 0,
                        old_records: false,
                        point: 0,
                        lenient: false,
                    },
                },
            ),
            Step(
                0,
                Create {
                    store: 0,
                    name: 1,
                    def: Def {
                        keys: 0,
                        kinds: [1, 1, 5],
                        types: [3, 4, 4],
                        tokenizers: [1, 1, 1],
                        maintenance: 2,
                        repair: 1,
                        merging: 0,
                        versions: 0,
                        expiry: 0,
                        old_records: false,
                        point: 0,
                        lenient: false,
                    },
                },
            ),
            Step(
                0,
                Batch {
                    store: 1,
                    set: 0,
                    writes: list([Put {
                        key: 7,
                        cells: [0, 0, 0, 0, 2],
                        pad: 0,
                        style: 0,
                    }]),
                    durability: 2,
                },
            ),
            Step(
                0,
                Index {
                    store: 2,
                    set: 0,
                    path: 1,
                    kind: 4,
                    tokenizer: 0,
                    change: Switch,
                    inside: Inside {
                        steps: list([]),
                        stop_after: None,
                    },
                },
            ),
            Step(
                0,
                Batch {
                    store: 0,
                    set: 1,
                    writes: list([Put {
                        key: 2,
                        cells: [0, 0, 0, 0, 0],
                        pad: 0,
                        style: 0,
                    }]),
                    durability: 1,
                },
            ),
            Step(
                0,
                Batch {
                    store: 2,
                    set: 1,
                    writes: list([Put {
                        key: 2,
                        cells: [0, 0, 0, 0, 0],
                        pad: 0,
                        style: 0,
                    }]),
                    durability: 2,
                },
            ),
            Step(
                0,
                Fail {
                    store: 0,
                    after: 7,
                    fault: Short,
                },
            ),
            Step(0, DropSet { store: 1, set: 1 }),
        ],
    );
}

/// A tail skipped a commit.
#[test]
fn seed_1365() {
    run(
        8192,
        65536,
        false,
        &[
            Step(
                0,
                Create {
                    store: 0,
                    name: 1,
                    def: Def {
                        keys: 0,
                        kinds: [3, 3, 3],
                        types: [0, 2, 0],
                        tokenizers: [2, 1, 0],
                        maintenance: 5,
                        repair: 0,
                        merging: 1,
                        versions: 2,
                        expiry: 0,
                        old_records: false,
                        point: 0,
                        lenient: false,
                    },
                },
            ),
            Step(
                0,
                Batch {
                    store: 0,
                    set: 0,
                    writes: list([Delete { key: 2 }]),
                    durability: 2,
                },
            ),
            Step(
                0,
                BackupDuring {
                    store: 0,
                    set: 0,
                    kept: true,
                    call: 0,
                    writes: list([]),
                    known: true,
                    flush: true,
                },
            ),
            Step(
                0,
                Cut {
                    store: 0,
                    after: 10,
                    mode: 0,
                    seed: 24423,
                },
            ),
            Step(
                0,
                Batch {
                    store: 0,
                    set: 0,
                    writes: list([Delete { key: 1 }]),
                    durability: 2,
                },
            ),
            Step(0, DropSet { store: 0, set: 0 }),
            Step(
                0,
                Create {
                    store: 0,
                    name: 0,
                    def: Def {
                        keys: 0,
                        kinds: [3, 0, 0],
                        types: [0, 0, 0],
                        tokenizers: [1, 0, 0],
                        maintenance: 3,
                        repair: 2,
                        merging: 0,
                        versions: 0,
                        expiry: 0,
                        old_records: false,
                        point: 0,
                        lenient: false,
                    },
                },
            ),
            Step(
                0,
                CutInstalled {
                    store: 0,
                    after: 5,
                    mode: 3,
                    seed: 59575,
                },
            ),
        ],
    );
}

/// After the clock was set back, a reader beside the writer showed records that the writer had
/// shown as expired.
#[test]
fn seed_363() {
    run(
        300,
        65536,
        true,
        &[
            Step(
                0,
                Create {
                    store: 0,
                    name: 0,
                    def: Def {
                        keys: 0,
                        kinds: [0, 0, 0],
                        types: [0, 0, 0],
                        tokenizers: [0, 0, 0],
                        maintenance: 2,
                        repair: 2,
                        merging: 3,
                        versions: 0,
                        expiry: 3,
                        old_records: false,
                        point: 0,
                        lenient: false,
                    },
                },
            ),
            Step(
                0,
                Create {
                    store: 0,
                    name: 1,
                    def: Def {
                        keys: 1,
                        kinds: [8, 0, 0],
                        types: [2, 0, 0],
                        tokenizers: [1, 0, 0],
                        maintenance: 1,
                        repair: 2,
                        merging: 2,
                        versions: 0,
                        expiry: 8,
                        old_records: false,
                        point: 0,
                        lenient: false,
                    },
                },
            ),
            Step(
                0,
                BackupDuring {
                    store: 0,
                    set: 0,
                    kept: true,
                    call: 16,
                    writes: list([]),
                    known: true,
                    flush: true,
                },
            ),
            Step(
                32925,
                Over {
                    store: 1,
                    sets: list([1, 1, 1]),
                    writes: list([]),
                    durability: 0,
                },
            ),
            Step(
                0,
                Over {
                    store: 1,
                    sets: list([2, 1, 2]),
                    writes: list([Put {
                        key: 13,
                        cells: [0, 0, 0, 0, 0],
                        pad: 0,
                        style: 0,
                    }]),
                    durability: 2,
                },
            ),
            Step(
                0,
                Tick {
                    store: 2,
                    millis: 2500,
                    confirm: true,
                },
            ),
            Step(
                0,
                Tick {
                    store: 2,
                    millis: -172800000,
                    confirm: false,
                },
            ),
        ],
    );
}

/// A tree that follows another one was compacted below an older run, although the other tree no
/// longer had entries of that run.
#[test]
fn seed_1021() {
    run_with(
        Settings {
            table_size: 8192,
            memory: 16384,
            lock: false,
            choose_every: 40,
            piece_bytes: Some(512),
        },
        &[
            Step(
                0,
                Create {
                    store: 0,
                    name: 0,
                    def: Def {
                        keys: 0,
                        kinds: [4, 0, 0],
                        types: [4, 0, 0],
                        tokenizers: [1, 0, 0],
                        maintenance: 0,
                        repair: 0,
                        merging: 3,
                        versions: 2,
                        expiry: 2,
                        old_records: false,
                        point: 0,
                        lenient: false,
                    },
                },
            ),
            Step(
                0,
                Create {
                    store: 0,
                    name: 1,
                    def: Def {
                        keys: 0,
                        kinds: [4, 4, 0],
                        types: [0, 0, 0],
                        tokenizers: [2, 0, 0],
                        maintenance: 4,
                        repair: 0,
                        merging: 3,
                        versions: 0,
                        expiry: 8,
                        old_records: false,
                        point: 0,
                        lenient: false,
                    },
                },
            ),
            Step(
                0,
                Batch {
                    store: 0,
                    set: 0,
                    writes: list([Put {
                        key: 1,
                        cells: [2, 0, 0, 0, 0],
                        pad: 0,
                        style: 0,
                    }]),
                    durability: 1,
                },
            ),
            Step(
                0,
                Tick {
                    store: 0,
                    millis: 1069,
                    confirm: false,
                },
            ),
            Step(
                0,
                RepairSet {
                    store: 0,
                    set: 0,
                    method: Auto,
                    memory: 1,
                    lookups: 2,
                    bloom: false,
                    inside: Inside {
                        steps: list([]),
                        stop_after: None,
                    },
                },
            ),
            Step(
                0,
                Batch {
                    store: 0,
                    set: 1,
                    writes: list([Put {
                        key: 3,
                        cells: [0, 0, 0, 0, 0],
                        pad: 0,
                        style: 0,
                    }]),
                    durability: 2,
                },
            ),
            Step(
                0,
                Compact {
                    store: 0,
                    set: Some(0),
                },
            ),
            Step(
                0,
                Batch {
                    store: 0,
                    set: 0,
                    writes: list([Put {
                        key: 2,
                        cells: [2, 0, 0, 0, 0],
                        pad: 0,
                        style: 0,
                    }]),
                    durability: 0,
                },
            ),
            Step(
                0,
                Index {
                    store: 0,
                    set: 0,
                    path: 2,
                    kind: 3,
                    tokenizer: 2,
                    change: Add,
                    inside: Inside {
                        steps: list([Step(
                            0,
                            Batch {
                                store: 0,
                                set: 0,
                                writes: list([
                                    Insert {
                                        key: 4,
                                        cells: [2, 0, 0, 255, 2],
                                        pad: 0,
                                        style: 0,
                                    },
                                    Delete { key: 2 },
                                ]),
                                durability: 1,
                            },
                        )]),
                        stop_after: None,
                    },
                },
            ),
            Step(
                0,
                Tick {
                    store: 2,
                    millis: 1761,
                    confirm: false,
                },
            ),
            Step(
                0,
                Batch {
                    store: 0,
                    set: 0,
                    writes: list([Put {
                        key: 14,
                        cells: [0, 0, 0, 0, 0],
                        pad: 0,
                        style: 0,
                    }]),
                    durability: 2,
                },
            ),
        ],
    );
}

/// A reader that was behind did not find the log of the next writer, which could not flush.
#[test]
fn seed_1206() {
    run_with(
        Settings {
            table_size: 300,
            memory: 24576,
            lock: false,
            choose_every: 40,
            piece_bytes: Some(4096),
        },
        &[
            Step(
                0,
                Create {
                    store: 0,
                    name: 0,
                    def: Def {
                        keys: 0,
                        kinds: [7, 4, 0],
                        types: [1, 1, 0],
                        tokenizers: [1, 0, 0],
                        maintenance: 5,
                        repair: 2,
                        merging: 2,
                        versions: 2,
                        expiry: 0,
                        old_records: false,
                        point: 0,
                        lenient: false,
                    },
                },
            ),
            Step(
                23764,
                Batch {
                    store: 0,
                    set: 0,
                    writes: list([
                        Put {
                            key: 4,
                            cells: [1, 0, 0, 0, 2],
                            pad: 0,
                            style: 0,
                        },
                        Put {
                            key: 5,
                            cells: [1, 0, 0, 0, 2],
                            pad: 0,
                            style: 0,
                        },
                    ]),
                    durability: 2,
                },
            ),
            Step(
                0,
                BackupDuring {
                    store: 0,
                    set: 0,
                    kept: false,
                    call: 0,
                    writes: list([
                        Put {
                            key: 1,
                            cells: [5, 4, 0, 3, 199],
                            pad: 0,
                            style: 2,
                        },
                        Put {
                            key: 0,
                            cells: [0, 0, 0, 0, 0],
                            pad: 0,
                            style: 0,
                        },
                    ]),
                    known: true,
                    flush: false,
                },
            ),
            Step(
                0,
                Reopen {
                    store: 0,
                    close: true,
                },
            ),
            Step(
                0,
                Full {
                    store: 0,
                    room: 2000,
                },
            ),
            Step(
                0,
                Batch {
                    store: 0,
                    set: 0,
                    writes: list([
                        Put {
                            key: 2,
                            cells: [0, 0, 0, 0, 182],
                            pad: 0,
                            style: 0,
                        },
                        Put {
                            key: 2,
                            cells: [5, 0, 0, 5, 0],
                            pad: 0,
                            style: 0,
                        },
                        Put {
                            key: 1,
                            cells: [0, 255, 2, 2, 126],
                            pad: 0,
                            style: 2,
                        },
                    ]),
                    durability: 2,
                },
            ),
            Step(
                17462,
                Reopen {
                    store: 0,
                    close: true,
                },
            ),
        ],
    );
}

/// A change in a store that was already closed advanced the store's time; the model did not expect
/// it.
#[test]
fn seed_70279() {
    run_with(
        Settings {
            table_size: 8192,
            memory: 16384,
            lock: true,
            choose_every: 40,
            piece_bytes: Some(512),
        },
        &[
            Step(
                0,
                Create {
                    store: 0,
                    name: 0,
                    def: Def {
                        keys: 0,
                        kinds: [7, 7, 6],
                        types: [0, 0, 0],
                        tokenizers: [1, 0, 0],
                        maintenance: 0,
                        repair: 1,
                        merging: 2,
                        versions: 1,
                        expiry: 1,
                        old_records: false,
                        point: 0,
                        lenient: false,
                    },
                },
            ),
            Step(
                0,
                Over {
                    store: 0,
                    sets: list([0, 0]),
                    writes: list([
                        Put {
                            key: 20,
                            cells: [0, 0, 0, 0, 0],
                            pad: 0,
                            style: 0,
                        },
                        Put {
                            key: 21,
                            cells: [0, 0, 0, 0, 0],
                            pad: 0,
                            style: 0,
                        },
                        Put {
                            key: 22,
                            cells: [0, 0, 0, 0, 0],
                            pad: 0,
                            style: 0,
                        },
                        Put {
                            key: 15,
                            cells: [0, 0, 0, 0, 0],
                            pad: 0,
                            style: 0,
                        },
                    ]),
                    durability: 2,
                },
            ),
            Step(
                0,
                Index {
                    store: 0,
                    set: 0,
                    path: 6,
                    kind: 4,
                    tokenizer: 0,
                    change: Switch,
                    inside: Inside {
                        steps: list([
                            Step(
                                0,
                                Batch {
                                    store: 0,
                                    set: 0,
                                    writes: list([Put {
                                        key: 10,
                                        cells: [255, 3, 0, 2, 2],
                                        pad: 15,
                                        style: 40,
                                    }]),
                                    durability: 2,
                                },
                            ),
                            Step(
                                0,
                                Reopen {
                                    store: 0,
                                    close: true,
                                },
                            ),
                            Step(
                                0,
                                Tick {
                                    store: 0,
                                    millis: 2955,
                                    confirm: false,
                                },
                            ),
                            Step(0, Hold { store: 0, set: 0 }),
                            Step(
                                0,
                                Tick {
                                    store: 2,
                                    millis: -4995,
                                    confirm: false,
                                },
                            ),
                        ]),
                        stop_after: None,
                    },
                },
            ),
        ],
    );
}

/// A reader beside the writer did not see a failed write that the next opening recovered.
#[test]
fn seed_202798() {
    run_with(
        Settings {
            table_size: 300,
            memory: 524288,
            lock: true,
            choose_every: 40,
            piece_bytes: Some(512),
        },
        &[
            Step(
                0,
                Create {
                    store: 0,
                    name: 0,
                    def: Def {
                        keys: 0,
                        kinds: [1, 1, 4],
                        types: [0, 0, 0],
                        tokenizers: [0, 1, 0],
                        maintenance: 2,
                        repair: 1,
                        merging: 3,
                        versions: 2,
                        expiry: 0,
                        old_records: false,
                        point: 0,
                        lenient: false,
                    },
                },
            ),
            Step(
                0,
                Create {
                    store: 0,
                    name: 1,
                    def: Def {
                        keys: 0,
                        kinds: [8, 4, 0],
                        types: [0, 0, 0],
                        tokenizers: [2, 2, 0],
                        maintenance: 2,
                        repair: 0,
                        merging: 2,
                        versions: 0,
                        expiry: 0,
                        old_records: false,
                        point: 0,
                        lenient: false,
                    },
                },
            ),
            Step(
                0,
                Index {
                    store: 0,
                    set: 1,
                    path: 2,
                    kind: 6,
                    tokenizer: 0,
                    change: Add,
                    inside: Inside {
                        steps: list([]),
                        stop_after: None,
                    },
                },
            ),
            Step(
                0,
                Create {
                    store: 1,
                    name: 2,
                    def: Def {
                        keys: 0,
                        kinds: [1, 0, 0],
                        types: [0, 0, 0],
                        tokenizers: [0, 0, 0],
                        maintenance: 2,
                        repair: 0,
                        merging: 3,
                        versions: 1,
                        expiry: 0,
                        old_records: false,
                        point: 0,
                        lenient: false,
                    },
                },
            ),
            Step(0, DropSet { store: 2, set: 0 }),
            Step(
                32801,
                Batch {
                    store: 0,
                    set: 0,
                    writes: list([Put {
                        key: 3,
                        cells: [0, 0, 0, 0, 0],
                        pad: 0,
                        style: 0,
                    }]),
                    durability: 0,
                },
            ),
            Step(
                0,
                Reopen {
                    store: 2,
                    close: true,
                },
            ),
            Step(
                0,
                Fail {
                    store: 1,
                    after: 8,
                    fault: Call,
                },
            ),
            Step(
                0,
                Clear {
                    store: 1,
                    set: 0,
                    durability: 2,
                },
            ),
            Step(
                0,
                Fail {
                    store: 2,
                    after: 17,
                    fault: Call,
                },
            ),
            Step(
                0,
                Batch {
                    store: 1,
                    set: 0,
                    writes: list([Put {
                        key: 3,
                        cells: [0, 0, 0, 0, 0],
                        pad: 0,
                        style: 0,
                    }]),
                    durability: 1,
                },
            ),
            Step(
                54968,
                Reopen {
                    store: 0,
                    close: true,
                },
            ),
        ],
    );
}

/// A power cut left a dataset half dropped, and its consumer kept the log for ever.
#[test]
fn seed_2007984() {
    let settings = Settings {
        table_size: 300,
        memory: 524288,
        lock: false,
        choose_every: 8,
        piece_bytes: Some(4096),
    };
    let def = Def {
        keys: 1,
        kinds: [8, 0, 0],
        types: [3, 0, 0],
        tokenizers: [0, 0, 0],
        maintenance: 0,
        repair: 2,
        merging: 1,
        versions: 0,
        expiry: 0,
        old_records: false,
        point: 0,
        lenient: false,
    };
    let put = Put {
        key: 38,
        cells: [0, 0, 0, 0, 0],
        pad: 0,
        style: 0,
    };
    #[rustfmt::skip]
    run_with(settings, &[
        Step(0, Create { store: 0, name: 0, def }),
        Step(0, Beside { store: 1, writes: list([(62, 0), (212, 1)]), durability: 2 }),
        Step(0, Consume { store: 2, set: 0, name: 1, bytes: 1, most: None, forget: false }),
        Step(0, Cut { store: 2, after: 15, mode: 2, seed: 36367 }),
        Step(0, Over { store: 1, sets: list([1, 2]), writes: list([put]), durability: 0 }),
        Step(0, DropSet { store: 1, set: 0 }),
        Step(0, Flush { store: 2 }),
    ]);
}

/// A reader saw writes that the writer beside it had not recovered.
#[test]
fn seed_2023400() {
    let settings = Settings {
        table_size: 8192,
        memory: 524288,
        lock: false,
        choose_every: 8,
        piece_bytes: None,
    };
    #[rustfmt::skip]
    run_with(settings, &[
        Step(0, Cut { store: 0, after: 108, mode: 0, seed: 3393 }),
        Step(0, Create { store: 0, name: 1, def: Def { keys: 0, kinds: [3, 0, 0], types: [1, 0, 0], tokenizers: [0, 0, 0], maintenance: 4, repair: 1, merging: 1, versions: 2, expiry: 2, old_records: false, point: 0, lenient: false } }),
        Step(0, DropSet { store: 0, set: 0 }),
        Step(0, Create { store: 0, name: 1, def: Def { keys: 1, kinds: [5, 6, 0], types: [3, 4, 0], tokenizers: [2, 0, 0], maintenance: 4, repair: 0, merging: 3, versions: 0, expiry: 3, old_records: false, point: 0, lenient: false } }),
        Step(56399, Batch { store: 0, set: 0, writes: list([Put { key: 3, cells: [173, 0, 0, 0, 0], pad: 19, style: 16 }]), durability: 2 }),
        Step(0, Compact { store: 0, set: None }),
        Step(0, Batch { store: 0, set: 0, writes: list([Put { key: 0, cells: [0, 0, 0, 0, 0], pad: 0, style: 0 }]), durability: 2 }),
        Step(0, Strategy { store: 0, set: 0, to: 3, inside: Inside { steps: list([Step(62371, Tick { store: 0, millis: -2639, confirm: false }), Step(0, Tick { store: 0, millis: 2708, confirm: false })]), stop_after: None } }),
        Step(0, Batch { store: 0, set: 0, writes: list([Put { key: 6, cells: [5, 0, 0, 0, 0], pad: 0, style: 0 }]), durability: 2 }),
        Step(0, Clear { store: 0, set: 0, durability: 2 }),
        Step(12305, Expire { store: 1, set: 0 }),
        Step(0, Compact { store: 0, set: None }),
        Step(0, Full { store: 0, room: 2000 }),
        Step(0, Batch { store: 0, set: 0, writes: list([Put { key: 4, cells: [0, 4, 0, 0, 0], pad: 0, style: 0 }]), durability: 2 }),
        Step(0, Snapshot { store: 0, name: 2, drops: true }),
        Step(0, Batch { store: 0, set: 0, writes: list([Put { key: 3, cells: [5, 0, 4, 5, 0], pad: 4, style: 18 }]), durability: 2 }),
        Step(0, Tick { store: 2, millis: 1539, confirm: false }),
        Step(0, Expire { store: 2, set: 0 }),
        Step(0, Fail { store: 0, after: 1, fault: Short }),
        Step(0, Clear { store: 0, set: 0, durability: 2 }),
        Step(0, CutInstalled { store: 0, after: 1, mode: 3, seed: 9653 }),
    ]);
}

/// The next opening saw a drop whose sync had failed and released the dataset's consumers; then a
/// power cut undid the drop.
#[test]
fn seed_3003854() {
    let settings = Settings {
        table_size: 300,
        memory: 65536,
        lock: false,
        choose_every: 8192,
        piece_bytes: Some(512),
    };
    #[rustfmt::skip]
    run_with(settings, &[
        Step(0, Create { store: 0, name: 2, def: Def { keys: 1, kinds: [5, 8, 7], types: [4, 4, 4], tokenizers: [0, 1, 1], maintenance: 3, repair: 1, merging: 2, versions: 1, expiry: 14, old_records: false, point: 0, lenient: false } }),
        Step(0, Consume { store: 0, set: 1, name: 0, bytes: 4, most: None, forget: false }),
        Step(0, Fail { store: 0, after: 10, fault: Sync }),
        Step(0, DropSet { store: 1, set: 1 }),
        Step(0, Reopen { store: 0, close: true }),
        Step(0, Cut { store: 0, after: 0, mode: 0, seed: 36455 }),
    ]);
}
