//! From a program to the steps of every rank.

use std::collections::BTreeMap;
use std::sync::Arc;

use skewbench_exec::{BufferKind, InstrId, PassProgram, Places, Program};
use skewbench_plan::{HeadRange, Pass, Rows, Run, Tensor};

use super::contributions::{Finder, to_accumulators};
use super::memory::{INFINITY, Layout, Memory};
use super::rank::{Kept, RankPass};
use super::rows::{Filled, Rect};
use super::{DeviceProgram, Element, PassSteps, RankDevice, Region, Step, StepOptions, Work, order};
use crate::CudaError;

/// Turns a program into what the streams of every rank issue in both passes. It needs no card and is the same for all.
///
/// # Errors
/// [`CudaError::Program`] for a program that cannot run to its end, or that reads or leaves rows where they are not; a
/// program of a checked plan never does.
pub fn device_program(program: &Program, options: StepOptions) -> Result<DeviceProgram, CudaError> {
    valid(program).map_err(CudaError::Program)?;
    let places =
        |pass: Pass| Places::of(program.pass(pass)).map_err(|e| CudaError::Program(format!("{}: {e}", name(pass))));
    let places = [places(Pass::Forward)?, places(Pass::Backward)?];
    let ranks = (0..program.forward.ranks.len() as u32).map(|rank| device(program, &places, rank, options));
    Ok(DeviceProgram { ranks: ranks.collect::<Result<_, _>>().map_err(CudaError::Program)? })
}

fn name(pass: Pass) -> &'static str {
    match pass {
        Pass::Forward => "forward",
        Pass::Backward => "backward",
    }
}

/// What all later arithmetic takes for granted.
fn valid(program: &Program) -> Result<(), String> {
    let shape = program.shape;
    if shape.kv_heads == 0 || shape.head_dim == 0 || !shape.q_heads.is_multiple_of(shape.kv_heads) {
        return Err(format!("{shape:?} is not a shape of attention"));
    }
    if program.forward.ranks.len() != program.backward.ranks.len() {
        let (forward, backward) = (program.forward.ranks.len(), program.backward.ranks.len());
        return Err(format!("the forward has {forward} ranks, the backward {backward}"));
    }
    let strided = |rows: &Rows| {
        let last = u64::from(rows.start) + u64::from(rows.len) * u64::from(rows.stride);
        rows.stride > 0 && last < u64::from(u32::MAX)
    };
    for pass in [Pass::Forward, Pass::Backward] {
        let table = program.pass(pass);
        let moves = table.routes.iter().flat_map(|route| &route.moves).map(|mv| &mv.rows);
        let buffers = table.ranks.iter().flat_map(|rank| &rank.buffers);
        let runs = buffers.flat_map(|buffer| buffer.runs.iter()).map(|run| &run.rows);
        if let Some(rows) = moves.chain(runs).find(|rows| !strided(rows)) {
            return Err(format!("{}: {rows:?} are no rows", name(pass)));
        }
    }
    Ok(())
}

