//! Colours, markers and dashes. Hues after Okabe and Ito (colour-blind safe); the light variant is darkened and the
//! dark one lightened where a thin line would fall below a contrast of 3 against the page.

use std::collections::BTreeMap;
use std::fmt::Write as _;

/// What something is painted with. Resolved to a CSS class on the page, to a colour in a file that stands alone.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Paint {
    /// Text and what must stand out.
    Ink,
    /// Labels of ticks and axes.
    Muted,
    /// Grid lines.
    Grid,
    /// The page.
    Paper,
    /// A series by palette index.
    Series(usize),
    /// A step of the diverging ramp, 0 to 8.
    Diverging(usize),
    /// Text on a step of the diverging ramp.
    OnDiverging(usize),
    /// A step of the sequential ramp, 0 to 8.
    Sequential(usize),
    /// Text on a step of the sequential ramp.
    OnSequential(usize),
}

/// Name, colour on a light page, colour on a dark one.
type Entry = (&'static str, &'static str, &'static str);

const BASE: [Entry; 4] = [
    ("ink", "#1c2126", "#e7e9ea"),
    ("muted", "#555d66", "#a9b1b8"),
    ("grid", "#e2e4e6", "#32383e"),
    ("paper", "#ffffff", "#15191d"),
];
const SERIES: [Entry; 8] = [
    ("c0", "#0072b2", "#4b9fe0"),
    ("c1", "#d55e00", "#f0803c"),
    ("c2", "#008f68", "#2bb88f"),
    ("c3", "#b85f92", "#dd9abf"),
    ("c4", "#bd7c00", "#e69f00"),
    ("c5", "#2f92cc", "#8fd3f7"),
    ("c6", "#3a4047", "#d7dadd"),
    ("c7", "#8f8500", "#f0e442"),
];
const DIVERGING: [Entry; RAMP] = [
    ("d0", "#b35806", "#e8892b"),
    ("d1", "#e08a2e", "#b8691d"),
    ("d2", "#f5bd7a", "#7f4a17"),
    ("d3", "#fbe3c6", "#4d351f"),
    ("d4", "#f4f4f2", "#2c3035"),
    ("d5", "#d3e5f1", "#22405a"),
    ("d6", "#94c3e0", "#24597f"),
    ("d7", "#4a95c6", "#3f8cc0"),
    ("d8", "#1f62a5", "#7fc0ea"),
];
const SEQUENTIAL: [Entry; RAMP] = [
    ("q0", "#f3f7fb", "#1d2630"),
    ("q1", "#e1ecf6", "#1f3144"),
    ("q2", "#cbdff0", "#203e5a"),
    ("q3", "#aecde6", "#224c72"),
    ("q4", "#8ab6da", "#285d8b"),
    ("q5", "#68a0cd", "#3a74a6"),
    ("q6", "#4a8bc2", "#5b92c2"),
    ("q7", "#2763a0", "#86b3da"),
    ("q8", "#164a82", "#b8d6ef"),
];
/// Steps of a ramp.
pub(crate) const RAMP: usize = 9;
const BLACK: &str = "#0d1013";
const WHITE: &str = "#ffffff";
const ON_DIVERGING: [Entry; RAMP] = [
    ("e0", WHITE, BLACK),
    ("e1", BLACK, BLACK),
    ("e2", BLACK, WHITE),
    ("e3", BLACK, WHITE),
    ("e4", BLACK, WHITE),
    ("e5", BLACK, WHITE),
    ("e6", BLACK, WHITE),
    ("e7", BLACK, BLACK),
    ("e8", WHITE, BLACK),
];
const ON_SEQUENTIAL: [Entry; RAMP] = [
    ("r0", BLACK, WHITE),
    ("r1", BLACK, WHITE),
    ("r2", BLACK, WHITE),
    ("r3", BLACK, WHITE),
    ("r4", BLACK, WHITE),
    ("r5", BLACK, WHITE),
    ("r6", BLACK, BLACK),
    ("r7", WHITE, BLACK),
    ("r8", WHITE, BLACK),
];

fn tables() -> impl Iterator<Item = &'static Entry> {
    [&BASE[..], &SERIES, &DIVERGING, &ON_DIVERGING, &SEQUENTIAL, &ON_SEQUENTIAL].into_iter().flatten()
}

impl Paint {
    /// Number of the paint among all, its stand-in while a drawing passes through the SVG backend.
    pub(crate) fn index(self) -> usize {
        let ramp = |step: usize| step.min(RAMP - 1);
        let base = BASE.len() + SERIES.len();
        match self {
            Self::Ink => 0,
            Self::Muted => 1,
            Self::Grid => 2,
            Self::Paper => 3,
            Self::Series(i) => BASE.len() + i % SERIES.len(),
            Self::Diverging(i) => base + ramp(i),
            Self::OnDiverging(i) => base + RAMP + ramp(i),
            Self::Sequential(i) => base + 2 * RAMP + ramp(i),
            Self::OnSequential(i) => base + 3 * RAMP + ramp(i),
        }
    }

    fn entry(index: usize) -> Entry {
        tables().nth(index).copied().unwrap_or(BASE[0])
    }

