//! Every unmasked pair of every document and head is computed exactly once.
//!
//! Rows of a document that are dealt with a stride `s` are looked at by residue class: with `q = rq + s a` and
//! `k = rk + s b`, a key is visible when `b <= a` (`rk <= rq`) or `b < a` (`rk > rq`). Each pair of classes is then a
//! triangle of its own, which the tiles must partition.

use std::collections::BTreeMap;

use super::intervals::{Interval, point};
use super::{View, heads_text};
use crate::{HeadRange, Mask, PlanError, Span, Tile, Work};

/// A tile in the coordinates of its pair of classes.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
struct Piece {
    seq: u32,
    doc: u32,
    classes: (u32, u32),
    q: (u32, u32),
    k: (u32, u32),
    /// The last key of each row is on the diagonal.
    diagonal: bool,
    stride: u32,
}

type Launches = Vec<(Span, Mask)>;

/// Tiles or classes of rows up to which small plans are looked at in full; far larger ones are refused by their size when
/// no plan of that size can be right.
const SLACK: u64 = 1 << 16;

/// Lists of launches that were found to cover everything, with the tiles that they refer to.
#[derive(Default)]
pub(super) struct Accepted<'a> {
    tiles: &'a [Tile],
    launches: Vec<Launches>,
}

pub(super) fn check<'a>(view: &View<'a>, accepted: &mut Accepted<'a>) -> Result<(), PlanError> {
    let table = view.plan.pass(view.pass);
    // The backward usually runs the very tiles of the forward.
    if accepted.tiles != table.tiles {
        *accepted = Accepted { tiles: &table.tiles, launches: Vec::new() };
    }
    let mut by_heads: BTreeMap<HeadRange, Launches> = BTreeMap::new();
    for streams in &table.ranks {
        for op in streams.streams.iter().flatten() {
            if let Work::Launch(launch) = op.work {
                by_heads.entry(launch.q_heads).or_default().push((launch.tiles, launch.mask));
            }
        }
    }
    let mut bounds: Vec<u16> = by_heads.keys().flat_map(|h| [h.start, h.end]).collect();
    bounds.extend([0, view.plan.shape.q_heads]);
    bounds.sort_unstable();
    bounds.dedup();
    for cut in bounds.windows(2) {
        let heads = HeadRange::new(cut[0], cut[1]);
        let mut launches: Launches =
            by_heads.iter().filter(|(h, _)| h.contains(heads)).flat_map(|(_, l)| l.iter().copied()).collect();
        launches.sort_unstable_by_key(|(span, mask)| (span.start, span.end, *mask));
        if accepted.launches.contains(&launches) {
            continue;
        }
        if !plainly_covers(view, &launches) {
            covers(view, heads, &launches)?;
        }
        accepted.launches.push(launches);
    }
    Ok(())
}

