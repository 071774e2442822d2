//! Numeric scales: where a value lies on an axis, and which ticks the axis carries.

use crate::figure::{Axis, Scale};
use crate::number;

/// Larger magnitudes than this are not drawn: differences of two of them would overflow.
const LARGEST: f64 = 1e150;
/// Smaller values than this do not exist on a logarithmic axis.
const SMALLEST: f64 = 1e-150;
/// Share of the axis left free beyond the outermost value.
const PADDING: f64 = 0.045;
/// An automatic linear axis starts at zero when the smallest value is below this share of the largest.
const ZERO_WITHIN: f64 = 0.6;
/// Span beyond which an automatic axis turns logarithmic.
const LOG_BEYOND: f64 = 100.0;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Transform {
    Linear,
    Log10,
    Log2,
}

/// A numeric axis: a transform and the interval it shows.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Numeric {
    transform: Transform,
    low: f64,
    high: f64,
}

/// A mark on an axis.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Tick {
    /// Position, 0 at the low end and 1 at the high end.
    pub(crate) at: f64,
    /// Text; empty for a minor tick.
    pub(crate) label: String,
}

/// How close an axis keeps to its data.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Fit {
    /// Bars start here, so zero must show.
    FromZero,
    /// Values: zero shows when it is near.
    NearZero,
    /// The independent variable: no wider than the data.
    Tight,
}

impl Numeric {
    /// The axis that shows all drawable values.
    pub(crate) fn new(axis: &Axis, values: impl Iterator<Item = f64>, fit: Fit) -> Self {
        let values: Vec<f64> = values.filter(|v| v.abs() <= LARGEST).collect();
        let positive = || values.iter().copied().filter(|v| *v >= SMALLEST);
        let (least, most) = (positive().fold(f64::INFINITY, f64::min), positive().fold(0.0, f64::max));
        let log_possible = most > 0.0;
        let transform = match axis.scale {
            Scale::Log10 if log_possible => Transform::Log10,
            Scale::Log2 if log_possible => Transform::Log2,
            Scale::Auto if log_possible && values.iter().all(|v| *v >= SMALLEST) && most / least > LOG_BEYOND => {
                Transform::Log10
            }
            _ => Transform::Linear,
        };
        let mut scale = match transform {
            Transform::Linear => Self::linear(&values, fit),
            _ => {
                let (low, high) = (libm::log2(least), libm::log2(most));
                let pad = ((high - low) * PADDING).max(0.25);
                Self { transform, low: libm::exp2(low - pad), high: libm::exp2(high + pad) }
            }
        };
        let allowed = |v: &f64| v.abs() <= LARGEST && (transform == Transform::Linear || *v >= SMALLEST);
        let (low, high) =
            (axis.min.filter(allowed).unwrap_or(scale.low), axis.max.filter(allowed).unwrap_or(scale.high));
        if low < high {
            (scale.low, scale.high) = (low, high);
        }
        scale
    }

    fn linear(values: &[f64], fit: Fit) -> Self {
        let mut low = values.iter().copied().fold(f64::INFINITY, f64::min);
        let mut high = values.iter().copied().fold(f64::NEG_INFINITY, f64::max);
        if low > high {
            (low, high) = (0.0, 1.0);
        }
        let reach = match fit {
            Fit::FromZero => f64::INFINITY,
            Fit::NearZero => ZERO_WITHIN,
            Fit::Tight => 0.0,
        };
        if low >= 0.0 && (low <= reach * high || reach.is_infinite()) {
            low = 0.0;
        } else if high <= 0.0 && (high >= reach * low || reach.is_infinite()) {
            high = 0.0;
        }
        if low == high {
            let half = if low == 0.0 { 1.0 } else { low.abs() * 0.5 };
            (low, high) = (low - half, high + half);
        }
        let pad = (high - low) * PADDING;
        let padded = |end: f64, by: f64| if end == 0.0 && fit != Fit::Tight { 0.0 } else { end + by };
        Self { transform: Transform::Linear, low: padded(low, -pad), high: padded(high, pad) }
    }

    /// Whether equal lengths mean equal ratios.
    pub(crate) fn is_log(&self) -> bool {
        self.transform != Transform::Linear
    }

    fn forward(&self, value: f64) -> f64 {
        if self.is_log() { libm::log2(value) } else { value }
    }

    /// Position of a value, 0 at the low end and 1 at the high end; nothing where the axis does not show it.
    pub(crate) fn at(&self, value: f64) -> Option<f64> {
        let drawable = value.abs() <= LARGEST && (!self.is_log() || value >= SMALLEST);
        if !drawable {
            return None;
        }
        let (low, high) = (self.forward(self.low), self.forward(self.high));
        let at = (self.forward(value) - low) / (high - low);
        (-1e-9..=1.0 + 1e-9).contains(&at).then(|| at.clamp(0.0, 1.0))
    }

    /// Position of a value or of the end of the axis nearest to it; nothing where it is not a number.
    pub(crate) fn clamped(&self, value: f64) -> Option<f64> {
        if value.is_nan() {
            return None;
        }
        self.at(value.clamp(self.low, self.high))
    }

    /// Where bars start: zero if it shows, else the low end.
    pub(crate) fn base(&self) -> f64 {
        if self.is_log() { 0.0 } else { self.clamped(0.0).unwrap_or(0.0) }
    }

    /// Ticks with at most `most` labels (two at least), in order.
    pub(crate) fn ticks(&self, most: usize) -> Vec<Tick> {
        let most = most.max(2);
        let labelled = match self.transform {
            Transform::Linear => Vec::new(),
            Transform::Log10 => self.decades(most),
            Transform::Log2 => self.powers_of_two(most),
        };
        let ticks = if labelled.iter().filter(|(_, label)| !label.is_empty()).count() >= 2 {
            labelled
        } else {
            self.even_steps(most)
        };
        ticks.into_iter().filter_map(|(value, label)| Some(Tick { at: self.at(value)?, label })).collect()
    }

