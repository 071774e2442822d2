//! Every operand of a tile and of a transfer is on its rank, in one run of one slab, before it is used.

use std::collections::HashMap;
use std::sync::Arc;

use super::sends::sends;
use super::{View, heads_text, rows_text, tensors_text};
use crate::facts::{LaunchOperands, Operands, SlabList, TileRows, candidates, operands};
use crate::{HeadRange, Launch, OpId, PlanError, Provider, RankSlabs, Rows, Run, Slab, Span, TensorSet, Tile, Work};

/// Position of the last operation that reads each slab of each rank that a call brings; 0 when none does.
pub(super) struct LastUse {
    /// First entry of each rank.
    first: Vec<usize>,
    positions: Vec<u32>,
}

impl LastUse {
    fn new(slabs: &[RankSlabs]) -> Self {
        let mut first = Vec::with_capacity(slabs.len() + 1);
        let mut total = 0;
        for rank in slabs {
            first.push(total);
            total += rank.slabs.len();
        }
        first.push(total);
        Self { first, positions: vec![0; total] }
    }

    /// Positions by slab of a rank.
    pub(super) fn of(&self, rank: usize) -> &[u32] {
        &self.positions[self.first[rank]..self.first[rank + 1]]
    }

    pub(super) fn raise(&mut self, rank: usize, slab: usize, position: u32) {
        let last = &mut self.positions[self.first[rank] + slab];
        *last = (*last).max(position);
    }
}

impl View<'_> {
    pub(super) fn candidates(&self, rank: u32, op: OpId, tensors: TensorSet, heads: HeadRange) -> SlabList {
        candidates(&self.slabs[rank as usize], self.order, rank, op, tensors, heads)
    }

    pub(super) fn missing(
        &self,
        rank: u32,
        tensors: TensorSet,
        heads: HeadRange,
        seq: u32,
        rows: Rows,
        user: &str,
    ) -> PlanError {
        let slabs = &self.slabs[rank as usize].slabs;
        let later = slabs.iter().find(|s| s.holds(tensors, heads) && s.find(seq, rows).is_some());
        let why = match later.map(|s| s.provider) {
            Some(Provider::Call(call)) => format!("call {call} brings them, but nothing makes it wait for that call"),
            _ => "they are not on the rank in one piece".into(),
        };
        self.error(format!(
            "rank {rank}: {user} starts before {} of sequence {seq}, {}, {} have arrived: {why}",
            tensors_text(tensors),
            rows_text(rows),
            heads_text(heads)
        ))
    }
}

pub(super) fn check<'a>(view: &View<'a>, memos: &mut Memos<'a>) -> Result<(Operands, LastUse), PlanError> {
    let mut uses = LastUse::new(view.slabs);
    let operands = launches(view, memos, &mut uses)?;
    sends(view, &mut uses)?;
    Ok((operands, uses))
}

/// Locates the operands of every launch.
pub(crate) fn locate<'a>(view: &View<'a>, memos: &mut Memos<'a>) -> Result<Operands, PlanError> {
    launches(view, memos, &mut LastUse::new(view.slabs))
}

/// What launches on the same tiles find in slabs of the same runs.
struct Memo {
    /// Kinds of operands that were looked up; those of the forward are the first ones of the backward.
    kinds: usize,
    /// By kind of operand, a range of [`Memos::runs`].
    runs: [(usize, usize); 4],
    rows: Arc<[TileRows]>,
    /// The memo before this one on the same tiles.
    before: Option<usize>,
}

/// Memos of the launches so far, by tiles.
#[derive(Default)]
pub(crate) struct Memos<'a> {
    tiles: &'a [Tile],
    list: Vec<Memo>,
    /// Addresses of the candidates' runs up to the last one that was read, and whether each was; those after it cannot
    /// matter.
    runs: Vec<(*const Run, bool)>,
    last: HashMap<Span, usize>,
    scratch: Scratch,
    /// Where operands lie is not asked for, only whether they are there.
    forgets: bool,
}

