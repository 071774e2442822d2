//! All plans that differ from a plan in one element of its tables, streams or layouts.

use skewbench_plan::{
    COMPUTE, CallMode, Dtype, HeadRange, Launch, Mask, Op, OpId, Pass, PassPlan, Plan, RankStreams, Rows, Span,
    TensorSet, Work,
};

/// One pass of a plan.
pub fn pass_mut(plan: &mut Plan, pass: Pass) -> &mut PassPlan {
    match pass {
        Pass::Forward => &mut plan.forward,
        Pass::Backward => &mut plan.backward,
    }
}

/// Takes an operation out of its stream. What waited for it waits for what it waited for.
pub fn remove_op(rank: &mut RankStreams, at: OpId) {
    let removed = rank.streams[usize::from(at.stream)].remove(at.index as usize);
    for op in rank.streams.iter_mut().flatten() {
        if let Some(found) = op.after.iter().position(|dep| *dep == at) {
            op.after.remove(found);
            op.after.extend(removed.after.iter().copied());
        }
        for dep in op.after.iter_mut().filter(|dep| dep.stream == at.stream && dep.index > at.index) {
            dep.index -= 1;
        }
    }
}

/// Puts an operation into a stream; operations keep what they wait for.
pub fn insert_op(rank: &mut RankStreams, at: OpId, new: Op) {
    for op in rank.streams.iter_mut().flatten() {
        for dep in op.after.iter_mut().filter(|dep| dep.stream == at.stream && dep.index >= at.index) {
            dep.index += 1;
        }
    }
    let mut new = new;
    for dep in new.after.iter_mut().filter(|dep| dep.stream == at.stream && dep.index >= at.index) {
        dep.index += 1;
    }
    rank.streams[usize::from(at.stream)].insert(at.index as usize, new);
}

/// Takes out launches without tiles, parts without moves, and posts of calls that a rank has no rows in.
pub fn prune(pass: &mut PassPlan) {
    for call in &mut pass.calls {
        call.parts.retain(|part| !part.moves.is_empty());
    }
    let (calls, moves) = (&pass.calls, &pass.moves);
    for (rank, streams) in (0u32..).zip(&mut pass.ranks) {
        let idle = |op: &Op| match op.work {
            Work::Launch(launch) => launch.tiles.is_empty(),
            Work::Exchange(call) => {
                let mut rows = calls[call as usize].parts.iter().flat_map(|part| &moves[part.moves.range()]);
                !rows.any(|mv| mv.from == rank || mv.to == rank)
            }
            Work::Linear { .. } => false,
        };
        while let Some(at) = positions(streams).into_iter().find(|at| idle(op(streams, *at))) {
            remove_op(streams, at);
        }
    }
}

/// Where the operations of a rank stand.
pub fn positions(rank: &RankStreams) -> Vec<OpId> {
    let of = |(stream, ops): (usize, &Vec<Op>)| {
        (0..ops.len()).map(move |index| OpId { stream: stream as u8, index: index as u32 }).collect::<Vec<_>>()
    };
    rank.streams.iter().enumerate().flat_map(of).collect()
}

/// The operation at a position.
pub fn op(rank: &RankStreams, at: OpId) -> &Op {
    &rank.streams[usize::from(at.stream)][at.index as usize]
}

/// The operation at a position.
pub fn op_mut(rank: &mut RankStreams, at: OpId) -> &mut Op {
    &mut rank.streams[usize::from(at.stream)][at.index as usize]
}

fn spans(pass: &mut PassPlan, tiles: bool) -> Vec<&mut Span> {
    if !tiles {
        return pass.calls.iter_mut().flat_map(|call| &mut call.parts).map(|part| &mut part.moves).collect();
    }
    let ops = pass.ranks.iter_mut().flat_map(|rank| &mut rank.streams).flatten();
    ops.filter_map(|op| match &mut op.work {
        Work::Launch(launch) => Some(&mut launch.tiles),
        _ => None,
    })
    .collect()
}

/// Deletes (or doubles) entry `at` of the tiles (or moves) and shifts all spans with it.
pub fn edit_table(pass: &mut PassPlan, tiles: bool, at: usize, double: bool) {
    if tiles {
        edit(&mut pass.tiles, at, double);
    } else {
        edit(&mut pass.moves, at, double);
    }
    for span in spans(pass, tiles) {
        for bound in [&mut span.start, &mut span.end] {
            if *bound as usize > at {
                *bound = if double { *bound + 1 } else { *bound - 1 };
            }
        }
    }
    prune(pass);
}

fn edit<T: Clone>(table: &mut Vec<T>, at: usize, double: bool) {
    let entry = table.remove(at);
    if double {
        table.insert(at, entry.clone());
        table.insert(at, entry);
    }
}

/// Gives one user of a shared span a copy of its own, changed.
fn own<T: Copy>(table: &mut Vec<T>, span: &mut Span, change: impl FnOnce(&mut Vec<T>)) {
    let mut copy = table[span.range()].to_vec();
    change(&mut copy);
    *span = Span { start: table.len() as u32, end: (table.len() + copy.len()) as u32 };
    table.extend(copy);
}

