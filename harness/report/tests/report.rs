//! The page as a whole, its files, the user's templates, and input that no one means well.

mod common;
#[path = "../examples/demo/site/mod.rs"]
mod demo;

use std::fs;

use common::{assert_no_leftovers, check_page, check_xml, horizontal, numeric, rendered, site};
use proptest::prelude::*;
use skewbench_report::{
    Activity, Answer, Axis, Cell, Citation, Download, Failure, Figure, HeatCell, Lane, Mark, Named, Panel, Point,
    Quantiles, ReportError, RunCard, Scale, Side, Site, Span, SummaryRow, SystemCard, SystemOption, Table, Verdict,
    WorkloadCard, render,
};

#[test]
fn a_tiny_site() {
    let mut site = site(vec![numeric(vec![Mark::Reference { label: "bound".into(), side: Side::Y, value: 2.0 }])]);
    site.question = "Why?".into();
    site.verdict = vec!["Because.".into()];
    site.command = "skewbench reproduce".into();
    site.summary = vec![SummaryRow {
        figure: "fig1".into(),
        quantity: "scaling".into(),
        unit: "x".into(),
        published: Some("7.63x".into()),
        value: Some(7.5),
        ratio: Some(0.98),
        ci_low: Some(7.2),
        ci_high: Some(7.8),
        n: Some(20_000),
        verdict: Verdict::Agrees,
        ..SummaryRow::default()
    }];
    site.systems = vec![SystemCard { name: "libra".into(), ..SystemCard::default() }];
    site.failures = vec![Failure { experiment: "fig13".into(), reason: "out of memory".into(), ..Failure::default() }];
    let pages = rendered(&site).0;
    for page in ["index", "fig1", "system-libra", "gaps"] {
        let body =
            pages.iter().find(|(name, _)| name == &format!("{page}.html")).map(|(_, p)| &p[p.find("<main").unwrap()..]);
        insta::assert_snapshot!(format!("a_tiny_site_{page}"), body.unwrap());
    }
    let index = &pages.iter().find(|(name, _)| name == "index.html").unwrap().1;
    for text in
        ["<a href=\"fig1.html\">", "<a href=\"system-libra.html\">", "<a href=\"gaps.html\">", "aria-current=\"page\""]
    {
        assert!(index.contains(text), "{text}");
    }
}

#[test]
fn further_pages_stand_beside_the_first() {
    let mut site = site(vec![numeric(vec![Mark::Reference { label: "bound".into(), side: Side::Y, value: 2.0 }])]);
    let mut figure = site.figures[0].clone();
    figure.id = "more".into();
    let table = Figure { id: "table-alone".into(), panels: Vec::new(), ..figure.clone() };
    let page = skewbench_report::Page {
        name: "further".into(),
        title: "More & more".into(),
        text: vec!["What it <says>.".into()],
        facts: vec![("card".into(), "H200".into())],
        figures: vec![figure.clone(), table],
        ..skewbench_report::Page::default()
    };
    site.pages = vec![page.clone()];
    let folder = tempfile::tempdir().unwrap();
    let done = render(&site, None, folder.path()).unwrap();
    let read = |name: &str| fs::read_to_string(folder.path().join(name)).unwrap();
    assert!(read("index.html").contains("<a href=\"further.html\"><bdi>More &amp; more</bdi></a>"));
    let html = read("further.html");
    check_page(&html);
    for text in ["What it &lt;says&gt;.", "H200", "data/more.svg", "data/table-alone.csv", "<a href=\"index.html\">"] {
        assert!(html.contains(text), "{text}");
    }
    // A table has no picture, neither as a link nor as a file.
    assert!(!html.contains("data/table-alone.svg"));
    assert!(done.files.iter().all(|file| file.exists() && !file.ends_with("table-alone.svg")));
    for name in ["index", "method", "runs", "further", "up/down", ""] {
        let mut wrong = site.clone();
        wrong.pages.push(skewbench_report::Page { name: name.into(), ..skewbench_report::Page::default() });
        assert!(matches!(render(&wrong, None, folder.path()), Err(ReportError::PageName { .. })), "{name}");
    }
    figure.id = "fig1".into();
    site.pages = vec![skewbench_report::Page { figures: vec![figure], ..page }];
    assert!(matches!(render(&site, None, folder.path()), Err(ReportError::DuplicateFigure { .. })));
}

