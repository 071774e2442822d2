//! Text: what may appear in markup, and how wide it is without font metrics.

/// Removes what markup cannot hold (control characters, non-characters) and what would reorder the text
/// around it (bidirectional controls). The rest is left to the escaping of the templates and of the SVG backend.
pub(crate) fn clean(text: &str) -> String {
    text.chars()
        .filter(
            |c| !matches!(c, '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}' | '\u{200e}' | '\u{200f}' | '\u{61c}'),
        )
        .map(|c| match c {
            '\n' | '\t' | '\r' => ' ',
            c if c.is_control() || matches!(c, '\u{fffe}' | '\u{ffff}') => '\u{fffd}',
            c => c,
        })
        .collect()
}

/// Estimated width of a text in pixels at a font size: the advance widths of common sans-serif faces, rounded up.
pub(crate) fn width(text: &str, size: f64) -> f64 {
    let em: f64 = text
        .chars()
        .map(|c| match c {
            'i' | 'j' | 'l' | '.' | ',' | ':' | ';' | '|' | '!' | '\'' | 'I' | '\u{202f}' => 0.30,
            'f' | 't' | 'r' | ' ' | '(' | ')' | '[' | ']' | '/' | '-' => 0.37,
            'm' | 'M' | 'W' | '@' | '%' => 0.90,
            'w' | 'A'..='Z' | '×' | '–' | '−' | '<' | '>' | '=' | '+' | '~' => 0.70,
            '⁰'..='⁹' | '¹' | '²' | '³' | '⁻' => 0.40,
            '\u{300}'..='\u{36f}' | '\u{200b}'..='\u{200d}' => 0.0,
            c if (c as u32) < 0x2e80 => 0.58,
            _ => 1.05,
        })
        .sum();
    em * size
}

/// The text, cut to a width with an ellipsis.
pub(crate) fn fit(text: &str, size: f64, available: f64) -> String {
    if width(text, size) <= available {
        return text.to_owned();
    }
    let mut kept = String::new();
    let mut used = width("…", size);
    for c in text.chars() {
        used += width(c.encode_utf8(&mut [0; 4]), size);
        if used > available {
            break;
        }
        kept.push(c);
    }
    kept.truncate(kept.trim_end().len());
    kept.push('…');
    kept
}

/// The text in at most `lines` lines no wider than `available`, broken at spaces and after hyphens, slashes and
/// plus signs; the last line is cut where even that does not do.
pub(crate) fn wrap(text: &str, size: f64, available: f64, lines: usize) -> Vec<String> {
    let mut pieces: Vec<String> = Vec::new();
    let mut piece = String::new();
    for c in text.chars() {
        piece.push(c);
        if matches!(c, ' ' | '-' | '/' | '+' | '_' | ',') {
            pieces.push(std::mem::take(&mut piece));
        }
    }
    pieces.push(piece);
    let mut wrapped: Vec<String> = vec![String::new()];
    for piece in pieces {
        let count = wrapped.len();
        let Some(last) = wrapped.last_mut() else { break };
        let joined = format!("{last}{piece}");
        if last.is_empty() || count >= lines.max(1) || width(joined.trim_end(), size) <= available {
            *last = joined;
        } else {
            wrapped.push(piece);
        }
    }
    wrapped.into_iter().map(|line| fit(line.trim(), size, available)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn long_text_is_wrapped_then_cut() {
        assert_eq!(wrap("libra", 12.0, 100.0, 2), ["libra"]);
        assert_eq!(wrap("zigzag-with-swap", 12.0, 60.0, 2), ["zigzag-", "with-swap"]);
        let cut = wrap(&"x".repeat(200), 12.0, 60.0, 2);
        assert_eq!(cut.len(), 1);
        assert!(cut[0].ends_with('…') && width(&cut[0], 12.0) <= 60.0);
    }

    #[test]
    fn controls_do_not_survive() {
        assert_eq!(clean("a\u{0}b\u{1b}[1m\u{202e}c\n"), "a\u{fffd}b\u{fffd}[1mc ");
    }
}
