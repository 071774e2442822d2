use skewbench_plan::{AttentionShape, Cost, TileShape};

use super::cut::{Cut, Piece};
use crate::call_time::causal_call_ps;

/// Predicted picoseconds that the rank with the slowest launches spends in them, forward and backward.
pub(super) fn slowest_rank_ps(cut: &Cut, shape: AttentionShape, cost: &dyn Cost) -> u64 {
    let launches = cut.shards.iter().map(|shard| {
        let of = |pieces: &[Piece]| launch_ps(pieces, shape, cost);
        of(&shard.front).saturating_add(of(&shard.back))
    });
    launches.max().unwrap_or(0)
}

/// Forward and backward of one launch.
fn launch_ps(pieces: &[Piece], shape: AttentionShape, cost: &dyn Cost) -> u64 {
    if pieces.is_empty() {
        return 0;
    }
    let tiles: Vec<TileShape> =
        pieces.iter().map(|piece| TileShape { q: piece.end - piece.start, k: piece.end - piece.document }).collect();
    causal_call_ps(&tiles, shape, cost)
}
