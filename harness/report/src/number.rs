//! Numbers as text: tables, tick labels, CSV.

/// Decimal places that give the column three or four significant digits at its typical magnitude, and no more than its
/// values have.
pub(crate) fn column_decimals(values: &[f64]) -> usize {
    let mut sizes: Vec<f64> = values.iter().map(|v| v.abs()).filter(|v| v.is_finite() && *v > 0.0).collect();
    sizes.sort_by(f64::total_cmp);
    let Some(typical) = sizes.get(sizes.len() / 2) else { return 0 };
    let magnitude = libm::floor(libm::log10(*typical));
    let most = if magnitude < 0.0 { 2.0 - magnitude } else { 3.0 - magnitude }.clamp(0.0, 6.0) as usize;
    let exact = |decimals: usize| {
        let unit = libm::pow(10.0, decimals as f64);
        sizes.iter().all(|v| (v * unit - libm::round(v * unit)).abs() < 1e-9 * v.abs() * unit)
    };
    (0..most).find(|decimals| exact(*decimals)).unwrap_or(most)
}

/// A number with a fixed count of decimals; scientific where that would hide or blow it up.
pub(crate) fn fixed(value: f64, decimals: usize) -> String {
    if !value.is_finite() {
        return "–".to_owned();
    }
    let size = value.abs();
    let resolution = libm::pow(10.0, -(decimals as f64));
    if size >= 1e15 || (size > 0.0 && size < resolution * 0.5) {
        return scientific(value, 3);
    }
    group(&format!("{value:.decimals$}"))
}

/// A number with about `digits` significant digits.
pub(crate) fn significant(value: f64, digits: usize) -> String {
    if !value.is_finite() {
        return "–".to_owned();
    }
    if value == 0.0 {
        return "0".to_owned();
    }
    let magnitude = libm::floor(libm::log10(value.abs()));
    if !(-4.0..15.0).contains(&magnitude) {
        return scientific(value, digits);
    }
    let decimals = (digits as f64 - 1.0 - magnitude).clamp(0.0, 12.0) as usize;
    group(&format!("{value:.decimals$}"))
}

/// A number as short as `digits` significant digits allow: no trailing zeros.
pub(crate) fn short(value: f64, digits: usize) -> String {
    let text = significant(value, digits);
    if !text.contains('.') || text.contains('×') {
        return text;
    }
    text.trim_end_matches('0').trim_end_matches('.').to_owned()
}

fn scientific(value: f64, digits: usize) -> String {
    let text = format!("{value:.*e}", digits.saturating_sub(1));
    let Some((mantissa, exponent)) = text.split_once('e') else { return minus(&text) };
    format!("{} × 10{}", minus(mantissa), superscript(exponent))
}

/// A power of ten in the form 10ⁿ.
pub(crate) fn power_of_ten(exponent: i32) -> String {
    format!("10{}", superscript(&exponent.to_string()))
}

fn superscript(exponent: &str) -> String {
    const DIGITS: [char; 10] = ['⁰', '¹', '²', '³', '⁴', '⁵', '⁶', '⁷', '⁸', '⁹'];
    exponent
        .chars()
        .map(|c| match c.to_digit(10).and_then(|d| DIGITS.get(d as usize)) {
            Some(digit) => *digit,
            None => '⁻',
        })
        .collect()
}

fn minus(text: &str) -> String {
    text.replace('-', "−")
}

/// Groups thousands from 10,000 on with narrow no-break spaces, and sets a true minus sign.
fn group(text: &str) -> String {
    let (sign, digits) = match text.strip_prefix('-') {
        Some(rest) => ("−", rest),
        None => ("", text),
    };
    let sign = if digits.chars().all(|c| c == '0' || c == '.') { "" } else { sign };
    let (whole, fraction) = digits.split_once('.').map_or((digits, None), |(w, f)| (w, Some(f)));
    let mut grouped = String::from(sign);
    for (i, c) in whole.chars().enumerate() {
        if i > 0 && whole.len() > 4 && (whole.len() - i) % 3 == 0 {
            grouped.push('\u{202f}');
        }
        grouped.push(c);
    }
    if let Some(fraction) = fraction {
        grouped.push('.');
        grouped.push_str(fraction);
    }
    grouped
}

/// A number for a machine: shortest text that reads back to the same bits, empty where it is not finite.
pub(crate) fn exact(value: f64) -> String {
    if !value.is_finite() {
        return String::new();
    }
    let size = value.abs();
    if size != 0.0 && !(1e-6..1e16).contains(&size) { format!("{value:e}") } else { format!("{value}") }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_read_well() {
        assert_eq!(significant(0.897_6, 3), "0.898");
        assert_eq!(significant(7.63, 3), "7.63");
        assert_eq!(significant(1_048_576.0, 4), "1\u{202f}048\u{202f}576");
        assert_eq!(significant(-3955.0, 4), "−3955");
        assert_eq!(significant(1e-9, 3), "1.00 × 10⁻⁹");
        assert_eq!(significant(f64::NAN, 3), "–");
        assert_eq!(short(2.50, 3), "2.5");
        assert_eq!(short(100.0, 2), "100");
        assert_eq!(fixed(-0.000_1, 2), "−1.00 × 10⁻⁴");
        assert_eq!(fixed(-0.0, 2), "0.00");
        assert_eq!(exact(0.1 + 0.2), "0.30000000000000004");
        assert_eq!(exact(1e300), "1e300");
    }

    #[test]
    fn a_column_shares_its_decimals() {
        assert_eq!(column_decimals(&[0.897, 1.076]), 3);
        assert_eq!(column_decimals(&[530.6, 3955.0]), 0);
        assert_eq!(column_decimals(&[1.0, 2.0, 16.0]), 0);
        assert_eq!(column_decimals(&[]), 0);
    }
}
