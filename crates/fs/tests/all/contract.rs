//! Every file system keeps the contract of [`esker_fs::Fs`], and those of tests fail as a test
//! orders.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

use std::io::ErrorKind;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use esker_fs::disk::Disk;
use esker_fs::{Fs, ReadFile, ReadRequest, read_many};
use esker_sim::faulty::Faulty;
use esker_sim::memory::{Memory, PowerCut};

const MODES: [PowerCut; 5] = [
    PowerCut::Lost,
    PowerCut::Kept,
    PowerCut::Torn,
    PowerCut::Reordered,
    PowerCut::Untruncated,
];

fn contents(fs: &dyn Fs, path: &Path) -> Vec<u8> {
    let file = fs.open(path).unwrap();
    let mut bytes = vec![0; file.len().unwrap() as usize];
    file.read_at(0, &mut bytes).unwrap();
    bytes
}

fn names(fs: &dyn Fs, dir: &Path) -> Vec<String> {
    fs.list(dir)
        .unwrap()
        .iter()
        .map(|name| name.display().to_string())
        .collect()
}

fn random_bytes(rng: &mut fastrand::Rng, len: usize) -> Vec<u8> {
    (0..len).map(|_| rng.u8(..)).collect()
}

/// The contract of every file system.
fn behaves(fs: &dyn Fs, root: &Path) {
    let dir = root.join("a/b");
    let path = |name: &str| dir.join(name);
    assert_eq!(
        fs.create(&path("x")).err().unwrap().kind(),
        ErrorKind::NotFound
    );
    fs.create_dir(&dir).unwrap();
    fs.create_dir(&dir).unwrap();
    assert!(fs.exists(&dir) && !fs.exists(&path("x")));
    assert_eq!(
        fs.open(&path("x")).err().unwrap().kind(),
        ErrorKind::NotFound
    );
    assert_eq!(
        fs.remove(&path("x")).unwrap_err().kind(),
        ErrorKind::NotFound
    );
    assert_eq!(
        fs.rename(&path("x"), &path("y")).unwrap_err().kind(),
        ErrorKind::NotFound
    );
    assert_eq!(
        fs.link(&path("x"), &path("y")).unwrap_err().kind(),
        ErrorKind::NotFound
    );
    assert_eq!(
        fs.list(&root.join("none")).unwrap_err().kind(),
        ErrorKind::NotFound
    );

    let file = fs.create(&path("x")).unwrap();
    file.append(b"hello ").unwrap();
    file.append(b"wurld").unwrap();
    file.truncate(7).unwrap();
    file.append(b"orld").unwrap();
    file.sync().unwrap();
    fs.sync_dir(&dir).unwrap();
    assert_eq!(contents(fs, &path("x")), b"hello world");

    let reader = fs.open(&path("x")).unwrap();
    assert!(!reader.is_empty().unwrap());
    let mut buf = [0; 5];
    reader.read_at(6, &mut buf).unwrap();
    assert_eq!(&buf, b"world");
    reader.read_at(11, &mut []).unwrap();
    for offset in [7, 11, 12, 5000, 1 << 40] {
        let error = reader.read_at(offset, &mut buf).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::UnexpectedEof, "offset {offset}");
    }

    // What is reserved is not seen.
    file.reserve(1 << 20).unwrap();
    assert_eq!(contents(fs, &path("x")), b"hello world");
    file.append(b"s").unwrap();
    fs.unreserve(&path("x")).unwrap();
    assert_eq!(contents(fs, &path("x")), b"hello worlds");
    file.truncate(11).unwrap();

    // What is not written over stays.
    fs.create(&path("o"))
        .unwrap()
        .append(b"former bytes")
        .unwrap();
    let over = fs.overwrite(&path("o")).unwrap();
    over.append(b"new").unwrap();
    over.append(b"er").unwrap();
    over.sync().unwrap();
    assert_eq!(contents(fs, &path("o")), b"newerr bytes");
    over.truncate(5).unwrap();
    over.append(b"!").unwrap();
    assert_eq!(contents(fs, &path("o")), b"newer!");
    fs.remove(&path("o")).unwrap();
    let missing = fs.overwrite(&path("o")).map(drop).unwrap_err();
    assert_eq!(missing.kind(), ErrorKind::NotFound);

    fs.link(&path("x"), &path("linked")).unwrap();
    assert_eq!(
        fs.link(&path("x"), &path("linked")).unwrap_err().kind(),
        ErrorKind::AlreadyExists
    );
    fs.create(&path("z")).unwrap().append(b"zz").unwrap();
    fs.create_dir(&path("folder")).unwrap();
    assert_eq!(names(fs, &dir), ["linked", "x", "z"]);
    fs.rename(&path("z"), &path("x")).unwrap();
    assert_eq!(contents(fs, &path("x")), b"zz");
    reader.read_at(0, &mut buf).unwrap();
    assert_eq!(&buf, b"hello", "an open file outlives its name");
    fs.remove(&path("x")).unwrap();
    assert_eq!(names(fs, &dir), ["linked"]);
    assert_eq!(contents(fs, &path("linked")), b"hello world");

    assert_eq!(
        fs.punch(&path("x"), 0..4).unwrap_err().kind(),
        ErrorKind::NotFound
    );
    // Given back: as before, or zeros. The rest stays.
    fs.punch(&path("linked"), 2..5).unwrap();
    fs.punch(&path("linked"), 9..9).unwrap();
    let left = contents(fs, &path("linked"));
    assert!(
        left == b"hello world" || left == b"he\0\0\0 world",
        "{left:?}"
    );
    fs.punch(&path("linked"), 8..1 << 40).unwrap();
    assert_eq!(contents(fs, &path("linked")).len(), 11);

    fs.create(&path("linked")).unwrap();
    assert!(fs.open(&path("linked")).unwrap().is_empty().unwrap());

    let held = fs.lock(&path("LOCK")).unwrap();
    assert_eq!(
        fs.lock(&path("LOCK")).err().unwrap().kind(),
        ErrorKind::WouldBlock
    );
    drop(held);
    drop(fs.lock(&path("LOCK")).unwrap());
}

