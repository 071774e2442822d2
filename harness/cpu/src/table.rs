use skewbench_plan::{AttentionShape, Tensor};

/// Marks elements that nothing has been written to: a NaN that no computation makes.
pub(crate) const POISON: u32 = 0x7fc5_dead;

/// True when nothing has been written to the row and head.
pub(crate) fn is_poison(values: &[f32]) -> bool {
    values.first().is_some_and(|first| first.to_bits() == POISON)
}

/// One tensor of all packed sequences: f32, `[rows, heads, width]` each.
#[derive(Clone, Debug, PartialEq)]
pub struct Table {
    heads: usize,
    width: usize,
    sequences: Vec<Vec<f32>>,
}

impl Table {
    /// A tensor of sequences with so many tokens whose elements count as never written.
    pub(crate) fn poisoned(tensor: Tensor, shape: AttentionShape, tokens: &[u32]) -> Self {
        let heads = usize::from(if tensor.is_kv() { shape.kv_heads } else { shape.q_heads });
        let width = width(tensor, shape);
        let empty = |rows: &u32| vec![f32::from_bits(POISON); *rows as usize * heads * width];
        Self { heads, width, sequences: tokens.iter().map(empty).collect() }
    }

    /// Heads of every row.
    pub fn heads(&self) -> usize {
        self.heads
    }

    /// Elements of every head: head_dim, 1 for LSE.
    pub fn width(&self) -> usize {
        self.width
    }

    /// All elements of a sequence.
    pub fn sequence(&self, seq: usize) -> &[f32] {
        self.sequences.get(seq).map(Vec::as_slice).unwrap_or_default()
    }

    /// One row and head; none outside the table.
    pub fn at(&self, seq: u32, row: u32, head: u16) -> Option<&[f32]> {
        let start = self.offset(row, head)?;
        self.sequences.get(seq as usize)?.get(start..start + self.width)
    }

    /// One row and head; none outside the table.
    pub fn at_mut(&mut self, seq: u32, row: u32, head: u16) -> Option<&mut [f32]> {
        let start = self.offset(row, head)?;
        self.sequences.get_mut(seq as usize)?.get_mut(start..start + self.width)
    }

    pub(crate) fn all_mut(&mut self) -> impl Iterator<Item = (usize, &mut Vec<f32>)> {
        self.sequences.iter_mut().enumerate()
    }

    fn offset(&self, row: u32, head: u16) -> Option<usize> {
        let head = usize::from(head);
        (head < self.heads).then(|| (row as usize * self.heads + head) * self.width)
    }
}

/// Elements of one row and head.
pub(crate) fn width(tensor: Tensor, shape: AttentionShape) -> usize {
    if tensor == Tensor::Lse { 1 } else { usize::from(shape.head_dim) }
}