fn device(program: &Program, places: &[Places<'_>; 2], rank: u32, options: StepOptions) -> Result<RankDevice, String> {
    let passes = [Pass::Forward, Pass::Backward];
    let finders = passes.map(|pass| {
        let body = program.pass(pass).ranks.get(rank as usize);
        Finder::new(body.map(|body| body.buffers.as_slice()).unwrap_or_default())
    });
    let contributed = [0, 1].map(|i| to_accumulators(program.pass(passes[i]), &places[i], rank, &finders[i]));
    let layout = Layout::new(program, rank, &contributed);
    let kept: Vec<Kept<'_>> = layout
        .kept
        .iter()
        .filter_map(|o| {
            let (o, lse) = (layout.passes[1].get(*o as usize)?, layout.passes[1].get(*o as usize + 1)?);
            let BufferKind::Kept(call) = o.buffer.kind else { return None };
            let pair = (o.buffer.tensor, lse.buffer.tensor) == (Tensor::O, Tensor::Lse);
            pair.then_some(Kept { call, o, lse })
        })
        .collect();
    let mut arena_bytes = 0;
    let mut with_lse = Vec::new();
    let [forward_finder, backward_finder] = finders;
    let mut steps = Vec::new();
    for (i, finder) in [forward_finder, backward_finder].into_iter().enumerate() {
        let memory = layout.passes[i].as_slice();
        let empty = || memory.iter().map(|m| Filled::new(m.heads())).collect::<Vec<_>>();
        let mut of_pass = RankPass {
            table: program.pass(passes[i]),
            places: &places[i],
            shape: program.shape,
            pass: passes[i],
            rank,
            finder,
            memory,
            kept: if i == 0 { kept.clone() } else { Vec::new() },
            contributed: &contributed[i],
            constants: layout.constants,
            arena: layout.arenas[i],
            scratch: Vec::new(),
            filled: empty(),
            with_lse: empty(),
            calls: BTreeMap::new(),
            position: 0,
        };
        steps.push(pass_steps(&mut of_pass, options)?);
        arena_bytes = arena_bytes.max(of_pass.arena.end());
        if i == 0 {
            with_lse = of_pass.with_lse;
        }
    }
    let mut steps = steps.into_iter();
    let (forward, backward) = (steps.next().unwrap_or_default(), steps.next().unwrap_or_default());
    Ok(RankDevice {
        arena_bytes,
        inputs: inputs(&layout),
        outputs: outputs(&layout, &kept, &with_lse),
        forward,
        backward,
    })
}

fn pass_steps(of_pass: &mut RankPass<'_>, options: StepOptions) -> Result<PassSteps, String> {
    let table: &PassProgram = of_pass.table;
    let (rank, pass) = (of_pass.rank, name(of_pass.pass));
    let schedule = of_pass.places.schedule();
    let body = table.ranks.get(rank as usize).ok_or_else(|| format!("{pass}: there is no rank {rank}"))?;
    of_pass.reserve(&body.streams).map_err(|what| format!("{pass}, rank {rank}: {what}"))?;
    let mut streams: Vec<Vec<Step>> = body.streams.iter().map(|list| Vec::with_capacity(list.len())).collect();
    let mut order: Vec<(u32, InstrId)> = Vec::new();
    for (stream, list) in (0u32..).zip(&body.streams) {
        let ids = (0..list.len() as u32).map(|index| InstrId { stream, index });
        order.extend(ids.map(|id| (schedule.position(rank, id).unwrap_or(u32::MAX), id)));
    }
    order.sort_unstable();
    for (position, id) in order {
        let instr = &body.streams[id.stream as usize][id.index as usize];
        of_pass.position = position;
        let work = of_pass.instr(id, instr).map_err(|what| {
            let InstrId { stream, index } = id;
            format!("{pass}, rank {rank}, stream {stream}, instruction {index}: {what}")
        })?;
        let after = table.events.get(instr.after.range()).unwrap_or_default();
        let after = after.iter().copied().filter(|dep| dep.stream != id.stream).collect();
        streams[id.stream as usize].push(Step { instr: instr.kind, micro_batch: instr.micro_batch, after, work });
    }
    if options.repeatable {
        order::fix(&mut streams, |id| schedule.position(rank, id));
    }
    let setup = setup(of_pass, &streams);
    Ok(PassSteps { streams, setup })
}

/// Fills that empty sums, neighbours with the same bits as one, and what empty results are written from.
fn setup(of_pass: &RankPass<'_>, streams: &[Vec<Step>]) -> Vec<Work> {
    let mut fills: Vec<(u64, u64, u32)> = Vec::new();
    for m in of_pass.memory.iter().filter(|m| !m.written && m.rows() > 0) {
        let bits = match m.buffer.tensor {
            Tensor::Lse => INFINITY,
            // An output is empty where its LSE is.
            Tensor::O => continue,
            _ => 0,
        };
        fills.push((m.offset(), u64::from(m.rows()) * m.row_bytes() / Element::F32.bytes(), bits));
    }
    fills.sort_unstable();
    fills.dedup_by(|next, last| {
        let end = last.0 + 4 * last.1;
        let joins = last.2 == next.2 && next.0 == end.next_multiple_of(super::memory::ALIGNMENT);
        if joins {
            last.1 = (next.0 - last.0) / 4 + next.1;
        }
        joins
    });
    let works = streams.iter().flatten().flat_map(|step| &step.work);
    let moves: Vec<u64> = works
        .filter_map(|work| match work {
            Work::Rows(moves) => Some(moves),
            _ => None,
        })
        .flatten()
        .filter(|m| m.from_stride == 0)
        .map(|m| m.from)
        .collect();
    let mut all = of_pass.constants.fills(|offset| moves.contains(&offset));
    all.extend(fills.into_iter().map(|(offset, words, bits)| Work::Fill { offset, words, bits }));
    all
}

fn region(m: &Memory<'_>, row: u32, runs: Arc<[Run]>) -> Region {
    Region {
        offset: m.at(row, m.heads().start),
        tensor: m.buffer.tensor,
        element: m.element,
        heads: m.heads(),
        width: m.width,
        runs,
    }
}

fn inputs(layout: &Layout<'_>) -> Vec<Region> {
    let mut all: Vec<Region> = Vec::new();
    for m in layout.passes.iter().flatten().filter(|m| m.buffer.kind == BufferKind::Entry && m.rows() > 0) {
        let input = region(m, 0, m.buffer.runs.clone());
        // Both passes read the same memory.
        if all.iter().all(|known| known.offset != input.offset) {
            all.push(input);
        }
    }
    all
}

fn outputs(layout: &Layout<'_>, kept: &[Kept<'_>], with_lse: &[Filled]) -> Vec<Region> {
    let mut all = Vec::new();
    for lse in kept.iter().map(|kept| kept.lse).filter(|lse| lse.rows() > 0) {
        all.push(region(lse, 0, lse.buffer.runs.clone()));
    }
    let exits = |pass: usize, tensors: &'static [Tensor]| {
        let of_pass = layout.passes[pass].iter();
        of_pass.filter(|m| m.buffer.kind == BufferKind::Exit && m.rows() > 0 && tensors.contains(&m.buffer.tensor))
    };
    for m in exits(0, &[Tensor::O]) {
        all.push(region(m, 0, m.buffer.runs.clone()));
    }
    // LSE goes with a sum of O or with its exit buffer, and is there where it has come with O.
    for (o, lse) in layout.passes[0].iter().enumerate().zip(layout.passes[0].iter().skip(1)) {
        if lse.buffer.kind != BufferKind::Exit || lse.buffer.tensor != Tensor::Lse || o.1.buffer.tensor != Tensor::O {
            continue;
        }
        if let Some(filled) = with_lse.get(o.0) {
            lse_at_home(lse, filled, kept, &mut all);
        }
    }
    for m in exits(1, &[Tensor::DQ, Tensor::DK, Tensor::DV]) {
        all.push(region(m, 0, m.buffer.runs.clone()));
    }
    all
}

