//! The arena of an emulated rank.

use half::bf16;
use skewbench_cuda::steps::{Action, Element, RowMove};

/// Bytes, all of which start as numbers that are none.
pub struct Arena(pub Vec<u8>);

impl Arena {
    pub fn new(bytes: u64) -> Self {
        Self(vec![0xff; bytes as usize])
    }

    pub fn bytes(&self, at: u64, len: u64) -> &[u8] {
        &self.0[at as usize..(at + len) as usize]
    }

    pub fn get(&self, at: u64, element: Element) -> f32 {
        let bytes = self.bytes(at, element.bytes());
        match element {
            Element::Bf16 => bf16::from_le_bytes([bytes[0], bytes[1]]).to_f32(),
            Element::F32 => f32::from_le_bytes([bytes[0], bytes[1], bytes[2], bytes[3]]),
        }
    }

    pub fn set(&mut self, at: u64, element: Element, value: f32) {
        let at = at as usize;
        match element {
            Element::Bf16 => self.0[at..at + 2].copy_from_slice(&bf16::from_f32(value).to_le_bytes()),
            Element::F32 => self.0[at..at + 4].copy_from_slice(&value.to_le_bytes()),
        }
    }

    pub fn fill(&mut self, offset: u64, words: u64, bits: u32) {
        assert_eq!(offset % 4, 0, "a fill starts between words");
        for word in 0..words {
            let at = (offset + 4 * word) as usize;
            self.0[at..at + 4].copy_from_slice(&bits.to_le_bytes());
        }
    }

    /// What is in the middle of a sum must be a number.
    fn number(&self, at: u64, element: Element, what: &str) -> f32 {
        let value = self.get(at, element);
        assert!(!value.is_nan(), "{what} at {at} has never been written");
        value
    }

    /// Carries out the moves of one kernel, which run at once: none may touch what another one of them writes, unless both
    /// add to it.
    pub fn rows(&mut self, moves: &[RowMove], order: &[usize]) {
        apart(moves);
        for m in order.iter().map(|i| &moves[*i]) {
            for (row, head) in (0..u64::from(m.rows)).flat_map(|row| (0..u64::from(m.heads)).map(move |h| (row, h))) {
                self.one(m, row, head);
            }
        }
    }

    fn one(&mut self, m: &RowMove, row: u64, head: u64) {
        let width = u64::from(m.width);
        let from = m.from + row * m.from_stride + head * width * m.from_element.bytes();
        let to = m.to + row * m.to_stride + head * width * m.to_element.bytes();
        let places = (0..width).map(|i| (from + i * m.from_element.bytes(), to + i * m.to_element.bytes()));
        match m.action {
            Action::Write => places.for_each(|(from, to)| self.set(to, m.to_element, self.get(from, m.from_element))),
            Action::Take { bits } => {
                assert_eq!(m.from_element, Element::F32, "only sums are taken");
                for (from, to) in places {
                    self.set(to, m.to_element, self.get(from, m.from_element));
                    self.fill(from, 1, bits);
                }
            }
            Action::Add => {
                assert_eq!(m.to_element, Element::F32, "sums are f32");
                for (from, to) in places {
                    let sum = self.number(to, m.to_element, "a sum") + self.number(from, m.from_element, "an addend");
                    self.set(to, m.to_element, sum);
                }
            }
            Action::Merge { from_lse, to_lse, from_lse_stride, to_lse_stride } => {
                assert_eq!(m.to_element, Element::F32, "sums are f32");
                let from_lse = from_lse + row * from_lse_stride + 4 * head;
                let to_lse = to_lse + row * to_lse_stride + 4 * head;
                let new = self.number(from_lse, Element::F32, "an LSE that is merged");
                let old = self.number(to_lse, Element::F32, "an LSE that is merged into");
                if new == f32::NEG_INFINITY {
                    return;
                }
                let most = old.max(new);
                let (a, b) = ((old - most).exp(), (new - most).exp());
                for (from, to) in places {
                    let new = b * self.number(from, m.from_element, "an output");
                    let old = if a == 0.0 { 0.0 } else { a * self.number(to, m.to_element, "an output") };
                    self.set(to, m.to_element, (old + new) / (a + b));
                }
                self.set(to_lse, Element::F32, most + (a + b).ln());
            }
        }
    }
}

#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
enum Use {
    Read,
    Sum,
    Write,
}

/// Panics where moves of one kernel depend on their order.
fn apart(moves: &[RowMove]) {
    let mut uses: Vec<(u64, u64, Use, usize)> = Vec::new();
    for (i, m) in moves.iter().enumerate() {
        let elements = u64::from(m.heads) * u64::from(m.width);
        for row in 0..u64::from(m.rows) {
            let from = m.from + row * m.from_stride;
            let to = m.to + row * m.to_stride;
            let (from_use, to_use) = match m.action {
                Action::Write => (Use::Read, Use::Write),
                Action::Take { .. } => (Use::Write, Use::Write),
                Action::Add | Action::Merge { .. } => (Use::Read, Use::Sum),
            };
            uses.push((from, from + elements * m.from_element.bytes(), from_use, i));
            uses.push((to, to + elements * m.to_element.bytes(), to_use, i));
            if let Action::Merge { from_lse, to_lse, from_lse_stride, to_lse_stride } = m.action {
                let heads = 4 * u64::from(m.heads);
                uses.push((from_lse + row * from_lse_stride, from_lse + row * from_lse_stride + heads, Use::Read, i));
                uses.push((to_lse + row * to_lse_stride, to_lse + row * to_lse_stride + heads, Use::Sum, i));
            }
        }
    }
    uses.sort_unstable();
    // For every kind of use, how far it has reached, and by which move.
    let mut reached = [(0u64, usize::MAX); 3];
    for (start, end, kind, i) in uses {
        for (other, (until, by)) in [Use::Read, Use::Sum, Use::Write].into_iter().zip(reached) {
            let clash = other != kind || kind == Use::Write;
            assert!(
                !clash || until <= start || by == i && kind != other,
                "moves of one kernel meet: {:?} and {:?}",
                moves[by],
                moves[i]
            );
        }
        let reach = &mut reached[kind as usize];
        if end > reach.0 {
            *reach = (end, i);
        }
    }
}
