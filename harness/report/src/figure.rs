//! Figures: panels of marks on two axes, and the table under them.

use serde::{Deserialize, Serialize};

use crate::model::Kind;

/// One figure with its caption and its data.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Figure {
    /// Name of anchors and files: lower-case letters, digits, `-`, `_` and `.`, first a letter or digit; unique.
    pub id: String,
    /// Title: what the figure shows.
    pub title: String,
    /// What a reader who cannot see it has to know; goes into each picture's `<desc>`.
    pub description: String,
    /// How the values of the figure came to be.
    pub kind: Kind,
    /// Panels, side by side on a wide screen and stacked on a phone.
    pub panels: Vec<Panel>,
    /// Caption: units, intervals, n, seed, profile.
    pub caption: String,
    /// What the figure says, in paragraphs that quote its values.
    pub findings: Vec<String>,
    /// Why ours differs from the published figure, and other remarks.
    pub notes: Vec<String>,
    /// Names of the systems it shows, for links between pages.
    pub systems: Vec<String>,
    /// Names of the workloads it shows, for links between pages.
    pub workloads: Vec<String>,
    /// The numbers of the picture in few rows, where the table has very many: the page shows it in the table's place.
    pub digest: Option<Table>,
    /// The numbers.
    pub table: Table,
    /// The same table as a Parquet file, where the caller has one; written as it is.
    #[serde(skip)]
    pub parquet: Option<Vec<u8>>,
}

/// One pair of axes and what is drawn on them.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Panel {
    /// What tells this panel from its neighbours; may be empty for a single one.
    pub title: String,
    /// Horizontal axis.
    pub x: Axis,
    /// Vertical axis. Where it is a category axis, values run horizontally.
    pub y: Axis,
    /// Marks, the first at the back.
    pub marks: Vec<Mark>,
}

/// One axis.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Axis {
    /// Name of the quantity.
    pub label: String,
    /// Unit, shown in brackets; empty where there is none.
    pub unit: String,
    /// Scale.
    pub scale: Scale,
    /// Fixed lower end, instead of one from the data.
    pub min: Option<f64>,
    /// Fixed upper end, instead of one from the data.
    pub max: Option<f64>,
    /// Category axis: the categories in order. Those that only marks name follow in order of appearance.
    pub categories: Vec<String>,
}

/// How values become positions.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Scale {
    /// Linear; `Log10` where all values are positive and span more than a factor of 100. A category axis
    /// where the axis lists categories or marks place values by name.
    #[default]
    Auto,
    /// Linear.
    Linear,
    /// Decades.
    Log10,
    /// Powers of two.
    Log2,
    /// Names.
    Category,
}

/// A value at a number, with an interval.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Point {
    /// Position on the horizontal axis.
    pub x: f64,
    /// Position on the vertical axis.
    pub y: f64,
    /// Lower end of the 95% interval of `y`.
    pub low: Option<f64>,
    /// Upper end of the 95% interval of `y`.
    pub high: Option<f64>,
}

/// A value of a category, with an interval.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Named {
    /// Category.
    pub category: String,
    /// Value.
    pub value: f64,
    /// Lower end of its 95% interval.
    pub low: Option<f64>,
    /// Upper end of its 95% interval.
    pub high: Option<f64>,
}

/// Quantiles of a distribution.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Quantiles {
    /// Category.
    pub category: String,
    /// 5th percentile: lower whisker.
    pub p5: f64,
    /// 25th percentile: lower end of the box.
    pub p25: f64,
    /// Median.
    pub p50: f64,
    /// 75th percentile: upper end of the box.
    pub p75: f64,
    /// 95th percentile: upper whisker.
    pub p95: f64,
    /// Largest value.
    pub max: f64,
}

/// One field of a heat map.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct HeatCell {
    /// Column, a category of the horizontal axis.
    pub column: String,
    /// Row, a category of the vertical axis.
    pub row: String,
    /// Value, written into the field.
    pub value: f64,
}

/// What a rank does for a while.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Activity {
    /// Kernels of the forward pass.
    #[default]
    Forward,
    /// Kernels of the backward pass.
    Backward,
    /// Packing, merging and converting on the card.
    Local,
    /// A transfer.
    Transfer,
}

impl Activity {
    /// All, in the order of their precedence in a picture: where two overlap the first is seen.
    pub const ALL: [Self; 4] = [Self::Forward, Self::Backward, Self::Local, Self::Transfer];

    /// The words of the legend.
    pub fn words(self) -> &'static str {
        match self {
            Self::Forward => "forward kernels",
            Self::Backward => "backward kernels",
            Self::Local => "packing and merging",
            Self::Transfer => "transfer that nothing hides",
        }
    }
}

/// A stretch of time on a lane.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Span {
    /// When it starts, on the horizontal axis.
    pub start: f64,
    /// When it ends.
    pub end: f64,
    /// What is done.
    pub activity: Activity,
}

/// What one rank does over time.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Lane {
    /// Name of the rank.
    pub label: String,
    /// Whether it is the one that the others wait for.
    pub straggler: bool,
    /// What it does, in any order; spans may overlap.
    pub spans: Vec<Span>,
}

/// Which axis a reference line stands on.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Side {
    /// The horizontal one: a vertical line.
    X,
    /// The vertical one: a horizontal line.
    #[default]
    Y,
}