/// Runs of the rows `[start, end)` of a buffer.
fn cut(runs: &[Run], start: u32, end: u32) -> Arc<[Run]> {
    let first = runs.partition_point(|run| run.offset + run.rows.len <= start);
    let held = runs[first..].iter().take_while(|run| run.offset < end);
    held.map(|run| {
        let from = start.max(run.offset);
        let len = end.min(run.offset + run.rows.len) - from;
        let rows = Rows { start: run.rows.start + (from - run.offset) * run.rows.stride, len, ..run.rows };
        Run { rows, offset: from - start, ..*run }
    })
    .collect()
}

/// Regions of LSE at home: only what has arrived there, some of which may be kept by a sender alone.
fn lse_at_home(lse: &Memory<'_>, filled: &Filled, kept: &[Kept<'_>], all: &mut Vec<Region>) {
    for (heads, rows) in filled.classes() {
        let whole = *heads == lse.heads();
        for (start, end) in rows.iter().copied() {
            if whole {
                all.push(region(lse, start, cut(&lse.buffer.runs, start, end)));
                continue;
            }
            // Rows of some heads have gaps between them: one by one, unless this rank keeps them anyway.
            for run in cut(&lse.buffer.runs, start, end).iter() {
                let rect = Rect { seq: run.seq, rows: run.rows, heads: *heads, skip: run.offset };
                let mut missing = vec![rect];
                for kept in kept {
                    let mut rest = Vec::new();
                    for rect in missing {
                        rect.split((0, kept.lse.heads(), &kept.lse.buffer.runs), &mut Vec::new(), &mut rest);
                    }
                    missing = rest;
                }
                for rect in missing {
                    for i in 0..rect.rows.len {
                        let single = Rows { start: rect.rows.start + i * rect.rows.stride, len: 1, stride: 1 };
                        let run = Run { seq: rect.seq, rows: single, offset: 0, mixed: false };
                        all.push(one_row(lse, start + rect.skip + i, rect.heads, run));
                    }
                }
            }
        }
    }
}

fn one_row(lse: &Memory<'_>, row: u32, heads: HeadRange, run: Run) -> Region {
    Region { offset: lse.at(row, heads.start), heads, ..region(lse, row, Arc::from([run])) }
}
