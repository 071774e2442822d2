//! Turns a data model into a self-contained static site: an overview, a page a figure, a system and a workload, all with inline SVG
//! figures and their tables, and beside them each figure as CSV, pgfplots, LaTeX table, SVG and PDF.
//!
//! A page needs no script and no network; it adapts to dark mode, phones and print. The same model gives the same
//! bytes. This crate reads no runs and knows no other part of the workspace: whoever has the numbers fills in a
//! [`Site`] and calls [`render()`].

mod canvas;
mod error;
mod export;
mod figure;
mod model;
mod names;
mod number;
mod pages;
mod palette;
mod pdf;
mod pgfplots;
mod picture;
mod plot;
mod render;
mod scale;
mod templates;
mod text;
mod view;

pub use error::ReportError;
pub use figure::{
    Activity, Axis, Cell, Column, Figure, HeatCell, Lane, Mark, Named, Panel, Point, Quantiles, Scale, Side, Span,
    Table,
};
pub use model::{
    Answer, Citation, Download, Failure, Kind, Page, RunCard, Section, Site, Status, SummaryRow, SystemCard,
    SystemOption, Verdict, WorkloadCard,
};
pub use names::FIXED as FIXED_PAGES;
pub use render::{Rendered, render};