    fn even_steps(&self, most: usize) -> Vec<(f64, String)> {
        let span = self.high - self.low;
        let rough = span / most as f64;
        let power = libm::pow(10.0, libm::floor(libm::log10(rough)));
        let step = [1.0, 2.0, 2.5, 5.0, 10.0].iter().map(|m| m * power).find(|s| *s >= rough * 0.999_999);
        let Some(step) = step.filter(|s| *s > 0.0 && s.is_finite()) else { return Vec::new() };
        let first = libm::ceil(self.low / step - 1e-9);
        let values: Vec<f64> = (0..=most)
            .map(|i| (first + i as f64) * step)
            .filter(|v| *v <= self.high + step * 1e-6 && self.at(*v).is_some())
            .map(|v| if v.abs() < step * 1e-6 { 0.0 } else { v })
            .collect();
        let largest = values.iter().fold(0.0, |m: f64, v| m.max(v.abs()));
        let plain = largest < 1e7 && step >= 1e-5;
        let quarters = (step / power - 2.5).abs() < 1e-6;
        let decimals = (-libm::floor(libm::log10(step)) + f64::from(u8::from(quarters))).clamp(0.0, 8.0) as usize;
        values.into_iter().map(|v| (v, if plain { number::fixed(v, decimals) } else { number::short(v, 3) })).collect()
    }

    fn decades(&self, most: usize) -> Vec<(f64, String)> {
        let first = libm::ceil(libm::log10(self.low) - 1e-9) as i32;
        let last = libm::floor(libm::log10(self.high) + 1e-9) as i32;
        let count = (last - first + 1).max(0) as usize;
        let label = |value: f64, exponent: i32| {
            if first >= -4 && last <= 5 { number::short(value, 3) } else { number::power_of_ten(exponent) }
        };
        let within = |value: f64| value >= self.low * 0.999_999 && value <= self.high * 1.000_001;
        let mut ticks = Vec::new();
        let every = count.div_ceil(most).max(1) as i32;
        let fine = count <= 2 && 3 * count < most + 2;
        for exponent in first - 1..=last {
            let decade = libm::pow(10.0, f64::from(exponent));
            if exponent >= first {
                let shown = (exponent - first) % every == 0;
                ticks.push((decade, if shown { label(decade, exponent) } else { String::new() }));
            }
            for m in 2..10 {
                let value = f64::from(m) * decade;
                if count <= 5 && within(value) {
                    let shown = fine && (m == 2 || m == 5);
                    ticks.push((value, if shown { number::short(value, 3) } else { String::new() }));
                }
            }
        }
        ticks
    }

    fn powers_of_two(&self, most: usize) -> Vec<(f64, String)> {
        let first = libm::ceil(libm::log2(self.low) - 1e-9) as i32;
        let last = libm::floor(libm::log2(self.high) + 1e-9) as i32;
        let count = (last - first + 1).max(0) as usize;
        let every = count.div_ceil(most).max(1);
        (first..=last)
            .step_by(every)
            .map(|exponent| {
                let value = libm::exp2(f64::from(exponent));
                (value, number::short(value, 7))
            })
            .collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn labels(scale: Numeric, most: usize) -> Vec<String> {
        scale.ticks(most).into_iter().map(|t| t.label).filter(|l| !l.is_empty()).collect()
    }

    fn axis(scale: Scale) -> Axis {
        Axis { scale, ..Axis::default() }
    }

    #[test]
    fn linear_ticks_are_round() {
        let scale = Numeric::new(&axis(Scale::Auto), [0.9, 7.63, 15.2].into_iter(), Fit::NearZero);
        assert_eq!(labels(scale, 5), ["0", "5", "10", "15"]);
    }

    #[test]
    fn a_wide_range_turns_logarithmic() {
        let values = [0.004, 0.9];
        assert!(Numeric::new(&axis(Scale::Auto), values.into_iter(), Fit::NearZero).is_log());
        assert!(!Numeric::new(&axis(Scale::Linear), values.into_iter(), Fit::NearZero).is_log());
        assert!(!Numeric::new(&axis(Scale::Auto), [0.0, 900.0].into_iter(), Fit::NearZero).is_log());
        let scale = Numeric::new(&axis(Scale::Auto), values.into_iter(), Fit::NearZero);
        assert_eq!(labels(scale, 6), ["0.01", "0.1", "1"]);
    }

    #[test]
    fn powers_of_two() {
        let scale = Numeric::new(&axis(Scale::Log2), [1.0, 2.0, 4.0, 8.0, 16.0].into_iter(), Fit::Tight);
        assert_eq!(labels(scale, 8), ["1", "2", "4", "8", "16"]);
    }

    #[test]
    fn extremes_have_an_axis() {
        for values in [
            vec![],
            vec![f64::NAN],
            vec![5.0],
            vec![0.0],
            vec![-1e-12, 1e12],
            vec![1e-12, 1e12],
            vec![1e308],
            vec![5e-324, 1.0],
            vec![5e-324],
        ] {
            for kind in [Scale::Auto, Scale::Linear, Scale::Log10, Scale::Log2] {
                let scale = Numeric::new(&axis(kind), values.iter().copied(), Fit::NearZero);
                assert!(scale.low < scale.high, "{values:?}");
                let ticks = scale.ticks(6);
                assert!(ticks.iter().filter(|t| !t.label.is_empty()).count() <= 7, "{values:?} {kind:?} {ticks:?}");
            }
        }
    }
}