#[test]
fn every_file_system_behaves() {
    for disk in [Disk::new(), Disk::direct()] {
        let temp = tempfile::tempdir().unwrap();
        behaves(&disk, temp.path());
    }
    behaves(&Memory::new(), Path::new("/store"));
    behaves(&Memory::new(), Path::new("store"));
    behaves(&Faulty::new(Arc::new(Memory::new())), Path::new("/store"));
}

#[test]
fn direct_reads_give_the_bytes_of_buffered_ones() {
    let seed = 11;
    let mut rng = fastrand::Rng::with_seed(seed);
    // The system's temporary folder may not support direct reads; that of the build usually does.
    for temp in [
        tempfile::tempdir().unwrap(),
        tempfile::tempdir_in(".").unwrap(),
    ] {
        let path = temp.path().join("file");
        for len in [0, 1, 4095, 4096, 4097, 3 << 20, (2 << 20) + 77] {
            let bytes = random_bytes(&mut rng, len);
            let disk = Disk::direct();
            disk.create(&path).unwrap().append(&bytes).unwrap();
            let file = disk.open(&path).unwrap();
            assert_eq!(contents(&disk, &path), bytes);
            for _ in 0..50 {
                let from = rng.usize(..=len);
                let most = rng.usize(1..2_000_000);
                let n = rng.usize(..=most.min(len - from));
                let mut buf = vec![0; n];
                file.read_at(from as u64, &mut buf).unwrap();
                assert!(
                    buf == bytes[from..from + n],
                    "seed {seed}, {n} bytes at {from} of {len}"
                );
            }
            let error = file.read_at(len as u64, &mut [0]).unwrap_err();
            assert_eq!(error.kind(), ErrorKind::UnexpectedEof);
        }
    }
}

/// Where the file system of the build can do it.
#[cfg(target_os = "linux")]
#[test]
fn what_is_given_back_takes_no_room() {
    use std::os::unix::fs::MetadataExt;
    let temp = tempfile::tempdir_in(".").unwrap();
    let path = temp.path().join("file");
    let disk = Disk::new();
    let file = disk.create(&path).unwrap();
    file.append(&vec![7; 4 << 20]).unwrap();
    file.sync().unwrap();
    let blocks = || std::fs::metadata(&path).unwrap().blocks() * 512;
    let before = blocks();
    disk.punch(&path, 1 << 20..3 << 20).unwrap();
    let left = contents(&disk, &path);
    assert!(left.len() == 4 << 20 && left[..1 << 20].iter().all(|byte| *byte == 7));
    if left[1 << 20] == 0 {
        assert!(left[1 << 20..3 << 20].iter().all(|byte| *byte == 0));
        assert!(left[3 << 20..].iter().all(|byte| *byte == 7));
        assert!(blocks() + (1 << 20) < before, "{} of {before}", blocks());
    }
}

