//! Shell completion: commands and options from their definition; names of datasets, fields,
//! snapshots and consumers from the store named by the preceding words.

use std::collections::BTreeSet;
use std::ffi::{OsStr, OsString};
use std::ops::Bound;
use std::path::Path;

use ::pubsub::PubSub;
use clap::CommandFactory;
use clap_complete::engine::{ArgValueCompleter, CompletionCandidate};
use esker::{IndexKind, Options};
use esker_store::{Dataset, Mode, Store};

use super::fields::known_paths;
use crate::args::Cli;

/// The number of records whose fields are offered.
const RECORDS: usize = 300;

/// The memory budget of a completion.
const MEMORY: usize = 16 << 20;

/// Answers the shell's completion request, if the process was started for one.
pub(crate) fn answer() {
    clap_complete::CompleteEnv::with_factory(command).complete();
}

/// The command line with completers for its values.
fn command() -> clap::Command {
    with_completers(Cli::command())
}

fn with_completers(command: clap::Command) -> clap::Command {
    let command = command.mut_args(|arg| {
        let completer = match arg.get_id().as_str() {
            "dataset" | "datasets" => ArgValueCompleter::new(datasets),
            "snapshot" => ArgValueCompleter::new(snapshots),
            "consumer" => ArgValueCompleter::new(consumers),
            "index" => ArgValueCompleter::new(indexes),
            "path" | "conditions" | "tokens" | "changes" | "select" | "rebuild_index"
            | "latest_per" | "time" => ArgValueCompleter::new(fields),
            _ => return arg,
        };
        arg.add(completer)
    });
    command.mut_subcommands(with_completers)
}

/// The words of the line, without the program's name.
fn words() -> Vec<OsString> {
    let words = std::env::args_os().skip_while(|word| word != "--");
    words.skip(2).map(expanded).collect()
}

/// The word with `~/` expanded, which the shell has not done yet.
fn expanded(word: OsString) -> OsString {
    let below = word.to_str().and_then(|word| word.strip_prefix("~/"));
    match (below, std::env::var_os("HOME")) {
        (Some(below), Some(home)) => Path::new(&home).join(below).into_os_string(),
        _ => word,
    }
}

/// The store that the words name: the first word that is a store's directory, and the words behind
/// it. `None` if it cannot be read.
fn store() -> Option<(Box<dyn Store>, Vec<OsString>)> {
    let words = words();
    let at = words
        .iter()
        .position(|word| Path::new(word).join("CURRENT").is_file())?;
    let options = PubSub::register(Options::new().memory_budget(MEMORY));
    let db = esker_store::open(words.get(at)?, Mode::Read, options).ok()?;
    Some((db, words.get(at + 1..)?.to_vec()))
}

/// The dataset named by the words behind the store.
fn dataset() -> Option<Box<dyn Dataset>> {
    let (db, words) = store()?;
    let mut words = words.iter().filter_map(|word| word.to_str());
    words.find_map(|word| db.dataset(word).ok())
}

/// The names that begin with the typed text.
fn beginning<N: Into<String>>(
    typed: &OsStr,
    names: impl IntoIterator<Item = N>,
) -> Vec<CompletionCandidate> {
    let typed = typed.to_string_lossy();
    let names = names.into_iter().map(Into::into);
    names
        .filter(|name: &String| name.starts_with(&*typed))
        .map(CompletionCandidate::new)
        .collect()
}

fn datasets(typed: &OsStr) -> Vec<CompletionCandidate> {
    let names = store().and_then(|(db, _)| db.dataset_names().ok());
    beginning(typed, names.unwrap_or_default())
}

fn snapshots(typed: &OsStr) -> Vec<CompletionCandidate> {
    let kept = store().and_then(|(db, _)| db.snapshots().ok());
    beginning(
        typed,
        kept.unwrap_or_default().into_iter().map(|kept| kept.name),
    )
}

fn consumers(typed: &OsStr) -> Vec<CompletionCandidate> {
    let Some(dataset) = dataset() else {
        return Vec::new();
    };
    let all = store().and_then(|(db, _)| db.change_consumers().ok());
    let own = all.unwrap_or_default().into_iter();
    let own = own.filter(|one| one.dataset == Some(dataset.name()));
    beginning(typed, own.map(|one| one.name))
}

/// The key, the indexed fields, and the fields of the first records.
fn known_fields() -> BTreeSet<String> {
    let Some(dataset) = dataset() else {
        return BTreeSet::new();
    };
    let def = dataset.def();
    let records: Vec<_> = (dataset
        .scan((Bound::Unbounded, Bound::Unbounded), false)
        .into_iter()
        .flatten())
    .take(RECORDS)
    .flatten()
    .collect();
    let mut known = known_paths(records.iter().map(|record| record.json()));
    known.insert(def.key.to_string());
    known.extend(def.indexes.iter().map(|index| index.path.to_string()));
    known
}

fn fields(typed: &OsStr) -> Vec<CompletionCandidate> {
    beginning(typed, known_fields())
}

/// Completes `PATH`, and behind a colon `PATH:KIND`.
fn indexes(typed: &OsStr) -> Vec<CompletionCandidate> {
    match typed.to_str().and_then(|typed| typed.split_once(':')) {
        None => fields(typed),
        Some((path, _)) => {
            // Baselines are accepted, but not offered.
            let kinds = IndexKind::ALL
                .iter()
                .filter(|kind| kind.is_indexed() && **kind != IndexKind::Eager);
            beginning(typed, kinds.map(|kind| format!("{path}:{kind}")))
        }
    }
}
