use skewbench_plan::{
    Accounting, AttentionShape, COMPUTE, Call, CallMode, Dtype, Launch, Mask, Move, OpId, Part, PassPlan, Plan, Rows,
    Shard, Span, TensorSet, Tile, Work,
};

use super::ENTRY;
use super::shards::{Held, Shards};
use crate::planners::cp_group::CpGroup;

/// Stream on which keys and values rotate.
const ROTATE: u8 = 1;
/// Stream on which dK and dV follow.
const FOLLOW: u8 = 2;

/// Builds the plan of a ring over zigzag shards.
pub(super) fn build(group: CpGroup, shards: Shards) -> Plan {
    let ring = Ring::new(&group, shards);
    let entry: Vec<Shard> = (0u32..)
        .zip(&ring.shards.rows)
        .flat_map(|(rank, rows)| rows.iter().map(move |&rows| Shard { rank, seq: 0, rows }))
        .collect();
    let (forward, backward) = ring.passes();
    let busy = forward.ranks.iter().filter(|r| r.streams.first().is_some_and(|ops| !ops.is_empty())).count();
    Plan {
        planner: ENTRY.name.to_owned(),
        shape: group.shape,
        sequences: vec![group.bounds],
        ranks: group.cp,
        exit: entry.clone(),
        entry,
        forward,
        backward,
        accounting: Accounting { idle_ranks: group.cp - busy as u32, ..Accounting::default() },
    }
}

/// Tiles of one rank at one step.
#[derive(Clone, Copy)]
struct StepTiles {
    full: Span,
    causal: Span,
}

struct Ring {
    cp: u32,
    shape: AttentionShape,
    shards: Shards,
    tiles: Vec<Tile>,
    /// `steps[step * cp + rank]`.
    steps: Vec<StepTiles>,
    /// Moves of keys and values for steps 1, 2, ..., one span a step, then those of dK and dV.
    moves: Vec<Move>,
    rotate: Vec<Span>,
    /// dK and dV after steps 1, 2, ..., one span a step, empty where nobody has contributed.
    follow: Vec<Span>,
}

impl Ring {
    fn new(group: &CpGroup, shards: Shards) -> Self {
        let cp = group.cp;
        let rotated: usize = shards.rows.iter().map(Vec::len).sum::<usize>() * (cp as usize - 1);
        let mut ring = Self {
            cp,
            shape: group.shape,
            tiles: Vec::with_capacity(shards.tiles(group.documents().len())),
            steps: Vec::with_capacity(cp as usize * cp as usize),
            moves: Vec::with_capacity(2 * rotated),
            rotate: Vec::with_capacity(cp as usize),
            follow: Vec::with_capacity(cp as usize),
            shards,
        };
        for step in 1..cp {
            ring.rotate.push(span(&mut ring.moves, |moves| {
                for (origin, rows) in (0u32..).zip(&ring.shards.rows) {
                    let (from, to) = ((origin + step - 1) % cp, (origin + step) % cp);
                    moves.extend(rows.iter().map(|&rows| Move { from, to, seq: 0, rows }));
                }
            }));
        }
        let mut causal = Vec::new();
        let mut reached: Vec<Vec<[bool; 2]>> = ring.shards.held.iter().map(|h| vec![[false; 2]; h.len()]).collect();
        for step in 0..cp {
            for rank in 0..cp {
                let origin = ring.origin(rank, step);
                let held = &ring.shards.held;
                let (queries, keys) = (&held[rank as usize], &held[origin as usize]);
                let full = span(&mut ring.tiles, |tiles| {
                    attend(queries, keys, tiles, &mut reached[origin as usize]);
                });
                if step == 0 {
                    diagonal(queries, &mut causal);
                }
                let causal = span(&mut ring.tiles, |tiles| tiles.append(&mut causal));
                ring.steps.push(StepTiles { full, causal });
            }
            if step == 0 {
                // Contributions to a rank's own keys are home at once.
                reached.iter_mut().for_each(|r| r.fill([false; 2]));
                continue;
            }
            ring.follow.push(span(&mut ring.moves, |moves| {
                for (origin, (held, reached)) in (0u32..).zip(ring.shards.held.iter().zip(&reached)) {
                    pass_on(held, reached, ((origin + step) % cp, (origin + step + 1) % cp), moves);
                }
            }));
        }
        ring
    }

    /// Rank on which the keys started that `rank` attends to at `step`.
    fn origin(&self, rank: u32, step: u32) -> u32 {
        (rank + self.cp - step) % self.cp
    }

    fn holds_rows(&self, rank: u32) -> bool {
        !self.shards.rows[rank as usize].is_empty()
    }

    fn passes(self) -> (PassPlan, PassPlan) {
        let (mut forward, mut backward) = (PassPlan::new(self.cp), PassPlan::new(self.cp));
        self.steps(&mut forward, |_, _, _| {});
        self.steps(&mut backward, Self::follow_step);
        let rotated = self.rotate.last().map_or(0, |span| span.end as usize);
        forward.moves.extend_from_slice(self.moves.get(..rotated).unwrap_or_default());
        backward.moves = self.moves;
        backward.tiles.clone_from(&self.tiles);
        forward.tiles = self.tiles;
        (forward, backward)
    }