#[test]
fn the_demo_is_whole_small_and_always_the_same() {
    let (a, b) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let first = render(&demo::demo(), None, a.path()).unwrap();
    let second = render(&demo::demo(), None, b.path()).unwrap();
    assert!(first.bytes < 3_000_000, "{} bytes", first.bytes);
    // Eleven figures, the picture of the first page and a wave, each in five files but for the wave's LaTeX, and their pages, three
    // of systems, one of a workload, method, environment, gaps and the first; their style sheet.
    assert_eq!(first.files.len(), 5 * 13 - 1 + 11 + 3 + 1 + 4 + 1);
    for (one, other) in first.files.iter().zip(&second.files) {
        assert_eq!(fs::read(one).unwrap(), fs::read(other).unwrap(), "{}", one.display());
    }
    for file in first.files.iter().filter(|f| f.extension().is_some_and(|e| e == "html")) {
        check_page(&fs::read_to_string(file).unwrap());
    }
    for file in first.files.iter().filter(|f| f.extension().is_some_and(|e| e == "tex")) {
        let text = fs::read_to_string(file).unwrap();
        let count = |what: &str| text.matches(what).count();
        assert_eq!(count("\\begin{"), count("\\end{"), "{}", file.display());
        assert_eq!(count("{"), count("}"), "{}", file.display());
    }
    for file in first.files.iter().filter(|f| f.extension().is_some_and(|e| e == "svg")) {
        check_xml(&fs::read_to_string(file).unwrap(), &file.display().to_string());
    }
    // Rendering again replaces the files in place.
    render(&demo::demo(), None, a.path()).unwrap();
    assert_no_leftovers(a.path());
}

#[test]
fn the_model_survives_json() {
    let site = everywhere("libra");
    let text = serde_json::to_string(&site).unwrap();
    assert!(serde_json::from_str::<Site>(&text).unwrap() == site);
    assert!(serde_json::from_str::<Site>("{\"titel\": \"x\"}").is_err());
}

#[test]
fn parquet_is_passed_on() {
    let mut site = site(vec![]);
    site.figures[0].parquet = Some(b"PAR1".to_vec());
    let folder = tempfile::tempdir().unwrap();
    render(&site, None, folder.path()).unwrap();
    let page = fs::read_to_string(folder.path().join("fig1.html")).unwrap();
    assert!(page.contains("href=\"data/fig1.parquet\""));
    assert_eq!(fs::read(folder.path().join("data/fig1.parquet")).unwrap(), b"PAR1");
}

#[test]
fn ids_rows_and_downloads_are_checked() {
    let folder = tempfile::tempdir().unwrap();
    let refused = |site: &Site| {
        let error = render(site, None, folder.path()).unwrap_err();
        assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 0, "something was written");
        error.to_string()
    };
    for id in ["", "../x", "Fig1", "a/b", ".hidden", "a b", "é", &"x".repeat(81)] {
        let mut site = site(vec![]);
        site.figures[0].id = id.into();
        assert!(refused(&site).contains("not usable"), "{id}");
    }
    let mut twice = site(vec![]);
    twice.figures.push(twice.figures[0].clone());
    assert!(refused(&twice).contains("used twice"));
    let mut long = site(vec![]);
    long.figures[0].table.rows.push(vec![Cell::Empty; 3]);
    assert_eq!(refused(&long), "table of figure \"fig1\", row 2: 3 cells for 2 columns; name every column");
    for href in ["", "/etc/passwd", "../x", "a/../../x", "javascript:alert(1)", "//host/x", "a\\b"] {
        let mut site = site(vec![]);
        site.downloads = vec![Download { label: "x".into(), href: href.into(), description: String::new() }];
        assert!(refused(&site).contains("not below the report"), "{href}");
    }
}

