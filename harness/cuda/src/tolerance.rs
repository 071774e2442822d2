/// Largest error of O, dQ, dK and dV of a right program on cards: max|a - b| / max(max|b|, 1), a what it leaves and b dense
/// attention of the same bf16 inputs. bf16 keeps 8 bits: results, and O and LSE that the backward reads, are rounded to
/// one part in 256, and an element of a gradient sums many such roundings.
pub const BF16_TOLERANCE: f64 = 2e-2;

/// The same of LSE, which is f32 throughout; it is a sum of bf16 products that were exact in f32.
pub const LSE_TOLERANCE: f64 = 1e-3;
