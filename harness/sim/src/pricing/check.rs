use skewbench_plan::Pass;

use super::Pricing;
use super::fit::kind_of;
use super::law::Kind;
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
        for (table, kind, rows) in [
            ("bottom_right", Kind::BottomRight, &attention.bottom_right),
            ("square", Kind::Square, &attention.square),
            ("rectangle", Kind::Full, &attention.rectangle),
        ] {
            for &Single(pass, q_heads, kv_heads, q_len, kv_len, measured_ns) in rows {
                let pass = pass.pass();
                errors.push(TableError {
                    table: table.to_owned(),
                    pass,
                    q_heads,
                    kv_heads,
                    q_len,
                    kv_len,
                    tiles: 1,
                    measured_ns,
                    predicted_ns: self.ns(pass, kind, (q_heads, kv_heads), std::iter::once((q_len, kv_len))),
                });
            }
        }
        for call in &attention.ragged {
            let pass = call.pass.pass();
            errors.push(TableError {
                table: call.name.clone(),
                pass,
                q_heads: call.q_heads,
                kv_heads: call.kv_heads,
                q_len: call.q_len.iter().copied().max().unwrap_or(0),
                kv_len: call.kv_len.iter().copied().max().unwrap_or(0),
                tiles: call.q_len.len() as u32,
                measured_ns: call.ns,
                predicted_ns: self.ns(pass, kind_of(call), (call.q_heads, call.kv_heads), call.tiles()),
            });
        }
        errors
    }
}
