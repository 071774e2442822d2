use std::ops::Range;

use skewbench_plan::{AttentionShape, HeadRange};

/// KV heads that the same head shards read: what a worker fetches once for all its tiles of these shards.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct KvClass {
    /// KV heads of the class.
    pub heads: HeadRange,
    /// Head shards that read all of them.
    pub shards: Range<usize>,
}

/// What happens in one head piece.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Piece {
    /// (head shard, query heads) of Q, O, dO and dQ that travel.
    pub rows: Vec<(usize, HeadRange)>,
    /// (KV class, KV heads) that this piece is the first to use.
    pub fetched: Vec<(usize, HeadRange)>,
    /// (KV class, KV heads) that this piece is the last to use.
    pub finished: Vec<(usize, HeadRange)>,
    /// (head shard, query heads) of kernel calls: `rows`, cut where K and V arrived in another call or class.
    pub launches: Vec<(usize, HeadRange)>,
}

/// How the heads of a domain are cut into shards (placement) and pieces (time).
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct HeadCut {
    /// Query heads of every head shard.
    pub shards: Vec<HeadRange>,
    /// KV classes; they partition the KV heads.
    pub classes: Vec<KvClass>,
    /// KV classes that every head shard reads.
    pub classes_of: Vec<Range<usize>>,
    /// Head pieces in order of execution.
    pub pieces: Vec<Piece>,
}

impl HeadCut {
    /// Cuts the heads into `shards` shards and `pieces` pieces, each at most the number of query heads.
    pub fn new(shape: AttentionShape, shards: u32, pieces: u32) -> Self {
        let q_heads = u32::from(shape.q_heads);
        let cut = |n: u32| -> Vec<HeadRange> {
            let n = n.clamp(1, q_heads);
            (0..n).map(|i| HeadRange::piece(shape.q_heads, i, n)).collect()
        };
        let (shards, piece_heads) = (cut(shards), cut(pieces));
        let users = |kv: u16, cuts: &[HeadRange]| -> Range<usize> {
            let (first, last) = (kv * shape.group(), (kv + 1) * shape.group() - 1);
            cuts.partition_point(|c| c.end <= first)..cuts.partition_point(|c| c.start <= last)
        };
        let kv_heads = || 0..shape.kv_heads;

        let mut classes: Vec<KvClass> = Vec::new();
        let mut class_of = Vec::new();
        for kv in kv_heads() {
            let readers = users(kv, &shards);
            match classes.last_mut() {
                Some(class) if class.shards == readers => class.heads.end = kv + 1,
                _ => classes.push(KvClass { heads: HeadRange::new(kv, kv + 1), shards: readers }),
            }
            class_of.push(classes.len() - 1);
        }
        let classes_of = (0..shards.len())
            .map(|s| classes.partition_point(|c| c.shards.end <= s)..classes.partition_point(|c| c.shards.start <= s))
            .collect();

        let mut out = vec![Piece::default(); piece_heads.len()];
        let mut first_use = Vec::new();
        for kv in kv_heads() {
            let used = users(kv, &piece_heads);
            let class = class_of[usize::from(kv)];
            extend(&mut out[used.start].fetched, class, kv);
            extend(&mut out[used.end - 1].finished, class, kv);
            first_use.push(used.start);
        }
        let source = |q: u16| {
            let kv = usize::from(q / shape.group());
            (class_of[kv], first_use[kv])
        };
        for (piece, heads) in out.iter_mut().zip(&piece_heads) {
            for (s, shard) in shards.iter().enumerate().filter(|(_, shard)| shard.overlaps(*heads)) {
                let both = HeadRange::new(shard.start.max(heads.start), shard.end.min(heads.end));
                piece.rows.push((s, both));
                let mut start = both.start;
                for q in both.start + 1..=both.end {
                    if q == both.end || source(q) != source(start) {
                        piece.launches.push((s, HeadRange::new(start, q)));
                        start = q;
                    }
                }
            }
        }
        Self { shards, classes, classes_of, pieces: out }
    }
}

fn extend(list: &mut Vec<(usize, HeadRange)>, class: usize, kv: u16) {
    match list.last_mut() {
        Some((last, heads)) if *last == class && heads.end == kv => heads.end = kv + 1,
        _ => list.push((class, HeadRange::new(kv, kv + 1))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shape(q_heads: u16, kv_heads: u16) -> AttentionShape {
        AttentionShape { q_heads, kv_heads, head_dim: 128 }
    }

    fn heads(start: u16, end: u16) -> HeadRange {
        HeadRange::new(start, end)
    }

    #[test]
    fn aligned_pieces_fetch_their_own_kv_heads() {
        let cut = HeadCut::new(shape(32, 4), 1, 4);
        assert_eq!(cut.classes, [KvClass { heads: heads(0, 4), shards: 0..1 }]);
        for (m, piece) in (0..4).zip(&cut.pieces) {
            assert_eq!(piece.rows, [(0, heads(8 * m, 8 * m + 8))]);
            assert_eq!(piece.launches, piece.rows);
            assert_eq!(piece.fetched, [(0, heads(m, m + 1))]);
            assert_eq!(piece.finished, piece.fetched);
        }
    }

    #[test]
    fn a_kv_head_travels_with_the_first_piece_and_returns_with_the_last() {
        let cut = HeadCut::new(shape(8, 1), 1, 3);
        assert_eq!(cut.pieces[0].fetched, [(0, heads(0, 1))]);
        assert!(cut.pieces[1].fetched.is_empty() && cut.pieces[1].finished.is_empty());
        assert!(cut.pieces[2].fetched.is_empty());
        assert_eq!(cut.pieces[2].finished, [(0, heads(0, 1))]);
    }

    #[test]
    fn launches_are_cut_where_keys_arrived_in_different_calls() {
        let cut = HeadCut::new(shape(12, 3), 1, 2);
        assert_eq!(cut.pieces[0].fetched, [(0, heads(0, 2))]);
        assert_eq!(cut.pieces[1].fetched, [(0, heads(2, 3))]);
        assert_eq!(cut.pieces[1].launches, [(0, heads(6, 8)), (0, heads(8, 12))]);
    }

    #[test]
    fn more_shards_than_kv_heads_share_a_class() {
        let cut = HeadCut::new(shape(8, 2), 4, 2);
        assert_eq!(cut.classes.len(), 2);
        assert_eq!(cut.classes[0].shards, 0..2);
        assert_eq!(cut.classes_of, [0..1, 0..1, 1..2, 1..2]);
    }

    #[test]
    fn every_head_is_launched_fetched_and_finished_once() {
        for kv in 1..=4u16 {
            for group in 1..=5u16 {
                for shards in 1..=9 {
                    for pieces in 1..=9 {
                        let cut = HeadCut::new(shape(kv * group, kv), shards, pieces);
                        let mut launched: Vec<u16> =
                            cut.pieces.iter().flat_map(|p| &p.launches).flat_map(|(_, h)| h.start..h.end).collect();
                        launched.sort_unstable();
                        assert!(launched.into_iter().eq(0..kv * group));
                        for list in [|p: &Piece| p.fetched.clone(), |p: &Piece| p.finished.clone()] {
                            let mut seen: Vec<u16> =
                                cut.pieces.iter().flat_map(list).flat_map(|(_, h)| h.start..h.end).collect();
                            seen.sort_unstable();
                            assert!(seen.into_iter().eq(0..kv));
                        }
                    }
                }
            }
        }
    }
}
