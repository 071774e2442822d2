//! Launches: kernel calls with their operands and results in place, and what is moved where they cannot be.

use std::cmp::Reverse;

use skewbench_exec::{TileView, View};
use skewbench_plan::{AttentionShape, HeadRange, Mask, Pass, Tensor};

use super::memory::{Arena, Block, Constants, Memory};
use super::moves::{Value, deposit, write};
use super::{AttendCall, AttendMask, Element, RowMove, Slot, Strides};

/// What a launch looks at.
#[derive(Clone, Copy)]
pub(super) struct LaunchSite<'a> {
    pub(super) shape: AttentionShape,
    pub(super) pass: Pass,
    pub(super) memory: &'a [Memory<'a>],
    pub(super) constants: Constants,
}

/// A launch of a program.
#[derive(Clone, Copy)]
pub(super) struct Launch<'a> {
    pub(super) tiles: &'a [TileView],
    pub(super) mask: Mask,
    pub(super) q_heads: HeadRange,
    pub(super) kv_heads: HeadRange,
}

/// What a launch issues.
#[derive(Default)]
pub(super) struct LaunchWork {
    /// Operands that cannot be read in place.
    pub(super) before: Vec<RowMove>,
    pub(super) calls: Vec<AttendCall>,
    /// Results that cannot be left in place.
    pub(super) after: Vec<RowMove>,
}

/// A tile without the rows that see no key and the keys that no row sees.
struct Seen<'a> {
    view: &'a TileView,
    /// Rows at the top that see no key.
    blind: u32,
    q_rows: u32,
    k_rows: u32,
    pairs: u64,
}

impl<'a> Seen<'a> {
    fn new(view: &'a TileView, mask: Mask) -> Self {
        let k_rows = if mask == Mask::CausalExclusive { view.k_rows.saturating_sub(1) } else { view.k_rows };
        let q_rows = if mask == Mask::Full { view.q_rows } else { view.q_rows.min(k_rows) };
        let q_rows = if k_rows == 0 { 0 } else { q_rows };
        let pairs = if mask == Mask::Full { Mask::Full } else { Mask::Causal }.pairs(q_rows, k_rows);
        Self { view, blind: view.q_rows - q_rows, q_rows, k_rows, pairs }
    }

    fn is_empty(&self) -> bool {
        self.q_rows == 0 || self.k_rows == 0
    }
}

/// An operand or a result of one tile.
#[derive(Clone, Copy)]
struct Item {
    view: View,
    rows: u32,
    /// It may be used where it lies.
    in_place: bool,
    weight: u64,
}

/// Where an operand or a result of all tiles of a call lies.
struct Arranged {
    /// Heads of a row, which say the distance between rows.
    heads: u32,
    /// First bytes, and for those that had to be moved where they belong.
    tiles: Vec<Arrangement>,
}

struct Arrangement {
    at: [u64; 2],
    /// The blocks of the call and of the buffers, when they differ.
    moved: Vec<(Block, Block)>,
}

/// Whole groups of query heads with their KV heads: a kernel call has as many query heads for each of its KV heads.
fn even_groups(q_heads: HeadRange, kv_heads: HeadRange, group: u16) -> Vec<(HeadRange, HeadRange)> {
    let mut calls: Vec<(HeadRange, HeadRange)> = Vec::new();
    for kv in kv_heads.start..kv_heads.end {
        let of_kv = HeadRange::new(kv.saturating_mul(group), (kv + 1).saturating_mul(group));
        let q = super::rows::common(q_heads, of_kv);
        if q.is_empty() {
            continue;
        }
        match calls.last_mut() {
            Some((qs, kvs)) if qs.len() == q.len() * kvs.len() => {
                qs.end = q.end;
                kvs.end = kv + 1;
            }
            _ => calls.push((q, HeadRange::new(kv, kv + 1))),
        }
    }
    calls
}

