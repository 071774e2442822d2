//! Lists of row moves.

use super::memory::{Block, Memory};
use super::{Action, RowMove};

fn row_move(from: &Block, to: &Block, action: Action) -> RowMove {
    RowMove {
        from: from.at,
        to: to.at,
        rows: to.rows,
        heads: to.heads.len(),
        width: to.width,
        from_stride: from.stride,
        to_stride: to.stride,
        from_element: from.element,
        to_element: to.element,
        action,
    }
}

/// Appends a move; one that goes on where the last one ends makes that one longer.
fn push(out: &mut Vec<RowMove>, next: RowMove) {
    let Some(last) = out.last_mut() else { return out.push(next) };
    let after = |start: u64, stride: u64| start + u64::from(last.rows) * stride;
    let action = match (last.action, next.action) {
        (
            Action::Merge { from_lse, to_lse, from_lse_stride, to_lse_stride },
            Action::Merge { from_lse: from, to_lse: to, from_lse_stride: from_stride, to_lse_stride: to_stride },
        ) => {
            (from_lse_stride, to_lse_stride) == (from_stride, to_stride)
                && (after(from_lse, from_stride), after(to_lse, to_stride)) == (from, to)
        }
        (one, other) => one == other,
    };
    let shape = |m: &RowMove| (m.heads, m.width, m.from_stride, m.to_stride, m.from_element, m.to_element);
    let follows = (after(last.from, last.from_stride), after(last.to, last.to_stride)) == (next.from, next.to);
    match last.rows.checked_add(next.rows).filter(|_| action && follows && shape(last) == shape(&next)) {
        Some(rows) => last.rows = rows,
        None => out.push(next),
    }
}

/// Writes a block that has the rows and heads of the other one.
pub(super) fn write(out: &mut Vec<RowMove>, from: &Block, to: &Block) {
    if (from.at, from.stride, from.element) != (to.at, to.stride, to.element) {
        push(out, row_move(from, to, Action::Write));
    }
}

/// Writes a block and leaves its source with words of these bits.
pub(super) fn take(out: &mut Vec<RowMove>, from: &Block, to: &Block, bits: u32) {
    push(out, row_move(from, to, Action::Take { bits }));
}

/// A result with what goes with it: O with its LSE.
#[derive(Clone, Copy)]
pub(super) struct Value {
    pub(super) block: Block,
    /// LSE of an O; none where it travels alone.
    pub(super) lse: Option<Block>,
}

impl Value {
    /// What two values share, as each has it.
    pub(super) fn shared(&self, other: &Self) -> Option<(Self, Self)> {
        let (a, b) = self.block.shared(&other.block)?;
        let part = |lse: &Option<Block>| lse.map(|lse| lse.part(a.skip, a.rows, a.heads));
        Some((Self { block: a, lse: part(&self.lse) }, Self { block: b, lse: part(&other.lse) }))
    }
}

/// Contributes to a result of the rank: written where it gets no other contribution, else added (O: merged).
pub(super) fn deposit(out: &mut Vec<RowMove>, from: &Value, to: &Value, memory: &[Memory<'_>]) {
    let owner = to.block.buffer.and_then(|buffer| memory.get(buffer as usize));
    let written = owner.is_none_or(|m| m.written);
    match (&from.lse, &to.lse) {
        (Some(from_lse), Some(to_lse)) if !written => {
            let action = Action::Merge {
                from_lse: from_lse.at,
                to_lse: to_lse.at,
                from_lse_stride: from_lse.stride,
                to_lse_stride: to_lse.stride,
            };
            push(out, row_move(&from.block, &to.block, action));
        }
        (Some(from_lse), Some(to_lse)) => {
            write(out, &from.block, &to.block);
            write(out, from_lse, to_lse);
        }
        // An output without its LSE is the only one of its rows.
        (None, Some(_)) => write(out, &from.block, &to.block),
        _ if written => write(out, &from.block, &to.block),
        _ => push(out, row_move(&from.block, &to.block, Action::Add)),
    }
}
