use std::cmp::Reverse;
use std::collections::VecDeque;

use super::{Deferral, Document};

/// Outliers that wait, by level of length.
pub(super) struct Queues {
    deferral: Deferral,
    levels: Vec<VecDeque<Document>>,
}

impl Queues {
    pub(super) fn new(deferral: Deferral) -> Self {
        Self { deferral, levels: vec![VecDeque::new(); deferral.levels as usize] }
    }

    /// The highest level whose threshold a document reaches.
    fn level(&self, tokens: u32, window: u32) -> Option<usize> {
        let Deferral { levels, outlier, .. } = self.deferral;
        let starts = |level: u32| {
            let share = outlier + (1.0 - outlier) * f64::from(level) / f64::from(levels);
            f64::from(tokens) >= share * f64::from(window)
        };
        (0..levels).rev().find(|level| starts(*level)).map(|level| level as usize)
    }

    /// Queues the document if it is an outlier, or gives it back.
    pub(super) fn admit(&mut self, document: Document, window: u32) -> Option<Document> {
        match self.level(document.tokens, window).and_then(|level| self.levels.get_mut(level)) {
            Some(queue) => {
                queue.push_back(document);
                None
            }
            None => Some(document),
        }
    }

    /// Documents that leave for a step: one a micro-batch of every queue that has as many, and all of a queue whose first
    /// may wait no longer.
    pub(super) fn release(&mut self, micro_batches: usize, now: u64) -> Vec<Document> {
        let mut released = Vec::new();
        for queue in &mut self.levels {
            while micro_batches > 0 && queue.len() >= micro_batches {
                released.extend(queue.drain(..micro_batches));
            }
            if queue.front().is_some_and(|first| now - first.delivered >= self.deferral.max_delay) {
                released.extend(queue.drain(..));
            }
        }
        released
    }

    /// The document that has waited longest, of the highest level that has such.
    pub(super) fn take_oldest(&mut self) -> Option<Document> {
        let oldest = |(level, queue): (usize, &mut VecDeque<Document>)| {
            queue.front().map(|first| (first.delivered, Reverse(level)))
        };
        let (_, Reverse(level)) = self.levels.iter_mut().enumerate().filter_map(oldest).min()?;
        self.levels.get_mut(level)?.pop_front()
    }

    /// All documents.
    pub(super) fn take_all(&mut self) -> Vec<Document> {
        self.levels.iter_mut().flat_map(|queue| queue.drain(..)).collect()
    }

    /// Tokens of all documents.
    pub(super) fn tokens(&self) -> u64 {
        self.levels.iter().flatten().map(|document| u64::from(document.tokens)).sum()
    }
}