/// Room to look rows up in.
#[derive(Default)]
struct Scratch {
    rows: Vec<TileRows>,
    /// By kind of operand, which candidates are read.
    used: [Vec<bool>; 4],
    near: Vec<usize>,
}

impl<'a> Memos<'a> {
    /// How many memos on the same tiles are looked at.
    const LOOK_BACK: usize = 8;

    /// Memos of launches of which only is asked whether their operands are there.
    pub(crate) fn forgetful() -> Self {
        Self { forgets: true, ..Self::default() }
    }

    /// Turns to the tiles of a pass. The backward usually has those of the forward, and kept operands are where they
    /// were; runs that have an address now had it then, because both passes' slabs live as long as the facts.
    fn turn_to(&mut self, tiles: &'a [Tile]) {
        if self.tiles != tiles {
            *self = Self { tiles, forgets: self.forgets, ..Self::default() };
        }
    }

    fn runs(&self, memo: usize, kind: usize) -> &[(*const Run, bool)] {
        let (start, end) = self.list[memo].runs[kind];
        &self.runs[start..end]
    }

    /// True when a launch with these candidates reads the same rows for the kinds that were looked up.
    fn serves(&self, memo: usize, found: &LaunchOperands, slabs: &[Slab]) -> bool {
        found.slabs.iter().enumerate().take(self.list[memo].kinds).all(|(kind, candidates)| {
            let runs = self.runs(memo, kind);
            runs.len() <= candidates.len()
                && runs.iter().zip(&**candidates).all(|((run, _), i)| *run == slabs[*i].runs.as_ptr())
        })
    }

    fn find(&self, tiles: Span, found: &LaunchOperands, slabs: &[Slab], kinds: usize) -> Option<usize> {
        let chain = std::iter::successors(self.last.get(&tiles).copied(), |memo| self.list[*memo].before);
        let mut serving = chain.take(Self::LOOK_BACK).filter(|memo| self.serves(*memo, found, slabs));
        let first = serving.next()?;
        // One that knows all kinds is better than one of the forward.
        std::iter::once(first).chain(serving).find(|memo| self.list[*memo].kinds == kinds).or(Some(first))
    }
}

fn launches<'a>(view: &View<'a>, memos: &mut Memos<'a>, uses: &mut LastUse) -> Result<Operands, PlanError> {
    let table = view.plan.pass(view.pass);
    let kinds = operands(view.pass);
    memos.turn_to(&table.tiles);
    let mut all = Operands { ranks: Vec::with_capacity(table.ranks.len()) };
    for (rank, streams) in table.ranks.iter().enumerate() {
        let slabs = &view.slabs[rank].slabs;
        let compute = streams.streams.first().map(Vec::as_slice).unwrap_or_default();
        let launches = || compute.iter().filter(|op| matches!(op.work, Work::Launch(_))).count();
        let mut of_rank = Vec::with_capacity(if memos.forgets { 0 } else { launches() });
        for (index, op) in compute.iter().enumerate() {
            let Work::Launch(launch) = op.work else { continue };
            let id = OpId { stream: crate::COMPUTE, index: index as u32 };
            let mut found = LaunchOperands::default();
            for (kind, (tensors, keys)) in kinds.iter().enumerate() {
                let heads = if *keys { view.plan.shape.kv_of(launch.q_heads) } else { launch.q_heads };
                found.slabs[kind] = view.candidates(rank as u32, id, *tensors, heads);
            }
            let known = memos.find(launch.tiles, &found, slabs, kinds.len());
            let memo = match known.filter(|memo| memos.list[*memo].kinds == kinds.len()) {
                Some(memo) => memo,
                None => {
                    let user = format!("the launch at operation 0.{index}");
                    look_up(view, rank as u32, &launch, &found, &user, memos, known)?
                }
            };
            let position = view.order.position(rank as u32, id);
            for (kind, candidates) in found.slabs.iter().enumerate() {
                for (slab, _) in candidates.iter().zip(memos.runs(memo, kind)).filter(|(_, (_, read))| *read) {
                    uses.raise(rank, *slab, position);
                }
            }
            if !memos.forgets {
                found.rows = memos.list[memo].rows.clone();
                of_rank.push(found);
            }
        }
        all.ranks.push(of_rank);
    }
    Ok(all)
}

