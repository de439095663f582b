//! Standard error: notes and errors as text for people, or one JSON object a line for programs. Nothing here fails.

use std::fmt;
use std::io::{self, Write};
use std::sync::OnceLock;

use clap::ValueEnum;
use serde_json::{Value, json};

/// How standard error reports.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum ProgressForm {
    /// A line on terminals, nothing elsewhere
    Auto,
    /// One JSON object a line
    Json,
    /// No progress
    None,
}

/// One process runs one command: what `--progress` says holds for all of it.
static FORM: OnceLock<ProgressForm> = OnceLock::new();

/// Says how to report, once, before anything is reported.
pub(crate) fn choose(form: ProgressForm) {
    let _ = FORM.set(form);
}

/// True when progress may be drawn.
pub(crate) fn draws() -> bool {
    matches!(FORM.get(), None | Some(ProgressForm::Auto))
}

/// True when standard error gets JSON objects and nothing else.
pub(crate) fn is_json() -> bool {
    FORM.get() == Some(&ProgressForm::Json)
}

/// Reports something to a program. Where nobody listens it is lost.
pub(crate) fn event(event: &str, mut fields: Value) {
    if let Value::Object(fields) = &mut fields {
        fields.shift_insert(0, "event".to_string(), json!(event));
    }
    let _ = writeln!(io::stderr().lock(), "{fields}");
}

/// Says something on standard error; where nobody listens it is lost.
pub(crate) fn note(text: impl fmt::Display) {
    say("note", text);
}

/// Says why a command failed.
pub(crate) fn error(text: impl fmt::Display) {
    match is_json() {
        true => say("error", text),
        false => say("error", format_args!("esker: {text}")),
    }
}

fn say(kind: &str, text: impl fmt::Display) {
    match is_json() {
        true => event(kind, json!({ "text": text.to_string() })),
        false => {
            let _ = writeln!(io::stderr().lock(), "{text}");
        }
    }
}
