//! Text of others on a terminal.

/// The text without what would steer a terminal or reorder the text around it: control characters but for line ends and tabs,
/// and bidirectional controls. Names and reasons come from files and programs of others.
pub fn printable(text: &str) -> String {
    let steers = |c: char| {
        (c.is_control() && !matches!(c, '\n' | '\t'))
            || matches!(c, '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}' | '\u{200e}' | '\u{200f}' | '\u{61c}')
    };
    text.chars().map(|c| if steers(c) { '\u{fffd}' } else { c }).collect()
}

#[cfg(test)]
mod tests {
    use super::printable;

    #[test]
    fn nothing_steers_the_terminal() {
        assert_eq!(printable("a\u{1b}[31mb\r\u{202e}c\td\u{9b}e\nf"), "a\u{fffd}[31mb\u{fffd}\u{fffd}c\td\u{fffd}e\nf");
        assert_eq!(printable("lengths \u{e9} \u{6f22} x"), "lengths \u{e9} \u{6f22} x");
    }
}
