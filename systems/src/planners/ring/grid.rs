use skewbench_plan::{AttentionShape, HeadRange};

/// A CP group as a grid: head shards x positions of a ring, the ring in windows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Grid {
    /// Head shards: the Ulysses degree.
    pub(crate) heads: u32,
    /// Positions of a ring: the ring degree.
    pub(crate) ring: u32,
    /// Positions of a window; divides `ring`. The whole ring is one window where there is no outer ring.
    pub(crate) window: u32,
    /// The ranks of a Ulysses group are neighbours; otherwise those of a ring are.
    pub(crate) heads_first: bool,
}

/// Query heads of a head shard with the KV heads that they read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct HeadShard {
    pub(super) q: HeadRange,
    pub(super) kv: HeadRange,
}

impl Grid {
    /// One ring over all ranks.
    pub(crate) fn ring(cp: u32) -> Self {
        Self { heads: 1, ring: cp, window: cp, heads_first: true }
    }

    pub(super) fn ranks(&self) -> u32 {
        self.heads * self.ring
    }

    /// The rank that computes head shard `heads` of the rows of `position`.
    pub(super) fn rank(&self, heads: u32, position: u32) -> u32 {
        if self.heads_first { position * self.heads + heads } else { heads * self.ring + position }
    }

    /// Head shard and position of a rank.
    pub(super) fn place(&self, rank: u32) -> (u32, u32) {
        if self.heads_first { (rank % self.heads, rank / self.heads) } else { (rank / self.ring, rank % self.ring) }
    }

    pub(super) fn windows(&self) -> u32 {
        self.ring / self.window
    }

    /// Position that has the keys of position `origin` at step (outer, inner).
    pub(super) fn holder(&self, origin: u32, outer: u32, inner: u32) -> u32 {
        let window = (origin / self.window + outer) % self.windows();
        window * self.window + (origin % self.window + inner) % self.window
    }

    /// Position whose keys `position` has at step (outer, inner).
    pub(super) fn origin(&self, position: u32, outer: u32, inner: u32) -> u32 {
        let window = (position / self.window + self.windows() - outer) % self.windows();
        window * self.window + (position % self.window + self.window - inner) % self.window
    }

    pub(super) fn head_shards(&self, shape: AttentionShape) -> Vec<HeadShard> {
        (0..self.heads)
            .map(|i| HeadRange::piece(shape.q_heads, i, self.heads))
            .map(|q| HeadShard { q, kv: shape.kv_of(q) })
            .collect()
    }

    /// KV heads that more than one head shard reads.
    pub(super) fn shared_kv_heads(&self, shape: AttentionShape) -> u32 {
        let shards = self.head_shards(shape);
        let readers = |head: u16| shards.iter().filter(|s| s.kv.start <= head && head < s.kv.end).count();
        (0..shape.kv_heads).filter(|&head| readers(head) > 1).count() as u32
    }
}

/// Divisors of `n`, ascending.
pub(crate) fn divisors(n: u32) -> impl DoubleEndedIterator<Item = u32> {
    (1..=n).filter(move |d| n.is_multiple_of(*d))
}

#[cfg(test)]
mod tests {
    use super::Grid;

    #[test]
    fn every_position_meets_the_keys_of_every_other_once() {
        for (ring, window) in [(1, 1), (6, 2), (6, 3), (6, 6), (6, 1), (9, 3)] {
            for heads_first in [false, true] {
                let grid = Grid { heads: 2, ring, window, heads_first };
                for position in 0..ring {
                    let mut seen: Vec<u32> = Vec::new();
                    for (outer, inner) in (0..grid.windows()).flat_map(|o| (0..window).map(move |i| (o, i))) {
                        let origin = grid.origin(position, outer, inner);
                        assert_eq!(grid.holder(origin, outer, inner), position, "{grid:?}");
                        seen.push(origin);
                    }
                    assert_eq!(seen.first(), Some(&position));
                    seen.sort_unstable();
                    assert!(seen.into_iter().eq(0..ring), "{grid:?}");
                    assert_eq!(grid.place(grid.rank(1, position)), (1, position));
                }
            }
        }
    }
}