#[test]
fn own_templates_replace_the_built_in_ones() {
    let folder = tempfile::tempdir().unwrap();
    let templates = folder.path().join("templates");
    fs::create_dir_all(templates.join("parts")).unwrap();
    fs::write(templates.join("index.html"), "<p>{{ site.title }}</p>{% include \"parts/foot.html\" %}").unwrap();
    fs::write(templates.join("parts/foot.html"), "foot").unwrap();
    let mut site = site(vec![]);
    site.title = "<b>".into();
    let done = render(&site, Some(&templates), &folder.path().join("out")).unwrap();
    assert_eq!(fs::read_to_string(done.index).unwrap(), "<p>&lt;b&gt;</p>foot");
}

#[test]
fn broken_templates_are_named_with_their_line() {
    let folder = tempfile::tempdir().unwrap();
    let templates = folder.path().join("templates");
    let out = folder.path().join("out");
    fs::create_dir(&templates).unwrap();
    let site = site(vec![]);
    let attempt = || render(&site, Some(&templates), &out).unwrap_err();
    for (source, at) in [("ok\n\n{% if %}", 3), ("ok\n{{ site.titel }}", 2), ("{{ nothing }}", 1), ("x\n{% for %}", 2)]
    {
        fs::write(templates.join("index.html"), source).unwrap();
        match attempt() {
            ReportError::Template { file, line, message, .. } => {
                assert_eq!(file, templates.join("index.html").display().to_string());
                assert_eq!(line, at, "{source}: {message}");
            }
            other => panic!("{other}"),
        }
    }
    fs::write(templates.join("index.html"), "{% extends \"nowhere.html\" %}").unwrap();
    let message = attempt().to_string();
    assert!(message.contains("nowhere.html"), "{message}");
    fs::write(templates.join("index.html"), [0xff, 0xfe]).unwrap();
    assert!(attempt().to_string().contains("cannot read"));
    fs::remove_file(templates.join("index.html")).unwrap();
    assert!(attempt().to_string().contains("none of base.html"));
    let missing = render(&site, Some(&folder.path().join("missing")), &out).unwrap_err();
    assert!(missing.to_string().contains("is not a folder"));
    assert!(!out.exists(), "something was written");
}

#[test]
fn a_folder_that_cannot_be_written_is_an_error() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("file");
    fs::write(&file, "x").unwrap();
    let error = render(&site(vec![]), None, &file).unwrap_err();
    assert!(error.to_string().starts_with("cannot create folder"), "{error}");
}

