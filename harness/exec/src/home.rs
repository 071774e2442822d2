use std::sync::Arc;

use skewbench_plan::{Rows, Run};

/// Rows of the exit layout on one rank.
pub(crate) struct Home {
    pub(crate) runs: Arc<[Run]>,
    /// No run has a stride, so that runs do not interleave.
    dense: bool,
}

/// Rows of packed sequences.
pub(crate) type RowList = Vec<(u32, Rows)>;

impl Home {
    pub(crate) fn new(shards: &mut [(u32, Rows)]) -> Self {
        let runs = Run::coalesce(shards);
        let dense = runs.iter().all(|run| run.rows.stride == 1);
        Self { runs, dense }
    }

    pub(crate) fn rows(&self) -> u64 {
        total(self.runs.iter().map(|run| run.rows))
    }

    /// Index of rows that are all home and neighbours there; looks first where the last rows were found.
    pub(crate) fn find_near(&self, near: &mut usize, seq: u32, rows: Rows) -> Option<u32> {
        Run::find_dense_near(&self.runs, near, seq, rows)
    }

    /// Sorts rows into those that are home and the others.
    pub(crate) fn split(&self, seq: u32, rows: Rows, inside: &mut RowList, outside: &mut RowList) {
        let first = self.runs.partition_point(|run| run.seq < seq);
        let of_seq = &self.runs[first..self.runs.partition_point(|run| run.seq <= seq)];
        let rows = if rows.len == 1 && self.dense { Rows { stride: 1, ..rows } } else { rows };
        let fits = |run: &Run| run.rows.stride == rows.stride;
        // Dense runs have one stride, so that the first speaks for all.
        let fit = if self.dense { of_seq.first().is_none_or(fits) } else { of_seq.iter().all(fits) };
        if !fit {
            // Strides that do not fit: row by row.
            for row in (0..rows.len).map(|i| Rows { start: rows.start + i * rows.stride, len: 1, stride: 1 }) {
                let home = Run::find_dense(of_seq, seq, row).is_some();
                if home { &mut *inside } else { &mut *outside }.push((seq, row));
            }
            return;
        }
        let skip = if self.dense { of_seq.partition_point(|run| run.rows.end() <= rows.start) } else { 0 };
        let runs = of_seq[skip..].iter().take_while(|run| run.rows.start < rows.end());
        let mut rest = rows;
        for run in runs.filter(|run| run.rows.class() == rows.class()).map(|run| run.rows) {
            let before = (run.start.saturating_sub(rest.start) / rest.stride).min(rest.len);
            outside.extend((before > 0).then_some((seq, Rows { len: before, ..rest })));
            let start = rest.start + before * rest.stride;
            let held = (run.end().saturating_sub(start)).div_ceil(rest.stride).min(rest.len - before);
            inside.extend((held > 0).then_some((seq, Rows { start, len: held, ..rest })));
            rest = Rows { start: start + held * rest.stride, len: rest.len - before - held, ..rest };
        }
        outside.extend((rest.len > 0).then_some((seq, rest)));
    }
}

pub(crate) fn total(rows: impl Iterator<Item = Rows>) -> u64 {
    rows.map(|r| u64::from(r.len)).sum()
}

/// Rows that are in the list more than once, counted as often as they are there too many.
pub(crate) fn repeated(rows: &mut RowList) -> u64 {
    let given = total(rows.iter().map(|(_, rows)| *rows));
    given - total(Run::coalesce(rows).iter().map(|run| run.rows))
}

#[cfg(test)]
mod tests {
    use super::{Home, RowList, Rows};

    fn each(list: &RowList) -> Vec<u32> {
        let mut rows: Vec<u32> =
            list.iter().flat_map(|(_, r)| (0..r.len).map(move |i| r.start + i * r.stride)).collect();
        rows.sort_unstable();
        rows
    }

    #[test]
    fn rows_are_split_at_the_bounds_of_home() {
        let homes: [&[Rows]; 3] = [
            &[Rows::range(3, 7), Rows::range(10, 11), Rows::range(20, 30)],
            &[Rows::residue(0, 24, 1, 3)],
            &[Rows::residue(0, 20, 0, 4), Rows::range(25, 28)],
        ];
        for shards in homes {
            let mut list: RowList = shards.iter().map(|rows| (1, *rows)).collect();
            let held = each(&list);
            let home = Home::new(&mut list);
            for start in 0..32 {
                for (len, stride) in [(1, 1), (1, 5), (9, 1), (4, 3), (3, 4), (40, 1)] {
                    let rows = Rows { start, len, stride };
                    let (mut inside, mut outside) = (Vec::new(), Vec::new());
                    home.split(1, rows, &mut inside, &mut outside);
                    let (is_home, is_not): (Vec<u32>, Vec<u32>) =
                        each(&vec![(1, rows)]).into_iter().partition(|row| held.contains(row));
                    assert_eq!((each(&inside), each(&outside)), (is_home, is_not), "{rows:?} of {shards:?}");
                    let (mut inside, mut outside) = (Vec::new(), Vec::new());
                    home.split(0, rows, &mut inside, &mut outside);
                    assert!(inside.is_empty() && each(&outside).len() == len as usize);
                }
            }
        }
    }
}
