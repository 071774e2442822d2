//! Which rows of buffers hold something, as intervals.

use skewbench_plan::{HeadRange, Rows, Run};

/// Rows of a sequence and heads of a tensor; `skip` is where they start among the rows of a message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Rect {
    pub(super) seq: u32,
    pub(super) rows: Rows,
    pub(super) heads: HeadRange,
    pub(super) skip: u32,
}

/// Rows `row, row + step, ...` of a buffer and some of its heads.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Spot {
    pub(super) buffer: u32,
    pub(super) row: u32,
    pub(super) step: u32,
    pub(super) rows: u32,
    pub(super) heads: HeadRange,
    pub(super) skip: u32,
}

/// Heads that two ranges share.
pub(super) fn common(a: HeadRange, b: HeadRange) -> HeadRange {
    HeadRange::new(a.start.max(b.start), a.end.min(b.end))
}

impl Rect {
    /// Part of the rows: `count` after the first `ahead`.
    fn part(self, ahead: u32, count: u32) -> Self {
        let rows = Rows { start: self.rows.start + ahead * self.rows.stride, len: count, ..self.rows };
        Self { rows, skip: self.skip + ahead, ..self }
    }

    /// The part that a spot found in it covers.
    pub(super) fn of_spot(self, spot: &Spot) -> Self {
        Self { heads: spot.heads, ..self.part(spot.skip.saturating_sub(self.skip), spot.rows) }
    }

    /// Puts the rows that a buffer of these runs holds into `found` and the others into `rest`, in their order.
    fn split_rows(self, buffer: u32, runs: &[Run], found: &mut Vec<Spot>, rest: &mut Vec<Self>) {
        let Self { seq, rows, heads, skip } = self;
        if rows.is_empty() {
            return;
        }
        let first = runs.partition_point(|run| run.seq < seq);
        let of_seq = &runs[first..runs.partition_point(|run| run.seq <= seq)];
        let plain = of_seq.iter().all(|run| run.rows.stride == 1 && !run.mixed);
        let near = if plain { of_seq.partition_point(|run| run.rows.end() <= rows.start) } else { 0 };
        let start = found.len();
        for run in of_seq[near..].iter().take_while(|run| run.rows.start <= rows.last()) {
            let spot = |ahead: u32, count: u32, row: u32, step: u32| Spot {
                buffer,
                row: run.offset + row,
                step,
                rows: count,
                heads,
                skip: skip + ahead,
            };
            let own = run.rows;
            if own.stride == 1 || rows.len == 1 || own.stride == rows.stride {
                let fits = rows.start % own.stride == own.class();
                if !fits {
                    continue;
                }
                // Both have one residue class, or the run has every row: the common rows are neighbours in `rows`.
                let ahead = own.start.saturating_sub(rows.start).div_ceil(rows.stride).min(rows.len);
                let at = rows.start + ahead * rows.stride;
                let count = own.end().saturating_sub(at).div_ceil(rows.stride).min(rows.len - ahead);
                if count > 0 {
                    let step = if rows.len == 1 { 1 } else { rows.stride / own.stride };
                    found.push(spot(ahead, count, (at - own.start) / own.stride, step));
                }
                continue;
            }
            // Strides that do not fit: row by row.
            found.extend((0..rows.len).filter_map(|i| {
                let row = rows.start + i * rows.stride;
                let inside = row >= own.start && row < own.end() && row % own.stride == own.class();
                inside.then(|| spot(i, 1, (row - own.start) / own.stride, 1))
            }));
        }
        found[start..].sort_by_key(|spot| spot.skip);
        let mut next = 0;
        for spot in &found[start..] {
            let ahead = spot.skip - skip;
            if ahead > next {
                rest.push(self.part(next, ahead - next));
            }
            next = next.max(ahead + spot.rows);
        }
        if next < rows.len {
            rest.push(self.part(next, rows.len - next));
        }
    }

    /// [`Rect::split_rows`] for a buffer that may hold only some of the heads.
    pub(super) fn split(
        self,
        (buffer, held, runs): (u32, HeadRange, &[Run]),
        found: &mut Vec<Spot>,
        rest: &mut Vec<Self>,
    ) {
        let heads = common(self.heads, held);
        if heads.is_empty() {
            rest.push(self);
            return;
        }
        let outside = [HeadRange::new(self.heads.start, heads.start), HeadRange::new(heads.end, self.heads.end)];
        rest.extend(outside.into_iter().filter(|heads| !heads.is_empty()).map(|heads| Self { heads, ..self }));
        Self { heads, ..self }.split_rows(buffer, runs, found, rest);
    }
}

/// Sorted intervals of rows that do not touch.
pub(super) type Intervals = Vec<(u32, u32)>;