/// Where the file system of the build can do it.
#[cfg(target_os = "linux")]
#[test]
fn what_is_reserved_takes_room_until_it_is_given_back() {
    use std::os::unix::fs::MetadataExt;
    let temp = tempfile::tempdir_in(".").unwrap();
    let path = temp.path().join("file");
    let disk = Disk::new();
    let file = disk.create(&path).unwrap();
    file.append(b"0123456789").unwrap();
    file.reserve(4 << 20).unwrap();
    let blocks = || std::fs::metadata(&path).unwrap().blocks() * 512;
    let reserved = blocks();
    file.append(&vec![7; 1 << 20]).unwrap();
    file.sync().unwrap();
    assert_eq!(contents(&disk, &path).len(), 10 + (1 << 20));
    if reserved >= 4 << 20 {
        assert!(
            blocks() <= reserved + (64 << 10),
            "{} of {reserved}",
            blocks()
        );
        disk.unreserve(&path).unwrap();
        assert!(blocks() < 2 << 20, "{} of {reserved}", blocks());
    }
    let left = contents(&disk, &path);
    assert!(left.starts_with(b"0123456789") && left[10..].iter().all(|byte| *byte == 7));
    file.append(b"more").unwrap();
    assert_eq!(contents(&disk, &path).len(), 14 + (1 << 20));
}

#[test]
fn what_is_reserved_is_counted_and_may_find_no_room() {
    let fs = Faulty::new(Arc::new(Memory::new()));
    let path = Path::new("f");
    let file = fs.create(path).unwrap();
    file.append(b"0123456789").unwrap();
    fs.set_capacity(100);
    assert_eq!(file.reserve(91).unwrap_err().kind(), ErrorKind::StorageFull);
    assert_eq!(fs.used(), 10);
    file.reserve(90).unwrap();
    assert_eq!(fs.used(), 100);
    file.append(&[7; 40]).unwrap();
    assert_eq!(fs.used(), 100);
    let other = fs.create(Path::new("g")).unwrap();
    other.append(b"x").unwrap_err();
    fs.unreserve(path).unwrap();
    assert_eq!(fs.used(), 50);
    other.append(b"x").unwrap();
    fs.fail_at(1);
    file.reserve(1).unwrap_err();
}

#[test]
fn what_is_given_back_is_counted_fails_and_does_not_come_back() {
    let memory = Memory::new();
    let fs = Faulty::new(Arc::new(memory.clone()));
    let path = Path::new("f");
    let file = fs.create(path).unwrap();
    file.append(b"0123456789").unwrap();
    fs.fail_at(1);
    fs.punch(path, 0..2).unwrap_err();
    fs.punch(path, 2..4).unwrap();
    fs.punch(path, 8..20).unwrap();
    assert_eq!(memory.punched(), 4);
    file.sync().unwrap();
    fs.sync_dir(Path::new("")).unwrap();
    for mode in MODES {
        let left = memory.power_cut(1, mode).read(path).unwrap();
        assert_eq!(left, b"01\0\x004567\0\0", "{mode:?}");
    }
}

#[cfg(unix)]
#[test]
fn a_lock_without_write_permission() {
    use std::os::unix::fs::PermissionsExt;
    let temp = tempfile::tempdir().unwrap();
    let path = temp.path().join("LOCK");
    let disk = Disk::new();
    drop(disk.lock(&path).unwrap());
    std::fs::set_permissions(&path, PermissionsExt::from_mode(0o444)).unwrap();
    std::fs::set_permissions(temp.path(), PermissionsExt::from_mode(0o555)).unwrap();
    let held = disk.lock(&path).unwrap();
    assert_eq!(
        disk.lock(&path).err().unwrap().kind(),
        ErrorKind::WouldBlock
    );
    drop(held);
    std::fs::set_permissions(temp.path(), PermissionsExt::from_mode(0o755)).unwrap();
}

