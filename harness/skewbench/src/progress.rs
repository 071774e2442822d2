//! Progress on standard error: bars on a terminal, a plain line every 30 seconds otherwise.

use std::io::IsTerminal;
use std::sync::Mutex;
use std::time::{Duration, Instant};

use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};

const QUIET: Duration = Duration::from_secs(30);

/// Progress of one job in steps of one kind.
pub struct Progress {
    bar: ProgressBar,
    plain: Option<Mutex<Instant>>,
    what: String,
}

impl Progress {
    /// A job of `total` steps.
    pub fn new(what: &str, total: u64) -> Self {
        let terminal = std::io::stderr().is_terminal();
        let target = if terminal { ProgressDrawTarget::stderr() } else { ProgressDrawTarget::hidden() };
        let bar = ProgressBar::with_draw_target(Some(total), target);
        let template = "{prefix} {bar:30} {pos}/{len} {msg} [{elapsed} < {eta}]";
        if let Ok(style) = ProgressStyle::with_template(template) {
            bar.set_style(style);
        }
        bar.set_prefix(what.to_owned());
        Self { bar, plain: (!terminal).then(|| Mutex::new(Instant::now())), what: what.to_owned() }
    }

    /// Some steps are over; `message` says what is next.
    pub fn advance(&self, steps: u64, message: &str) {
        self.bar.inc(steps);
        self.bar.set_message(message.to_owned());
        let Some(last) = &self.plain else { return };
        let mut last = last.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
        if last.elapsed() >= QUIET {
            *last = Instant::now();
            let eta = self.bar.eta().as_secs();
            eprintln!(
                "{} {}/{} {message}, about {eta} s left",
                self.what,
                self.bar.position(),
                self.bar.length().unwrap_or(0)
            );
        }
    }

    /// The job is over.
    pub fn finish(&self) {
        self.bar.finish_and_clear();
    }
}
