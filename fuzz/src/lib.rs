//! What the fuzz targets run.

pub mod bodies;