/// A site with the name in every place that takes text, and each kind of mark.
fn everywhere(name: &str) -> Site {
    let text = name.to_owned();
    let axis = || Axis { label: text.clone(), unit: text.clone(), ..Axis::default() };
    let named = |value| Named { category: text.clone(), value, low: Some(0.5), high: Some(2.0) };
    let points =
        vec![Point { x: 1.0, y: 1.0, low: Some(0.5), high: Some(1.5) }, Point { x: 2.0, y: 2.0, ..Point::default() }];
    let (series, label) = (text.clone(), text.clone());
    let numeric = Panel {
        title: text.clone(),
        x: axis(),
        y: axis(),
        marks: vec![
            Mark::Line { series: series.clone(), points: points.clone() },
            Mark::Curve { label: label.clone(), points: points.clone() },
            Mark::Steps { series: series.clone(), points: points.clone() },
            Mark::Band { series: series.clone(), label: label.clone(), points: points.clone() },
            Mark::Published { series: Some(series.clone()), label: label.clone(), points },
            Mark::Reference { label: label.clone(), side: Side::X, value: 1.5 },
        ],
    };
    let marks = vec![
        Mark::Bars { series: series.clone(), values: vec![named(1.0)] },
        Mark::Dots { series: series.clone(), values: vec![named(1.5)] },
        Mark::PublishedNamed { series: None, label, values: vec![named(1.2)] },
        Mark::Boxes {
            series,
            values: vec![Quantiles {
                category: text.clone(),
                p5: 1.0,
                p25: 1.1,
                p50: 1.2,
                p75: 1.3,
                p95: 1.4,
                max: 1.5,
            }],
        },
    ];
    let upright = Panel { title: text.clone(), x: axis(), y: axis(), marks };
    let lying = Panel { y: Axis { scale: Scale::Category, ..axis() }, ..upright.clone() };
    let cells = vec![HeatCell { column: text.clone(), row: text.clone(), value: 1.0 }];
    let heat = Panel { title: text.clone(), x: axis(), y: axis(), marks: vec![Mark::Heat { cells, center: None }] };
    let mut site = site(vec![numeric, upright, lying, heat]);
    let figure = &mut site.figures[0];
    for field in [&mut figure.title, &mut figure.description, &mut figure.caption] {
        field.clone_from(&text);
    }
    figure.notes = vec![text.clone()];
    figure.findings = vec![text.clone()];
    figure.systems = vec![text.clone()];
    figure.workloads = vec![text.clone()];
    figure.table.columns[0].title.clone_from(&text);
    figure.table.columns[1].unit.clone_from(&text);
    figure.table.rows = vec![vec![text.clone().into(), text.clone().into()]];
    for field in [
        &mut site.title,
        &mut site.subtitle,
        &mut site.question,
        &mut site.command,
        &mut site.revision,
        &mut site.profile,
        &mut site.created_from,
    ] {
        field.clone_from(&text);
    }
    site.verdict = vec![text.clone()];
    site.answers =
        vec![Answer { question: text.clone(), text: vec![text.clone()], links: vec![text.clone(), "fig1".into()] }];
    site.environment = vec![(text.clone(), text.clone())];
    site.failures =
        vec![Failure { experiment: text.clone(), cell: text.clone(), reason: text.clone(), ..Failure::default() }];
    site.systems = vec![SystemCard {
        name: text.clone(),
        placement: text.clone(),
        options: vec![SystemOption { name: text.clone(), value: text.clone(), meaning: text.clone() }],
        notes: vec![text.clone()],
        findings: vec![text.clone()],
        ..SystemCard::default()
    }];
    site.workloads =
        vec![WorkloadCard { name: text.clone(), description: text.clone(), facts: vec![(text.clone(), text.clone())] }];
    site.runs = vec![RunCard { name: text.clone(), facts: vec![(text.clone(), text.clone())] }; 2];
    site.comparability = vec![text.clone()];
    site.citation = Citation {
        description: text.clone(),
        authors: vec![text.clone()],
        date: text.clone(),
        version: text.clone(),
        licence: text.clone(),
        keywords: vec![text.clone()],
    };
    site.summary = vec![SummaryRow {
        figure: text.clone(),
        dataset: text.clone(),
        system: text.clone(),
        quantity: text.clone(),
        unit: text.clone(),
        published: Some(text.clone()),
        reason: text.clone(),
        verdict_text: text,
        value: Some(1.0),
        ..SummaryRow::default()
    }];
    site
}

fn page(site: &Site, name: &str) -> String {
    rendered(site).0.into_iter().find(|(file, _)| file == name).map(|(_, text)| text).unwrap()
}

