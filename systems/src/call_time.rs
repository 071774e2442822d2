use skewbench_plan::{AttentionShape, Cost, LaunchShape, Mask, Pass, TileShape};

/// Predicted picoseconds of one causal kernel call on these tiles with all heads of the shape, forward and backward.
pub(crate) fn causal_call_ps(tiles: &[TileShape], shape: AttentionShape, cost: &dyn Cost) -> u64 {
    let launch = |pass| LaunchShape {
        pass,
        mask: Mask::Causal,
        q_heads: u32::from(shape.q_heads),
        kv_heads: u32::from(shape.kv_heads),
        head_dim: shape.head_dim,
        tiles,
    };
    cost.launch_ps(&launch(Pass::Forward)).saturating_add(cost.launch_ps(&launch(Pass::Backward)))
}
