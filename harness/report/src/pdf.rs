//! A figure's picture as a PDF page, from its SVG file: what the reader sees in one is what the other holds.
//!
//! Understands the SVG that this crate writes and nothing more. Texts are set in Helvetica and Symbol, two of the fonts that every
//! reader of PDF brings along: no font file is needed, and the bytes are the same on every machine. A general converter would take the
//! fonts that a machine happens to have.

use pdf_writer::types::LineJoinStyle;
use pdf_writer::{Content, Filter, Finish, Name, Pdf, Rect, Ref, Str, TextStr};
use quick_xml::Reader;
use quick_xml::escape::unescape;
use quick_xml::events::{BytesStart, Event};

/// PDF points in a CSS pixel.
const POINTS: f32 = 0.75;
/// Compression level of the page's content.
const LEVEL: u8 = 8;
/// Draws an SVG file of this crate; an error says what in it was not understood.
pub(crate) fn of_svg(svg: &str) -> Result<Vec<u8>, String> {
    let mut drawing = Drawing::new();
    let mut reader = Reader::from_str(svg);
    loop {
        match reader.read_event().map_err(|e| e.to_string())? {
            Event::Start(tag) => drawing.open(&tag, true)?,
            Event::Empty(tag) => drawing.open(&tag, false)?,
            Event::End(tag) => drawing.close(tag.name().as_ref()),
            Event::Text(text) => drawing.words.push_str(&text),
            Event::GeneralRef(reference) => drawing.words.push_str(&format!("&{};", &*reference)),
            Event::Eof => break,
            _ => {}
        }
    }
    Ok(drawing.page())
}

/// A text whose end tag has not been seen.
struct Text {
    x: f32,
    y: f32,
    size: f32,
    anchor: f32,
    bold: bool,
    fill: [f32; 3],
}

struct Drawing {
    content: Content,
    width: f32,
    height: f32,
    title: String,
    /// Where the units of the innermost open group begin, and the groups, with that of the group around each.
    offset: (f32, f32),
    groups: Vec<Group>,
    /// Font size of texts that name none.
    font_size: f32,
    words: String,
    text: Option<Text>,
    /// Whether the picture's own title has been read; the others are what pointing says.
    titled: bool,
}

type Pair = (f32, f32);

/// An open group.
struct Group {
    /// Offset around it.
    outside: (f32, f32),
    /// It has units of its own.
    scaled: bool,
}

type Attributes = Vec<(String, String)>;

fn attributes(tag: &BytesStart<'_>) -> Result<Attributes, String> {
    tag.attributes()
        .map(|attribute| {
            let attribute = attribute.map_err(|e| e.to_string())?;
            let value = unescape(&attribute.value).map_err(|e| e.to_string())?.into_owned();
            Ok((attribute.key.as_ref().to_owned(), value))
        })
        .collect()
}

fn get<'a>(attributes: &'a Attributes, key: &str) -> Option<&'a str> {
    attributes.iter().find(|(k, _)| k == key).map(|(_, value)| value.as_str())
}

fn number(attributes: &Attributes, key: &str) -> f32 {
    get(attributes, key).and_then(|v| v.trim_end_matches("px").parse().ok()).unwrap_or(0.0)
}

fn colour(text: Option<&str>) -> Option<[f32; 3]> {
    let hex = text?.strip_prefix('#')?;
    let channel = |i: usize| Some(f32::from(u8::from_str_radix(hex.get(2 * i..2 * i + 2)?, 16).ok()?) / 255.0);
    Some([channel(0)?, channel(1)?, channel(2)?])
}

impl Drawing {
    fn new() -> Self {
        Self {
            content: Content::new(),
            width: 0.0,
            height: 0.0,
            title: String::new(),
            offset: (0.0, 0.0),
            groups: Vec::new(),
            font_size: 0.0,
            words: String::new(),
            text: None,
            titled: false,
        }
    }

