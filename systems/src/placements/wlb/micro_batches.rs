use std::cmp::Reverse;
use std::collections::BTreeSet;

use super::super::{Deal, Measure};
use super::{Document, Packing};

impl Packing {
    /// Work of a document, in units of 1 / B^2 of the source's: L^2 + B L.
    pub(super) fn work(&self, tokens: u32) -> u128 {
        let length = u128::from(tokens);
        let attention = match self.work {
            Measure::LSquared => length * length,
            // The work of one document: predicted times are of whole sequences.
            Measure::Pairs | Measure::Time => length * (length + 1),
        };
        attention + length * u128::from(self.linear_tokens)
    }

    /// Lmax in tokens.
    pub(super) fn limit(&self, window: u32) -> u64 {
        (self.lmax * f64::from(window)) as u64
    }
}

/// The micro-batches of a step while they fill.
pub(super) struct MicroBatches {
    packing: Packing,
    limit: u64,
    pub(super) documents: Vec<Vec<Document>>,
    work: Vec<u128>,
    tokens: Vec<u64>,
    by_work: BTreeSet<(u128, usize)>,
    by_tokens: BTreeSet<(u64, usize)>,
}

impl MicroBatches {
    pub(super) fn new(packing: Packing, count: usize, window: u32) -> Self {
        Self {
            packing,
            limit: packing.limit(window),
            documents: vec![Vec::new(); count],
            work: vec![0; count],
            tokens: vec![0; count],
            by_work: (0..count).map(|i| (0, i)).collect(),
            by_tokens: (0..count).map(|i| (0, i)).collect(),
        }
    }

    /// Packs documents, longest first and the older first of equals, and returns those that fit nowhere within Lmax.
    pub(super) fn pack(&mut self, mut documents: Vec<Document>) -> Vec<Document> {
        documents.sort_by_key(|d| (Reverse(d.tokens), d.delivered));
        documents.retain(|&document| {
            let fits = |&index: &usize| self.tokens[index] + u64::from(document.tokens) <= self.limit;
            let lightest = self.by_work.first().map(|(_, index)| *index).filter(fits);
            let place = lightest.or_else(|| self.by_tokens.first().map(|(_, index)| *index).filter(fits));
            if let Some(index) = place {
                self.add(index, document);
            }
            place.is_none()
        });
        documents
    }

    /// Adds documents to the micro-batch of least work, beyond Lmax.
    pub(super) fn force(&mut self, documents: impl IntoIterator<Item = Document>) {
        for document in documents {
            if let Some(&(_, index)) = self.by_work.first() {
                self.add(index, document);
            }
        }
    }

    /// True when a document fits into no micro-batch, however empty.
    pub(super) fn never_fits(&self, document: &Document) -> bool {
        u64::from(document.tokens) > self.limit
    }

    /// A micro-batch without documents.
    pub(super) fn empty(&self) -> Option<usize> {
        self.by_tokens.first().filter(|(tokens, _)| *tokens == 0).map(|(_, index)| *index)
    }

    pub(super) fn add(&mut self, index: usize, document: Document) {
        self.by_work.remove(&(self.work[index], index));
        self.by_tokens.remove(&(self.tokens[index], index));
        self.work[index] += self.packing.work(document.tokens);
        self.tokens[index] += u64::from(document.tokens);
        self.by_work.insert((self.work[index], index));
        self.by_tokens.insert((self.tokens[index], index));
        self.documents[index].push(document);
    }

    /// Micro-batches in the order in which they are dealt to waves.
    pub(super) fn dealt(&self) -> Vec<u32> {
        let mut order: Vec<u32> = (0..self.work.len() as u32).collect();
        if self.packing.deal == Deal::Sorted {
            order.sort_by_key(|index| Reverse(self.work[*index as usize]));
        }
        order
    }
}
