//! Columnar tables, their Parquet and CSV forms.

mod codec;
mod column;
mod csv;
mod data;
mod pages;
mod parquet;

pub(crate) use codec::{decode, encode, put_str, take_str, take_u32};
pub use column::{Column, ColumnType, StrColumn};
pub use data::Table;
pub use parquet::TableWriter;
pub(crate) use parquet::{at, read_parquet_columns, visit_parquet_columns};