/// A changed plan and what was changed.
pub type Mutant = (String, Plan);

struct Out<'a> {
    plan: &'a Plan,
    pass: Pass,
    mutants: Vec<Mutant>,
}

impl Out<'_> {
    fn add(&mut self, what: String, change: impl FnOnce(&mut PassPlan)) {
        let mut mutant = self.plan.clone();
        change(pass_mut(&mut mutant, self.pass));
        if mutant != *self.plan {
            self.mutants.push((format!("{:?}: {what}", self.pass), mutant));
        }
    }
}

/// All single changes of one pass.
pub fn mutants(plan: &Plan, pass: Pass) -> Vec<Mutant> {
    let mut out = Out { plan, pass, mutants: Vec::new() };
    let table = plan.pass(pass);
    for (tiles, len) in [(true, table.tiles.len()), (false, table.moves.len())] {
        for at in 0..len {
            for double in [false, true] {
                let name = if tiles { "tile" } else { "move" };
                let verb = if double { "doubled" } else { "deleted" };
                out.add(format!("{name} {at} {verb}"), |pass| edit_table(pass, tiles, at, double));
            }
        }
    }
    launches(&mut out);
    parts(&mut out);
    streams(&mut out);
    out.mutants
}

/// All single changes of the layouts.
pub fn layout_mutants(plan: &Plan) -> Vec<Mutant> {
    let mut mutants = Vec::new();
    for entry in [true, false] {
        let name = if entry { "entry" } else { "exit" };
        let len = if entry { plan.entry.len() } else { plan.exit.len() };
        let mut add = |what: &str, change: &dyn Fn(&mut Vec<skewbench_plan::Shard>)| {
            let mut mutant = plan.clone();
            change(if entry { &mut mutant.entry } else { &mut mutant.exit });
            mutants.push((format!("{name}: {what}"), mutant));
        };
        for at in 0..len {
            add(&format!("shard {at} deleted"), &|s| edit(s, at, false));
            add(&format!("shard {at} doubled"), &|s| s.push(s[at]));
            add(&format!("shard {at} on another rank"), &|s| s[at].rank = (s[at].rank + 1) % plan.ranks);
            add(&format!("shard {at} one row on"), &|s| s[at].rows.start += 1);
            add(&format!("shard {at} one row longer"), &|s| s[at].rows.len += 1);
            add(&format!("shard {at} one row shorter"), &|s| s[at].rows.len -= 1);
        }
    }
    mutants
}

fn row_changes(rows: Rows) -> Vec<(&'static str, Rows)> {
    let mut changes = vec![
        ("one row on", Rows { start: rows.start + 1, ..rows }),
        ("one row longer", Rows { len: rows.len + 1, ..rows }),
        ("one row shorter", Rows { len: rows.len - 1, ..rows }),
        ("of another stride", Rows { stride: rows.stride + 1, ..rows }),
    ];
    if let Some(start) = rows.start.checked_sub(1) {
        changes.push(("one row back", Rows { start, ..rows }));
    }
    changes
}

fn head_changes(heads: HeadRange) -> Vec<HeadRange> {
    let HeadRange { start, end } = heads;
    [
        (start + 1, end + 1),
        (start, end + 1),
        (start, end.wrapping_sub(1)),
        (start + 1, end),
        (start.wrapping_sub(1), end),
    ]
    .map(|(start, end)| HeadRange { start, end })
    .into()
}

fn launches(out: &mut Out<'_>) {
    let table = out.plan.pass(out.pass);
    for (rank, streams) in table.ranks.iter().enumerate() {
        for (index, found) in (0..).zip(streams.streams.first().into_iter().flatten()) {
            let Work::Launch(launch) = found.work else { continue };
            let at = OpId { stream: COMPUTE, index };
            let name = format!("rank {rank} launch {index}");
            let mut set = |what: String, change: &dyn Fn(&mut Vec<skewbench_plan::Tile>, &mut Launch)| {
                out.add(format!("{name}: {what}"), |pass| {
                    let mut changed = launch;
                    change(&mut pass.tiles, &mut changed);
                    op_mut(&mut pass.ranks[rank], at).work = Work::Launch(changed);
                    prune(pass);
                });
            };
            for mask in [Mask::Full, Mask::Causal, Mask::CausalExclusive] {
                set(format!("{mask:?}"), &|_, launch| launch.mask = mask);
            }
            for heads in head_changes(launch.q_heads) {
                set(format!("heads {heads:?}"), &|_, launch| launch.q_heads = heads);
            }
            for tile in 0..launch.tiles.len() {
                set(format!("tile {tile} deleted"), &|t, l| own(t, &mut l.tiles, |own| edit(own, tile, false)));
                set(format!("tile {tile} doubled"), &|t, l| own(t, &mut l.tiles, |own| edit(own, tile, true)));
                let old = table.tiles[launch.tiles.range()][tile];
                for (what, rows) in row_changes(old.q) {
                    set(format!("tile {tile} q {what}"), &|t, l| own(t, &mut l.tiles, |own| own[tile].q = rows));
                }
                for (what, rows) in row_changes(old.k) {
                    set(format!("tile {tile} k {what}"), &|t, l| own(t, &mut l.tiles, |own| own[tile].k = rows));
                }
            }
        }
    }
}