impl LaunchSite<'_> {
    /// Lowers a launch; scratch comes from the arena, which is as before once the launch is over.
    pub(super) fn launch(&self, launch: Launch<'_>, scratch: &mut Arena) -> Result<LaunchWork, String> {
        let group = self.shape.q_heads.checked_div(self.shape.kv_heads).unwrap_or(0);
        let mut work = LaunchWork::default();
        for tile in launch.tiles {
            self.check(tile, &launch)?;
        }
        let tiles: Vec<Seen<'_>> = launch.tiles.iter().map(|view| Seen::new(view, launch.mask)).collect();
        for heads in even_groups(launch.q_heads, launch.kv_heads, group) {
            self.call(&tiles, launch.mask, heads, scratch, &mut work);
            self.blind(&tiles, heads, &mut work.after);
        }
        Ok(work)
    }

    fn check(&self, tile: &TileView, launch: &Launch<'_>) -> Result<(), String> {
        let (q, k) = (tile.q_rows, tile.k_rows);
        let mut wanted = vec![(Tensor::Q, tile.q, q), (Tensor::K, tile.k, k), (Tensor::V, next(tile.k), k)];
        wanted.extend([(Tensor::O, tile.o, q), (Tensor::Lse, next(tile.o), q)]);
        if self.pass == Pass::Backward {
            wanted.extend([(Tensor::DO, tile.d_o, q), (Tensor::DQ, tile.dq, q)]);
            wanted.extend([(Tensor::DK, tile.dk, k), (Tensor::DV, next(tile.dk), k)]);
        }
        for (tensor, view, rows) in wanted {
            let heads = if tensor.is_kv() { launch.kv_heads } else { launch.q_heads };
            let fits = self.memory.get(view.buffer as usize).is_some_and(|m| {
                let end = view.row.checked_add(rows);
                m.buffer.tensor == tensor && m.heads().contains(heads) && end.is_some_and(|end| end <= m.rows())
            });
            if !fits {
                let View { buffer, row } = view;
                return Err(format!("buffer {buffer} does not hold {} of {rows} rows from {row}", tensor.name()));
            }
        }
        Ok(())
    }

    fn block(&self, view: View, rows: u32, heads: HeadRange) -> Block {
        let m = &self.memory[view.buffer as usize];
        Block {
            skip: 0,
            rows,
            heads,
            at: m.at(view.row, heads.start),
            stride: m.row_bytes(),
            element: m.element,
            width: m.width,
            buffer: Some(view.buffer),
        }
    }

    /// Finds the distance between rows that suits most tiles, and scratch for the others.
    fn arrange(&self, items: &[Item], heads: HeadRange, tensors: &[Tensor], scratch: &mut Arena) -> Arranged {
        let held = |item: &Item| self.memory[item.view.buffer as usize].heads().len();
        let mut classes: Vec<(u32, u64)> = Vec::new();
        for item in items.iter().filter(|item| item.in_place) {
            match classes.iter_mut().find(|(known, _)| *known == held(item)) {
                Some((_, weight)) => *weight += item.weight,
                None => classes.push((held(item), item.weight)),
            }
        }
        let most = classes.iter().max_by_key(|(held, weight)| (*weight, Reverse(*held)));
        let stride = most.map_or(heads.len(), |(held, _)| *held);
        // Rows of scratch are as far apart, so tiles lie side by side where there is room.
        let mut columns = vec![0u32; (stride / heads.len().max(1)).max(1) as usize];
        let places: Vec<Option<(u32, u32)>> = items
            .iter()
            .map(|item| {
                if item.in_place && held(item) == stride {
                    return None;
                }
                let column = (0..columns.len()).min_by_key(|c| columns[*c]).unwrap_or(0);
                let row = columns[column];
                columns[column] += item.rows;
                Some((row, column as u32))
            })
            .collect();
        let height = u64::from(columns.iter().copied().max().unwrap_or(0));
        let mut tiles: Vec<Arrangement> = items.iter().map(|_| Arrangement { at: [0; 2], moved: Vec::new() }).collect();
        for (member, tensor) in tensors.iter().enumerate() {
            let (width, element) = match tensor {
                Tensor::Lse => (1, Element::F32),
                _ => (u32::from(self.shape.head_dim), Element::Bf16),
            };
            let row_bytes = u64::from(stride) * u64::from(width) * element.bytes();
            let base = if height > 0 { scratch.take(height * row_bytes) } else { 0 };
            for ((item, place), tile) in items.iter().zip(&places).zip(&mut tiles) {
                let view = View { buffer: item.view.buffer + member as u32, ..item.view };
                let held = self.block(view, item.rows, heads);
                tile.at[member] = held.at;
                if let Some((row, column)) = place {
                    let packed = Block::packed(0, item.rows, heads, width, element);
                    let at = base + u64::from(*row) * row_bytes + u64::from(*column) * packed.row_bytes();
                    tile.at[member] = at;
                    tile.moved.push((Block { at, stride: row_bytes, ..packed }, held));
                }
            }
        }
        Arranged { heads: stride, tiles }
    }

    /// Whether items follow each other in one buffer that holds these heads alone, and may be used there.
    fn is_one_block(&self, items: &[Item], heads: HeadRange) -> bool {
        let follows = |w: &[Item]| (w[1].view.buffer, w[1].view.row) == (w[0].view.buffer, w[0].view.row + w[0].rows);
        let whole = |item: &Item| item.in_place && self.memory[item.view.buffer as usize].heads() == heads;
        items.iter().all(whole) && items.windows(2).all(follows)
    }

    /// Operands: those that are moved are gathered first.
    fn operands(
        &self,
        items: Vec<Item>,
        heads: HeadRange,
        tensors: &[Tensor],
        scratch: &mut Arena,
        before: &mut Vec<RowMove>,
    ) -> Arranged {
        let arranged = self.arrange(&items, heads, tensors, scratch);
        for member in 0..tensors.len() {
            let moved = arranged.tiles.iter().filter_map(|tile| tile.moved.get(member));
            moved.for_each(|(scratch, held)| write(before, held, scratch));
        }
        arranged
    }

    /// Results: those that others are added to, or that lie otherwise than most, are moved afterwards.
    fn results(
        &self,
        items: Vec<Item>,
        heads: HeadRange,
        tensors: &[Tensor],
        scratch: &mut Arena,
        after: &mut Vec<RowMove>,
    ) -> Arranged {
        let arranged = self.arrange(&items, heads, tensors, scratch);
        let with_lse = tensors.last() == Some(&Tensor::Lse);
        let values = if with_lse { 1 } else { tensors.len() };
        for member in 0..values {
            for moved in arranged.tiles.iter().map(|tile| &tile.moved) {
                let Some((from, to)) = moved.get(member) else { continue };
                let lse = moved.get(1).filter(|_| with_lse);
                let from = Value { block: *from, lse: lse.map(|lse| lse.0) };
                let to = Value { block: *to, lse: lse.map(|lse| lse.1) };
                deposit(after, &from, &to, self.memory);
            }
        }
        arranged
    }

    fn call(
        &self,
        tiles: &[Seen<'_>],
        mask: Mask,
        (q_heads, kv_heads): (HeadRange, HeadRange),
        scratch: &mut Arena,
        work: &mut LaunchWork,
    ) {
        let mut tiles: Vec<&Seen<'_>> = tiles.iter().filter(|tile| !tile.is_empty()).collect();
        if tiles.is_empty() {
            return;
        }
        // A forward runs faster with the longest first; a backward of several slots wants their rows as one block, and in
        // the order of a buffer they often are one already.
        let block = self.pass == Pass::Backward && tiles.len() > 1;
        if block {
            tiles.sort_by_key(|tile| (tile.view.q.buffer, tile.view.q.row));
        } else {
            tiles.sort_by_key(|tile| Reverse(tile.pairs));
        }
        let of_rows = |view: fn(&TileView) -> View| -> Vec<Item> {
            let item = |t: &&Seen<'_>| {
                let view = view(t.view);
                let view = View { row: view.row + t.blind, ..view };
                Item { view, rows: t.q_rows, in_place: true, weight: t.pairs }
            };
            let mut items: Vec<Item> = tiles.iter().map(item).collect();
            if block && !self.is_one_block(&items, q_heads) {
                items.iter_mut().for_each(|item| item.in_place = false);
            }
            items
        };
        let of_keys = |view: fn(&TileView) -> View| -> Vec<Item> {
            let item = |t: &&Seen<'_>| Item { view: view(t.view), rows: t.k_rows, in_place: true, weight: t.pairs };
            tiles.iter().map(item).collect()
        };
        let results = |items: Vec<Item>| -> Vec<Item> {
            let item = |item: Item| {
                let in_place = self.memory[item.view.buffer as usize].written;
                Item { in_place, weight: u64::from(item.rows), ..item }
            };
            items.into_iter().map(item).collect()
        };
        let LaunchWork { before, after, .. } = work;
        let q = self.operands(of_rows(|t| t.q), q_heads, &[Tensor::Q], scratch, before);
        let kv = self.operands(of_keys(|t| t.k), kv_heads, &[Tensor::K, Tensor::V], scratch, before);
        let outputs = [Tensor::O, Tensor::Lse];
        let dim = u32::from(self.shape.head_dim);
        let mut strides = Strides { q: q.heads * dim, kv: kv.heads * dim, ..Strides::default() };
        let mut slots: Vec<Slot> = tiles
            .iter()
            .zip(q.tiles.iter().zip(&kv.tiles))
            .map(|(t, (q, kv))| Slot {
                q_rows: t.q_rows,
                k_rows: t.k_rows,
                q: q.at[0],
                k: kv.at[0],
                v: kv.at[1],
                ..Slot::default()
            })
            .collect();
        let o = match self.pass {
            Pass::Forward => self.results(results(of_rows(|t| t.o)), q_heads, &outputs, scratch, after),
            Pass::Backward => self.operands(of_rows(|t| t.o), q_heads, &outputs, scratch, before),
        };
        (strides.o, strides.lse) = (o.heads * dim, o.heads);
        for (slot, o) in slots.iter_mut().zip(&o.tiles) {
            [slot.o, slot.lse] = o.at;
        }
        if self.pass == Pass::Backward {
            let d_o = self.operands(of_rows(|t| t.d_o), q_heads, &[Tensor::DO], scratch, before);
            let mut dq = results(of_rows(|t| t.dq));
            if !self.is_one_block(&dq, q_heads) {
                dq.iter_mut().for_each(|item| item.in_place = false);
            }
            let dq = self.results(dq, q_heads, &[Tensor::DQ], scratch, after);
            let mut dkv = results(of_keys(|t| t.dk));
            if block && !self.is_one_block(&dkv, kv_heads) {
                dkv.iter_mut().for_each(|item| item.in_place = false);
            }
            let dkv = self.results(dkv, kv_heads, &[Tensor::DK, Tensor::DV], scratch, after);
            (strides.d_o, strides.dq, strides.dkv) = (d_o.heads * dim, dq.heads * dim, dkv.heads * dim);
            for (i, slot) in slots.iter_mut().enumerate() {
                (slot.d_o, slot.dq) = (d_o.tiles[i].at[0], dq.tiles[i].at[0]);
                [slot.dk, slot.dv] = dkv.tiles[i].at;
            }
        }
        let square = tiles.iter().all(|t| t.q_rows == t.k_rows);
        let mask = match mask {
            Mask::Full => AttendMask::Full,
            Mask::Causal | Mask::CausalExclusive if square => AttendMask::TopLeft,
            Mask::Causal | Mask::CausalExclusive => AttendMask::BottomRight,
        };
        work.calls.push(AttendCall {
            pass: self.pass,
            mask,
            q_heads: q_heads.len(),
            kv_heads: kv_heads.len(),
            head_dim: dim,
            strides,
            slots,
        });
    }

    /// Results of rows that see no key and of keys that no row sees, where no other contribution comes and sums are not
    /// emptied.
    fn blind(&self, tiles: &[Seen<'_>], (q_heads, kv_heads): (HeadRange, HeadRange), after: &mut Vec<RowMove>) {
        let mut clear = |view: View, ahead: u32, rows: u32, heads: HeadRange| {
            if rows > 0 && self.memory[view.buffer as usize].written {
                let to = self.block(View { row: view.row + ahead, ..view }, rows, heads);
                write(after, &self.constants.empty(&to, self.memory), &to);
            }
        };
        for tile in tiles {
            let view = tile.view;
            if self.pass == Pass::Forward {
                clear(view.o, 0, tile.blind, q_heads);
                // LSE is written where its O is.
                if self.memory[view.o.buffer as usize].written {
                    clear(next(view.o), 0, tile.blind, q_heads);
                }
                continue;
            }
            clear(view.dq, 0, tile.blind, q_heads);
            let keys = if tile.is_empty() { 0 } else { tile.k_rows };
            for dk in [view.dk, next(view.dk)] {
                clear(dk, keys, view.k_rows - keys, kv_heads);
            }
        }
    }
}

