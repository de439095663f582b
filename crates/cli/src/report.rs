//! Standard error: notes and errors as text for people, or as JSON objects for programs, one a
//! line. No function here fails.

use std::fmt;
use std::io::{self, Write};
use std::sync::OnceLock;

use clap::ValueEnum;
use serde_json::{Value, json};

/// The form of reports on standard error.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum ProgressForm {
    /// A line on terminals, nothing elsewhere
    Auto,
    /// One JSON object a line
    Json,
    /// No progress
    None,
}

/// The value of `--progress`. A process runs one command, so it is set once.
static FORM: OnceLock<ProgressForm> = OnceLock::new();

/// Sets the form. Call it once, before the first report.
pub(crate) fn choose(form: ProgressForm) {
    let _ = FORM.set(form);
}

/// True if progress may be drawn.
pub(crate) fn draws() -> bool {
    matches!(FORM.get(), None | Some(ProgressForm::Auto))
}

/// True if standard error gets JSON objects and nothing else.
pub(crate) fn is_json() -> bool {
    FORM.get() == Some(&ProgressForm::Json)
}

/// Reports an event to a program. A failed write is ignored.
pub(crate) fn event(event: &str, mut fields: Value) {
    if let Value::Object(fields) = &mut fields {
        fields.shift_insert(0, "event".to_string(), json!(event));
    }
    let _ = writeln!(io::stderr().lock(), "{fields}");
}

/// Writes a note to standard error. A failed write is ignored.
pub(crate) fn note(text: impl fmt::Display) {
    say("note", text);
}

/// Reports the error of a command.
pub(crate) fn error(text: impl fmt::Display) {
    if is_json() {
        say("error", text)
    } else {
        say("error", format_args!("esker: {text}"))
    }
}

fn say(kind: &str, text: impl fmt::Display) {
    if is_json() {
        event(kind, json!({ "text": text.to_string() }))
    } else {
        let _ = writeln!(io::stderr().lock(), "{text}");
    }
}