/// The usual case, without sorting most tiles: every tile goes from the first key of its document to the diagonal, and each
/// row is in one of them.
fn plainly_covers(view: &View<'_>, launches: &Launches) -> bool {
    let sequences = &view.plan.sequences;
    let tiles = &view.plan.pass(view.pass).tiles;
    let mut missing: u64 = sequences.iter().filter_map(|bounds| bounds.last()).map(|end| u64::from(*end)).sum();
    // Tiles of part of a document; whole documents are counted with their first row.
    let mut parts: Vec<Interval> = Vec::new();
    let mut first = 0u64;
    let base: Vec<usize> = sequences
        .iter()
        .map(|bounds| {
            let base = first as usize;
            first += bounds.len() as u64;
            base
        })
        .collect();
    let mut whole = vec![false; first as usize];
    let mut near = 0;
    for (span, mask) in launches {
        for tile in &tiles[span.range()] {
            if tile.q.stride != 1 || tile.k.stride != 1 {
                return false;
            }
            let at = (point(tile.seq, tile.q.start), point(tile.seq, tile.q.end()));
            let bounds = &sequences[tile.seq as usize];
            let doc = document_of(bounds, tile.q.start, &mut near);
            let (start, end) = (bounds[doc], bounds[doc + 1]);
            let plain =
                *mask == Mask::Causal && tile.k.start == start && tile.k.end() == tile.q.end() && tile.q.end() <= end;
            let rows = u64::from(tile.q.len);
            if !plain || rows > missing {
                return false;
            }
            missing -= rows;
            if tile.q.len < end - start {
                parts.push(at);
            } else if std::mem::replace(&mut whole[base[tile.seq as usize] + doc], true) {
                return false;
            }
        }
    }
    // Launches mostly list their tiles in order, which a stable sort only merges.
    parts.sort();
    let apart = parts.windows(2).all(|w| w[0].1 <= w[1].0);
    // Rows of a whole document are in no part.
    let mut near = 0;
    let alone = parts.iter().all(|part| {
        let (seq, row) = ((part.0 >> 32) as usize, part.0 as u32);
        !whole[base[seq] + document_of(&sequences[seq], row, &mut near)]
    });
    missing == 0 && apart && alone
}

/// The document that holds a row of the sequence; looks first at the last one and the next.
fn document_of(bounds: &[u32], row: u32, near: &mut usize) -> usize {
    let holds = |doc: usize| doc + 1 < bounds.len() && bounds[doc] <= row && row < bounds[doc + 1];
    if !holds(*near) {
        *near = if holds(*near + 1) { *near + 1 } else { bounds.partition_point(|b| *b <= row) - 1 };
    }
    *near
}

fn covers(view: &View<'_>, heads: HeadRange, launches: &Launches) -> Result<(), PlanError> {
    let tiles = &view.plan.pass(view.pass).tiles;
    let referred: u64 = launches.iter().map(|(span, _)| span.len() as u64).sum();
    if referred > 2 * tiles.len() as u64 + SLACK {
        return Err(view.error(format!(
            "query {}: launches refer to {referred} tiles of a table of {}, so that pairs are computed more than once",
            heads_text(heads),
            tiles.len()
        )));
    }
    let mut pieces = Vec::with_capacity(referred as usize);
    let mut near = 0;
    for (span, mask) in launches {
        for tile in &tiles[span.range()] {
            pieces.push(piece(view, heads, tile, *mask, &mut near)?);
        }
    }
    by_document(view, &mut pieces);
    let mut rest = pieces.as_slice();
    for (seq, bounds) in view.plan.sequences.iter().enumerate() {
        for (doc, edge) in bounds.windows(2).enumerate() {
            let id = (seq as u32, doc as u32);
            let count = rest.partition_point(|p| (p.seq, p.doc) <= id);
            let (of_document, later) = rest.split_at(count);
            rest = later;
            document(view, heads, id, (edge[0], edge[1]), of_document)?;
        }
    }
    Ok(())
}

/// Sorts pieces: first into their documents by counting, then each document's.
fn by_document(view: &View<'_>, pieces: &mut Vec<Piece>) {
    let mut base = Vec::with_capacity(view.plan.sequences.len());
    let mut documents = 0;
    for bounds in &view.plan.sequences {
        base.push(documents);
        documents += bounds.len() - 1;
    }
    let slot = |p: &Piece| base[p.seq as usize] + p.doc as usize;
    let mut start = vec![0u32; documents + 1];
    for piece in pieces.iter() {
        start[slot(piece) + 1] += 1;
    }
    for i in 0..documents {
        start[i + 1] += start[i];
    }
    let mut next = start.clone();
    let Some(first) = pieces.first().copied() else { return };
    let mut sorted = vec![first; pieces.len()];
    for piece in pieces.iter() {
        let at = &mut next[slot(piece)];
        sorted[*at as usize] = *piece;
        *at += 1;
    }
    for range in start.windows(2) {
        let of_document = &mut sorted[range[0] as usize..range[1] as usize];
        if of_document.iter().all(|p| p.stride == 1) {
            of_document.sort_unstable_by_key(|p| (u64::from(p.q.0) << 32) | u64::from(p.k.0));
        } else {
            let pair = |(high, low): (u32, u32)| (u64::from(high) << 32) | u64::from(low);
            of_document.sort_unstable_by_key(|p| (pair(p.classes), pair((p.q.0, p.k.0))));
        }
    }
    *pieces = sorted;
}

