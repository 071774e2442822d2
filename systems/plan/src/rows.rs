use serde::{Deserialize, Serialize};

/// Rows `start, start + stride, ...` (`len` of them) of one packed sequence.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct Rows {
    /// First row.
    pub start: u32,
    /// Number of rows.
    pub len: u32,
    /// Distance between neighbouring rows; 1 for a contiguous range.
    pub stride: u32,
}

impl Rows {
    /// The contiguous rows `[start, end)`.
    pub fn range(start: u32, end: u32) -> Self {
        Self { start, len: end.saturating_sub(start), stride: 1 }
    }

    /// The rows of `[start, end)` that are congruent to `residue` modulo `stride`.
    pub fn residue(start: u32, end: u32, residue: u32, stride: u32) -> Self {
        let first = start + (residue + stride - start % stride) % stride;
        let len = if first < end { (end - first).div_ceil(stride) } else { 0 };
        Self { start: first, len, stride }
    }

    /// The last row; meaningless when empty.
    pub fn last(self) -> u32 {
        self.start + self.len.saturating_sub(1) * self.stride
    }

    /// One past the last row of the hull.
    pub fn end(self) -> u32 {
        if self.len == 0 { self.start } else { self.last() + 1 }
    }

    /// True when there is no row.
    pub fn is_empty(self) -> bool {
        self.len == 0
    }

    /// Residue class of the rows modulo their stride.
    pub fn class(self) -> u32 {
        self.start % self.stride
    }
}

#[cfg(test)]
mod tests {
    use super::Rows;

    #[test]
    fn residue_rows_partition_a_range() {
        for (a, b) in [(0, 17), (3, 3), (5, 29)] {
            for stride in 1..6 {
                let mut seen: Vec<u32> = (0..stride)
                    .map(|r| Rows::residue(a, b, r, stride))
                    .flat_map(|rows| (0..rows.len).map(move |i| rows.start + i * rows.stride))
                    .collect();
                seen.sort_unstable();
                assert_eq!(seen, (a..b).collect::<Vec<_>>(), "{a}..{b} by {stride}");
            }
        }
    }
}
