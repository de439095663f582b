//! Files as memory: the bytes of the file, for as long as the map lives, and no map where the file
//! is not ours alone.
#![allow(clippy::unwrap_used)]

use std::io::ErrorKind;
use std::path::Path;
use std::sync::Arc;

use esker_fs::disk::Disk;
use esker_fs::{Extent, Fs, Mapped, ReadFile};
use esker_sim::faulty::Faulty;
use esker_sim::hooked::Hooked;
use esker_sim::memory::Memory;

fn write(fs: &dyn Fs, path: &Path, bytes: &[u8]) {
    let file = fs.create(path).unwrap();
    file.append(bytes).unwrap();
    file.sync().unwrap();
}

fn kind<T>(result: std::io::Result<T>) -> Option<ErrorKind> {
    result.err().map(|error| error.kind())
}

/// Longer than a page, of a length that is no multiple of one.
fn long() -> Vec<u8> {
    (0..10_000_u32).map(|n| (n / 7) as u8).collect()
}

fn has(map: &dyn Mapped, bytes: &[u8]) {
    let len = bytes.len() as u64;
    assert_eq!(map.as_ref(), bytes);
    for (start, end) in [(0, len), (0, 0), (len, len), (len / 2, len), (len - 1, len)] {
        let part = map.touch(start..end).unwrap();
        assert_eq!(part, &bytes[start as usize..end as usize]);
        map.will_need(start..end);
    }
    assert_eq!(kind(map.touch(0..len + 1)), Some(ErrorKind::UnexpectedEof));
    let behind = u64::MAX - 1..u64::MAX;
    assert_eq!(
        kind(map.touch(behind.clone())),
        Some(ErrorKind::UnexpectedEof)
    );
    map.will_need(behind);
}

fn maps(fs: &dyn Fs, dir: &Path) {
    let (path, bytes) = (dir.join("file"), long());
    write(fs, &path, &bytes);
    let file = fs.open(&path).unwrap();
    let map = file.map().unwrap();
    has(&*map, &bytes);
    // Ranges of it, also one that the file ends in.
    for (base, len) in [(0, 10_000), (1, 4096), (4097, 3000)] {
        let extent = Extent::new(Arc::clone(&file), base, len);
        let part = &bytes[base as usize..(base + len) as usize];
        has(&*extent.map().unwrap(), part);
    }
    let ends = Extent::new(Arc::clone(&file), 9000, 2000).map().unwrap();
    assert_eq!((*ends).as_ref(), &bytes[9000..]);
    assert_eq!(kind(ends.touch(0..1001)), Some(ErrorKind::UnexpectedEof));
    let behind = Extent::new(file, 20_000, 10).map().unwrap();
    assert!((*behind).as_ref().is_empty());
    // It outlives the file's name, and the open file.
    fs.remove(&path).unwrap();
    has(&*map, &bytes);
}

#[test]
fn a_map_has_the_bytes_of_the_file() {
    let memory = Memory::new();
    memory.create_dir(Path::new("/dir")).unwrap();
    let memory: Arc<dyn Fs> = Arc::new(memory);
    maps(&*memory, Path::new("/dir"));
    maps(&Faulty::new(Arc::clone(&memory)), Path::new("/dir"));
    maps(&Hooked::new(memory), Path::new("/dir"));
    if cfg!(target_os = "linux") {
        let dir = tempfile::tempdir().unwrap();
        maps(&Disk::new(), dir.path());
    }
}

#[test]
fn touches_fail_as_a_test_orders() {
    let faulty = Faulty::new(Arc::new(Memory::new()));
    faulty.create_dir(Path::new("/dir")).unwrap();
    let path = Path::new("/dir/file");
    write(&faulty, path, &long());
    let map = faulty.open(path).unwrap().map().unwrap();
    let reads = faulty.reads();
    faulty.fail_range(path, 100..200);
    assert!(map.touch(0..101).is_err() && map.touch(199..300).is_err());
    assert!(map.touch(0..100).is_ok() && map.touch(200..300).is_ok());
    assert_eq!(faulty.reads(), reads + 4);
    faulty.clear();
    faulty.fail_reads_at(2);
    assert!(map.touch(0..1).is_ok() && map.touch(0..1).is_err() && map.touch(0..1).is_ok());
    faulty.refuse_maps(true);
    assert!(faulty.open(path).unwrap().map().is_none());
}

#[cfg(target_os = "linux")]
#[test]
fn files_that_others_may_truncate_and_direct_ones_are_not_mapped() {
    use std::fs::Permissions;
    use std::os::unix::fs::PermissionsExt;

    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("file");
    write(&Disk::new(), &path, &long());
    let is_mapped = |fs: Disk| fs.open(&path).unwrap().map().is_some();
    for (mode, mapped) in [(0o644, true), (0o660, true), (0o666, false), (0o602, false)] {
        std::fs::set_permissions(&path, Permissions::from_mode(mode)).unwrap();
        assert_eq!(is_mapped(Disk::new()), mapped, "{mode:o}");
    }
    std::fs::set_permissions(&path, Permissions::from_mode(0o600)).unwrap();
    assert!(is_mapped(Disk::new()) && !is_mapped(Disk::direct()));
    write(&Disk::new(), &path, b"");
    assert!(!is_mapped(Disk::new()));
}
