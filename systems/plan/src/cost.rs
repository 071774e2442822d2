use crate::{AttentionShape, Mask, Pass, Tile};

/// Rows and keys of one tile.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct TileShape {
    /// Query rows.
    pub q: u32,
    /// Key rows.
    pub k: u32,
}

impl From<&Tile> for TileShape {
    fn from(tile: &Tile) -> Self {
        Self { q: tile.q.len, k: tile.k.len }
    }
}

/// All that the cost of a launch depends on.
#[derive(Clone, Copy, Debug)]
pub struct LaunchShape<'a> {
    /// Forward or backward.
    pub pass: Pass,
    /// Mask of every tile.
    pub mask: Mask,
    /// Query heads of the launch.
    pub q_heads: u32,
    /// KV heads of the launch.
    pub kv_heads: u32,
    /// Elements of a head.
    pub head_dim: u16,
    /// The tiles.
    pub tiles: &'a [TileShape],
}

impl LaunchShape<'_> {
    /// FLOPs of the launch by exact pairs.
    pub fn flops(&self) -> f64 {
        let shape = AttentionShape { q_heads: 1, kv_heads: 1, head_dim: self.head_dim };
        let pairs = self.tiles.iter().map(|t| self.mask.pairs(t.q, t.k)).sum();
        match self.pass {
            Pass::Forward => shape.forward_flops(pairs, self.q_heads),
            Pass::Backward => shape.backward_flops(pairs, self.q_heads),
        }
    }
}

/// Predicted times that a planner may balance instead of FLOPs.
pub trait Cost: Sync {
    /// Picoseconds of one kernel call.
    fn launch_ps(&self, launch: &LaunchShape<'_>) -> u64;

    /// Picoseconds that `bytes` between two cards add to a transfer that is under way.
    fn transfer_ps(&self, bytes: u64, same_node: bool) -> u64;

    /// Picoseconds that the tiles of `launch` add to a call of many tiles, which fills the card: additive in tiles, cheap to
    /// ask for, without the overhead of a call. The same as [`launch_ps`](Self::launch_ps) where a call has none.
    fn marginal_ps(&self, launch: &LaunchShape<'_>) -> u64 {
        self.launch_ps(launch)
    }

    /// Picoseconds of a kernel that reads and writes `bytes` in all; 0 where copies are not priced.
    fn copy_ps(&self, bytes: u64) -> u64 {
        let _ = bytes;
        0
    }

    /// Share of its rate that a transfer keeps while its card computes, in (0, 1].
    fn transfer_rate_under_compute(&self) -> f64 {
        1.0
    }
}

/// A card that runs every shape at one rate: what balancing FLOPs assumes.
#[derive(Clone, Copy, Debug)]
pub struct FlopsCost {
    /// FLOPs a second of a card.
    pub flops_per_s: f64,
    /// Bytes a second of every link.
    pub bytes_per_s: f64,
}

impl Cost for FlopsCost {
    fn launch_ps(&self, launch: &LaunchShape<'_>) -> u64 {
        (launch.flops() / self.flops_per_s * 1e12) as u64
    }

    fn transfer_ps(&self, bytes: u64, _same_node: bool) -> u64 {
        (bytes as f64 / self.bytes_per_s * 1e12) as u64
    }
}
