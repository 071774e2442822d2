//! Sets of contiguous rows of all sequences as intervals on one line of numbers.

use crate::Rows;
use crate::near::last;

/// `[start, end)`: the sequence stands in the upper half of a number, the row in the lower. Rows of different sequences
/// never touch: a plan has fewer rows than a half can number.
pub(crate) type Interval = (u64, u64);

/// The place of a row on the line.
pub(super) fn point(seq: u32, row: u32) -> u64 {
    u64::from(seq) << 32 | u64::from(row)
}

/// Contiguous rows as an interval; none when they have gaps.
pub(crate) fn interval(seq: u32, rows: Rows) -> Option<Interval> {
    let start = point(seq, rows.start);
    (rows.stride == 1 || rows.len == 1).then_some((start, start + u64::from(rows.len)))
}

/// Sorts intervals and joins those that meet or touch.
pub(super) fn join(list: &mut Vec<Interval>) {
    if !list.is_sorted_by_key(|i| i.0) {
        // They mostly come as a few sorted lists, which a stable sort only merges.
        list.sort_by_key(|i| i.0);
    }
    list.dedup_by(|next, last| {
        let joins = next.0 <= last.1;
        if joins {
            last.1 = last.1.max(next.1);
        }
        joins
    });
}

/// True when one of the joined intervals holds all of `part`; looks first where it found the last one.
#[inline]
pub(crate) fn holds(joined: &[Interval], near: &mut usize, part: Interval) -> bool {
    // What comes in order is mostly there or in the next one.
    for found in [*near, *near + 1] {
        let Some(at) = joined.get(found).filter(|at| at.0 <= part.0) else { break };
        if part.1 <= at.1 {
            *near = found;
            return true;
        }
    }
    let Some(found) = last(joined.len(), *near, |i| joined[i].0 <= part.0) else { return false };
    *near = found;
    part.1 <= joined[found].1
}

/// Rows of joined intervals.
pub(super) fn length(joined: &[Interval]) -> u64 {
    joined.iter().map(|i| i.1 - i.0).sum()
}

/// Rows that are in both of two lists of joined intervals.
pub(super) fn common(a: &[Interval], b: &[Interval]) -> u64 {
    let (mut i, mut j, mut rows) = (0, 0, 0);
    while let (Some(x), Some(y)) = (a.get(i), b.get(j)) {
        rows += x.1.min(y.1).saturating_sub(x.0.max(y.0));
        if x.1 <= y.1 {
            i += 1;
        } else {
            j += 1;
        }
    }
    rows
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use proptest::prelude::*;

    use super::{Interval, common, holds, join, length};

    fn rows(list: &[Interval]) -> BTreeSet<u64> {
        list.iter().flat_map(|i| i.0..i.1).collect()
    }

    proptest! {
        #[test]
        fn joined_intervals_are_the_same_rows_apart(
            list in prop::collection::vec((0u64..30, 1u64..6).prop_map(|(a, len)| (a, a + len)), 0..12),
            parts in prop::collection::vec((0u64..30, 1u64..6).prop_map(|(a, len)| (a, a + len)), 0..12),
        ) {
            let mut joined = list.clone();
            join(&mut joined);
            prop_assert_eq!(rows(&list), rows(&joined));
            prop_assert!(joined.windows(2).all(|w| w[0].1 < w[1].0));
            prop_assert_eq!(length(&joined), rows(&list).len() as u64);
            let mut others = parts.clone();
            join(&mut others);
            prop_assert_eq!(common(&joined, &others), rows(&list).intersection(&rows(&parts)).count() as u64);
            let mut near = 0;
            for part in parts {
                prop_assert_eq!(holds(&joined, &mut near, part), rows(&[part]).is_subset(&rows(&list)));
            }
        }
    }
}