#[test]
fn questions_are_answered_on_the_first_page() {
    let mut site = site(vec![numeric(Vec::new())]);
    let costs = Figure { id: "costs".into(), table: site.figures[0].table.clone(), ..Figure::default() };
    site.overview = vec![costs];
    site.answers = vec![Answer {
        question: "Does it suffice?".into(),
        text: vec!["It does.".into()],
        links: vec!["fig1".into(), "nowhere".into()],
    }];
    let page = page(&site, "index.html");
    for part in ["Does it suffice?", "It does.", "href=\"fig1.html\"", "id=\"costs\"", "href=\"data/costs.csv\""] {
        assert!(page.contains(part), "{part}");
    }
    assert!(!page.contains("nowhere"));
}

#[test]
fn a_digest_stands_for_a_long_table() {
    let mut site = site(vec![numeric(Vec::new())]);
    let figure = &mut site.figures[0];
    let row = figure.table.rows[0].clone();
    figure.table.rows = vec![row; 150];
    let long = page(&site, "fig1.html");
    assert!(long.contains("the first 100 of 150 rows; the files below have all 150"));
    let short = vec![vec!["libra".into(), 0.5.into()]];
    let columns = site.figures[0].table.columns.clone();
    site.figures[0].digest = Some(Table { columns, rows: short });
    let page = page(&site, "fig1.html");
    assert!(page.contains("All 150 rows") && page.contains("Values of the picture") && page.contains("libra"));
}

#[test]
fn hostile_names_stay_text() {
    for name in [
        "<script>alert(1)</script>",
        "</title></svg></style><img src=x onerror=alert(1)>",
        "\" onload=\"alert(1)\" '",
        "{{ site.title }}{% raw %}",
        "&amp;&lt;]]>-->",
        "\u{202e}gnp.exe שלום مرحبا",
        "a\0b\u{1b}[31m\r\n\tc\u{ffff}",
        "👩‍👩‍👧‍👦 漢字",
        "",
    ] {
        let (pages, svg) = rendered(&everywhere(name));
        for text in pages.iter().map(|(_, page)| page).chain([&svg]) {
            assert!(!text.contains("<script") && !text.contains("<img") && !text.contains("onload=\"alert"), "{name}");
            assert!(!text.contains(['\0', '\u{1b}', '\u{202e}', '\u{ffff}']), "{name}");
        }
    }
}

#[test]
fn names_of_any_length_fit() {
    for name in ["x".repeat(200), "long-name ".repeat(20), "長".repeat(200)] {
        let (pages, svg) = rendered(&everywhere(&name));
        assert!(pages.iter().any(|(_, page)| page.contains(name.trim_end())), "a page keeps the whole name");
        assert!(svg.contains('…'), "the picture cuts it");
    }
}

fn any_number() -> impl Strategy<Value = f64> {
    prop_oneof![
        4 => -1e3..1e3_f64,
        2 => prop::sample::select(vec![0.0, -0.0, 1.0, f64::NAN, f64::INFINITY, f64::NEG_INFINITY, f64::MAX, f64::MIN_POSITIVE, 1e-12, 1e12, -1e12]),
        2 => (-12.0..12.0_f64).prop_map(|e| libm::pow(10.0, e)),
        1 => any::<f64>(),
    ]
}

fn any_scale() -> impl Strategy<Value = Scale> {
    prop::sample::select(vec![Scale::Auto, Scale::Linear, Scale::Log10, Scale::Log2, Scale::Category])
}

fn any_axis() -> impl Strategy<Value = Axis> {
    (any_scale(), prop::option::of(any_number()), prop::option::of(any_number())).prop_map(|(scale, min, max)| Axis {
        label: "axis".into(),
        scale,
        min,
        max,
        ..Axis::default()
    })
}

fn any_points() -> impl Strategy<Value = Vec<Point>> {
    let point = (any_number(), any_number(), prop::option::of(any_number()), prop::option::of(any_number()));
    prop::collection::vec(point.prop_map(|(x, y, low, high)| Point { x, y, low, high }), 0..6)
}

fn any_values() -> impl Strategy<Value = Vec<Named>> {
    let value = ("[a-c]{1,2}", any_number(), prop::option::of(any_number()), prop::option::of(any_number()));
    prop::collection::vec(value.prop_map(|(category, value, low, high)| Named { category, value, low, high }), 0..5)
}

