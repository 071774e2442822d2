//! One picture of each mark.

mod common;

use common::{horizontal, numeric, rendered, site};
use skewbench_report::{Axis, HeatCell, Mark, Named, Panel, Point, Quantiles, Scale, Side};

fn point(x: f64, y: f64) -> Point {
    Point { x, y, low: Some(y * 0.9), high: Some(y * 1.1) }
}

fn named(category: &str, value: f64) -> Named {
    Named { category: category.into(), value, low: Some(value - 1.0), high: Some(value + 1.0) }
}

fn svg(panel: Panel) -> String {
    rendered(&site(vec![panel])).1
}

#[test]
fn lines_with_published_points_and_bands() {
    let points = vec![point(1.0, 10.0), point(2.0, 6.0), point(4.0, 5.0)];
    insta::assert_snapshot!(svg(numeric(vec![
        Mark::Band { series: "libra".into(), label: "half and double bandwidth".into(), points: points.clone() },
        Mark::Line { series: "libra".into(), points },
        Mark::Published {
            series: Some("libra".into()),
            label: "published".into(),
            points: vec![Point { x: 4.0, y: 5.5, ..Point::default() }]
        },
        Mark::Reference { label: "published bound".into(), side: Side::Y, value: 3.0 },
    ])));
}

#[test]
fn curves_steps_and_points() {
    insta::assert_snapshot!(svg(numeric(vec![
        Mark::Curve { label: "eq. 3".into(), points: vec![point(0.0, 0.0), point(1.0, 1.0)] },
        Mark::Steps { series: "a".into(), points: vec![point(0.1, 0.5), point(0.7, 1.0)] },
        Mark::Points { series: "b".into(), points: vec![point(0.3, 0.3)] },
    ])));
}

#[test]
fn upright_bars() {
    let mut panel = numeric(vec![
        Mark::Bars { series: "a".into(), values: vec![named("P = 4", 8.0), named("P = 8", 5.0)] },
        Mark::Bars { series: "b".into(), values: vec![named("P = 4", 9.0)] },
        Mark::PublishedNamed {
            series: None,
            label: "published".into(),
            values: vec![Named { category: "P = 8".into(), value: 5.5, ..Named::default() }],
        },
    ]);
    panel.x.scale = Scale::Category;
    insta::assert_snapshot!(svg(panel));
}

#[test]
fn bars_with_long_names_lie_down() {
    let names = [
        "zigzag-with-swap",
        "libra-calibrated",
        "wlb-no-deferral",
        "distca-pool",
        "ring-striped",
        "ulysses+sorted",
        "loongtrain",
        "usp",
    ];
    let panel = numeric(vec![Mark::Bars { series: "a".into(), values: names.iter().map(|n| named(n, 5.0)).collect() }]);
    let picture = svg(panel);
    // A name may stand in two lines.
    let words: String = picture.split("<text").skip(1).filter_map(|t| t.split(['<', '>']).nth(1)).collect();
    for name in names {
        assert!(words.contains(name), "{name} is cut in {words}");
    }
}

#[test]
fn bars_on_a_logarithmic_axis_become_dots() {
    let panel = horizontal(vec![Mark::Bars { series: "a".into(), values: vec![named("x", 2.0), named("y", 2000.0)] }]);
    let picture = svg(panel);
    assert!(picture.contains("<circle"), "{picture}");
}

#[test]
fn dots() {
    insta::assert_snapshot!(svg(horizontal(vec![
        Mark::Dots { series: "ulysses".into(), values: vec![named("ulysses", 8.0)] },
        Mark::Dots { series: "libra".into(), values: vec![named("libra", 3.0)] },
        Mark::Reference { label: "Ulysses".into(), side: Side::X, value: 8.0 },
    ])));
}

#[test]
fn boxes() {
    let q = Quantiles { category: "libra".into(), p5: 1.0, p25: 2.0, p50: 3.0, p75: 4.0, p95: 6.0, max: 9.0 };
    insta::assert_snapshot!(svg(horizontal(vec![Mark::Boxes { series: "libra".into(), values: vec![q] }])));
}

fn heat(center: Option<f64>) -> Panel {
    let cell = |column: &str, row: &str, value| HeatCell { column: column.into(), row: row.into(), value };
    Panel {
        title: String::new(),
        x: Axis { label: "B".into(), scale: Scale::Category, ..Axis::default() },
        y: Axis { label: "H".into(), scale: Scale::Category, ..Axis::default() },
        marks: vec![Mark::Heat {
            cells: vec![cell("2048", "1", 0.81), cell("4096", "1", 1.89), cell("2048", "2", f64::NAN)],
            center,
        }],
    }
}

#[test]
fn heat_maps() {
    insta::assert_snapshot!(svg(heat(Some(1.0))));
    assert_ne!(svg(heat(None)), svg(heat(Some(1.0))));
}

#[test]
fn what_is_not_drawn_is_counted() {
    let mut panel = numeric(vec![Mark::Line {
        series: "a".into(),
        points: vec![point(1.0, 5.0), point(2.0, 0.0), point(3.0, f64::NAN), point(4.0, 7.0)],
    }]);
    panel.y.scale = Scale::Log10;
    let page = |panel| rendered(&site(vec![panel])).0.into_iter().find(|(name, _)| name == "fig1.html").unwrap().1;
    assert!(page(panel).contains("in the table: 2 values"));
    assert!(!page(numeric(vec![])).contains("Not drawn"));
}