fn next(view: View) -> View {
    View { buffer: view.buffer.saturating_add(1), ..view }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn calls_have_as_many_query_heads_for_every_kv_head() {
        let range = HeadRange::new;
        assert_eq!(even_groups(range(0, 8), range(0, 2), 4), [(range(0, 8), range(0, 2))]);
        assert_eq!(even_groups(range(1, 3), range(0, 2), 2), [(range(1, 3), range(0, 2))]);
        let cut = [(range(1, 2), range(0, 1)), (range(2, 4), range(1, 2)), (range(4, 5), range(2, 3))];
        assert_eq!(even_groups(range(1, 5), range(0, 3), 2), cut);
        assert!(even_groups(range(0, 4), range(0, 2), 0).is_empty());
    }

    #[test]
    fn rows_without_keys_and_keys_without_rows_are_left_out() {
        let tile = |q_rows, k_rows| TileView {
            seq: 0,
            q_rows,
            k_rows,
            q: View::default(),
            k: View::default(),
            o: View::default(),
            d_o: View::default(),
            dq: View::default(),
            dk: View::default(),
        };
        for (q, k, mask, expected) in [
            (4, 4, Mask::Causal, (0, 4, 4, 10)),
            (6, 4, Mask::Causal, (2, 4, 4, 10)),
            (4, 4, Mask::CausalExclusive, (1, 3, 3, 6)),
            (3, 4, Mask::CausalExclusive, (0, 3, 3, 6)),
            (2, 5, Mask::CausalExclusive, (0, 2, 4, 7)),
            (6, 4, Mask::Full, (0, 6, 4, 24)),
        ] {
            let view = tile(q, k);
            let seen = Seen::new(&view, mask);
            assert_eq!((seen.blind, seen.q_rows, seen.k_rows, seen.pairs), expected, "{q} x {k} {mask:?}");
            assert_eq!(seen.pairs, mask.pairs(q, k));
        }
        let view = tile(3, 1);
        let seen = Seen::new(&view, Mask::CausalExclusive);
        assert!(seen.is_empty());
        assert_eq!(seen.blind, 3);
    }
}