fn any_mark() -> impl Strategy<Value = Mark> {
    let text = "[a-z]{0,3}";
    prop_oneof![
        (text, any_points()).prop_map(|(series, points)| Mark::Line { series, points }),
        (text, any_points()).prop_map(|(label, points)| Mark::Curve { label, points }),
        (text, any_points()).prop_map(|(series, points)| Mark::Points { series, points }),
        (text, any_points()).prop_map(|(series, points)| Mark::Steps { series, points }),
        (text, any_points()).prop_map(|(series, points)| Mark::Band { label: series.clone(), series, points }),
        (text, any_points()).prop_map(|(label, points)| Mark::Published { series: None, label, points }),
        (text, any_values()).prop_map(|(series, values)| Mark::Bars { series, values }),
        (text, any_values()).prop_map(|(series, values)| Mark::Dots { series, values }),
        (text, any_values()).prop_map(|(label, values)| Mark::PublishedNamed { series: None, label, values }),
        (text, prop::collection::vec(any_number(), 6)).prop_map(|(series, q)| Mark::Boxes {
            values: vec![Quantiles {
                category: series.clone(),
                p5: q[0],
                p25: q[1],
                p50: q[2],
                p75: q[3],
                p95: q[4],
                max: q[5]
            }],
            series,
        }),
        (any_number(), prop::sample::select(vec![Side::X, Side::Y])).prop_map(|(value, side)| Mark::Reference {
            label: "line".into(),
            side,
            value
        }),
        (any_values(), prop::option::of(any_number())).prop_map(|(values, center)| Mark::Heat {
            cells: values
                .into_iter()
                .map(|v| HeatCell { column: v.category, row: "r".into(), value: v.value })
                .collect(),
            center,
        }),
        prop::collection::vec((any_number(), any_number(), 0..4_usize), 0..6).prop_map(|spans| Mark::Timeline {
            lanes: vec![Lane {
                label: "rank".into(),
                straggler: true,
                spans: spans
                    .into_iter()
                    .map(|(start, end, a)| Span { start, end, activity: Activity::ALL[a] })
                    .collect(),
            }],
        }),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 128, ..ProptestConfig::default() })]

    #[test]
    fn any_numbers_give_well_formed_pictures(x in any_axis(), y in any_axis(), marks in prop::collection::vec(any_mark(), 0..4), cell in any_number()) {
        let mut site = site(vec![Panel { title: "panel".into(), x, y, marks }]);
        site.figures[0].table.rows.push(vec![cell.into(), cell.into()]);
        site.summary = vec![SummaryRow { value: Some(cell), ratio: Some(cell), ci_low: Some(cell), ci_high: Some(cell), ..SummaryRow::default() }];
        let folder = tempfile::tempdir().unwrap();
        let done = render(&site, None, folder.path()).unwrap();
        check_page(&fs::read_to_string(&done.index).unwrap());
        check_xml(&fs::read_to_string(folder.path().join("data/fig1.svg")).unwrap(), "file");
    }

    #[test]
    fn any_names_are_escaped(name in any::<String>()) {
        rendered(&everywhere(&name));
    }
}

#[test]
fn degenerate_series_have_an_axis() {
    for points in [
        vec![],
        vec![Point::default()],
        vec![Point { x: 5.0, y: 5.0, ..Point::default() }; 3],
        vec![Point { x: 1e-12, y: 1e12, ..Point::default() }, Point { x: 1e12, y: 1e-12, ..Point::default() }],
    ] {
        let svg = rendered(&site(vec![numeric(vec![Mark::Line { series: "a".into(), points }])])).1;
        assert!(svg.matches("<text").count() >= 4, "no tick labels: {svg}");
    }
    assert!(rendered(&site(vec![horizontal(vec![])])).1.contains("no data"));
}