#[test]
fn a_power_cut_keeps_what_was_synced() {
    let mut rng = fastrand::Rng::with_seed(12);
    for seed in 0..400 {
        let fs = Memory::new();
        let path = Path::new("f");
        let file = fs.create(path).unwrap();
        let synced = random_bytes(&mut rng, seed as usize * 3);
        let tail = random_bytes(&mut rng, 2000);
        file.append(&synced).unwrap();
        file.sync().unwrap();
        fs.sync_dir(Path::new("")).unwrap();
        file.append(&tail).unwrap();
        let whole = [&synced[..], &tail].concat();
        for mode in MODES {
            let left = fs.power_cut(seed, mode).read(path).unwrap();
            assert_eq!(
                left,
                fs.power_cut(seed, mode).read(path).unwrap(),
                "same seed, same luck"
            );
            assert!(
                left.starts_with(&synced) && left.len() <= whole.len(),
                "{mode:?} {seed}"
            );
            let sector = |n: usize| n / 512 * 512;
            match mode {
                PowerCut::Lost => assert_eq!(left, synced),
                PowerCut::Kept | PowerCut::Untruncated => assert_eq!(left, whole),
                PowerCut::Torn => {
                    let sure = sector(left.len().saturating_sub(1));
                    assert_eq!(left[..sure], whole[..sure]);
                }
                PowerCut::Reordered => {
                    let mut at = synced.len();
                    while at < left.len() {
                        let end = (sector(at) + 512).min(left.len());
                        let kept = left[at..end] == whole[at..end];
                        assert!(
                            kept || left[at..end].iter().all(|b| *b == 0),
                            "{seed} at {at}"
                        );
                        at = end;
                    }
                }
            }
        }
        assert_eq!(
            fs.read(path).unwrap(),
            whole,
            "the file system before the cut is unchanged"
        );
    }
}

#[test]
fn a_power_cut_keeps_a_prefix_of_the_name_changes() {
    let fs = Memory::new();
    let dir = Path::new("/d");
    let path = |name: &str| dir.join(name);
    fs.write(&path("CURRENT"), b"1");
    fs.write(&path("old"), b"old");
    let file = fs.create(&path("tmp")).unwrap();
    file.append(b"2").unwrap();
    file.sync().unwrap();
    fs.rename(&path("tmp"), &path("CURRENT")).unwrap();
    fs.remove(&path("old")).unwrap();
    fs.create(&path("new"))
        .unwrap()
        .append(b"never synced")
        .unwrap();

    let look = |seed, mode| {
        let left = fs.power_cut(seed, mode);
        (names(&left, dir), left.read(&path("CURRENT")).unwrap())
    };
    let states = [
        (vec!["CURRENT", "old"], b"1"),
        (vec!["CURRENT", "old", "tmp"], b"1"),
        (vec!["CURRENT", "old"], b"2"),
        (vec!["CURRENT"], b"2"),
        (vec!["CURRENT", "new"], b"2"),
    ];
    let states = states.map(|(names, b)| {
        (
            names
                .iter()
                .map(|name| name.to_string())
                .collect::<Vec<_>>(),
            b.to_vec(),
        )
    });
    assert_eq!(look(0, PowerCut::Lost), states[0]);
    assert_eq!(look(0, PowerCut::Kept), states[4]);
    let mut seen = [false; 5];
    let mut new_was_empty = false;
    for seed in 0..200 {
        let state = look(seed, PowerCut::Torn);
        seen[states.iter().position(|s| *s == state).unwrap()] = true;
        let left = fs.power_cut(seed, PowerCut::Torn);
        new_was_empty |= left
            .read(&path("new"))
            .is_some_and(|bytes| bytes.is_empty());
    }
    assert_eq!((seen, new_was_empty), ([true; 5], true));

    fs.sync_dir(dir).unwrap();
    let left = fs.power_cut(0, PowerCut::Lost);
    assert_eq!(left.paths(), [path("CURRENT"), path("new")]);
    assert_eq!(left.read(&path("new")).unwrap(), b"");
}

#[test]
fn a_cut_back_tail_may_come_back_until_a_sync() {
    let fs = Memory::new();
    let path = Path::new("f");
    fs.write(path, b"");
    let file = fs.create(path).unwrap();
    file.append(b"durable").unwrap();
    file.sync().unwrap();
    file.append(b"failed").unwrap();
    file.truncate(7).unwrap();
    let left = |mode| -> Vec<_> {
        (0..200)
            .map(|seed| fs.power_cut(seed, mode).read(path).unwrap())
            .collect()
    };
    assert!(
        left(PowerCut::Torn)
            .iter()
            .any(|bytes| bytes == b"durablefailed")
    );
    assert!(
        left(PowerCut::Torn)
            .iter()
            .all(|bytes| bytes.starts_with(b"durable"))
    );
    assert!(left(PowerCut::Lost).iter().all(|bytes| bytes == b"durable"));
    let untruncated = |fs: &Memory| fs.power_cut(0, PowerCut::Untruncated).read(path).unwrap();
    assert_eq!(untruncated(&fs), b"durablefailed");
    file.truncate(3).unwrap();
    file.append(b"behind").unwrap();
    assert_eq!(untruncated(&fs), b"durablefailed");
    assert!(left(PowerCut::Lost).iter().all(|bytes| bytes == b"durable"));
    assert!(
        left(PowerCut::Kept)
            .iter()
            .all(|bytes| bytes == b"durbehind")
    );
    file.sync().unwrap();
    for mode in MODES {
        assert!(
            left(mode).iter().all(|bytes| bytes == b"durbehind"),
            "{mode:?}"
        );
    }
}