/// What is drawn on a panel. `series` is the name that fixes colour and marker.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case", deny_unknown_fields)]
pub enum Mark {
    /// A line through points, with markers and error bars.
    Line {
        /// Series.
        series: String,
        /// Points, in drawing order.
        points: Vec<Point>,
    },
    /// A curve without markers, dashed: a formula or another thing that was computed, not observed.
    Curve {
        /// Series; takes no colour of the palette.
        label: String,
        /// Points, in drawing order.
        points: Vec<Point>,
    },
    /// Points with error bars and no line.
    Points {
        /// Series.
        series: String,
        /// Points.
        points: Vec<Point>,
    },
    /// A step curve, such as an empirical distribution function.
    Steps {
        /// Series.
        series: String,
        /// Points, in order of x; the curve is flat from each to the next.
        points: Vec<Point>,
    },
    /// Bars from zero with error bars. On a logarithmic axis they are drawn as dots, since length means nothing there.
    Bars {
        /// Series.
        series: String,
        /// Values.
        values: Vec<Named>,
    },
    /// Dots with error bars.
    Dots {
        /// Series.
        series: String,
        /// Values.
        values: Vec<Named>,
    },
    /// Box and whiskers.
    Boxes {
        /// Series.
        series: String,
        /// Distributions.
        values: Vec<Quantiles>,
    },
    /// A grid of coloured fields with their values; takes the panel for itself.
    Heat {
        /// Fields.
        cells: Vec<HeatCell>,
        /// Value that means "no difference": colours diverge from it. Without it they run from low to high.
        center: Option<f64>,
    },
    /// Ranks over time, one lane each from the top down; takes the panel for itself. Drawn sampled: what is seen at a place is what
    /// the rank does most of that time.
    Timeline {
        /// Lanes.
        lanes: Vec<Lane>,
    },
    /// An area between two curves.
    Band {
        /// Series it belongs to.
        series: String,
        /// Legend text, for example "half and double bandwidth".
        label: String,
        /// Points: `low` and `high` at each `x`; `y` is not used.
        points: Vec<Point>,
    },
    /// Published values at numbers: hollow diamonds.
    Published {
        /// Series they belong to, where they belong to one.
        series: Option<String>,
        /// Legend text, for example "published (Fig. 11)".
        label: String,
        /// Points.
        points: Vec<Point>,
    },
    /// Published values of categories: hollow diamonds.
    PublishedNamed {
        /// Series they belong to, where they belong to one.
        series: Option<String>,
        /// Legend text.
        label: String,
        /// Values.
        values: Vec<Named>,
    },
    /// A dashed line across the panel.
    Reference {
        /// Legend text, for example "published: 0.90".
        label: String,
        /// Axis the value is on.
        side: Side,
        /// Value.
        value: f64,
    },
}

impl Mark {
    /// The series whose looks the mark has, where it has one's.
    pub(crate) fn series(&self) -> Option<&str> {
        match self {
            Self::Line { series, .. }
            | Self::Points { series, .. }
            | Self::Steps { series, .. }
            | Self::Bars { series, .. }
            | Self::Dots { series, .. }
            | Self::Boxes { series, .. }
            | Self::Band { series, .. } => Some(series),
            Self::Published { series, .. } | Self::PublishedNamed { series, .. } => series.as_deref(),
            Self::Curve { .. } | Self::Heat { .. } | Self::Timeline { .. } | Self::Reference { .. } => None,
        }
    }

    /// Its points, where its values are at numbers.
    pub(crate) fn points(&self) -> &[Point] {
        match self {
            Self::Line { points, .. }
            | Self::Curve { points, .. }
            | Self::Points { points, .. }
            | Self::Steps { points, .. }
            | Self::Band { points, .. }
            | Self::Published { points, .. } => points,
            _ => &[],
        }
    }

    /// Its values, where they are of categories.
    pub(crate) fn named(&self) -> &[Named] {
        match self {
            Self::Bars { values, .. } | Self::Dots { values, .. } | Self::PublishedNamed { values, .. } => values,
            _ => &[],
        }
    }
}

/// The numbers of a figure.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Table {
    /// Columns.
    pub columns: Vec<Column>,
    /// Rows; a missing cell at the end counts as empty, a surplus one is an error.
    pub rows: Vec<Vec<Cell>>,
}

/// A column of a table.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Column {
    /// Heading in words.
    pub title: String,
    /// Name in the CSV file, unit included (`straggler_mean_ms`).
    pub key: String,
    /// Unit, shown under the heading; empty where there is none.
    pub unit: String,
}

impl Column {
    /// A column from its heading, CSV name and unit.
    pub fn new(title: impl Into<String>, key: impl Into<String>, unit: impl Into<String>) -> Self {
        Self { title: title.into(), key: key.into(), unit: unit.into() }
    }
}

/// A cell of a table.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(untagged)]
pub enum Cell {
    /// A number; not-a-number and infinities show as a dash.
    Number(f64),
    /// Text.
    Text(String),
    /// Nothing.
    #[default]
    Empty,
}

impl From<f64> for Cell {
    fn from(value: f64) -> Self {
        Self::Number(value)
    }
}

impl From<Option<f64>> for Cell {
    fn from(value: Option<f64>) -> Self {
        value.map_or(Self::Empty, Self::Number)
    }
}

impl From<&str> for Cell {
    fn from(value: &str) -> Self {
        Self::Text(value.to_owned())
    }
}

impl From<String> for Cell {
    fn from(value: String) -> Self {
        Self::Text(value)
    }
}
