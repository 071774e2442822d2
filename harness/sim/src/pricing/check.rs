use skewbench_plan::{Mask, Pass};

use super::Pricing;
use crate::profile::Single;

/// A row of the profile's attention tables beside what the model says of it.
#[derive(Clone, Debug, PartialEq)]
pub struct TableError {
    /// `bottom_right`, `square`, `rectangle`, or the name of a ragged case.
    pub table: String,
    /// Forward or backward.
    pub pass: Pass,
    /// Query heads.
    pub q_heads: u32,
    /// KV heads.
    pub kv_heads: u32,
    /// Rows of the longest tile.
    pub q_len: u32,
    /// Keys of the longest tile.
    pub kv_len: u32,
    /// Tiles of the call.
    pub tiles: u32,
    /// Nanoseconds measured.
    pub measured_ns: f64,
    /// Nanoseconds predicted.
    pub predicted_ns: f64,
}

impl TableError {
    /// Predicted over measured, less one.
    pub fn relative(&self) -> f64 {
        self.predicted_ns / self.measured_ns - 1.0
    }
}

impl Pricing {
    /// Predicted beside measured time for every attention row of the profile, in its order.
    pub fn table_errors(&self) -> Vec<TableError> {
        let attention = &self.profile().attention;
        let mut errors = Vec::new();
        for (table, rows) in [
            ("bottom_right", &attention.bottom_right),
            ("square", &attention.square),
            ("rectangle", &attention.rectangle),
        ] {
            for &Single(pass, q_heads, kv_heads, q_len, kv_len, measured_ns) in rows {
                let pass = pass.pass();
                let predicted_ns = match (table, q_len == kv_len) {
                    ("rectangle", _) => self.single_ns(pass, Mask::Full, q_heads, q_len, kv_len),
                    ("bottom_right", true) => self.bottom_right_square_ns(pass, q_heads, kv_len),
                    _ => self.single_ns(pass, Mask::Causal, q_heads, q_len, kv_len),
                };
                let table = table.to_owned();
                errors.push(TableError {
                    table,
                    pass,
                    q_heads,
                    kv_heads,
                    q_len,
                    kv_len,
                    tiles: 1,
                    measured_ns,
                    predicted_ns,
                });
            }
        }
        for call in &attention.ragged {
            let pass = call.pass.pass();
            let tiles = call.q_len.iter().copied().zip(call.kv_len.iter().copied());
            errors.push(TableError {
                table: call.name.clone(),
                pass,
                q_heads: call.q_heads,
                kv_heads: call.kv_heads,
                q_len: call.q_len.iter().copied().max().unwrap_or(0),
                kv_len: call.kv_len.iter().copied().max().unwrap_or(0),
                tiles: call.q_len.len() as u32,
                measured_ns: call.ns,
                predicted_ns: self.call_ps(pass, Mask::Causal, call.q_heads, attention.head_dim, tiles) as f64 / 1e3,
            });
        }
        errors
    }

    fn single_ns(&self, pass: Pass, mask: Mask, heads: u32, q: u32, k: u32) -> f64 {
        self.call_ps(pass, mask, heads, self.profile().attention.head_dim, std::iter::once((q, k))) as f64 / 1e3
    }
}
