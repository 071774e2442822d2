//! Attention of one head of one tile, block by block, in f64.

use skewbench_plan::Mask;

use crate::matrix::{KEYS, Strided, multiply_add, transposed};

/// Query rows of a block.
const ROWS: usize = 32;

/// Rows and keys of a tile, with what its kernels need beside the numbers.
#[derive(Clone, Copy)]
pub(crate) struct TileShape {
    pub(crate) rows: usize,
    pub(crate) keys: usize,
    pub(crate) width: usize,
    pub(crate) mask: Mask,
}

impl TileShape {
    /// Keys that a row sees; they are the first ones.
    fn visible(&self, row: usize) -> usize {
        match self.mask {
            Mask::Full => self.keys,
            Mask::Causal => (self.keys + row + 1).saturating_sub(self.rows),
            Mask::CausalExclusive => (self.keys + row).saturating_sub(self.rows),
        }
    }

    fn scale(&self) -> f64 {
        1.0 / (self.width as f64).sqrt()
    }
}

/// Keys and values of a tile, shared by the query heads of a group.
pub(crate) struct KeyValues {
    pub(crate) k: Vec<f64>,
    pub(crate) v: Vec<f64>,
    k_transposed: Vec<f64>,
    v_transposed: Vec<f64>,
}

impl KeyValues {
    pub(crate) fn new(k: Vec<f64>, v: Vec<f64>, width: usize) -> Self {
        Self { k_transposed: transposed(&k, width), v_transposed: transposed(&v, width), k, v }
    }
}

/// `x y` for a block of rows of `x` and a block of keys whose rows `y` are given transposed.
fn products(out: &mut Vec<f64>, x: &[f64], transposed: &[f64], shape: TileShape, (rows, first): (usize, usize)) {
    let keys = KEYS.min(shape.keys - first);
    let start = first * shape.width;
    out.clear();
    out.resize(rows * keys, 0.0);
    let block = &transposed[start..start + keys * shape.width];
    multiply_add(out, Strided { data: x, row: shape.width, col: 1 }, block, (rows, keys, shape.width));
}

/// O and LSE of a tile's rows; a row that sees no key gets zeros and minus infinity.
pub(crate) fn forward(shape: TileShape, q: &[f64], kv: &KeyValues) -> (Vec<f64>, Vec<f64>) {
    let TileShape { width, .. } = shape;
    let mut o = vec![0.0; shape.rows * width];
    let mut lse = vec![f64::NEG_INFINITY; shape.rows];
    let mut p = Vec::new();
    for top in (0..shape.rows).step_by(ROWS) {
        let rows = ROWS.min(shape.rows - top);
        let (mut most, mut sum) = ([f64::NEG_INFINITY; ROWS], [0.0; ROWS]);
        let out = &mut o[top * width..(top + rows) * width];
        for first in (0..shape.visible(top + rows - 1)).step_by(KEYS) {
            let keys = KEYS.min(shape.keys - first);
            products(&mut p, &q[top * width..(top + rows) * width], &kv.k_transposed, shape, (rows, first));
            for (row, scores) in p.chunks_mut(keys).enumerate() {
                let seen = shape.visible(top + row).saturating_sub(first).min(keys);
                scores.iter_mut().for_each(|s| *s *= shape.scale());
                let new = scores[..seen].iter().fold(most[row], |most, s| most.max(*s));
                if seen > 0 && new > most[row] {
                    let shrink = libm::exp(most[row] - new);
                    sum[row] *= shrink;
                    out[row * width..(row + 1) * width].iter_mut().for_each(|o| *o *= shrink);
                    most[row] = new;
                }
                for (key, s) in scores.iter_mut().enumerate() {
                    *s = if key < seen { libm::exp(*s - most[row]) } else { 0.0 };
                    sum[row] += *s;
                }
            }
            let values = &kv.v[first * width..(first + keys) * width];
            multiply_add(out, Strided { data: &p, row: keys, col: 1 }, values, (rows, width, keys));
        }
        for row in 0..rows {
            // Scores that are not numbers have no largest one, but must not pass for unseen.
            if sum[row] != 0.0 {
                out[row * width..(row + 1) * width].iter_mut().for_each(|o| *o /= sum[row]);
                lse[top + row] = most[row] + libm::log(sum[row]);
            }
        }
    }
    (o, lse)
}

/// What the backward reads for the rows of a tile.
pub(crate) struct RowInputs {
    pub(crate) q: Vec<f64>,
    pub(crate) o: Vec<f64>,
    pub(crate) lse: Vec<f64>,
    pub(crate) d_o: Vec<f64>,
}

/// Adds dK and dV of a tile's keys and returns dQ of its rows.
pub(crate) fn backward(
    shape: TileShape,
    rows: &RowInputs,
    kv: &KeyValues,
    d_k: &mut [f64],
    d_v: &mut [f64],
) -> Vec<f64> {
    let TileShape { width, .. } = shape;
    let mut d_q = vec![0.0; shape.rows * width];
    let (mut p, mut d_s) = (Vec::new(), Vec::new());
    for top in (0..shape.rows).step_by(ROWS) {
        let count = ROWS.min(shape.rows - top);
        let of_block = top * width..(top + count) * width;
        let (q, d_o) = (&rows.q[of_block.clone()], &rows.d_o[of_block.clone()]);
        let o = &rows.o[of_block.clone()];
        let delta: Vec<f64> =
            o.chunks(width).zip(d_o.chunks(width)).map(|(o, d)| o.iter().zip(d).map(|(o, d)| o * d).sum()).collect();
        for first in (0..shape.visible(top + count - 1)).step_by(KEYS) {
            let keys = KEYS.min(shape.keys - first);
            products(&mut p, q, &kv.k_transposed, shape, (count, first));
            products(&mut d_s, d_o, &kv.v_transposed, shape, (count, first));
            for (row, (p, d_s)) in p.chunks_mut(keys).zip(d_s.chunks_mut(keys)).enumerate() {
                let seen = shape.visible(top + row).saturating_sub(first).min(keys);
                for (key, (p, d_s)) in p.iter_mut().zip(d_s).enumerate() {
                    *p = if key < seen { libm::exp(*p * shape.scale() - rows.lse[top + row]) } else { 0.0 };
                    *d_s = if key < seen { *p * (*d_s - delta[row]) * shape.scale() } else { 0.0 };
                }
            }
            let of_keys = first * width..(first + keys) * width;
            let by_key = |data| Strided { data, row: 1, col: keys };
            multiply_add(&mut d_v[of_keys.clone()], by_key(&p), d_o, (keys, width, count));
            multiply_add(&mut d_k[of_keys.clone()], by_key(&d_s), q, (keys, width, count));
            let by_row = Strided { data: &d_s, row: keys, col: 1 };
            multiply_add(&mut d_q[of_block.clone()], by_row, &kv.k[of_keys], (count, width, keys));
        }
    }
    d_q
}
