//! Draws panels and legends.

mod category;
mod heat;
mod legend;
mod numeric;
mod panel;
pub(crate) mod timeline;

pub(crate) use legend::{Entry, draw_legend, entries, swatch};
pub(crate) use panel::{Drawn, Style, axis_label, draw};
