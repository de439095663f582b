//! A progress line on standard error, drawn only where that is a terminal.

use std::time::Instant;

use indicatif::{HumanDuration, ProgressBar, ProgressDrawTarget, ProgressStyle};

/// The progress of a stream of records.
pub(crate) struct Progress {
    bar: ProgressBar,
    start: Instant,
}

impl Progress {
    /// Progress in bytes of input; without a total only the rate is shown.
    pub(crate) fn bytes(total: Option<u64>) -> Self {
        Self::new(
            total,
            "{bar:30} {bytes} of {total_bytes}  {msg}  {eta} left",
            "{spinner} {bytes}  {msg}  {elapsed}",
        )
    }

    /// Progress in records.
    pub(crate) fn records(total: u64) -> Self {
        Self::new(
            Some(total),
            "{bar:30} {human_pos} of {human_len}  {msg}  {eta} left",
            "",
        )
    }

    fn new(total: Option<u64>, bar: &str, spinner: &str) -> Self {
        // `stderr` draws nothing, and costs next to nothing, where it is not a terminal.
        let target = ProgressDrawTarget::stderr_with_hz(10);
        let progress = ProgressBar::with_draw_target(total, target);
        let template = if total.is_some() { bar } else { spinner };
        if let Ok(style) = ProgressStyle::with_template(template) {
            progress.set_style(style);
        }
        Self {
            bar: progress,
            start: Instant::now(),
        }
    }

    /// Shows how far the stream is: the position, and the rate of `records`.
    pub(crate) fn update(&self, position: u64, records: u64) {
        if !self.bar.is_hidden() {
            let rate = records as f64 / self.start.elapsed().as_secs_f64().max(1e-9);
            self.bar.set_message(format!(
                "{} records/s",
                crate::output::thousands(rate as u64)
            ));
            self.bar.set_position(position);
        }
    }

    /// As `update`, for a stream of records whose total is only known by and by.
    pub(crate) fn update_of(&self, position: u64, total: u64) {
        if !self.bar.is_hidden() {
            self.bar.set_length(total);
            self.update(position, position);
        }
    }

    /// Takes the line away.
    pub(crate) fn clear(&self) {
        self.bar.finish_and_clear();
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
