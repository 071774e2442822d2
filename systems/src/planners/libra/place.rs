use skewbench_plan::{AttentionShape, Dtype, SystemError, Tensor, TensorSet};

use super::grid::{Block, Grid, overlap};
use super::heads::HeadCut;

/// Bytes that one row costs over both passes when it is not where it is needed.
#[derive(Clone, Copy, Debug)]
pub(super) struct RowBytes {
    /// One query head of Q and O, with what the backward sends for them.
    pub q: u64,
    /// One KV head of K and V, with what the backward sends for them.
    pub kv: u64,
}

impl RowBytes {
    /// What the dispatch and return calls of both passes carry a row and head.
    pub fn new(shape: AttentionShape, resend: bool) -> Self {
        let bytes = |set: TensorSet, dtype| set.iter().map(|t| t.row_bytes(shape.head_dim, dtype)).sum::<u64>();
        let q = bytes(TensorSet::Q.union(TensorSet::O_LSE), Dtype::Bf16)
            + bytes(TensorSet::of(&[Tensor::DO, Tensor::DQ]), Dtype::Bf16);
        let kv = bytes(TensorSet::KV, Dtype::Bf16) + bytes(TensorSet::DKV, Dtype::F32);
        if resend {
            Self {
                q: q + bytes(TensorSet::Q.union(TensorSet::O_LSE), Dtype::Bf16),
                kv: kv + bytes(TensorSet::KV, Dtype::Bf16),
            }
        } else {
            Self { q, kv }
        }
    }
}

/// Which worker runs each SH-tile.
#[derive(Clone, Debug)]
pub(super) struct Assignment {
    /// `worker[block * head shards + shard]`.
    pub worker: Vec<u32>,
    /// Pairs x query heads of every worker.
    pub loads: Vec<u64>,
    /// Pairs x query heads of the heaviest SH-tile.
    pub largest: u64,
}

/// Places the SH-tiles of a grid, heaviest first, under the soft target (1 + tau) x mean.
pub(super) fn place(
    grid: &Grid,
    cut: &HeadCut,
    bytes: RowBytes,
    tau: f64,
    workers: u32,
) -> Result<Assignment, SystemError> {
    let shards = cut.shards.len();
    let q_heads: u128 = cut.shards.iter().map(|s| u128::from(s.len())).sum();
    let total = grid.blocks.iter().map(|b| u128::from(b.pairs)).sum::<u128>() * q_heads;
    let total = u64::try_from(total).map_err(|_| {
        SystemError::Impossible(format!(
            "the pool has {total} pairs x query heads, more than 2^64; use fewer or shorter packed sequences"
        ))
    })?;
    let mut tiles: Vec<(u64, u32)> = Vec::with_capacity(grid.blocks.len() * shards);
    for block in &grid.blocks {
        for shard in &cut.shards {
            tiles.push((block.pairs * u64::from(shard.len()), tiles.len() as u32));
        }
    }
    tiles.sort_unstable_by_key(|&(load, tile)| (std::cmp::Reverse(load), tile));

    // An exact mean is its own target at tau = 0, whatever the rounding of the product.
    let mean = total as f64 / f64::from(workers);
    let target = (mean * (1.0 + tau)) as u64;
    let target = target.max(total.div_ceil(u64::from(workers)));
    let mut greedy = Greedy::new(grid, cut, bytes, workers);
    let mut worker = vec![0; tiles.len()];
    for &(load, tile) in &tiles {
        let (block, shard) = (&grid.blocks[tile as usize / shards], tile as usize % shards);
        let chosen = greedy.choose(block, shard, load, target);
        greedy.assign(block, shard, load, chosen);
        worker[tile as usize] = chosen;
    }
    let largest = tiles.first().map_or(0, |t| t.0);
    Ok(Assignment { worker, loads: greedy.least.loads, largest })
}

/// State of the greedy placement.
struct Greedy<'a> {
    grid: &'a Grid,
    cut: &'a HeadCut,
    bytes: RowBytes,
    least: LeastLoaded,
    /// Holders of every KV group, `[document * classes + class]`: (worker, end of the prefix that it fetches).
    holders: Vec<Vec<(u32, u32)>>,
    /// Bytes that a worker saves on the tile at hand; zero between tiles.
    saved: Vec<u64>,
    /// Workers whose `saved` is not zero.
    savers: Vec<u32>,
}

impl<'a> Greedy<'a> {
    fn new(grid: &'a Grid, cut: &'a HeadCut, bytes: RowBytes, workers: u32) -> Self {
        Self {
            grid,
            cut,
            bytes,
            least: LeastLoaded::new(workers),
            holders: vec![Vec::new(); grid.shared_documents * cut.classes.len()],
            saved: vec![0; workers as usize],
            savers: Vec::new(),
        }
    }

