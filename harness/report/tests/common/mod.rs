//! Small sites for the tests, and what every page must hold.

use std::fs;
use std::path::Path;

use quick_xml::Reader;
use quick_xml::events::Event;
use skewbench_report::{Axis, Column, Figure, Mark, Panel, Site, Table, render};

/// A panel with numeric axes.
pub fn numeric(marks: Vec<Mark>) -> Panel {
    Panel {
        title: "256K windows".into(),
        x: Axis { label: "ranks".into(), ..Axis::default() },
        y: Axis { label: "time".into(), unit: "ms".into(), ..Axis::default() },
        marks,
    }
}

/// A panel with categories on the vertical axis.
pub fn horizontal(marks: Vec<Mark>) -> Panel {
    let Panel { title, x, y, marks } = numeric(marks);
    Panel { title, x: y, y: Axis { scale: skewbench_report::Scale::Category, ..x }, marks }
}

/// A site of one figure with these panels.
pub fn site(panels: Vec<Panel>) -> Site {
    Site {
        title: "Tiny".into(),
        figures: vec![Figure {
            id: "fig1".into(),
            title: "A figure".into(),
            description: "What it shows.".into(),
            panels,
            caption: "Milliseconds, n = 3.".into(),
            table: Table {
                columns: vec![Column::new("System", "system", ""), Column::new("Time", "time_ms", "ms")],
                rows: vec![vec!["a".into(), 1.5.into()]],
            },
            ..Figure::default()
        }],
        ..Site::default()
    }
}

/// Renders into a fresh folder and returns the pages by the names of their files and the first figure's SVG file.
pub fn rendered(site: &Site) -> (Vec<(String, String)>, String) {
    let folder = tempfile::tempdir().unwrap();
    let done = render(site, None, folder.path()).unwrap();
    let (mut pages, mut svg) = (Vec::new(), String::new());
    for file in &done.files {
        let name = file.file_name().unwrap().to_string_lossy().into_owned();
        if name.ends_with(".html") {
            let page = fs::read_to_string(file).unwrap();
            check_page(&page);
            pages.push((name, page));
        } else if name.ends_with(".svg") {
            let text = fs::read_to_string(file).unwrap();
            check_xml(&text, &name);
            if svg.is_empty() {
                svg = text;
            }
        }
    }
    assert_no_leftovers(folder.path());
    (pages, svg)
}

/// Fails unless the text is well-formed XML with numbers in every numeric attribute.
pub fn check_xml(text: &str, what: &str) {
    let mut reader = Reader::from_str(text);
    reader.config_mut().check_end_names = true;
    let mut depth = 0_i64;
    loop {
        match reader.read_event() {
            Ok(Event::Eof) => break,
            Ok(Event::Start(tag)) => {
                depth += 1;
                check_attributes(&tag, what);
            }
            Ok(Event::Empty(tag)) => check_attributes(&tag, what),
            Ok(Event::End(_)) => depth -= 1,
            Ok(_) => {}
            Err(error) => panic!("{what}: {error} at {}: {text}", reader.error_position()),
        }
    }
    assert_eq!(depth, 0, "{what}: unclosed elements");
}

fn check_attributes(tag: &quick_xml::events::BytesStart<'_>, what: &str) {
    for attribute in tag.attributes() {
        let attribute = attribute.unwrap_or_else(|e| panic!("{what}: {e}"));
        let value = &attribute.value;
        assert!(!value.contains("NaN") && !value.contains("inf"), "{what}: {value}");
    }
}

/// Fails unless every picture of the page is well-formed and the page keeps its promises.
pub fn check_page(page: &str) {
    let mut count = 0;
    for piece in page.split("<svg ").skip(1) {
        let end = piece.find("</svg>").expect("an unclosed picture");
        check_xml(&format!("<svg {}</svg>", &piece[..end]), "picture of the page");
        count += 1;
    }
    assert_eq!(count, page.matches("</svg>").count());
    assert!(page.contains("default-src 'none'"));
    assert!(!page.contains("<script"), "a script");
    // The vocabulary of the page's metadata is a name, not a link.
    let text = page.replace("vocab=\"https://schema.org/\"", "");
    assert!(!text.contains("http://") && !text.contains("https://"), "an address");
    let mut ids: Vec<&str> = page.split(" id=\"").skip(1).filter_map(|p| p.split('"').next()).collect();
    let all = ids.len();
    ids.sort_unstable();
    ids.dedup();
    assert_eq!(ids.len(), all, "an id is used twice");
}

/// Fails if a temporary file is left.
pub fn assert_no_leftovers(folder: &Path) {
    for entry in fs::read_dir(folder).unwrap().chain(fs::read_dir(folder.join("data")).into_iter().flatten()) {
        let name = entry.unwrap().file_name();
        assert!(!name.to_string_lossy().starts_with('.'), "{name:?} is left");
    }
}
