//! Indices inside their tables, heads inside the shape, shards that partition the sequences.

use std::collections::HashSet;

use super::{error, rows_text};
use crate::{CallMode, HeadRange, Move, Part, Pass, Plan, PlanError, Rows, Shard, Span, Tensor, TensorSet, Work};

pub(crate) fn check(plan: &Plan) -> Result<(), PlanError> {
    let layout = |what: String| PlanError { planner: plan.planner.clone(), pass: "layout", what };
    let shape = plan.shape;
    if shape.kv_heads == 0 || shape.head_dim == 0 || !shape.q_heads.is_multiple_of(shape.kv_heads) || shape.q_heads == 0
    {
        return Err(layout(format!(
            "{} query heads on {} KV heads of dimension {} is not a grouped-query shape",
            shape.q_heads, shape.kv_heads, shape.head_dim
        )));
    }
    let tokens: u64 = plan.sequences.iter().filter_map(|bounds| bounds.last()).map(|n| u64::from(*n)).sum();
    if tokens > u64::from(u32::MAX) {
        return Err(layout(format!("{tokens} rows in all sequences; at most {} can be numbered", u32::MAX)));
    }
    for (seq, bounds) in plan.sequences.iter().enumerate() {
        let rising = bounds.windows(2).all(|w| w[0] < w[1]);
        if bounds.first() != Some(&0) || !rising {
            return Err(layout(format!("sequence {seq}: document bounds must start at 0 and rise")));
        }
    }
    partition(plan, &plan.entry, "entry").map_err(layout)?;
    if plan.exit != plan.entry {
        partition(plan, &plan.exit, "exit").map_err(layout)?;
    }
    let tokens: Vec<u32> = plan.sequences.iter().map(|bounds| bounds.last().copied().unwrap_or(0)).collect();
    for pass in [Pass::Forward, Pass::Backward] {
        tables(plan, pass, &tokens).map_err(|what| error(plan, pass, what))?;
    }
    Ok(())
}

/// Longest sequence that a layout may deal with strides: its rows are counted one by one.
const MOST_STRIDED_ROWS: u32 = 1 << 28;

/// Every row of every sequence lies in exactly one shard.
fn partition(plan: &Plan, shards: &[Shard], name: &str) -> Result<(), String> {
    let mut by_seq: Vec<Vec<Rows>> = vec![Vec::new(); plan.sequences.len()];
    for shard in shards {
        if shard.rank >= plan.ranks {
            return Err(format!("{name} layout names rank {} of {}", shard.rank, plan.ranks));
        }
        let tokens = plan.sequences.get(shard.seq as usize).and_then(|bounds| bounds.last().copied());
        if !are_inside(tokens, shard.rows) {
            return Err(format!("{name} layout: {}", outside(tokens, shard.seq, shard.rows)));
        }
        by_seq[shard.seq as usize].push(shard.rows);
    }
    for (seq, shards) in by_seq.iter_mut().enumerate() {
        let tokens = plan.sequences[seq].last().copied().unwrap_or(0);
        let held: u64 = shards.iter().map(|r| u64::from(r.len)).sum();
        if held != u64::from(tokens) {
            return Err(format!("{name} layout holds {held} of the {tokens} rows of sequence {seq}"));
        }
        if shards.iter().all(|r| r.stride == 1) {
            // Ranks mostly list theirs in order, which a stable sort only merges.
            shards.sort();
            if let Some(pair) = shards.windows(2).find(|w| w[0].end() > w[1].start) {
                return Err(format!("{name} layout holds {} of sequence {seq} twice", rows_text(pair[1])));
            }
        } else if tokens > MOST_STRIDED_ROWS {
            return Err(format!(
                "{name} layout deals the {tokens} rows of sequence {seq} with strides; at most {MOST_STRIDED_ROWS} can be dealt so"
            ));
        } else if !dealt_apart(shards) {
            let mut seen = vec![false; tokens as usize];
            for rows in shards.iter() {
                for i in 0..rows.len {
                    let row = (rows.start + i * rows.stride) as usize;
                    if std::mem::replace(&mut seen[row], true) {
                        return Err(format!("{name} layout holds row {row} of sequence {seq} twice"));
                    }
                }
            }
        }
    }
    Ok(())
}

/// True when rows of one stride plainly share no row. Sorts them for it.
fn dealt_apart(shards: &mut [Rows]) -> bool {
    let Some(stride) = shards.first().map(|rows| rows.stride) else { return true };
    if shards.iter().any(|rows| rows.stride != stride) {
        return false;
    }
    shards.sort_by_cached_key(|rows| (rows.class(), rows.start));
    shards.windows(2).all(|w| w[0].class() != w[1].class() || w[0].last() < w[1].start)
}

/// True when the rows are some, and of a sequence of so many tokens; none stands for a sequence that does not exist.
fn are_inside(tokens: Option<u32>, rows: Rows) -> bool {
    let last = u64::from(rows.start) + u64::from(rows.len.saturating_sub(1)) * u64::from(rows.stride);
    rows.stride != 0 && rows.len != 0 && tokens.is_some_and(|tokens| last < u64::from(tokens))
}

/// Why rows are not inside.
fn outside(tokens: Option<u32>, seq: u32, rows: Rows) -> String {
    let Some(tokens) = tokens else { return format!("no sequence {seq}") };
    if rows.stride == 0 || rows.is_empty() {
        return format!("sequence {seq}: empty rows at {}", rows.start);
    }
    let last = u64::from(rows.start) + u64::from(rows.len - 1) * u64::from(rows.stride);
    format!("sequence {seq}: row {last} of {tokens}")
}

fn heads_inside(heads: HeadRange, of: HeadRange) -> bool {
    heads.start <= heads.end && of.contains(heads)
}

