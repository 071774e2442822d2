use std::sync::{PoisonError, RwLock, RwLockReadGuard, RwLockWriteGuard};

use skewbench_exec::{Buffer, View};
use skewbench_plan::{AttentionShape, Tensor};

use crate::table::{POISON, is_poison, width};

/// A buffer of a rank with its elements, all of which count as never written at first.
pub(crate) struct Memory<'a> {
    pub(crate) buffer: &'a Buffer,
    layout: Layout,
    data: RwLock<Vec<f32>>,
}

#[derive(Clone, Copy)]
struct Layout {
    first_head: u16,
    heads: usize,
    width: usize,
}

impl Layout {
    fn range(self, row: u32, head: u16) -> Option<std::ops::Range<usize>> {
        let head = usize::from(head.checked_sub(self.first_head)?);
        let start = (row as usize).checked_mul(self.heads)?.checked_add(head)?.checked_mul(self.width)?;
        (head < self.heads).then(|| start..start + self.width)
    }
}

/// Elements of a buffer while nobody writes them.
pub(crate) struct Reading<'m> {
    layout: Layout,
    data: RwLockReadGuard<'m, Vec<f32>>,
}

/// Elements of a buffer that nobody else uses.
pub(crate) struct Writing<'m> {
    layout: Layout,
    data: RwLockWriteGuard<'m, Vec<f32>>,
}

/// Elements of a buffer.
pub(crate) fn elements(buffer: &Buffer, shape: AttentionShape) -> u64 {
    let rows = buffer.runs.last().map_or(0, |run| u64::from(run.offset) + u64::from(run.rows.len));
    rows.saturating_mul(u64::from(buffer.heads.len())).saturating_mul(width(buffer.tensor, shape) as u64)
}

/// Every row of a buffer as (index in the buffer, sequence, row).
pub(crate) fn each_row(buffer: &Buffer) -> impl Iterator<Item = (u32, u32, u32)> {
    buffer
        .runs
        .iter()
        .flat_map(|run| (0..run.rows.len).map(move |i| (run.offset + i, run.seq, run.rows.start + i * run.rows.stride)))
}

/// Sequence and row of an index in a buffer.
pub(crate) fn row_at(buffer: &Buffer, index: u32) -> Option<(u32, u32)> {
    let after = buffer.runs.partition_point(|run| run.offset <= index);
    let run = buffer.runs.get(after.checked_sub(1)?)?;
    let ahead = index - run.offset;
    (ahead < run.rows.len).then(|| (run.seq, run.rows.start + ahead * run.rows.stride))
}

impl<'a> Memory<'a> {
    pub(crate) fn new(buffer: &'a Buffer, shape: AttentionShape) -> Self {
        let layout = Layout {
            first_head: buffer.heads.start,
            heads: buffer.heads.len() as usize,
            width: width(buffer.tensor, shape),
        };
        let data = RwLock::new(vec![f32::from_bits(POISON); elements(buffer, shape) as usize]);
        Self { buffer, layout, data }
    }

    pub(crate) fn read(&self) -> Reading<'_> {
        // A thread that panicked is reported where it is joined.
        Reading { layout: self.layout, data: self.data.read().unwrap_or_else(PoisonError::into_inner) }
    }

    /// Takes over the elements of a buffer of the same layout.
    pub(crate) fn copy(&self, from: &Memory<'_>) {
        let from = from.read();
        let mut to = self.write();
        if to.data.len() == from.data.len() {
            to.data.copy_from_slice(&from.data);
        }
    }

    pub(crate) fn write(&self) -> Writing<'_> {
        Writing { layout: self.layout, data: self.data.write().unwrap_or_else(PoisonError::into_inner) }
    }
}

impl Reading<'_> {
    pub(crate) fn at(&self, row: u32, head: u16) -> Option<&[f32]> {
        self.data.get(self.layout.range(row, head)?)
    }
}

impl Writing<'_> {
    pub(crate) fn at(&mut self, row: u32, head: u16) -> Option<&mut [f32]> {
        let range = self.layout.range(row, head)?;
        self.data.get_mut(range)
    }
}

/// A contribution to one row and head of a result.
#[derive(Clone, Debug)]
pub(crate) struct Contribution {
    pub(crate) values: Vec<f64>,
    /// LSE of an O; none when it travels alone.
    pub(crate) lse: Option<f64>,
}

impl Contribution {
    fn of(values: &[f32], lse: Option<f32>) -> Self {
        Self { values: values.iter().map(|x| f64::from(*x)).collect(), lse: lse.map(f64::from) }
    }
}

/// Adds to one row and head of a result: written where it is empty, else added (O: merged by log-sum-exp).
pub(crate) fn add(memory: &[Memory<'_>], tensor: Tensor, view: View, head: u16, what: &Contribution) -> Option<()> {
    let mut result = memory.get(view.buffer as usize)?.write();
    let to = result.at(view.row, head)?;
    let store = |to: &mut [f32], values: &[f64]| to.iter_mut().zip(values).for_each(|(to, x)| *to = *x as f32);
    if tensor != Tensor::O {
        if is_poison(to) {
            store(to, &what.values);
        } else {
            to.iter_mut().zip(&what.values).for_each(|(to, x)| *to = (f64::from(*to) + x) as f32);
        }
        return Some(());
    }
    let mut lse_of = memory.get(view.buffer as usize + 1)?.write();
    let lse = lse_of.at(view.row, head)?;
    let held = (!is_poison(lse)).then_some(f64::from(*lse.first()?));
    if is_poison(to) {
        store(to, &what.values);
        if let Some(new) = what.lse {
            store(lse, &[new]);
        }
        return Some(());
    }
    // Without both LSEs two outputs cannot be merged: the result is not a number.
    let (Some(a), Some(b)) = (held, what.lse) else {
        to.fill(f32::NAN);
        lse.fill(f32::NAN);
        return Some(());
    };
    let most = a.max(b);
    if most == f64::NEG_INFINITY {
        return Some(());
    }
    let (a, b) = (libm::exp(a - most), libm::exp(b - most));
    to.iter_mut().zip(&what.values).for_each(|(to, x)| *to = ((a * f64::from(*to) + b * x) / (a + b)) as f32);
    store(lse, &[most + libm::log(a + b)]);
    Some(())
}

/// Takes what one row and head of a result holds and leaves it empty; O with its LSE. None when it is empty.
pub(crate) fn take(memory: &[Memory<'_>], tensor: Tensor, view: View, head: u16) -> Option<Contribution> {
    let found = peek(memory, tensor, view, head)?;
    let empty = f32::from_bits(POISON);
    memory.get(view.buffer as usize)?.write().at(view.row, head)?.fill(empty);
    if tensor == Tensor::O {
        memory.get(view.buffer as usize + 1)?.write().at(view.row, head)?.fill(empty);
    }
    Some(found)
}

/// What one row and head of a result holds; none when it is empty.
pub(crate) fn peek(memory: &[Memory<'_>], tensor: Tensor, view: View, head: u16) -> Option<Contribution> {
    let result = memory.get(view.buffer as usize)?.read();
    let values = result.at(view.row, head)?;
    if is_poison(values) {
        return None;
    }
    let lse = if tensor == Tensor::O {
        let lse_of = memory.get(view.buffer as usize + 1)?.read();
        lse_of.at(view.row, head).filter(|lse| !is_poison(lse)).and_then(|lse| lse.first().copied())
    } else {
        None
    };
    Some(Contribution::of(values, lse))
}
