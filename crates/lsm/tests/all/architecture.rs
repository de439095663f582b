//! Compares the modules and locks of this crate with `layers.txt` and `locks.txt`.

#[path = "../../../../tests/layers.rs"]
mod layers;

use std::path::Path;

use layers::{
    Uses, assert_layers, assert_locks, code, exported, layers as read_layers, locks, named, ring,
};

#[test]
fn modules_use_only_what_is_below_them() {
    let uses = assert_layers(Path::new(env!("CARGO_MANIFEST_DIR")));
    assert!(
        uses.len() > 20 && uses["group"].contains("compaction"),
        "{uses:?}"
    );
}

#[test]
fn what_is_read_off_sources_is_what_they_say() {
    let text = "use crate::{a::{X, Y}, b, Seq};\n// crate::not\nfn f() { crate::c::g(); }\n#[cfg(test)]\nmod tests {\nuse crate::d;\n}";
    let names = named(&code(text));
    assert_eq!(
        names.into_iter().collect::<Vec<_>>(),
        ["Seq", "a", "b", "c"]
    );
    let root = "pub use entry::{Kind, Seq};\npub use x::Y;";
    assert_eq!(exported(root)["Seq"], "entry");
    let graph = |arrows: &[(&str, &str)]| {
        let mut uses = Uses::new();
        for (from, to) in arrows {
            uses.entry(from.to_string())
                .or_default()
                .insert(to.to_string());
        }
        ring(&uses)
    };
    assert_eq!(graph(&[("a", "b"), ("b", "c"), ("a", "c")]), None);
    let found = graph(&[("a", "b"), ("b", "c"), ("c", "b")]).unwrap();
    assert_eq!(found, ["b", "c"]);
}

#[test]
fn each_lock_is_named() {
    assert_locks(Path::new(env!("CARGO_MANIFEST_DIR")));
}

#[test]
fn locks_are_read_off_sources() {
    let text = "static OPEN: Mutex<u8> = Mutex::new(0);\nstruct S {\n    /// a: Mutex<u8>,\n    pub(super) b: Arc<Mutex<Vec<u8>>>,\n    c: RwLock<()>,\n    d: MutexGuard<'a, u8>,\n}\n\
                let e: Mutex<u8> = x;\n        f: Mutex::new(0),";
    let found = locks(&code(text));
    assert_eq!(found.into_iter().collect::<Vec<_>>(), ["OPEN", "b", "c"]);
}

#[test]
fn layers_are_read_off_their_list() {
    let found = read_layers("# a: b\n\nover: one, two\n    text: three\nbelow: four\n");
    let found: Vec<_> = found.into_iter().collect();
    let expected = [("four", 1), ("one", 0), ("two", 0)];
    assert_eq!(
        found,
        expected.map(|(name, layer)| (name.to_string(), layer))
    );
}