/// Sorts intervals and joins those that touch.
pub(super) fn join(rows: &mut Intervals) {
    rows.sort_unstable();
    rows.dedup_by(|next, last| {
        let joins = next.0 <= last.1;
        if joins {
            last.1 = last.1.max(next.1);
        }
        joins
    });
}

fn insert_one(rows: &mut Intervals, (start, end): (u32, u32)) {
    let first = rows.partition_point(|held| held.1 < start);
    let after = first + rows[first..].partition_point(|held| held.0 <= end);
    let joined = rows[first..after].iter().fold((start, end), |all, held| (all.0.min(held.0), all.1.max(held.1)));
    rows.splice(first..after, [joined]);
}

fn remove_one(rows: &mut Intervals, (start, end): (u32, u32)) {
    let first = rows.partition_point(|held| held.1 <= start);
    let after = first + rows[first..].partition_point(|held| held.0 < end);
    let Some((low, high)) = rows.get(first).zip(rows[first..after].last()).map(|(a, b)| (a.0, b.1)) else { return };
    let left = [(low, start), (end, high)].into_iter().filter(|(start, end)| start < end);
    rows.splice(first..after, left.collect::<Vec<_>>());
}

/// Rows of a buffer, head by head: neighbouring heads with the same rows are one class.
#[derive(Clone, Debug, Default)]
pub(super) struct Filled {
    classes: Vec<(HeadRange, Intervals)>,
}

impl Filled {
    pub(super) fn new(heads: HeadRange) -> Self {
        Self { classes: vec![(heads, Vec::new())] }
    }

    fn cut(&mut self, at: u16) {
        if let Some(i) = self.classes.iter().position(|(heads, _)| heads.start < at && at < heads.end) {
            let (heads, rows) = self.classes[i].clone();
            self.classes[i].0.end = at;
            self.classes.insert(i + 1, (HeadRange::new(at, heads.end), rows));
        }
    }

    fn change(&mut self, heads: HeadRange, mut rows: Intervals, change: impl Fn(&mut Intervals, (u32, u32))) {
        rows.retain(|rows| rows.0 < rows.1);
        join(&mut rows);
        self.cut(heads.start);
        self.cut(heads.end);
        for (_, held) in self.classes.iter_mut().filter(|(class, _)| heads.contains(*class)) {
            rows.iter().for_each(|rows| change(held, *rows));
        }
        self.classes.dedup_by(|next, last| {
            let same = last.0.end == next.0.start && last.1 == next.1;
            if same {
                last.0.end = next.0.end;
            }
            same
        });
    }

    /// Adds rows.
    pub(super) fn insert(&mut self, heads: HeadRange, rows: Intervals) {
        self.change(heads, rows, insert_one);
    }

    /// Removes rows.
    pub(super) fn remove(&mut self, heads: HeadRange, rows: Intervals) {
        self.change(heads, rows, remove_one);
    }

    /// The classes.
    pub(super) fn classes(&self) -> &[(HeadRange, Intervals)] {
        &self.classes
    }

    /// Cuts a spot into what is there and what is not.
    pub(super) fn split(&self, spot: &Spot, there: &mut Vec<Spot>, missing: &mut Vec<Spot>) {
        for (class, held) in &self.classes {
            let heads = common(*class, spot.heads);
            if heads.is_empty() {
                continue;
            }
            let of_class = Spot { heads, ..*spot };
            let part = |ahead: u32, rows: u32| Spot {
                row: spot.row + ahead * spot.step,
                skip: spot.skip + ahead,
                rows,
                ..of_class
            };
            let mut next = 0;
            let first = held.partition_point(|rows| rows.1 <= spot.row);
            let end = spot.row + spot.rows.saturating_sub(1) * spot.step + 1;
            for rows in held[first..].iter().take_while(|rows| rows.0 < end) {
                let from = rows.0.saturating_sub(spot.row).div_ceil(spot.step);
                let to = (rows.1 - spot.row).div_ceil(spot.step).min(spot.rows);
                if from >= to {
                    continue;
                }
                if from > next {
                    missing.push(part(next, from - next));
                }
                there.push(part(from, to - from));
                next = to;
            }
            if next < spot.rows {
                missing.push(part(next, spot.rows - next));
            }
        }
    }
}

impl Spot {
    /// The rows as intervals of the buffer.
    pub(super) fn intervals(&self) -> impl Iterator<Item = (u32, u32)> + use<> {
        let Self { row, step, rows, .. } = *self;
        let (pieces, len) = if step == 1 { (1, rows) } else { (rows, 1) };
        (0..pieces).map(move |i| (row + i * step, row + i * step + len))
    }
}