    /// Name of the paint with this number, as in CSS.
    pub(crate) fn name(index: usize) -> &'static str {
        Self::entry(index).0
    }

    /// Colour of the paint with this number on a light page.
    pub(crate) fn light(index: usize) -> &'static str {
        Self::entry(index).1
    }
}

/// CSS declarations of all colours, for a light or a dark page.
pub(crate) fn variables(dark: bool) -> String {
    tables().fold(String::new(), |mut css, (name, light, night)| {
        let _ = write!(css, "--{name}:{};", if dark { night } else { light });
        css
    })
}

/// CSS classes that fill and stroke with each colour.
pub(crate) fn classes() -> String {
    tables().fold(String::new(), |mut css, (name, _, _)| {
        let _ = write!(css, ".f-{name}{{fill:var(--{name})}}.s-{name}{{stroke:var(--{name})}}");
        css
    })
}

/// Shape of a point. The diamond is kept for published values.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Marker {
    Circle,
    Square,
    Up,
    Down,
    Cross,
    Plus,
    Hexagon,
}

const MARKERS: [Marker; 7] =
    [Marker::Circle, Marker::Square, Marker::Up, Marker::Down, Marker::Cross, Marker::Plus, Marker::Hexagon];

/// How a series looks, everywhere.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Look {
    pub(crate) paint: Paint,
    pub(crate) marker: Marker,
    /// Dashes of its line: from the ninth series on, since colours repeat.
    pub(crate) dash: Option<&'static str>,
}

/// The looks of all series of a report.
#[derive(Debug, Clone, Default)]
pub(crate) struct Looks {
    index: BTreeMap<String, usize>,
}

impl Looks {
    /// Looks in order of first mention.
    pub(crate) fn new<'a>(names: impl Iterator<Item = &'a str>) -> Self {
        let mut index = BTreeMap::new();
        for name in names {
            let next = index.len();
            index.entry(name.to_owned()).or_insert(next);
        }
        Self { index }
    }

    /// Place of a series in the order; unknown ones come last.
    pub(crate) fn rank(&self, name: &str) -> usize {
        self.index.get(name).copied().unwrap_or(self.index.len())
    }

    /// Colour, marker and dash of a series. Eight colours and seven markers repeat after 56 series.
    pub(crate) fn of(&self, name: &str) -> Look {
        let rank = self.rank(name);
        Look {
            paint: Paint::Series(rank),
            marker: MARKERS[rank % MARKERS.len()],
            dash: match rank / SERIES.len() {
                0 => None,
                1 => Some("7 3"),
                _ => Some("2 2.5"),
            },
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn luminance(hex: &str) -> f64 {
        let channel = |i: usize| {
            let c = f64::from(u8::from_str_radix(&hex[1 + 2 * i..3 + 2 * i], 16).unwrap()) / 255.0;
            if c <= 0.040_45 { c / 12.92 } else { libm::pow((c + 0.055) / 1.055, 2.4) }
        };
        0.2126 * channel(0) + 0.7152 * channel(1) + 0.0722 * channel(2)
    }

    fn contrast(a: &str, b: &str) -> f64 {
        let (a, b) = (luminance(a) + 0.05, luminance(b) + 0.05);
        a.max(b) / a.min(b)
    }

    #[test]
    fn everything_is_legible_on_its_ground() {
        for page in [1, 2] {
            let pick = |e: &Entry| if page == 1 { e.1 } else { e.2 };
            let paper = pick(&BASE[3]);
            for (text, least) in [(&BASE[0], 7.0), (&BASE[1], 4.5)] {
                assert!(contrast(pick(text), paper) >= least, "{}", text.0);
            }
            for series in &SERIES {
                assert!(contrast(pick(series), paper) >= 3.0, "{} {page}: {}", series.0, contrast(pick(series), paper));
            }
            for (grounds, texts) in [(&DIVERGING, &ON_DIVERGING), (&SEQUENTIAL, &ON_SEQUENTIAL)] {
                for (ground, text) in grounds.iter().zip(texts) {
                    let got = contrast(pick(ground), pick(text));
                    assert!(got >= 4.5, "{} {page}: {got}", ground.0);
                }
            }
        }
    }

    #[test]
    fn looks_are_stable_and_distinct() {
        let names: Vec<String> = (0..20).map(|i| format!("s{i}")).collect();
        let looks = Looks::new(names.iter().map(String::as_str));
        for (i, a) in names.iter().enumerate() {
            for b in &names[..i] {
                assert_ne!(looks.of(a), looks.of(b));
            }
        }
        assert_eq!(looks.of("s3"), Looks::new(names.iter().take(5).map(String::as_str)).of("s3"));
    }

    #[test]
    fn numbers_of_paints_match_their_tables() {
        assert_eq!(Paint::name(Paint::Paper.index()), "paper");
        assert_eq!(Paint::name(Paint::Series(9).index()), "c1");
        assert_eq!(Paint::name(Paint::Diverging(8).index()), "d8");
        assert_eq!(Paint::name(Paint::OnDiverging(0).index()), "e0");
        assert_eq!(Paint::name(Paint::Sequential(3).index()), "q3");
        assert_eq!(Paint::name(Paint::OnSequential(99).index()), "r8");
    }
}
