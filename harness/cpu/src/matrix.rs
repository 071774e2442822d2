/// A matrix in a slice: element (i, j) at `i * row + j * col`.
#[derive(Clone, Copy)]
pub(crate) struct Strided<'a> {
    pub(crate) data: &'a [f64],
    pub(crate) row: usize,
    pub(crate) col: usize,
}

const ROWS: usize = 4;
const COLS: usize = 4;

/// `c += a b` for `c` of `m x n`, `a` of `m x k` and `b` of `k x n`, `b` and `c` row by row.
pub(crate) fn multiply_add(c: &mut [f64], a: Strided<'_>, b: &[f64], (m, n, k): (usize, usize, usize)) {
    for i in (0..m).step_by(ROWS) {
        for j in (0..n).step_by(COLS) {
            let rows = ROWS.min(m - i);
            let cols = COLS.min(n - j);
            let sums = match (rows, cols) {
                (ROWS, COLS) => block::<ROWS>(a, b, (i, j), n, k),
                _ => edge(a, b, (i, j), (rows, cols), n, k),
            };
            for (row, sums) in sums.iter().enumerate().take(rows) {
                let start = (i + row) * n + j;
                c[start..start + cols].iter_mut().zip(sums).for_each(|(c, sum)| *c += sum);
            }
        }
    }
}

/// Sums of `R x COLS` elements at once, so that they stay in registers.
fn block<const R: usize>(a: Strided<'_>, b: &[f64], (i, j): (usize, usize), n: usize, k: usize) -> [[f64; COLS]; R] {
    let mut sums = [[0.0; COLS]; R];
    for p in 0..k {
        let Some(b) = b[p * n + j..].first_chunk::<COLS>() else { continue };
        for (row, sums) in sums.iter_mut().enumerate() {
            let a = a.data[(i + row) * a.row + p * a.col];
            sums.iter_mut().zip(b).for_each(|(sum, b)| *sum += a * b);
        }
    }
    sums
}

fn edge(
    a: Strided<'_>,
    b: &[f64],
    (i, j): (usize, usize),
    (rows, cols): (usize, usize),
    n: usize,
    k: usize,
) -> [[f64; COLS]; ROWS] {
    let mut sums = [[0.0; COLS]; ROWS];
    for p in 0..k {
        for (row, sums) in sums.iter_mut().enumerate().take(rows) {
            let a = a.data[(i + row) * a.row + p * a.col];
            let b = &b[p * n + j..p * n + j + cols];
            sums.iter_mut().zip(b).for_each(|(sum, b)| *sum += a * b);
        }
    }
    sums
}

/// Columns of the blocks of [`transposed`].
pub(crate) const KEYS: usize = 64;

/// `rows x width` in blocks of [`KEYS`] rows, each `width x` its rows: block `i` starts at `i * KEYS * width`.
pub(crate) fn transposed(matrix: &[f64], width: usize) -> Vec<f64> {
    let mut out = Vec::with_capacity(matrix.len());
    for block in matrix.chunks(KEYS * width) {
        for column in 0..width {
            out.extend(block.iter().skip(column).step_by(width));
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::{Strided, multiply_add, transposed};

    #[test]
    fn products_of_all_small_sizes_are_right() {
        for m in 1..7 {
            for n in 1..10 {
                for k in 0..6 {
                    let a: Vec<f64> = (0..m * k).map(|i| (i * 7 % 5) as f64).collect();
                    let b: Vec<f64> = (0..k * n).map(|i| (i * 3 % 11) as f64).collect();
                    let mut c = vec![1.0; m * n];
                    // The same matrix, column by column.
                    let flipped: Vec<f64> = (0..k * m).map(|i| a[i % m * k + i / m]).collect();
                    let mut d = c.clone();
                    multiply_add(&mut c, Strided { data: &a, row: k, col: 1 }, &b, (m, n, k));
                    multiply_add(&mut d, Strided { data: &flipped, row: 1, col: m }, &b, (m, n, k));
                    for (at, value) in c.iter().enumerate() {
                        let (i, j) = (at / n, at % n);
                        let sum: f64 = (0..k).map(|p| a[i * k + p] * b[p * n + j]).sum();
                        assert_eq!((*value, d[at]), (sum + 1.0, sum + 1.0), "{m} {n} {k}");
                    }
                }
            }
        }
    }

    #[test]
    fn blocks_are_transposed_one_by_one() {
        let matrix: Vec<f64> = (0..70 * 3).map(f64::from).collect();
        let out = transposed(&matrix, 3);
        assert_eq!(out[..3], [0.0, 3.0, 6.0]);
        assert_eq!(out[64], 1.0);
        assert_eq!(out[64 * 3..64 * 3 + 7], [192.0, 195.0, 198.0, 201.0, 204.0, 207.0, 193.0]);
    }
}
