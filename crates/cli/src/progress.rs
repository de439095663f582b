//! Progress on standard error: a progress bar on terminals, or JSON objects for programs, one a
//! line.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Instant;

use indicatif::{HumanDuration, ProgressBar, ProgressDrawTarget, ProgressStyle};
use serde_json::json;

use crate::report::{draws, event, is_json};

/// Milliseconds between two reports of one stream.
const EVERY: u64 = 200;

/// The progress of a stream of records.
pub(crate) struct Progress {
    bar: ProgressBar,
    unit: &'static str,
    start: Instant,
    /// For JSON reports: the position, the total (0 if unknown), the number of records, and when
    /// the next report is due, in milliseconds since the start. The first report is due at once.
    position: AtomicU64,
    total: AtomicU64,
    records: AtomicU64,
    due: AtomicU64,
}

impl Progress {
    /// Progress in bytes of input; without a total only the rate is shown.
    pub(crate) fn bytes(total: Option<u64>) -> Self {
        Self::new(
            total,
            "bytes",
            "{bar:30} {bytes} of {total_bytes}  {msg}  {eta} left",
            "{spinner} {bytes}  {msg}  {elapsed}",
        )
    }

    /// Progress in records.
    pub(crate) fn records(total: u64) -> Self {
        Self::new(
            Some(total),
            "records",
            "{bar:30} {human_pos} of {human_len}  {msg}  {eta} left",
            "",
        )
    }

    /// Progress in records whose number is not known; the unit says what is done with them.
    pub(crate) fn counted(unit: &'static str) -> Self {
        Self::new(None, unit, "", "{spinner} {human_pos}  {msg}  {elapsed}")
    }

    fn new(total: Option<u64>, unit: &'static str, bar: &str, spinner: &str) -> Self {
        // On anything but a terminal, `stderr` draws nothing and costs almost nothing.
        let target = if draws() {
            ProgressDrawTarget::stderr_with_hz(10)
        } else {
            ProgressDrawTarget::hidden()
        };
        let progress = ProgressBar::with_draw_target(total, target);
        let template = if total.is_some() { bar } else { spinner };
        if let Ok(style) = ProgressStyle::with_template(template) {
            progress.set_style(style);
        }
        Self {
            bar: progress,
            unit,
            start: Instant::now(),
            position: AtomicU64::new(0),
            total: AtomicU64::new(total.unwrap_or(0)),
            records: AtomicU64::new(0),
            due: AtomicU64::new(0),
        }
    }

    /// Shows the position of the stream and the rate of `records`.
    pub(crate) fn update(&self, position: u64, records: u64) {
        if is_json() {
            self.position.store(position, Ordering::Relaxed);
            self.records.store(records, Ordering::Relaxed);
            let now = self.start.elapsed().as_millis() as u64;
            if now >= self.due.load(Ordering::Relaxed) {
                self.due.store(now + EVERY, Ordering::Relaxed);
                self.report();
            }
        }
        if !self.bar.is_hidden() {
            let rate = records as f64 / self.start.elapsed().as_secs_f64().max(1e-9);
            self.bar.set_message(format!(
                "{} records/s",
                crate::output::thousands(rate as u64)
            ));
            self.bar.set_position(position);
        }
    }

    /// As `update`, for a stream of records whose total grows.
    pub(crate) fn update_of(&self, position: u64, total: u64) {
        self.total.store(total, Ordering::Relaxed);
        if !self.bar.is_hidden() {
            self.bar.set_length(total);
        }
        self.update(position, position);
    }

    /// Removes the progress bar; in JSON form, reports the last figures.
    pub(crate) fn clear(&self) {
        self.bar.finish_and_clear();
        if is_json() {
            self.report();
        }
    }

    fn report(&self) {
        let total = self.total.load(Ordering::Relaxed);
        event(
            "progress",
            json!({
                "unit": self.unit,
                "done": self.position.load(Ordering::Relaxed),
                "total": (total > 0).then_some(total),
                "records": self.records.load(Ordering::Relaxed),
                "seconds": self.start.elapsed().as_secs_f64(),
            }),
        );
    }

    /// The time since the start, in words and seconds.
    pub(crate) fn elapsed(&self) -> (String, f64) {
        let elapsed = self.start.elapsed();
        let text = if elapsed.as_secs() >= 120 {
            HumanDuration(elapsed).to_string()
        } else {
            format!("{:.2} s", elapsed.as_secs_f64())
        };
        (text, elapsed.as_secs_f64())
    }
}