#[test]
fn a_power_cut_keeps_links_and_releases_locks() {
    let fs = Memory::new();
    fs.write(Path::new("a"), b"bytes");
    fs.link(Path::new("a"), Path::new("b")).unwrap();
    let _held = fs.lock(Path::new("LOCK")).unwrap();
    let left = fs.power_cut(1, PowerCut::Kept);
    left.write(Path::new("a"), b"more");
    assert_eq!(left.read(Path::new("b")).unwrap(), b"more");
    assert_eq!(fs.read(Path::new("b")).unwrap(), b"bytes");
    left.lock(Path::new("LOCK")).unwrap();
}

#[test]
fn calls_fail_on_command() {
    let memory = Memory::new();
    let fs = Faulty::new(Arc::new(memory.clone()));
    let path = Path::new("f");
    let file = fs.create(path).unwrap();
    file.append(b"1").unwrap();
    assert_eq!(fs.calls(), 2);
    fs.fail_at(2);
    file.append(b"2").unwrap();
    assert_eq!(file.append(b"no").unwrap_err().raw_os_error(), Some(5));
    file.append(b"3").unwrap();
    fs.short_writes(true);
    fs.fail_at(1);
    file.append(b"half").unwrap_err();
    assert_eq!(memory.read(path).unwrap(), b"123ha");
    fs.fill_late_at(2);
    file.append(b"l").unwrap();
    let error = file.append(b"f").unwrap_err();
    assert_eq!(error.kind(), ErrorKind::StorageFull);
    file.append(b"!").unwrap();
    assert_eq!(memory.read(path).unwrap(), b"123half!");

    fs.fail_from(2);
    file.truncate(3).unwrap();
    for _ in 0..3 {
        fs.remove(path).unwrap_err();
        fs.rename(path, Path::new("g")).unwrap_err();
        fs.sync_dir(Path::new("")).unwrap_err();
        fs.create(path).err().unwrap();
    }
    assert_eq!(contents(&fs, path), b"123", "reads go on");
    fs.clear();
    fs.fail_reads_at(2);
    let reader = fs.open(path).unwrap();
    reader.read_at(0, &mut [0]).unwrap_err();
    reader.read_at(0, &mut [0]).unwrap();
}

#[test]
fn a_sync_after_a_failed_one_lies() {
    let memory = Memory::new();
    let fs = Faulty::new(Arc::new(memory.clone()));
    let path = Path::new("f");
    let file = fs.create(path).unwrap();
    fs.sync_dir(Path::new("")).unwrap();
    file.append(b"data").unwrap();
    fs.fail_sync_once();
    file.sync().unwrap_err();
    file.sync().unwrap();
    assert_eq!(memory.power_cut(0, PowerCut::Lost).read(path).unwrap(), b"");
}

#[test]
fn a_full_disk_takes_what_fits() {
    let memory = Memory::new();
    let fs = Faulty::new(Arc::new(memory.clone()));
    let path = |name: &str| PathBuf::from(name);
    fs.set_capacity(10);
    let a = fs.create(&path("a")).unwrap();
    a.append(b"123456").unwrap();
    let b = fs.create(&path("b")).unwrap();
    assert_eq!(
        b.append(b"abcdef").unwrap_err().kind(),
        ErrorKind::StorageFull
    );
    assert_eq!(
        (memory.read(&path("b")).unwrap(), fs.used()),
        (b"abcd".to_vec(), 10)
    );
    b.truncate(0).unwrap();
    b.append(b"ab").unwrap();
    fs.link(&path("a"), &path("a2")).unwrap();
    fs.remove(&path("a")).unwrap();
    drop(a);
    assert_eq!(fs.used(), 8, "the link holds the bytes");
    fs.rename(&path("b"), &path("a2")).unwrap();
    assert_eq!(fs.used(), 2);
    fs.create(&path("a2")).unwrap();
    assert_eq!(fs.used(), 0);
    fs.set_capacity(0);
    assert_eq!(b.append(b"x").unwrap_err().kind(), ErrorKind::StorageFull);
}

