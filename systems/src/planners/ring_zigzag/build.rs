use skewbench_plan::{
    Accounting, COMPUTE, Call, CallMode, Dtype, Launch, Mask, Move, OpId, Part, PassPlan, Plan, Rows, Shard, Span,
    TensorSet, Tile, Work,
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
    let (forward, backward) = (ring.forward(), ring.backward());
    let busy = forward.ranks.iter().filter(|r| r.streams.first().is_some_and(|ops| !ops.is_empty())).count();
    let entry: Vec<Shard> = (0u32..)
        .zip(&ring.shards.rows)
        .flat_map(|(rank, rows)| rows.iter().map(move |&rows| Shard { rank, seq: 0, rows }))
        .collect();
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
    shape: skewbench_plan::AttentionShape,
    shards: Shards,
    tiles: Vec<Tile>,
    /// `steps[step * cp + rank]`.
    steps: Vec<StepTiles>,
    /// Moves of keys and values for steps 1, 2, ..., one span a step.
    rotate: Vec<Move>,
    rotate_spans: Vec<Span>,
    /// Moves of dK and dV after steps 1, 2, ..., one span a step, empty where nobody has contributed.
    follow: Vec<Move>,
    follow_spans: Vec<Span>,
}

impl Ring {
    fn new(group: &CpGroup, shards: Shards) -> Self {
        let cp = group.cp;
        let moves: usize = shards.rows.iter().map(Vec::len).sum::<usize>() * (cp as usize - 1);
        let mut ring = Self {
            cp,
            shape: group.shape,
            tiles: Vec::with_capacity(shards.tiles(group.documents().len())),
            steps: Vec::with_capacity((cp * cp) as usize),
            rotate: Vec::with_capacity(moves),
            rotate_spans: Vec::new(),
            follow: Vec::with_capacity(moves),
            follow_spans: Vec::new(),
            shards,
        };
        let mut causal = Vec::new();
        let mut reached: Vec<Vec<[bool; 2]>> = ring.shards.held.iter().map(|h| vec![[false; 2]; h.len()]).collect();
        for step in 0..cp {
            for rank in 0..cp {
                let origin = ring.origin(rank, step);
                let full = span(&mut ring.tiles, |tiles| {
                    let shards = &ring.shards;
                    let (queries, keys) = (&shards.held[rank as usize], &shards.held[origin as usize]);
                    attend(queries, keys, tiles, &mut reached[origin as usize]);
                });
                if step == 0 {
                    diagonal(&ring.shards.held[rank as usize], &mut causal);
                }
                let causal = span(&mut ring.tiles, |tiles| tiles.append(&mut causal));
                ring.steps.push(StepTiles { full, causal });
            }
            if step == 0 {
                // Contributions to a rank's own keys are home at once.
                reached.iter_mut().for_each(|r| r.fill([false; 2]));
                continue;
            }
            let Self { rotate, rotate_spans, follow, follow_spans, shards, .. } = &mut ring;
            rotate_spans.push(span(rotate, |moves| {
                for (origin, rows) in (0u32..).zip(&shards.rows) {
                    let (from, to) = ((origin + step - 1) % cp, (origin + step) % cp);
                    moves.extend(rows.iter().map(|&rows| Move { from, to, seq: 0, rows }));
                }
            }));
            follow_spans.push(span(follow, |moves| {
                for (origin, (held, reached)) in (0u32..).zip(shards.held.iter().zip(&reached)) {
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

    fn forward(&self) -> PassPlan {
        let mut pass = PassPlan::new(self.cp);
        pass.tiles = self.tiles.clone();
        pass.moves = self.rotate.clone();
        self.steps(&mut pass, |_, _, _| {});
        pass
    }

    fn backward(&self) -> PassPlan {
        let mut pass = PassPlan::new(self.cp);
        pass.tiles = self.tiles.clone();
        pass.moves = Vec::with_capacity(self.rotate.len() + self.follow.len());
        pass.moves.extend_from_slice(&self.rotate);
        pass.moves.extend_from_slice(&self.follow);
        self.steps(&mut pass, |ring, pass, at| ring.follow_step(pass, at));
        pass
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
        let Some(&moves) = step.checked_sub(1).and_then(|s| self.rotate_spans.get(s as usize)) else {
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
        let Some(&moves) = progress.step.checked_sub(1).and_then(|s| self.follow_spans.get(s as usize)) else {
            return;
        };
        if moves.is_empty() {
            return;
        }
        let mut takes_part = vec![false; self.cp as usize];
        for mv in &self.follow[moves.range()] {
            takes_part[mv.from as usize] = true;
            takes_part[mv.to as usize] = true;
        }
        let offset = self.rotate.len() as u32;
        let moves = Span { start: moves.start + offset, end: moves.end + offset };
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
    let mut keys = keys.iter().zip(reached).peekable();
    for query in queries {
        while keys.next_if(|(key, _)| key.document < query.document).is_some() {}
        let Some((key, reached)) = keys.next_if(|(key, _)| key.document == query.document) else { continue };
        for (_, (start, end)) in query.ranges() {
            for (i, (first, past)) in key.ranges() {
                if past <= start {
                    tiles.push(Tile { seq: 0, q: Rows::range(start, end), k: Rows::range(first, past) });
                    reached[i] = true;
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