fn parts(out: &mut Out<'_>) {
    let table = out.plan.pass(out.pass);
    let ranks = out.plan.ranks;
    for (call, found) in table.calls.iter().enumerate() {
        out.add(format!("call {call}: keep flipped"), |pass| pass.calls[call].keep ^= true);
        out.add(format!("call {call}: another mode"), |pass| {
            let mode = &mut pass.calls[call].mode;
            *mode = if *mode == CallMode::Copy { CallMode::Accumulate } else { CallMode::Copy };
        });
        out.add(format!("call {call}: another dtype"), |pass| {
            let dtype = &mut pass.calls[call].dtype;
            *dtype = if *dtype == Dtype::Bf16 { Dtype::F32 } else { Dtype::Bf16 };
        });
        for (at, part) in found.parts.iter().enumerate() {
            let name = format!("call {call} ({:?}) part {at}", found.mode);
            for double in [false, true] {
                let verb = if double { "doubled" } else { "deleted" };
                out.add(format!("{name} {verb}"), |pass| {
                    edit(&mut pass.calls[call].parts, at, double);
                    prune(pass);
                });
            }
            for heads in head_changes(part.q_heads) {
                out.add(format!("{name}: query heads {heads:?}"), |p| p.calls[call].parts[at].q_heads = heads);
            }
            for heads in head_changes(part.kv_heads) {
                out.add(format!("{name}: KV heads {heads:?}"), |p| p.calls[call].parts[at].kv_heads = heads);
            }
            for tensor in skewbench_plan::Tensor::ALL {
                let kept: Vec<_> = part.tensors.iter().filter(|t| *t != tensor).collect();
                out.add(format!("{name}: without {tensor:?}"), |p| {
                    p.calls[call].parts[at].tensors = TensorSet::of(&kept);
                });
            }
            for index in 0..part.moves.len() {
                let old = table.moves[part.moves.range()][index];
                let mut set = |what: &str, change: &dyn Fn(&mut Vec<skewbench_plan::Move>)| {
                    out.add(format!("{name}: move {index} {what}"), |pass| {
                        own(&mut pass.moves, &mut pass.calls[call].parts[at].moves, |own| change(own));
                        prune(pass);
                    });
                };
                set("deleted", &|own| edit(own, index, false));
                set("doubled", &|own| edit(own, index, true));
                for rank in 0..ranks {
                    set(&format!("from {rank}"), &|own| own[index].from = rank);
                    set(&format!("to {rank}"), &|own| own[index].to = rank);
                }
                for (what, rows) in row_changes(old.rows) {
                    set(what, &|own| own[index].rows = rows);
                }
            }
        }
    }
}

fn streams(out: &mut Out<'_>) {
    for (rank, streams) in out.plan.pass(out.pass).ranks.iter().enumerate() {
        for at in positions(streams) {
            let name = format!("rank {rank} operation {}.{}", at.stream, at.index);
            let found = op(streams, at).clone();
            let name = match found.work {
                Work::Launch(_) => format!("{name} (launch)"),
                Work::Exchange(_) => format!("{name} (post)"),
                Work::Linear { .. } => format!("{name} (linear)"),
            };
            out.add(format!("{name} deleted"), |pass| remove_op(&mut pass.ranks[rank], at));
            out.add(format!("{name} doubled"), |pass| insert_op(&mut pass.ranks[rank], at, found.clone()));
            for dep in 0..found.after.len() {
                out.add(format!("{name}: dependency {dep} removed"), |pass| {
                    op_mut(&mut pass.ranks[rank], at).after.remove(dep);
                });
            }
            if at.index > 0 {
                out.add(format!("{name} one earlier"), |pass| {
                    // Both keep their own dependencies; others go on waiting for the place.
                    pass.ranks[rank].streams[usize::from(at.stream)].swap(at.index as usize - 1, at.index as usize);
                });
            }
            if at.stream != COMPUTE {
                out.add(format!("{name} on a stream of its own"), |pass| {
                    let streams = &mut pass.ranks[rank];
                    let fresh = OpId { stream: streams.streams.len() as u8, index: 0 };
                    streams.streams.push(vec![op(streams, at).clone()]);
                    // A place holder keeps the dependencies of others where they were.
                    op_mut(streams, at).work = Work::Linear { tokens: 0 };
                    for other in streams.streams.iter_mut().flatten() {
                        for dep in other.after.iter_mut().filter(|dep| **dep == at) {
                            *dep = fresh;
                        }
                    }
                });
            }
        }
    }
}
