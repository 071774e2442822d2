use std::fs::File;
use std::path::{Path, PathBuf};

use serde::Serialize;
use skewbench_cuda::run::CardState;

use super::measure::Taken;
use crate::failure::Failure;
use crate::shipped::{Failed, Sample, StateRow};

/// Where a wave stands in tables.
#[derive(Clone, Copy)]
pub(super) struct Place<'a> {
    pub system: &'a str,
    pub case: &'a str,
    pub heads: (u16, u16),
    pub transport: &'static str,
    pub wave: u32,
}

/// A wave that was verified: a row of `verified.csv`.
#[derive(Serialize)]
struct VerifiedRow<'a> {
    system: &'a str,
    case: &'a str,
    q_heads: u16,
    kv_heads: u16,
    transport: &'a str,
    wave: u32,
    tensor: &'static str,
    error: f64,
}

/// Samples as they come, on disk after every wave: what was measured before a run is stopped is kept.
pub(super) struct Log {
    folder: PathBuf,
    samples: csv::Writer<File>,
    failures: csv::Writer<File>,
    states: csv::Writer<File>,
    verified: csv::Writer<File>,
    failed: usize,
    taken: usize,
}

impl Log {
    /// Begins the files of a folder.
    ///
    /// # Errors
    /// A file that cannot be made.
    pub fn new(folder: &Path) -> Result<Self, Failure> {
        let open = |name: &str| {
            let path = folder.join(name);
            csv::Writer::from_path(&path).map_err(|e| Failure::config(format!("{}: {e}", path.display())))
        };
        Ok(Self {
            folder: folder.to_owned(),
            samples: open("cuda.csv")?,
            failures: open("failures.csv")?,
            states: open("states.csv")?,
            verified: open("verified.csv")?,
            failed: 0,
            taken: 0,
        })
    }

    /// Ends the files and removes those that stayed empty. Returns how many samples and how many failures there are.
    ///
    /// # Errors
    /// A file that cannot be written.
    pub fn finish(self) -> Result<(usize, usize), Failure> {
        let Self { folder, samples, failures, states, verified, failed, taken } = self;
        for (name, writer) in
            [("cuda.csv", samples), ("failures.csv", failures), ("states.csv", states), ("verified.csv", verified)]
        {
            let path = folder.join(name);
            let fail = |e: std::io::Error| Failure::config(format!("{}: {e}", path.display()));
            let file = writer.into_inner().map_err(|e| fail(e.into_error()))?;
            let empty = file.metadata().map_err(fail)?.len() == 0;
            file.sync_all().map_err(fail)?;
            if empty {
                std::fs::remove_file(&path).map_err(fail)?;
            }
        }
        Ok((taken, failed))
    }

    fn error(&self) -> impl Fn(csv::Error) -> Failure + use<> {
        let folder = self.folder.clone();
        move |e| Failure::config(format!("{}: {e}", folder.display()))
    }

    /// Adds a row of every rank.
    ///
    /// # Errors
    /// A file that cannot be written.
    pub fn samples(&mut self, row: &Sample, taken: &Taken, times: &[u64]) -> Result<(), Failure> {
        let error = self.error();
        for (rank, ns) in (0u32..).zip(times) {
            let Taken { pass, mode, sample, warm_up } = *taken;
            let row = Sample { pass, mode, sample, warm_up, rank, ns: *ns, ..row.clone() };
            self.samples.serialize(row).map_err(&error)?;
            self.taken += 1;
        }
        self.samples.flush().map_err(|e| error(e.into()))
    }

    /// Adds what gave no samples.
    ///
    /// # Errors
    /// A file that cannot be written.
    pub fn failed(&mut self, row: &Failed) -> Result<(), Failure> {
        let error = self.error();
        eprintln!("{} on {}, {}: {}", row.system, row.case, row.layout, row.reason);
        self.failed += 1;
        self.failures.serialize(row).map_err(&error)?;
        self.failures.flush().map_err(|e| error(e.into()))
    }

    /// Adds the errors of a verified wave.
    ///
    /// # Errors
    /// A file that cannot be written.
    pub fn verified(&mut self, place: &Place<'_>, errors: &[(&'static str, f64)]) -> Result<(), Failure> {
        let error = self.error();
        let &Place { system, case, heads: (q_heads, kv_heads), transport, wave } = place;
        for (tensor, worst) in errors {
            let row = VerifiedRow { system, case, q_heads, kv_heads, transport, wave, tensor, error: *worst };
            self.verified.serialize(row).map_err(&error)?;
        }
        self.verified.flush().map_err(|e| error(e.into()))
    }

    /// Adds what the cards do now, around a wave of a round.
    ///
    /// # Errors
    /// A file that cannot be written.
    pub fn states(&mut self, place: &Place<'_>, round: u32, states: &[Option<CardState>]) -> Result<(), Failure> {
        let error = self.error();
        let &Place { system, case, heads: (q_heads, kv_heads), transport, wave } = place;
        for (card, state) in (0u32..).zip(states) {
            let Some(state) = state else { continue };
            let row = StateRow {
                system: system.to_owned(),
                case: case.to_owned(),
                q_heads,
                kv_heads,
                transport: transport.to_owned(),
                wave,
                round,
                card,
                sm_mhz: state.sm_mhz,
                memory_mhz: state.memory_mhz,
                temperature_c: state.temperature_c,
                power_mw: state.power_mw,
                throttle_reasons: state.throttle_reasons.join(" "),
            };
            self.states.serialize(row).map_err(&error)?;
        }
        self.states.flush().map_err(|e| error(e.into()))
    }
}