    fn open(&mut self, tag: &BytesStart<'_>, has_end: bool) -> Result<(), String> {
        let attributes = attributes(tag)?;
        self.words.clear();
        match tag.name().as_ref() {
            "svg" => {
                (self.width, self.height) = (number(&attributes, "width"), number(&attributes, "height"));
                self.font_size = number(&attributes, "font-size");
                let scale = [POINTS, 0.0, 0.0, -POINTS, 0.0, self.height * POINTS];
                self.content.transform(scale);
                self.content.set_line_join(LineJoinStyle::RoundJoin);
            }
            "g" if has_end => {
                let (offset, scale) = get(&attributes, "transform").map(placement).unwrap_or_default();
                self.groups.push(Group { outside: self.offset, scaled: scale.is_some() });
                self.offset = self.at(offset.0, offset.1);
                if let Some((x, y)) = scale {
                    self.content.save_state().transform([x, 0.0, 0.0, y, self.offset.0, self.offset.1]);
                    self.offset = (0.0, 0.0);
                }
            }
            "title" | "desc" | "g" => {}
            "rect" => {
                let (x, y) = self.at(number(&attributes, "x"), number(&attributes, "y"));
                self.content.rect(x, y, number(&attributes, "width"), number(&attributes, "height"));
                self.paint(&attributes);
            }
            "circle" => {
                let (x, y) = self.at(number(&attributes, "cx"), number(&attributes, "cy"));
                self.circle(x, y, number(&attributes, "r"));
                self.paint(&attributes);
            }
            "path" => {
                self.path(get(&attributes, "d").unwrap_or_default())?;
                self.paint(&attributes);
            }
            "text" => {
                let (x, y) = self.at(number(&attributes, "x"), number(&attributes, "y"));
                self.text = Some(Text {
                    x,
                    y,
                    size: get(&attributes, "font-size").and_then(|v| v.parse().ok()).unwrap_or(self.font_size),
                    anchor: match get(&attributes, "text-anchor") {
                        Some("middle") => 0.5,
                        Some("end") => 1.0,
                        _ => 0.0,
                    },
                    bold: get(&attributes, "font-weight").is_some_and(|w| w != "normal"),
                    fill: colour(get(&attributes, "fill")).unwrap_or_default(),
                });
            }
            other => return Err(format!("unknown element {}", other)),
        }
        Ok(())
    }

    fn close(&mut self, name: &str) {
        match name {
            "g" => {
                if let Some(group) = self.groups.pop() {
                    self.offset = group.outside;
                    if group.scaled {
                        self.content.restore_state();
                    }
                }
            }
            "title" if !self.titled => {
                self.titled = true;
                self.title = unescape(&self.words).map(|t| t.trim().to_owned()).unwrap_or_default();
            }
            "text" => {
                let words = unescape(&self.words).map(|t| t.trim().to_owned()).unwrap_or_default();
                if let Some(text) = self.text.take() {
                    self.set(&text, &words);
                }
            }
            _ => {}
        }
        self.words.clear();
    }

    fn at(&self, x: f32, y: f32) -> (f32, f32) {
        (x + self.offset.0, y + self.offset.1)
    }

    fn circle(&mut self, x: f32, y: f32, r: f32) {
        // Four Bézier curves are within 0.03% of a circle with this length of their handles.
        let h = 0.552_284_8 * r;
        self.content.move_to(x + r, y);
        self.content.cubic_to(x + r, y + h, x + h, y + r, x, y + r);
        self.content.cubic_to(x - h, y + r, x - r, y + h, x - r, y);
        self.content.cubic_to(x - r, y - h, x - h, y - r, x, y - r);
        self.content.cubic_to(x + h, y - r, x + r, y - h, x + r, y);
        self.content.close_path();
    }