/// Reads `requests` (file, offset, length) in one batch and one by one, and compares.
fn reads_agree(files: &[Arc<dyn ReadFile>], requests: &[(usize, u64, usize)]) {
    let batch: Vec<ReadRequest<'_>> = requests
        .iter()
        .map(|&(file, offset, len)| ReadRequest {
            file: &*files[file],
            offset,
            len,
        })
        .collect();
    let mut seen = vec![0; batch.len()];
    read_many(&batch, &mut |at, read| {
        seen[at] += 1;
        let request = &batch[at];
        let mut alone = vec![0; request.len];
        match request.file.read_at(request.offset, &mut alone) {
            Ok(()) => assert!(read.unwrap() == alone, "request {at}"),
            Err(error) => assert_eq!(read.unwrap_err().kind(), error.kind(), "request {at}"),
        }
    });
    assert!(seen.iter().all(|times| *times == 1), "{seen:?}");
}

#[test]
fn reads_together_are_the_reads_one_by_one() {
    let dir = tempfile::tempdir().unwrap();
    let mut rng = fastrand::Rng::with_seed(5);
    let memory = Memory::new();
    let sizes = [0, 1, 4096, 70_000, 3 << 20];
    let mut files: Vec<Arc<dyn ReadFile>> = Vec::new();
    for (n, size) in sizes.into_iter().enumerate() {
        let bytes: Vec<u8> = (0..size).map(|_| rng.u8(..)).collect();
        let path = dir.path().join(n.to_string());
        std::fs::write(&path, &bytes).unwrap();
        files.push(Disk::new().open(&path).unwrap());
        files.push(Disk::direct().open(&path).unwrap());
        let path = Path::new("/").join(n.to_string());
        memory.create(&path).unwrap().append(&bytes).unwrap();
        files.push(memory.open(&path).unwrap());
    }
    let pick = |rng: &mut fastrand::Rng| {
        let file = rng.usize(..files.len());
        let size = sizes[file / 3];
        // Some ranges begin or end beyond the end of the file.
        let offset = rng.u64(..=size as u64 + 10);
        let len = match rng.u8(..20) {
            0 => rng.usize(..2 << 20),
            1 => 0,
            _ => rng.usize(..9000),
        };
        (file, offset, len)
    };
    for count in [0, 1, 2, 3, 63, 64, 65, 300] {
        let requests: Vec<_> = (0..count).map(|_| pick(&mut rng)).collect();
        reads_agree(&files, &requests);
    }
    std::thread::scope(|scope| {
        for seed in 0..6 {
            let (files, pick) = (&files, &pick);
            scope.spawn(move || {
                let mut rng = fastrand::Rng::with_seed(seed);
                for _ in 0..10 {
                    let requests: Vec<_> = (0..20).map(|_| pick(&mut rng)).collect();
                    reads_agree(files, &requests);
                }
            });
        }
    });
}

#[test]
fn a_visitor_may_read_together_as_well() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("f");
    std::fs::write(&path, b"abcdef").unwrap();
    let file = Disk::new().open(&path).unwrap();
    let requests = [0, 2].map(|offset| ReadRequest {
        file: &*file,
        offset,
        len: 2,
    });
    let mut inner = Vec::new();
    read_many(&requests, &mut |_, read| {
        let outer = read.unwrap().to_vec();
        read_many(&requests, &mut |_, read| inner.push(read.unwrap().to_vec()));
        inner.push(outer);
    });
    inner.sort();
    assert_eq!(inner, [b"ab", b"ab", b"ab", b"cd", b"cd", b"cd"]);
}

/// A process started before the lock is released holds a copy of the file for a moment.
#[test]
fn a_lock_ends_with_its_handle_though_processes_are_started_meanwhile() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("LOCK");
    let done = std::sync::atomic::AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            for _ in 0..100 {
                let _ = std::process::Command::new("true").status();
            }
            done.store(true, std::sync::atomic::Ordering::SeqCst);
        });
        while !done.load(std::sync::atomic::Ordering::SeqCst) {
            let lock = Disk::new().lock(&path);
            assert!(lock.is_ok(), "{:?}", lock.err());
        }
    });
}
