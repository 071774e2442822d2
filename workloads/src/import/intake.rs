use std::ops::ControlFlow;
use std::time::Instant;

use super::error::ImportError;
use super::options::{ImportReport, Progress};
use super::tokens::Counter;

/// Lengths handed on at a time; also the rows of a row group.
pub(crate) const BATCH: usize = 1 << 17;
/// Text gathered before it is tokenised on all cores.
const TEXT_BATCH_BYTES: usize = 8 << 20;
/// Bytes read between two reports of progress.
const REPORT_EVERY: u64 = 1 << 20;

/// Takes lengths and texts from the readers, tokenises, counts, and hands lengths on in batches.
pub(crate) struct Intake<'a> {
    emit: &'a mut dyn FnMut(&[u64]) -> Result<(), ImportError>,
    report: &'a mut dyn FnMut(Progress) -> ControlFlow<()>,
    stopped: bool,
    counter: Option<Counter>,
    lengths: Vec<u64>,
    texts: Vec<String>,
    waiting_bytes: usize,
    reported: u64,
    progress: Progress,
    pub(crate) files: u64,
    pub(crate) skipped_empty: u64,
    pub(crate) skipped_not_text: u64,
    min: u64,
    max: u64,
    start: Instant,
}

impl<'a> Intake<'a> {
    pub(crate) fn new(
        counter: Option<Counter>,
        bytes_total: u64,
        emit: &'a mut dyn FnMut(&[u64]) -> Result<(), ImportError>,
        report: &'a mut dyn FnMut(Progress) -> ControlFlow<()>,
    ) -> Self {
        Self {
            emit,
            report,
            stopped: false,
            counter,
            lengths: Vec::with_capacity(BATCH),
            texts: Vec::new(),
            waiting_bytes: 0,
            reported: 0,
            progress: Progress { bytes_total, ..Progress::default() },
            files: 0,
            skipped_empty: 0,
            skipped_not_text: 0,
            min: u64::MAX,
            max: 0,
            start: Instant::now(),
        }
    }

    /// The tokenizer, if texts are wanted.
    pub(crate) fn counter(&self) -> Option<&Counter> {
        self.counter.as_ref()
    }

    /// Notes bytes of input that were read.
    pub(crate) fn bytes(&mut self, count: u64) {
        self.progress.bytes_read += count;
        if self.progress.bytes_read - self.reported >= REPORT_EVERY {
            self.reported = self.progress.bytes_read;
            self.tell();
        }
    }

    /// Reports progress; the next batch ends the reading if the caller has asked to stop.
    fn tell(&mut self) {
        self.stopped |= (self.report)(self.progress).is_break();
    }

    /// Takes the length of a document; the caller has checked it.
    pub(crate) fn length(&mut self, length: u64) -> Result<(), ImportError> {
        self.lengths.push(length);
        self.progress.documents += 1;
        self.progress.tokens = self.progress.tokens.saturating_add(length);
        self.min = self.min.min(length);
        self.max = self.max.max(length);
        if self.lengths.len() >= BATCH { self.hand_on() } else { Ok(()) }
    }

    /// Takes a text; an empty one is counted and left out.
    pub(crate) fn text(&mut self, text: String) -> Result<(), ImportError> {
        if text.is_empty() {
            self.skipped_empty += 1;
            return Ok(());
        }
        self.waiting_bytes += text.len();
        self.texts.push(text);
        if self.waiting_bytes >= TEXT_BATCH_BYTES { self.tokenise() } else { Ok(()) }
    }

    /// Takes the tokens of a text that the reader has counted piece by piece.
    pub(crate) fn counted(&mut self, tokens: u64, text_bytes: u64) -> Result<(), ImportError> {
        // Documents keep the order of the files.
        self.tokenise()?;
        self.take_count(tokens, text_bytes)
    }

    fn take_count(&mut self, tokens: u64, text_bytes: u64) -> Result<(), ImportError> {
        self.progress.text_bytes += text_bytes;
        if tokens == 0 {
            self.skipped_empty += 1;
            return Ok(());
        }
        self.length(tokens)
    }

    fn tokenise(&mut self) -> Result<(), ImportError> {
        let texts = std::mem::take(&mut self.texts);
        self.waiting_bytes = 0;
        let Some(counter) = &self.counter else { return Ok(()) };
        if self.stopped {
            return Err(ImportError::Stopped);
        }
        let counts = counter.count_all(&texts)?;
        for (text, tokens) in texts.iter().zip(counts) {
            self.take_count(tokens, text.len() as u64)?;
        }
        self.tell();
        Ok(())
    }

    fn hand_on(&mut self) -> Result<(), ImportError> {
        if self.stopped {
            return Err(ImportError::Stopped);
        }
        if !self.lengths.is_empty() {
            (self.emit)(&self.lengths)?;
            self.lengths.clear();
        }
        Ok(())
    }

    /// Hands on what is left and says what was read.
    pub(crate) fn finish(mut self) -> Result<ImportReport, ImportError> {
        self.tokenise()?;
        self.hand_on()?;
        self.tell();
        if self.progress.documents == 0 {
            let skipped = self.skipped_empty + self.skipped_not_text;
            return Err(ImportError::Options(format!(
                "there is no document in the input ({} files read, {skipped} empty or not text); nothing was written",
                self.files
            )));
        }
        Ok(ImportReport {
            files: self.files,
            documents: self.progress.documents,
            tokens: self.progress.tokens,
            min: self.min,
            max: self.max,
            skipped_empty: self.skipped_empty,
            skipped_not_text: self.skipped_not_text,
            text_bytes: self.progress.text_bytes,
            elapsed: self.start.elapsed(),
        })
    }
}