/// How often distinct spans may refer to a move on average, beyond what small tables may.
const MOST_REFERENCES: u64 = 64;
const SLACK: u64 = 1 << 16;

/// `tokens` by sequence.
fn tables(plan: &Plan, pass: Pass, tokens: &[u32]) -> Result<(), String> {
    let table = plan.pass(pass);
    if table.ranks.len() != plan.ranks as usize {
        return Err(format!("streams of {} ranks in a plan of {}", table.ranks.len(), plan.ranks));
    }
    let of = |seq: u32| tokens.get(seq as usize).copied();
    // The backward usually has the very tiles of the forward.
    if pass == Pass::Forward || table.tiles != plan.forward.tiles {
        for (i, tile) in table.tiles.iter().enumerate() {
            let tokens = of(tile.seq);
            if let Some(rows) = [tile.q, tile.k].into_iter().find(|rows| !are_inside(tokens, *rows)) {
                return Err(format!("tile {i}: {}", outside(tokens, tile.seq, rows)));
            }
        }
    }
    let fits = |mv: &Move| mv.from < plan.ranks && mv.to < plan.ranks && are_inside(of(mv.seq), mv.rows);
    let misfit = table.moves.iter().position(|mv| !fits(mv));
    if let Some((i, mv)) = misfit.map(|i| (i, &table.moves[i])) {
        let tokens = of(mv.seq);
        if !are_inside(tokens, mv.rows) {
            return Err(format!("move {i}: {}", outside(tokens, mv.seq, mv.rows)));
        }
        return Err(format!("move {i} goes from rank {} to rank {} of {}", mv.from, mv.to, plan.ranks));
    }
    for (i, call) in table.calls.iter().enumerate() {
        if call.keep && pass == Pass::Backward {
            return Err(format!("call {i} keeps values after the backward"));
        }
        for part in &call.parts {
            part_inside(plan, pass, call.mode, part).map_err(|e| format!("call {i}: {e}"))?;
        }
    }
    // Every distinct span of moves is indexed: a small file must not make a large index.
    let spans: HashSet<Span> = table.calls.iter().flat_map(|call| &call.parts).map(|part| part.moves).collect();
    let referred: u64 = spans.iter().map(|span| span.len() as u64).sum();
    if referred > MOST_REFERENCES * table.moves.len() as u64 + SLACK {
        return Err(format!(
            "parts refer to {referred} moves in {} overlapping spans of a table of {}; at most {MOST_REFERENCES} times as many may be referred to",
            spans.len(),
            table.moves.len()
        ));
    }
    for (rank, streams) in table.ranks.iter().enumerate() {
        if streams.streams.len() > usize::from(u8::MAX) + 1 {
            return Err(format!("rank {rank}: {} streams; at most 256 have a number", streams.streams.len()));
        }
        for (stream, op) in streams.streams.iter().enumerate().flat_map(|(s, ops)| ops.iter().map(move |op| (s, op))) {
            match op.work {
                Work::Launch(launch) => {
                    let inside =
                        launch.tiles.start < launch.tiles.end && launch.tiles.end as usize <= table.tiles.len();
                    if !inside {
                        return Err(format!("rank {rank}: a launch without tiles or outside the table of tiles"));
                    }
                    if launch.q_heads.is_empty() || !heads_inside(launch.q_heads, plan.shape.all_q()) {
                        return Err(format!("rank {rank}: a launch on query heads {:?}", launch.q_heads));
                    }
                    if stream != usize::from(crate::COMPUTE) {
                        return Err(format!("rank {rank}: a launch on transfer stream {stream}"));
                    }
                }
                Work::Exchange(call) if call as usize >= table.calls.len() => {
                    return Err(format!("rank {rank}: no call {call}"));
                }
                Work::Exchange(_) | Work::Linear { .. } => {}
            }
        }
    }
    Ok(())
}

fn part_inside(plan: &Plan, pass: Pass, mode: CallMode, part: &Part) -> Result<(), String> {
    if part.moves.is_empty() || part.moves.end as usize > plan.pass(pass).moves.len() {
        return Err("a part without moves or outside the table of moves".into());
    }
    let allowed = match (mode, pass) {
        (CallMode::Copy, Pass::Forward) => TensorSet::Q.union(TensorSet::KV),
        (CallMode::Copy, Pass::Backward) => TensorSet::Q.union(TensorSet::KV).union(TensorSet::DO_O_LSE),
        (CallMode::Accumulate, Pass::Forward) => TensorSet::O_LSE,
        (CallMode::Accumulate, Pass::Backward) => TensorSet::DQ.union(TensorSet::DKV),
    };
    if let Some(tensor) = part.tensors.iter().find(|t| !allowed.has(*t)) {
        return Err(format!("{} cannot travel in a call of this mode and pass", tensor.name()));
    }
    for (a, b) in [(Tensor::K, Tensor::V), (Tensor::DK, Tensor::DV)] {
        if part.tensors.has(a) != part.tensors.has(b) {
            return Err(format!("{} and {} travel together or not at all", a.name(), b.name()));
        }
    }
    if mode == CallMode::Accumulate && part.tensors.has(Tensor::Lse) && !part.tensors.has(Tensor::O) {
        return Err("LSE cannot be merged without its O".into());
    }
    for tensor in part.tensors.iter() {
        let all = if tensor.is_kv() { plan.shape.all_kv() } else { plan.shape.all_q() };
        let heads = part.heads(tensor);
        if heads.is_empty() || !heads_inside(heads, all) {
            return Err(format!("{} of heads {}..{}", tensor.name(), heads.start, heads.end));
        }
    }
    if part.tensors.is_empty() {
        return Err("a part without tensors".into());
    }
    Ok(())
}
