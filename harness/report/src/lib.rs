//! Turns a data model into a self-contained static report: pages with inline SVG figures and their tables, and beside
//! them CSV, LaTeX and SVG files.
//!
//! A page needs no script and no network; it adapts to dark mode, phones and print. The same model gives the same
//! bytes. This crate reads no runs and knows no other part of the workspace: whoever has the numbers fills in a
//! [`Site`] and calls [`render()`].

mod canvas;
mod error;
mod export;
mod figure;
mod model;
mod number;
mod palette;
mod picture;
mod plot;
mod render;
mod scale;
mod templates;
mod text;
mod view;

pub use error::ReportError;
pub use figure::{Axis, Cell, Column, Figure, HeatCell, Mark, Named, Panel, Point, Quantiles, Scale, Side, Table};
pub use model::{Download, Failure, Kind, Page, Section, Site, Status, SummaryRow, SystemCard, Verdict};
pub use render::{Rendered, render};
