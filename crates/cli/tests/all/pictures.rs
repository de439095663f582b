//! Pictures of compactions: `load --view` draws one whenever the levels of a spatial index change.
#![allow(
    missing_docs,
    unreachable_pub,
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic
)]

use std::fmt::Write;
use std::fs;

use crate::common::{esker, esker_fed};

#[test]
fn each_compaction_is_drawn_with_what_it_read_and_wrote() {
    let dir = tempfile::tempdir().unwrap();
    let (store, pictures) = (dir.path().join("store"), dir.path().join("pictures"));
    let (store, pictures) = (store.to_str().unwrap(), pictures.to_str().unwrap());
    let mut rng = fastrand::Rng::with_seed(1);
    let mut lines = String::new();
    for id in 0..40_000 {
        let (x, y) = (rng.i32(-170..170), rng.i32(-80..80));
        let fraction = rng.u32(0..10_000);
        writeln!(lines, "{{\"id\":{id},\"at\":[{x}.{fraction:04},{y}.5]}}").unwrap();
    }
    let args = [
        "--memory",
        "1M",
        "load",
        store,
        "points",
        "-",
        "--key",
        "id",
        "--index",
        "at:spatial:mbr",
        "--view",
        pictures,
    ];
    let run = esker_fed(&args, dir.path(), move |stdin| {
        stdin.write_all(lines.as_bytes()).unwrap();
    });
    let notes = run.expect(0).stderr;
    let mut files: Vec<_> = fs::read_dir(pictures)
        .unwrap()
        .map(|entry| entry.unwrap().path())
        .collect();
    files.sort();
    assert!(!files.is_empty());
    let count = match files.len() {
        1 => "1 picture in".to_string(),
        more => format!("{more} pictures in"),
    };
    assert!(notes.contains(&count), "{notes}");
    for file in &files {
        let svg = fs::read_to_string(file).unwrap();
        assert!(svg.starts_with("<svg") && svg.trim_end().ends_with("</svg>"));
        // Replaced tables are dashed, new tables are red.
        assert!(svg.contains("stroke-dasharray") && svg.contains("#d1495b"));
    }

    // Without a spatial index the command is refused and creates nothing.
    let refused = esker_fed(
        &[
            "load", store, "other", "-", "--key", "id:int", "--view", pictures,
        ],
        dir.path(),
        |stdin| {
            let _ = stdin.write_all(b"{\"id\":1}\n");
        },
    );
    assert_eq!(refused.code, 2, "{refused:?}");
    assert!(refused.stderr.contains("no spatial index"), "{refused:?}");
    let there = esker(&["stat", store]).expect(0).stdout;
    assert!(
        there.contains("points") && !there.contains("other"),
        "{there}"
    );
}