    /// The data of a path. Starts are absolute or relative, all else is relative to the last position.
    fn path(&mut self, data: &str) -> Result<(), String> {
        let mut at = (0.0, 0.0);
        let mut rest = data;
        while let Some(command) = rest.chars().next() {
            let end =
                rest.get(1..).and_then(|r| r.find(|c: char| c.is_ascii_alphabetic())).map_or(rest.len(), |e| e + 1);
            let (step, next) = rest.split_at(end);
            rest = next;
            let numbers: Vec<f32> = step.split([command, ' ']).filter_map(|n| n.parse().ok()).collect();
            match (command, numbers.as_slice()) {
                ('M', &[x, y]) => at = self.at(x, y),
                ('m' | 'l', &[dx, dy]) => at = (at.0 + dx, at.1 + dy),
                ('h', &[dx]) => at.0 += dx,
                ('v', &[dy]) => at.1 += dy,
                ('z', []) => {
                    self.content.close_path();
                    continue;
                }
                _ => return Err(format!("unknown step {step:?} of a path")),
            }
            if command.eq_ignore_ascii_case(&'m') {
                self.content.move_to(at.0, at.1);
            } else {
                self.content.line_to(at.0, at.1);
            }
        }
        Ok(())
    }

    /// Fills and strokes the path. Partly transparent fills are mixed with the white of the page, on which they lie.
    fn paint(&mut self, attributes: &Attributes) {
        let opacity: f32 = get(attributes, "fill-opacity").and_then(|v| v.parse().ok()).unwrap_or(1.0);
        let fill = colour(get(attributes, "fill")).map(|c| c.map(|v| 1.0 - opacity * (1.0 - v)));
        let stroke = colour(get(attributes, "stroke"));
        if let Some([r, g, b]) = fill {
            self.content.set_fill_rgb(r, g, b);
        }
        if let Some([r, g, b]) = stroke {
            self.content.set_stroke_rgb(r, g, b);
            let width = get(attributes, "stroke-width").and_then(|v| v.parse().ok()).unwrap_or(1.0);
            self.content.set_line_width(width);
            let dashes = get(attributes, "stroke-dasharray").unwrap_or_default().split_whitespace();
            self.content.set_dash_pattern(dashes.filter_map(|d| d.parse().ok()), 0.0);
        }
        match (fill, stroke) {
            (Some(_), Some(_)) => self.content.fill_nonzero_and_stroke(),
            (Some(_), None) => self.content.fill_nonzero(),
            (None, Some(_)) => self.content.stroke(),
            (None, None) => self.content.end_path(),
        };
    }

    fn set(&mut self, text: &Text, words: &str) {
        let runs = runs(words);
        let width: f32 = runs.iter().map(|run| run.width(text.size)).sum();
        let x = text.x - text.anchor * width;
        let y = text.y;
        let [r, g, b] = text.fill;
        self.content.set_fill_rgb(r, g, b);
        self.content.begin_text();
        // The page runs downwards, letters stand upright.
        self.content.set_text_matrix([1.0, 0.0, 0.0, -1.0, x, y]);
        for run in &runs {
            let font: &[u8] = match (run.symbol, text.bold) {
                (true, _) => b"S",
                (false, true) => b"B",
                (false, false) => b"R",
            };
            self.content.set_font(Name(font), if run.raised { text.size * RAISED } else { text.size });
            self.content.set_rise(if run.raised { 0.33 * text.size } else { 0.0 });
            self.content.show(Str(&run.bytes));
        }
        self.content.end_text();
    }

