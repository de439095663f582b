//! A small batch that is alone is written and synced by the thread that brought it; one that comes
//! with others is not.

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use esker_sim::hooked::{Call, Hooked};
use esker_sim::memory::Memory;
use esker_volume::nbd::{Client, Operation};

use super::memory::{create, node_on};

/// How many syncs of segments the threads of NBD connections did, and the thread of the disk.
#[derive(Default)]
struct Syncs {
    own: AtomicU64,
    disk: AtomicU64,
}

impl Syncs {
    fn note(&self, call: Call, path: &Path) {
        let is_segment = path.extension().is_some_and(|end| end == "seg");
        if call != Call::Sync || !is_segment {
            return;
        }
        match std::thread::current().name() {
            Some("nbd-requests") => self.own.fetch_add(1, Ordering::SeqCst),
            Some("volume-disk") => self.disk.fetch_add(1, Ordering::SeqCst),
            _ => 0,
        };
    }

    fn both(&self) -> (u64, u64) {
        let of = |count: &AtomicU64| count.load(Ordering::SeqCst);
        (of(&self.own), of(&self.disk))
    }
}

fn write(number: u64) -> Operation {
    Operation::Write {
        offset: number * 4096,
        data: vec![number as u8; 4096],
        fua: true,
    }
}

#[test]
fn who_writes_alone_syncs_and_who_does_not_leaves_it_to_the_disk() {
    let (hooked, syncs) = (
        Hooked::new(Arc::new(Memory::new())),
        Arc::<Syncs>::default(),
    );
    let counted = syncs.clone();
    hooked.set(move |call, path| {
        counted.note(call, path);
        Ok(())
    });
    let node = node_on(Arc::new(hooked));
    drop(create(&node.address().to_string(), 4 << 20));
    let address = node.nbd_address().unwrap().to_string();
    let mut client = Client::connect(&address, "disk").unwrap();
    for number in 0..200 {
        client.write(number * 4096, &[number as u8; 4096]).unwrap();
    }
    let (own, _) = syncs.both();
    assert!(own > 0, "no thread of a connection has synced");
    // Many at a time: whoever brings one is not alone. The first one may be.
    let before = syncs.both();
    let all = (200..1000).map(write);
    client
        .pipeline(all, 64, |_, done| assert!(done.is_ok()))
        .unwrap();
    let after = syncs.both();
    assert!(after.1 > before.1, "{before:?}, {after:?}");
    for number in 0..1000_u64 {
        let data = client.read(number * 4096, 4096).unwrap();
        assert!(data.iter().all(|byte| *byte == number as u8), "{number}");
    }
    drop(client);
    node.stop();
}