    /// All steps of a pass; `after` appends what follows the launches of a step.
    fn steps(&self, pass: &mut PassPlan, after: impl Fn(&Self, &mut PassPlan, &Progress)) {
        let mut progress = Progress { step: 0, last: vec![None; self.cp as usize] };
        // Launches that were over two steps ago: their receive buffer is free.
        let mut before: Vec<Option<OpId>> = progress.last.clone();
        for step in 0..self.cp {
            progress.step = step;
            let arrived = self.rotate_step(pass, step, &before);
            before.clone_from(&progress.last);
            for rank in 0..self.cp as usize {
                let StepTiles { full, causal } = self.steps[step as usize * self.cp as usize + rank];
                for (tiles, mask) in [(full, Mask::Full), (causal, Mask::Causal)] {
                    if !tiles.is_empty() {
                        let launch = Launch { tiles, mask, q_heads: self.shape.all_q() };
                        let after = arrived.get(rank).copied().flatten().into_iter().collect();
                        progress.last[rank] = Some(pass.ranks[rank].push(COMPUTE, Work::Launch(launch), after));
                    }
                }
            }
            after(self, pass, &progress);
        }
    }

    /// Posts the call that brings the keys of `step` and returns where each rank waits for it.
    fn rotate_step(&self, pass: &mut PassPlan, step: u32, free: &[Option<OpId>]) -> Vec<Option<OpId>> {
        let Some(&moves) = step.checked_sub(1).and_then(|s| self.rotate.get(s as usize)) else {
            return Vec::new();
        };
        if moves.is_empty() {
            return Vec::new();
        }
        let call = pass.calls.len() as u32;
        pass.calls.push(self.call(CallMode::Copy, Dtype::Bf16, TensorSet::KV, moves));
        (0..self.cp)
            .map(|rank| {
                let receives = self.holds_rows(self.origin(rank, step));
                let sends = self.holds_rows(self.origin(rank, step - 1));
                let after = free[rank as usize].into_iter().collect();
                (receives || sends).then(|| pass.ranks[rank as usize].push(ROTATE, Work::Exchange(call), after))
            })
            .collect()
    }

    /// Posts the call that passes dK and dV on after a step.
    fn follow_step(&self, pass: &mut PassPlan, progress: &Progress) {
        let Some(&moves) = progress.step.checked_sub(1).and_then(|s| self.follow.get(s as usize)) else {
            return;
        };
        if moves.is_empty() {
            return;
        }
        let mut takes_part = vec![false; self.cp as usize];
        for mv in &self.moves[moves.range()] {
            takes_part[mv.from as usize] = true;
            takes_part[mv.to as usize] = true;
        }
        let call = pass.calls.len() as u32;
        pass.calls.push(self.call(CallMode::Accumulate, Dtype::F32, TensorSet::DKV, moves));
        for (rank, _) in takes_part.into_iter().enumerate().filter(|(_, takes_part)| *takes_part) {
            let after = progress.last[rank].into_iter().collect();
            pass.ranks[rank].push(FOLLOW, Work::Exchange(call), after);
        }
    }

    fn call(&self, mode: CallMode, dtype: Dtype, tensors: TensorSet, moves: Span) -> Call {
        let part = Part { moves, tensors, q_heads: self.shape.all_q(), kv_heads: self.shape.all_kv() };
        Call { mode, dtype, parts: vec![part], keep: false }
    }
}

/// How far a pass has got.
struct Progress {
    step: u32,
    /// The last launch of each rank.
    last: Vec<Option<OpId>>,
}

/// The entries that `fill` appends.
fn span<T>(table: &mut Vec<T>, fill: impl FnOnce(&mut Vec<T>)) -> Span {
    let start = table.len() as u32;
    fill(table);
    Span { start, end: table.len() as u32 }
}

/// Tiles of query ranges on key ranges that lie wholly before them in their document; marks the key ranges that are read.
fn attend(queries: &[Held], keys: &[Held], tiles: &mut Vec<Tile>, reached: &mut [[bool; 2]]) {
    let mut at = 0;
    for query in queries {
        while keys.get(at).is_some_and(|key| key.document < query.document) {
            at += 1;
        }
        let Some(key) = keys.get(at).filter(|key| key.document == query.document) else { continue };
        for (_, (start, end)) in query.ranges() {
            let q = Rows::range(start, end);
            for (i, (first, past)) in key.ranges() {
                if past <= start {
                    tiles.push(Tile { seq: 0, q, k: Rows::range(first, past) });
                    reached[at][i] = true;
                }
            }
        }
    }
}

/// Tiles of a rank's ranges on themselves.
fn diagonal(held: &[Held], tiles: &mut Vec<Tile>) {
    for (_, (start, end)) in held.iter().flat_map(|h| h.ranges()) {
        let rows = Rows::range(start, end);
        tiles.push(Tile { seq: 0, q: rows, k: rows });
    }
}

/// Moves of the key ranges that somebody has contributed to, neighbours joined.
fn pass_on(held: &[Held], reached: &[[bool; 2]], (from, to): (u32, u32), moves: &mut Vec<Move>) {
    let first = moves.len();
    for (held, reached) in held.iter().zip(reached) {
        for (_, (start, end)) in held.ranges().filter(|(i, _)| reached[*i]) {
            match moves[first..].last_mut() {
                Some(last) if last.rows.end() == start => last.rows.len += end - start,
                _ => moves.push(Move { from, to, seq: 0, rows: Rows::range(start, end) }),
            }
        }
    }
}