    fn page(self) -> Vec<u8> {
        let [catalog, tree, page, content, info] = [1, 2, 3, 4, 5].map(Ref::new);
        let fonts = [(Name(b"R"), "Helvetica", 6), (Name(b"B"), "Helvetica-Bold", 7), (Name(b"S"), "Symbol", 8)];
        let mut pdf = Pdf::new();
        pdf.catalog(catalog).pages(tree).lang(TextStr("en")).viewer_preferences().display_doc_title(true);
        pdf.pages(tree).kids([page]).count(1);
        let mut leaf = pdf.page(page);
        leaf.media_box(Rect::new(0.0, 0.0, self.width * POINTS, self.height * POINTS)).parent(tree).contents(content);
        let mut resources = leaf.resources();
        let mut dictionary = resources.fonts();
        for (name, _, id) in fonts {
            dictionary.pair(name, Ref::new(id));
        }
        dictionary.finish();
        resources.finish();
        leaf.finish();
        let raw = self.content.finish();
        let packed = miniz_oxide::deflate::compress_to_vec_zlib(raw.as_slice(), LEVEL);
        pdf.stream(content, &packed).filter(Filter::FlateDecode);
        pdf.document_info(info).title(TextStr(&self.title)).producer(TextStr("skewbench"));
        for (_, base, id) in fonts {
            let mut font = pdf.type1_font(Ref::new(id));
            font.base_font(Name(base.as_bytes()));
            if base != "Symbol" {
                font.encoding_predefined(Name(b"WinAnsiEncoding"));
            }
        }
        pdf.finish()
    }
}

/// Offset and scale of `translate(x y)`, `scale(x y)` or both.
fn placement(text: &str) -> (Pair, Option<Pair>) {
    let pair = |of: &str| -> Option<Pair> {
        let (_, after) = text.split_once(of)?;
        let (x, y) = after.split_once(')')?.0.split_once([' ', ','])?;
        Some((x.trim().parse().ok()?, y.trim().parse().ok()?))
    };
    (pair("translate(").unwrap_or_default(), pair("scale("))
}

/// Size of raised digits over that of the text.
const RAISED: f32 = 0.66;

/// Letters of one font.
struct Run {
    bytes: Vec<u8>,
    symbol: bool,
    raised: bool,
    /// Sum of the advance widths, in thousandths of the font size.
    advance: u32,
}

impl Run {
    fn width(&self, size: f32) -> f32 {
        self.advance as f32 / 1000.0 * if self.raised { size * RAISED } else { size }
    }
}

fn runs(words: &str) -> Vec<Run> {
    let mut runs: Vec<Run> = Vec::new();
    for c in words.chars() {
        let (byte, symbol, raised, advance) = glyph(c);
        match runs.last_mut() {
            Some(run) if run.symbol == symbol && run.raised == raised => {
                run.bytes.push(byte);
                run.advance += advance;
            }
            _ => runs.push(Run { bytes: vec![byte], symbol, raised, advance }),
        }
    }
    runs
}

/// Advance widths of Helvetica from the space to the tilde, in thousandths of the font size (Adobe's font metrics).
const ADVANCES: [u16; 95] = [
    278, 278, 355, 556, 556, 889, 667, 191, 333, 333, 389, 584, 278, 333, 278, 278, 556, 556, 556, 556, 556, 556, 556,
    556, 556, 556, 278, 278, 584, 584, 584, 556, 1015, 667, 667, 722, 722, 667, 611, 778, 722, 278, 500, 667, 556, 833,
    722, 778, 667, 778, 722, 667, 611, 722, 667, 944, 667, 667, 611, 278, 278, 278, 469, 556, 333, 556, 556, 500, 556,
    556, 278, 556, 556, 222, 222, 500, 222, 833, 556, 556, 556, 556, 333, 500, 278, 556, 500, 722, 500, 500, 500, 334,
    260, 334, 584,
];

