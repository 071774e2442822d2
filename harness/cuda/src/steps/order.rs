//! One fixed order of all additions of a rank.

use std::collections::BTreeMap;

use skewbench_exec::InstrId;

use super::{Action, RowMove, Step, Work};

fn adds(work: &Work) -> bool {
    let is_sum = |m: &RowMove| matches!(m.action, Action::Add | Action::Merge { .. });
    matches!(work, Work::Rows(moves) if moves.iter().any(is_sum))
}

/// Makes every addition wait for the one before it, as `position` sorts them, and sorts additions of one instruction that
/// meet.
pub(super) fn fix(streams: &mut [Vec<Step>], position: impl Fn(InstrId) -> Option<u32>) {
    let mut additions: Vec<InstrId> = Vec::new();
    for (stream, steps) in (0u32..).zip(streams.iter()) {
        let of_stream = (0u32..).zip(steps).filter(|(_, step)| step.work.iter().any(adds));
        additions.extend(of_stream.map(|(index, _)| InstrId { stream, index }));
    }
    additions.sort_by_key(|id| position(*id));
    let mut before: Option<InstrId> = None;
    for id in additions {
        let Some(step) = streams.get_mut(id.stream as usize).and_then(|steps| steps.get_mut(id.index as usize)) else {
            continue;
        };
        let mut turn = before.filter(|before| before.stream != id.stream).map(Work::Turn);
        let work = std::mem::take(&mut step.work);
        for work in work {
            if adds(&work) {
                step.work.extend(turn.take());
            }
            match work {
                Work::Rows(moves) => step.work.extend(apart(moves).into_iter().map(Work::Rows)),
                other => step.work.push(other),
            }
        }
        before = Some(id);
    }
}

/// Stretches of rows by their first byte: their end, and the last list that adds to them.
type Stretches = BTreeMap<u64, (u64, usize)>;

/// Columns of a row that a move touches: distance between rows, first byte and bytes.
type Columns = (u64, u64, u64);

fn columns(m: &RowMove) -> Columns {
    let bytes = u64::from(m.heads) * u64::from(m.width) * m.to_element.bytes();
    (m.to_stride, if m.to_stride > 0 { m.to % m.to_stride } else { m.to }, bytes)
}

/// False when moves with these columns touch no common byte, wherever their rows are.
fn meet(a: Columns, b: Columns) -> bool {
    if a.0 != b.0 || a.0 == 0 {
        return true;
    }
    let ahead = (b.1 + a.0 - a.1) % a.0;
    ahead < a.2 || ahead + b.2 > a.0
}

/// Moves cut into lists, one after the other, so that none of a list adds to what another one of it adds to.
fn apart(moves: Vec<RowMove>) -> Vec<Vec<RowMove>> {
    let mut classes: Vec<(Columns, Stretches)> = Vec::new();
    let mut lists: Vec<Vec<RowMove>> = Vec::new();
    for m in moves {
        let own = columns(&m);
        let (start, end) = (m.to, m.to + u64::from(m.rows.saturating_sub(1)) * m.to_stride + own.2);
        let mut list = 0;
        for (_, stretches) in classes.iter().filter(|(columns, _)| meet(own, *columns)) {
            // Stretches of a class do not overlap each other, so that ends are sorted as starts are.
            let touching = stretches.range(..end).rev().take_while(|(_, (until, _))| *until > start);
            list = touching.fold(list, |list, (_, (_, last))| list.max(last + 1));
        }
        if lists.len() <= list {
            lists.resize_with(list + 1, Vec::new);
        }
        lists[list].push(m);
        let class = match classes.iter().position(|(columns, _)| *columns == own) {
            Some(class) => class,
            None => {
                classes.push((own, Stretches::new()));
                classes.len() - 1
            }
        };
        cover(&mut classes[class].1, start, end, list);
    }
    lists
}

/// Notes the last list of a stretch, over what was known of parts of it.
fn cover(stretches: &mut Stretches, start: u64, end: u64, list: usize) {
    let touching: Vec<u64> =
        stretches.range(..end).rev().take_while(|(_, (until, _))| *until > start).map(|(start, _)| *start).collect();
    for from in touching {
        let Some((until, last)) = stretches.remove(&from) else { continue };
        if from < start {
            stretches.insert(from, (start, last));
        }
        if until > end {
            stretches.insert(end, (until, last));
        }
    }
    stretches.insert(start, (end, list));
}

#[cfg(test)]
mod tests {
    use super::super::Element;
    use super::*;

    fn add(to: u64, rows: u32, heads: u32) -> RowMove {
        RowMove {
            from: 0,
            to,
            rows,
            heads,
            width: 4,
            from_stride: 64,
            to_stride: 64,
            from_element: Element::Bf16,
            to_element: Element::F32,
            action: Action::Add,
        }
    }

    #[test]
    fn moves_that_add_to_the_same_rows_come_one_after_the_other() {
        let (a, b, c) = (add(0, 4, 4), add(128, 4, 4), add(256, 1, 4));
        // Other heads of the same rows.
        let (d, e) = (add(1024, 4, 2), add(1024 + 32, 4, 2));
        let lists = apart(vec![a, b, c, d, e]);
        assert_eq!(lists, [vec![a, d, e], vec![b], vec![c]]);
        assert_eq!(apart(vec![a, c]), [vec![a, c]]);
    }
}
