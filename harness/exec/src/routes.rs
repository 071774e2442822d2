use std::sync::Arc;

use skewbench_plan::{Move, MoveIndex};

use crate::{Flow, RankRows, RouteTable};

impl RouteTable {
    /// Collects what backends ask of a list of moves between `ranks` ranks.
    pub(crate) fn new(moves: &[Move], index: &Arc<MoveIndex>, ranks: u32) -> Self {
        let mut table = Self { moves: moves.to_vec(), index: index.clone(), ..Self::default() };
        table.rows = vec![RankRows::default(); ranks as usize];
        let mut rows_to = vec![0u64; ranks as usize];
        let mut touched: Vec<u32> = Vec::new();
        for from in 0..ranks {
            for mv in index.sent(from).iter().map(|i| &moves[*i as usize]) {
                let rows = u64::from(mv.rows.len);
                if mv.to == from {
                    table.rows[from as usize].local += rows;
                    continue;
                }
                table.rows[from as usize].sent += rows;
                table.rows[mv.to as usize].received += rows;
                if rows_to[mv.to as usize] == 0 {
                    touched.push(mv.to);
                }
                rows_to[mv.to as usize] += rows;
            }
            touched.sort_unstable();
            for to in touched.drain(..) {
                table.flows.push(Flow { from, to, rows: std::mem::take(&mut rows_to[to as usize]) });
            }
        }
        table
    }
}