    /// The worker for a tile. Workers that save nothing cost the same, so the least loaded one stands for all of them
    /// and the choice is the best of all workers.
    fn choose(&mut self, block: &Block, shard: usize, load: u64, target: u64) -> u32 {
        let least = self.least.worker();
        let lowest = self.least.loads[least as usize];
        self.find_savings(block, shard);
        let candidates = self.savers.iter().copied().chain([least]);
        let saved = |w: u32| std::cmp::Reverse(self.saved[w as usize]);
        let loads = &self.least.loads;
        let chosen = if lowest.saturating_add(load) <= target {
            candidates.filter(|&w| loads[w as usize] <= target - load).min_by_key(|&w| (saved(w), loads[w as usize], w))
        } else {
            candidates.filter(|&w| loads[w as usize] == lowest).min_by_key(|&w| (saved(w), w))
        };
        for worker in self.savers.drain(..) {
            self.saved[worker as usize] = 0;
        }
        chosen.unwrap_or(least)
    }

    /// Finds the workers that have rows of the tile already: in their own shard, or as a prefix that they fetch anyway.
    fn find_savings(&mut self, block: &Block, shard: usize) {
        let Self { grid, cut, bytes, saved, savers, .. } = self;
        let mut save = |worker: u32, bytes: u64| {
            let slot = &mut saved[worker as usize];
            if *slot == 0 && bytes > 0 {
                savers.push(worker);
            }
            *slot += bytes;
        };
        let classes = &cut.classes[cut.classes_of[shard].clone()];
        let kv_row = bytes.kv * classes.iter().map(|c| u64::from(c.heads.len())).sum::<u64>();
        let q_row = bytes.q * u64::from(cut.shards[shard].len());
        let rows = (block.start, block.end);
        for (c, from, to) in grid.sequences[block.seq as usize].by_owner(block.keys_start, block.end) {
            let own_rows = u64::from(overlap((from, to), rows));
            save(block.seq * grid.cp + c as u32, own_rows * q_row + u64::from(to - from) * kv_row);
        }
        for prefix in block.shared.into_iter().flatten() {
            let first = prefix.document as usize * cut.classes.len();
            for class in cut.classes_of[shard].clone() {
                let row = bytes.kv * u64::from(cut.classes[class].heads.len());
                for &(worker, held) in &self.holders[first + class] {
                    let fetched = (prefix.start, held.min(prefix.end));
                    let rows = fetched.1 - fetched.0 - overlap(fetched, grid.own(worker, block.seq));
                    save(worker, u64::from(rows) * row);
                }
            }
        }
    }

    fn assign(&mut self, block: &Block, shard: usize, load: u64, worker: u32) {
        for prefix in block.shared.into_iter().flatten() {
            for class in self.cut.classes_of[shard].clone() {
                let holders = &mut self.holders[prefix.document as usize * self.cut.classes.len() + class];
                match holders.iter_mut().find(|h| h.0 == worker) {
                    Some((_, held)) => *held = (*held).max(prefix.end),
                    None => holders.push((worker, prefix.end)),
                }
            }
        }
        self.least.add(worker, load);
    }
}

/// Loads of workers with the least loaded one at hand (a winner tree; equal loads: the lowest number).
struct LeastLoaded {
    loads: Vec<u64>,
    /// `tree[1]` is the winner; leaf of worker w at `leaves + w`, `u32::MAX` where there is no worker.
    tree: Vec<u32>,
    leaves: usize,
}

impl LeastLoaded {
    fn new(workers: u32) -> Self {
        let leaves = (workers as usize).next_power_of_two();
        let mut tree = vec![u32::MAX; 2 * leaves];
        for worker in 0..workers {
            tree[leaves + worker as usize] = worker;
        }
        for node in (1..leaves).rev() {
            tree[node] = tree[2 * node];
        }
        Self { loads: vec![0; workers as usize], tree, leaves }
    }

    fn worker(&self) -> u32 {
        self.tree[1]
    }

    fn add(&mut self, worker: u32, load: u64) {
        self.loads[worker as usize] += load;
        let key = |w: u32| (self.loads.get(w as usize).copied().unwrap_or(u64::MAX), w);
        let mut node = (self.leaves + worker as usize) / 2;
        while node > 0 {
            let (left, right) = (self.tree[2 * node], self.tree[2 * node + 1]);
            self.tree[node] = if key(right) < key(left) { right } else { left };
            node /= 2;
        }
    }
}
