//! Everything that is sent in a copy is on its sender, in one run of one slab, before the call starts.

use super::View;
use super::operands::LastUse;
use crate::{Bundle, CallMode, Move, Part, PlanError, Provider, RankSlabs, Run, Slab, Tensor, TensorSet};

/// Checks every copy and notes the last use of slabs that calls have brought.
pub(super) fn sends(view: &View<'_>, uses: &mut LastUse) -> Result<(), PlanError> {
    let table = view.plan.pass(view.pass);
    let mut at_home = AtHome::new(view);
    for (index, call) in table.calls.iter().enumerate().filter(|(_, c)| c.mode == CallMode::Copy) {
        for (part, id) in call.parts.iter().zip(view.indices.parts(index)) {
            if !at_home.sends(part, *id) {
                part_sends(view, index as u32, part, *id, uses)?;
            }
        }
    }
    Ok(())
}

fn part_sends(view: &View<'_>, call: u32, part: &Part, id: u32, uses: &mut LastUse) -> Result<(), PlanError> {
    let moves = view.indices.moves(view.plan.pass(view.pass), id);
    for (rank, sent) in view.indices.index(id).senders() {
        let Some(post) = view.order.post(rank, call) else { continue };
        let position = view.order.position(rank, post);
        let slabs = &view.slabs[rank as usize].slabs;
        // A part may carry tensors that live in different slabs of the sender (dO with O and LSE). K and V travel
        // together and every slab holds both or neither.
        for tensor in part.tensors.iter().filter(|t| *t != Tensor::V) {
            let one = TensorSet::of(&[tensor]);
            let mut candidates = view.candidates(rank, post, one, part.heads(tensor));
            candidates.sort_unstable_by_key(|i| !at_rest(&slabs[*i]));
            let mut near = vec![0; candidates.len()];
            for mv in sent {
                let mv = &moves[*mv as usize];
                let mut places = candidates.iter().zip(&mut near);
                let found = places.find_map(|(slab, near)| {
                    Run::find_near(&slabs[*slab].runs, near, mv.seq, mv.rows).is_some().then_some(*slab)
                });
                let Some(found) = found else {
                    let user = format!("call {call}");
                    return Err(view.missing(rank, one, part.heads(tensor), mv.seq, mv.rows, &user));
                };
                uses.raise(rank as usize, found, position);
            }
        }
    }
    Ok(())
}

/// The layer's input and output, which are there throughout.
fn at_rest(slab: &Slab) -> bool {
    matches!(slab.provider, Provider::Entry | Provider::Exit)
}

/// Spans whose rows all lie in the senders' parts of a layout are there for every head piece that refers to them.
struct AtHome<'a> {
    view: &'a View<'a>,
    layouts: Vec<OfLayout>,
}

struct OfLayout {
    provider: Provider,
    tensors: TensorSet,
    /// By span, whether all of its rows are there, once it is known.
    spans: Vec<Option<bool>>,
}

impl<'a> AtHome<'a> {
    fn new(view: &'a View<'a>) -> Self {
        let layouts = [Provider::Entry, Provider::Exit].into_iter().filter_map(|provider| {
            let mut slabs = view.slabs.iter().flat_map(|rank| &rank.slabs);
            let tensors = slabs.find(|slab| slab.provider == provider)?.tensors;
            Some(OfLayout { provider, tensors, spans: vec![None; view.indices.len()] })
        });
        Self { view, layouts: layouts.collect() }
    }

    fn sends(&mut self, part: &Part, id: u32) -> bool {
        let view = self.view;
        let mut found = TensorSet::default();
        for layout in &mut self.layouts {
            let tensors = part.tensors.common(layout.tensors);
            if !tensors.is_empty() {
                let provider = layout.provider;
                if !*layout.spans[id as usize].get_or_insert_with(|| all_in(view, provider, id)) {
                    return false;
                }
                found = found.union(tensors);
            }
        }
        found == part.tensors
    }
}

fn all_in(view: &View<'_>, provider: Provider, id: u32) -> bool {
    let moves = view.indices.moves(view.plan.pass(view.pass), id);
    let of_rank = |rank: &RankSlabs| rank.slabs.iter().position(|slab| slab.provider == provider);
    // By sender, its slab, and where its last rows were found: moves are taken in order, as they lie in memory.
    let mut senders: Vec<(Option<usize>, usize)> = view.slabs.iter().map(|rank| (of_rank(rank), 0)).collect();
    let mut there = |mv: &Move| {
        let (slab, near) = &mut senders[mv.from as usize];
        let runs = slab.map(|slab| &view.slabs[mv.from as usize].slabs[slab].runs);
        runs.is_some_and(|runs| Run::find_near(runs, near, mv.seq, mv.rows).is_some())
    };
    // Ranks that gather get what the one before got: those rows were just found.
    let bundles = view.indices.index(id).bundles();
    let mut before: &[Bundle] = &[];
    bundles.chunk_by(|a, b| a.to == b.to).all(|to_one| {
        let rows = |(a, b): (&Move, &Move)| (a.seq, a.rows) == (b.seq, b.rows);
        let same = |(a, b): (&Bundle, &Bundle)| {
            (a.from, a.len) == (b.from, b.len) && moves[a.range()].iter().zip(&moves[b.range()]).all(rows)
        };
        let again = to_one.len() == before.len() && to_one.iter().zip(before).all(same);
        before = to_one;
        again || to_one.iter().flat_map(|bundle| &moves[bundle.range()]).all(&mut there)
    })
}