fn place(heads: HeadRange, (seq, doc): (u32, u32)) -> String {
    format!("sequence {seq}, document {doc}, query {}", heads_text(heads))
}

/// Puts a tile into class coordinates and checks that its mask is the document's.
fn piece(view: &View<'_>, heads: HeadRange, tile: &Tile, mask: Mask, near: &mut usize) -> Result<Piece, PlanError> {
    let bounds = &view.plan.sequences[tile.seq as usize];
    let doc = document_of(bounds, tile.q.start, near);
    let (start, end) = (bounds[doc], bounds[doc + 1]);
    let at = || {
        format!(
            "{}: tile of {} on keys {}",
            place(heads, (tile.seq, doc as u32)),
            super::rows_text(tile.q),
            super::rows_text(tile.k).trim_start_matches("rows ")
        )
    };
    if tile.q.end() > end || tile.k.start < start || tile.k.end() > end {
        return Err(view.error(format!("{} reaches outside its document {start}..{end}", at())));
    }
    let stride = if tile.q.len > 1 { tile.q.stride } else { tile.k.stride };
    if (tile.k.len > 1 && tile.k.stride != stride) || (tile.q.len > 1 && tile.q.stride != stride) {
        return Err(view.error(format!("{}: rows and keys have different strides", at())));
    }
    let classes = (tile.q.start % stride, tile.k.start % stride);
    let behind = u32::from(classes.1 > classes.0);
    let q = (tile.q.start / stride, tile.q.start / stride + tile.q.len);
    let k = (tile.k.start / stride, tile.k.start / stride + tile.k.len);
    let fits = match mask {
        Mask::Full => k.1 + behind <= q.0 + 1,
        Mask::Causal => k.1 + behind == q.1,
        Mask::CausalExclusive => k.1 + behind == q.1 + 1,
    };
    if !fits {
        let what = match mask {
            Mask::Full => "shows keys that causality masks",
            Mask::Causal | Mask::CausalExclusive => "is not aligned with the diagonal",
        };
        return Err(view.error(format!("{} {what}", at())));
    }
    let mut key_end = k.1;
    if mask == Mask::CausalExclusive {
        key_end -= 1;
    }
    Ok(Piece { seq: tile.seq, doc: doc as u32, classes, q, k: (k.0, key_end), diagonal: mask != Mask::Full, stride })
}

fn document(
    view: &View<'_>,
    heads: HeadRange,
    id: (u32, u32),
    edge: (u32, u32),
    pieces: &[Piece],
) -> Result<(), PlanError> {
    let Some(first) = pieces.first() else {
        return Err(view.error(format!("{}: no tile computes it", place(heads, id))));
    };
    let stride = pieces.iter().find(|p| p.q.1 - p.q.0 > 1).unwrap_or(first).stride;
    if let Some(odd) = pieces.iter().find(|p| p.stride != stride) {
        return Err(view.error(format!("{}: tiles of stride {} and {stride}", place(heads, id), odd.stride)));
    }
    // A row sees its own key, so that every class needs a tile of its own.
    let count = stride.min(edge.1 - edge.0) as usize;
    if count as u64 > SLACK && count > pieces.len() {
        let what = format!("{} tiles for {count} classes of rows: some have keys computed by no tile", pieces.len());
        return Err(view.error(format!("{}: {what}", place(heads, id))));
    }
    let mut rest = pieces;
    let classes = classes(edge, stride);
    for &rq in &classes {
        for &rk in &classes {
            let count = rest.iter().take_while(|p| p.classes <= (rq, rk)).count();
            let (of_pair, later) = rest.split_at(count);
            rest = later;
            triangle(view, heads, id, Triangle::new(edge, stride, (rq, rk)), of_pair)?;
        }
    }
    Ok(())
}