/// True when no row and head is in the list more than once.
pub(super) fn all_single(spots: &[(HeadRange, (u32, u32))]) -> bool {
    let mut bounds: Vec<u16> = spots.iter().flat_map(|(heads, _)| [heads.start, heads.end]).collect();
    bounds.sort_unstable();
    bounds.dedup();
    let mut rows = Intervals::new();
    bounds.windows(2).all(|class| {
        let class = HeadRange::new(class[0], class[1]);
        rows.clear();
        rows.extend(spots.iter().filter(|(heads, _)| heads.contains(class)).map(|(_, rows)| *rows));
        rows.sort_unstable();
        rows.windows(2).all(|pair| pair[0].1 <= pair[1].0)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    const HEADS: HeadRange = HeadRange { start: 0, end: 4 };

    fn rows_of(rect: &Rect) -> Vec<(u32, u32)> {
        (0..rect.rows.len).map(|i| (rect.skip + i, rect.rows.start + i * rect.rows.stride)).collect()
    }

    #[test]
    fn rows_are_found_in_buffers_of_any_stride() {
        let lists: [&[Rows]; 4] = [
            &[Rows::range(3, 7), Rows::range(10, 11), Rows::range(20, 30)],
            &[Rows::residue(0, 24, 1, 3)],
            &[Rows { start: 1, len: 4, stride: 5 }, Rows::range(7, 9), Rows { start: 12, len: 1, stride: 3 }],
            &[Rows::residue(0, 20, 0, 4), Rows::range(25, 28)],
        ];
        for list in lists {
            let runs = Run::coalesce(&mut list.iter().map(|rows| (1, *rows)).collect::<Vec<_>>());
            let index = |row: u32| Run::find(&runs, 1, Rows { start: row, len: 1, stride: 1 });
            for start in 0..32 {
                for (len, stride) in [(1, 1), (1, 5), (9, 1), (4, 3), (3, 4), (40, 1), (6, 2)] {
                    let rect = Rect { seq: 1, rows: Rows { start, len, stride }, heads: HEADS, skip: 7 };
                    let (mut found, mut rest) = (Vec::new(), Vec::new());
                    rect.split((5, HeadRange::new(1, 3), &runs), &mut found, &mut rest);
                    let mut all = Vec::new();
                    for spot in &found {
                        assert_eq!((spot.buffer, spot.heads), (5, HeadRange::new(1, 3)));
                        for (i, place) in rows_of(&rect.of_spot(spot)).into_iter().enumerate() {
                            assert_eq!(index(place.1), Some(spot.row + i as u32 * spot.step), "{rect:?} in {runs:?}");
                            all.push(place);
                        }
                    }
                    let (others, heads): (Vec<Rect>, Vec<Rect>) =
                        rest.into_iter().partition(|r| r.heads == HeadRange::new(1, 3));
                    assert_eq!(heads.len(), 2);
                    for place in others.iter().flat_map(rows_of) {
                        assert_eq!(index(place.1), None, "{rect:?} in {runs:?}");
                        all.push(place);
                    }
                    all.sort_unstable();
                    assert_eq!(all, rows_of(&rect));
                }
            }
        }
    }

    #[test]
    fn filled_rows_come_and_go_by_head() {
        let mut filled = Filled::new(HEADS);
        filled.insert(HeadRange::new(0, 2), vec![(0, 5), (5, 7)]);
        filled.insert(HeadRange::new(1, 4), vec![(6, 9)]);
        filled.remove(HEADS, vec![(2, 3)]);
        let (mut there, mut missing) = (Vec::new(), Vec::new());
        let spot = Spot { buffer: 0, row: 0, step: 2, rows: 5, heads: HEADS, skip: 10 };
        filled.split(&spot, &mut there, &mut missing);
        let each = |spots: &[Spot]| {
            let mut all: Vec<(u16, u32)> = spots
                .iter()
                .flat_map(|s| {
                    (s.heads.start..s.heads.end).flat_map(move |h| (0..s.rows).map(move |i| (h, s.row + i * s.step)))
                })
                .collect();
            all.sort_unstable();
            all
        };
        let expected = [(0, 0), (0, 4), (0, 6), (1, 0), (1, 4), (1, 6), (1, 8), (2, 6), (2, 8), (3, 6), (3, 8)];
        assert_eq!(each(&there), expected);
        assert_eq!(each(&missing).len(), 20 - expected.len());
        assert!(there.iter().all(|s| s.row == (s.skip - 10) * 2));
    }

    #[test]
    fn rows_that_overlap_on_a_shared_head_are_not_single() {
        let (low, high) = (HeadRange::new(0, 2), HeadRange::new(1, 4));
        assert!(all_single(&[(low, (0, 4)), (high, (4, 9)), (low, (9, 12))]));
        assert!(!all_single(&[(low, (0, 4)), (high, (3, 9))]));
        assert!(all_single(&[(low, (0, 4)), (HeadRange::new(2, 4), (0, 4))]));
    }
}