/// Code of a character, whether it is Symbol's, whether it is raised, and its advance. What neither font has becomes a question mark.
fn glyph(c: char) -> (u8, bool, bool, u32) {
    let ascii = |c: char| u32::from(ADVANCES.get((c as usize).wrapping_sub(32)).copied().unwrap_or(556));
    let raised = "⁰¹²³⁴⁵⁶⁷⁸⁹".chars().position(|d| d == c);
    let symbol = |byte: u8, advance: u32| (byte, true, false, advance);
    let plain = |byte: u8, advance: u32| (byte, false, false, advance);
    match (c, raised) {
        (_, Some(digit)) => (b'0' + digit as u8, false, true, 556),
        ('⁻', _) => (0x96, false, true, 556),
        (' '..='~', _) => plain(c as u8, ascii(c)),
        ('\u{a0}' | '\u{202f}' | '\u{2009}', _) => plain(b' ', 278),
        ('−', _) => symbol(0x2d, 549),
        ('–', _) => plain(0x96, 556),
        ('—', _) => plain(0x97, 1000),
        ('…', _) => plain(0x85, 1000),
        ('•', _) => plain(0x95, 350),
        ('‘', _) => plain(0x91, 222),
        ('’', _) => plain(0x92, 222),
        ('“', _) => plain(0x93, 333),
        ('”', _) => plain(0x94, 333),
        ('≤', _) => symbol(0xa3, 549),
        ('≥', _) => symbol(0xb3, 549),
        ('≠', _) => symbol(0xb9, 549),
        ('≈', _) => symbol(0xbb, 549),
        ('∞', _) => symbol(0xa5, 713),
        ('→', _) => symbol(0xae, 987),
        ('√', _) => symbol(0xd6, 549),
        ('α', _) => symbol(b'a', 631),
        ('β', _) => symbol(b'b', 549),
        ('γ', _) => symbol(b'g', 411),
        ('δ', _) => symbol(b'd', 494),
        ('λ', _) => symbol(b'l', 549),
        ('μ' | 'µ', _) => symbol(b'm', 576),
        ('π', _) => symbol(b'p', 549),
        ('σ', _) => symbol(b's', 603),
        ('τ', _) => symbol(b't', 439),
        ('Δ', _) => symbol(b'D', 612),
        ('Σ', _) => symbol(b'S', 592),
        ('\u{a1}'..='\u{ff}', _) => plain(c as u8, 556),
        _ => plain(b'?', 556),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_picture_becomes_a_page() {
        let svg = "<?xml version=\"1.0\"?>\n<svg width=\"200\" height=\"100\"><title id=\"t\">A &amp; B</title><g transform=\"translate(10 5)\"><title>no</title>\
            <path d=\"M0 0l5 5m1 0h-2.5v1\" stroke=\"#0072b2\" stroke-width=\"2\" stroke-dasharray=\"2 3\"/>\
            <circle cx=\"1\" cy=\"2\" r=\"3\" fill=\"#ffffff\"/><g transform=\"translate(1 2)scale(2 3)\"><path d=\"M1 2h3M4 5h6\" stroke=\"#000000\"/></g>\
            <text x=\"1\" y=\"2\" font-size=\"12\" fill=\"#000000\">\nτ ≤ 10⁻³\n</text></g></svg>";
        let page = of_svg(svg).unwrap();
        assert!(page.starts_with(b"%PDF-1.7"));
        let text = String::from_utf8_lossy(&page);
        for part in ["[0 0 150 75]", "(A & B)", "/Helvetica-Bold", "/Symbol", "/FlateDecode"] {
            assert!(text.contains(part), "{part}");
        }
        assert_eq!(of_svg(svg).unwrap(), page);
        assert!(of_svg("<svg><image/></svg>").unwrap_err().contains("image"));
        assert!(of_svg("<svg><g></svg>").is_err());
        assert!(of_svg("<svg><path d=\"M1 2c3 4\"/></svg>").unwrap_err().contains("c3 4"));
    }

    #[test]
    fn letters_go_where_a_font_has_them() {
        let runs = runs("2 × 10⁻³ ≤ 漢");
        let shape: Vec<(bool, bool, usize)> = runs.iter().map(|r| (r.symbol, r.raised, r.bytes.len())).collect();
        assert_eq!(
            shape,
            [(false, false, 6), (false, true, 2), (false, false, 1), (true, false, 1), (false, false, 2)]
        );
        assert_eq!(runs[0].width(10.0), (0.556 + 0.278 + 0.556 + 0.278 + 2.0 * 0.556) * 10.0);
    }
}