/// Classes with a row between two rows, sorted.
fn classes((start, end): (u32, u32), stride: u32) -> Vec<u32> {
    let mut classes: Vec<u32> = (start..end.min(start.saturating_add(stride))).map(|row| row % stride).collect();
    classes.sort_unstable();
    classes
}

/// The visible pairs of one pair of classes of one document.
struct Triangle {
    stride: u32,
    classes: (u32, u32),
    /// Row indices of the class inside the document.
    rows: (u32, u32),
    /// First key index of the class inside the document.
    first_key: u32,
    behind: u32,
}

impl Triangle {
    fn new((start, end): (u32, u32), stride: u32, classes: (u32, u32)) -> Self {
        let first = |row: u32, class: u32| row.saturating_sub(class).div_ceil(stride);
        Self {
            stride,
            classes,
            rows: (first(start, classes.0), first(end, classes.0)),
            first_key: first(start, classes.1),
            behind: u32::from(classes.1 > classes.0),
        }
    }

    /// One past the last key that row `a` sees.
    fn keys_end(&self, a: u32) -> u32 {
        (a + 1).saturating_sub(self.behind)
    }

    fn row(&self, a: u32) -> u32 {
        a * self.stride + self.classes.0
    }

    fn key(&self, b: u32) -> u32 {
        b * self.stride + self.classes.1
    }
}

fn triangle(
    view: &View<'_>,
    heads: HeadRange,
    id: (u32, u32),
    triangle: Triangle,
    pieces: &[Piece],
) -> Result<(), PlanError> {
    // What stripes have: one tile of all rows and keys, up to the diagonal.
    if let [only] = pieces
        && (only.diagonal, only.q, only.k.0) == (true, triangle.rows, triangle.first_key)
    {
        return Ok(());
    }
    let (mut row, end) = triangle.rows;
    let gap = |what: &str, row: u32, keys: (u32, u32)| {
        let (a, b) = (triangle.key(keys.0), triangle.key(keys.1.max(keys.0 + 1) - 1));
        Err(view.error(format!("{}: row {} has keys {a}..={b} computed {what}", place(heads, id), triangle.row(row))))
    };
    let mut active: Vec<&Piece> = Vec::new();
    let mut next = pieces.iter().peekable();
    while row < end {
        active.retain(|p| p.q.1 > row);
        while let Some(piece) = next.next_if(|p| p.q.0 <= row) {
            active.push(piece);
        }
        let until = active.iter().map(|p| p.q.1).chain(next.peek().map(|p| p.q.0)).min().unwrap_or(end).min(end);
        active.sort_unstable_by_key(|p| p.k);
        // Full tiles end at the same key for every row of the interval; diagonal ones end on the diagonal.
        let mut key = triangle.first_key;
        let mut closed = false;
        for piece in &active {
            let seen_by_last = triangle.keys_end(until - 1);
            if piece.k.0 >= seen_by_last && piece.diagonal {
                continue;
            }
            if closed || piece.k.0 < key {
                return gap("more than once", until - 1, (piece.k.0, key.min(piece.k.1).max(piece.k.0 + 1)));
            }
            if piece.k.0 > key && key < triangle.keys_end(until - 1) {
                return gap("by no tile", until - 1, (key, piece.k.0.min(triangle.keys_end(until - 1))));
            }
            if piece.diagonal {
                closed = true;
            } else {
                key = piece.k.1;
            }
        }
        if !closed && key < triangle.keys_end(until - 1) {
            return gap("by no tile", until - 1, (key, triangle.keys_end(until - 1)));
        }
        row = until;
    }
    Ok(())
}