/// Finds the places of the operands of every tile of a launch and which candidates of each kind are read; goes on from
/// the memo `known`, which serves the launch's first kinds. Returns the number of the new memo.
fn look_up(
    view: &View<'_>,
    rank: u32,
    launch: &Launch,
    found: &LaunchOperands,
    user: &str,
    memos: &mut Memos<'_>,
    known: Option<usize>,
) -> Result<usize, PlanError> {
    let slabs = &view.slabs[rank as usize].slabs;
    let tiles = &view.plan.pass(view.pass).tiles[launch.tiles.range()];
    let kinds = operands(view.pass);
    let mut scratch = std::mem::take(&mut memos.scratch);
    let Scratch { rows, used, near } = &mut scratch;
    rows.clear();
    let mut first = 0;
    if let Some(memo) = known {
        rows.extend_from_slice(&memos.list[memo].rows);
        first = memos.list[memo].kinds;
    }
    rows.resize(tiles.len(), TileRows::default());
    for (kind, (used, candidates)) in used.iter_mut().zip(&found.slabs).enumerate() {
        used.clear();
        if let Some(memo) = known.filter(|_| kind < first) {
            used.extend(memos.runs(memo, kind).iter().map(|(_, read)| *read));
        }
        used.resize(candidates.len(), false);
    }
    let runs = |kind: usize| found.slabs[kind].iter().map(|i| slabs[*i].runs.as_ptr());
    for (kind, (tensors, keys)) in kinds.iter().enumerate().skip(first) {
        // Q, dO and O usually lie in slabs of the same runs, and so do the keys of a square.
        let twin = (0..kind).find(|earlier| runs(*earlier).eq(runs(kind)));
        if let Some(earlier) = twin.filter(|earlier| kinds[*earlier].1 == *keys) {
            for out in &mut *rows {
                out.at[kind] = out.at[earlier];
            }
            let (before, this) = used.split_at_mut(kind);
            this[0].clone_from(&before[earlier]);
            continue;
        }
        near.clear();
        near.resize(found.slabs[kind].len(), 0);
        // What was forgotten cannot be copied.
        let twin = twin.filter(|earlier| !memos.forgets || *earlier >= first);
        for (tile, out) in tiles.iter().zip(&mut *rows) {
            let wanted = if *keys { tile.k } else { tile.q };
            if let Some(earlier) = twin {
                let theirs = if kinds[earlier].1 { tile.k } else { tile.q };
                if theirs == wanted {
                    out.at[kind] = out.at[earlier];
                    used[kind][usize::from(out.at[kind].0)] = true;
                    continue;
                }
            }
            let mut places = found.slabs[kind].iter().zip(&mut *near).enumerate();
            let place = places.find_map(|(i, (slab, near))| {
                Some((u16::try_from(i).ok()?, Run::find_dense_near(&slabs[*slab].runs, near, tile.seq, wanted)?))
            });
            let Some(place) = place else {
                let heads = if *keys { view.plan.shape.kv_of(launch.q_heads) } else { launch.q_heads };
                return Err(view.missing(rank, *tensors, heads, tile.seq, wanted, user));
            };
            used[kind][usize::from(place.0)] = true;
            out.at[kind] = place;
        }
    }
    let mut memo = Memo {
        kinds: kinds.len(),
        runs: Default::default(),
        rows: if memos.forgets { Arc::default() } else { Arc::from(&rows[..]) },
        before: memos.last.insert(launch.tiles, memos.list.len()),
    };
    for (kind, (of_kind, used)) in memo.runs.iter_mut().zip(used).enumerate() {
        let start = memos.runs.len();
        let read = used.iter().rposition(|u| *u).map_or(0, |last| last + 1);
        memos.runs.extend(runs(kind).zip(used.iter().copied()).take(read));
        *of_kind = (start, memos.runs.len());
    }
    memos.list.push(memo);
    memos.scratch = scratch;
    Ok(memos.list.len() - 1)
}
