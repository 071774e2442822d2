use std::sync::Arc;

use skewbench_plan::{Move, MoveIndex};

use crate::{Flow, RankRows, RouteTable};

impl RouteTable {
    /// Collects what backends ask of a list of moves between `ranks` ranks; `keep` the moves themselves, too.
    pub(crate) fn new(moves: &[Move], index: &Arc<MoveIndex>, ranks: u32, keep: bool) -> Self {
        let kept = if keep { moves.to_vec() } else { Vec::new() };
        let mut table = Self { moves: kept, index: index.clone(), ..Self::default() };
        table.rows = vec![RankRows::default(); ranks as usize];
        if moves.len() as u64 >= u64::from(ranks) * u64::from(ranks) {
            table.count_in_order(ranks);
        } else {
            table.count_by_sender(moves, ranks);
        }
        table
    }

    /// Counts rows in the order of the moves, for lists that have most ordered pairs of ranks.
    fn count_in_order(&mut self, ranks: u32) {
        let mut between: Vec<Option<u64>> = vec![None; (ranks * ranks) as usize];
        for bundle in self.index.bundles().iter().filter(|s| s.from < ranks && s.to < ranks) {
            *between[(bundle.from * ranks + bundle.to) as usize].get_or_insert(0) += bundle.rows;
        }
        let pairs = (0..ranks).flat_map(|from| (0..ranks).map(move |to| (from, to)));
        for ((from, to), rows) in pairs.zip(between) {
            let Some(rows) = rows else { continue };
            if from == to {
                self.rows[from as usize].local += rows;
                continue;
            }
            self.rows[from as usize].sent += rows;
            self.rows[to as usize].received += rows;
            self.flows.push(Flow { from, to, rows });
        }
    }

    /// Counts rows sender by sender, for lists that have few ordered pairs of ranks.
    fn count_by_sender(&mut self, moves: &[Move], ranks: u32) {
        let mut rows_to = vec![0u64; ranks as usize];
        let mut touched: Vec<u32> = Vec::new();
        let index = self.index.clone();
        for from in 0..ranks {
            for mv in index.sent(from).iter().map(|i| &moves[*i as usize]) {
                let rows = u64::from(mv.rows.len);
                if mv.to == from {
                    self.rows[from as usize].local += rows;
                    continue;
                }
                self.rows[from as usize].sent += rows;
                self.rows[mv.to as usize].received += rows;
                if rows_to[mv.to as usize] == 0 {
                    touched.push(mv.to);
                }
                rows_to[mv.to as usize] += rows;
            }
            touched.sort_unstable();
            for to in touched.drain(..) {
                self.flows.push(Flow { from, to, rows: std::mem::take(&mut rows_to[to as usize]) });
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use skewbench_plan::Rows;

    use super::*;

    proptest! {
        #[test]
        fn both_ways_of_counting_agree(pairs in prop::collection::vec((0u32..5, 0u32..5, 1u32..9), 0..40)) {
            let moves: Vec<Move> =
                pairs.iter().map(|&(from, to, len)| Move { from, to, seq: 0, rows: Rows::range(0, len) }).collect();
            let index = Arc::new(MoveIndex::new(&moves, 5));
            let fresh = || RouteTable { index: index.clone(), rows: vec![RankRows::default(); 5], ..RouteTable::default() };
            let (mut in_order, mut by_sender) = (fresh(), fresh());
            in_order.count_in_order(5);
            by_sender.count_by_sender(&moves, 5);
            prop_assert_eq!(in_order, by_sender);
        }
    }
}
