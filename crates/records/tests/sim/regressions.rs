//! Runs that failed once, shrunk: a file each in `cases`, as [`crate::runner::as_case`] writes them.
//! Its comment says what went wrong; then follow the settings, and one step a line.

use crate::action::{Settings, Step};

/// The settings and the steps of a case.
fn parse(text: &str) -> (Settings, Vec<Step>) {
    let mut lines = (text.lines()).filter(|line| !line.starts_with('#') && !line.is_empty());
    let settings = lines.next().expect("the settings");
    let step = |line| serde_json::from_str(line).unwrap_or_else(|e| panic!("{line}: {e}"));
    (
        serde_json::from_str(settings).expect("the settings"),
        lines.map(step).collect(),
    )
}

fn run(text: &str) {
    let (settings, steps) = parse(text);
    esker_sim::world::run::<crate::world::World>(settings, &steps);
}

/// A test for each case, and one that the list is complete.
macro_rules! cases {
    ($($name:ident),* $(,)?) => {
        $(#[test] fn $name() {
            run(include_str!(concat!("cases/", stringify!($name), ".txt")));
        })*

        #[test]
        fn each_case_is_listed() {
            let folder = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/sim/cases");
            let files = std::fs::read_dir(folder).unwrap();
            let mut files: Vec<_> = files
                .map(|file| file.unwrap().file_name().into_string().unwrap())
                .collect();
            files.sort();
            let mut listed = vec![$(concat!(stringify!($name), ".txt")),*];
            listed.sort_unstable();
            assert_eq!(files, listed);
        }
    };
}

cases!(
    seed_339,
    seed_9,
    seed_46,
    seed_157,
    seed_429,
    seed_3085,
    seed_22844,
    seed_702110,
    seed_1009173,
    seed_4017666,
    seed_1129,
    seed_1365,
    seed_363,
    seed_1021,
    seed_1206,
    seed_70279,
    seed_202798,
    seed_2007984,
    seed_2023400,
    seed_3003854,
    seed_4014889,
    seed_6290,
    seed_8300959,
);

/// Runs a case that is not in the list: `ESKER_CASE=FILE cargo test -p esker --test sim a_given_case`.
#[test]
fn a_given_case_passes() {
    let Ok(file) = std::env::var("ESKER_CASE") else {
        return;
    };
    run(&std::fs::read_to_string(file).unwrap());
}
