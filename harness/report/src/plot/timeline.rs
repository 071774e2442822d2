//! Timelines: a lane a rank, time to the right.

use crate::canvas::{Align, Canvas, Stroke};
use crate::figure::{Activity, Axis, Lane, Mark, Panel};
use crate::palette::Paint;
use crate::plot::panel::{BOLD, FONT, TITLE_FONT, label_above, label_below, no_data, ticks_below};
use crate::scale::{Fit, Numeric};
use crate::text;

/// Height of all lanes together that few lanes do not reach and many lanes share.
const HEIGHT: f64 = 330.0;
/// Heights of a lane.
const LANE: (f64, f64) = (1.6, 18.0);
/// Parts of the width that are looked at as one: what a rank does most of that time is drawn. As many at any width, so that
/// drawings of several widths share their strokes.
const SAMPLES: usize = 150;
/// Samples of a picture at most, up to which there are so many.
const MOST_SAMPLES: usize = 30_000;

/// Colour of an activity.
pub(crate) fn paint(activity: Activity) -> Paint {
    match activity {
        Activity::Forward => Paint::Series(0),
        Activity::Backward => Paint::Series(5),
        Activity::Local => Paint::Series(7),
        Activity::Transfer => Paint::Series(1),
    }
}

/// Draws the panel below `top`; returns its height and the number of values not drawn.
/// Under `id` the page and the phone share the strokes.
pub(crate) fn draw(canvas: &mut Canvas, panel: &Panel, id: &str, width: f64, top: f64) -> (f64, usize) {
    let mut lanes: Vec<&Lane> = Vec::new();
    let mut not_drawn = 0;
    for mark in &panel.marks {
        match mark {
            Mark::Timeline { lanes: these } => lanes.extend(these),
            _ => not_drawn += 1,
        }
    }
    let top = label_above(canvas, &panel.y, width, top);
    let ends = lanes.iter().flat_map(|lane| &lane.spans).flat_map(|span| [span.start, span.end]);
    let last = ends.filter(|end| end.is_finite()).fold(0.0, f64::max);
    let axis = Axis { min: panel.x.min.or(Some(0.0)), max: panel.x.max.or(Some(last)), ..panel.x.clone() };
    let scale = Numeric::new(&axis, [0.0, last].into_iter(), Fit::Tight);
    let widest =
        lanes.iter().map(|l| text::width(&l.label, if l.straggler { BOLD * FONT } else { FONT })).fold(0.0, f64::max);
    let (left, right) = (widest.min(width * 0.34) + 18.0, width - 10.0);
    if lanes.is_empty() {
        no_data(canvas, (left, right), (top, top + 60.0));
        return (label_below(canvas, &panel.x, (left, right), top + 81.0, width), not_drawn);
    }
    let each = (HEIGHT / lanes.len() as f64).clamp(LANE.0, LANE.1);
    let bottom = top + each * lanes.len() as f64;
    canvas.rect((left, top), (right, bottom), Paint::Grid, 0.55, None);
    ticks_below(canvas, &scale, (left, right), (top, bottom), width);
    let lost =
        |lane: &&Lane| lane.spans.iter().filter(|s| scale.at(s.start).is_none() || scale.at(s.end).is_none()).count();
    not_drawn += lanes.iter().map(lost).sum::<usize>();
    let samples = SAMPLES.min(MOST_SAMPLES / lanes.len()).max(1);
    let thick = if each > 5.0 { 1.0 - 1.5 / each } else { 0.92 };
    let step = (right - left) / samples as f64;
    canvas.shared(id, (left, top + each / 2.0), (step, each), |canvas| {
        for (activity, list) in strokes(&lanes, &scale, samples) {
            canvas.strokes(&list, paint(activity), thick);
        }
    });
    labels(canvas, &lanes, (left, top), each);
    (label_below(canvas, &panel.x, (left, right), bottom + 21.0, width), not_drawn)
}

/// Strokes of each activity: rows are lanes, columns samples.
fn strokes(lanes: &[&Lane], scale: &Numeric, samples: usize) -> [(Activity, Vec<Stroke>); 4] {
    let mut strokes = Activity::ALL.map(|activity| (activity, Vec::new()));
    for (row, lane) in lanes.iter().enumerate() {
        let seen = sampled(lane, scale, samples);
        let mut from = 0;
        while from < seen.len() {
            let length = seen[from..].iter().take_while(|s| **s == seen[from]).count();
            if let Some((_, list)) = strokes.iter_mut().find(|(a, _)| Some(*a) == seen[from]) {
                list.push((row, from, length));
            }
            from += length;
        }
    }
    strokes
}

/// What a lane does most of the time of each sample; nothing where it waits.
fn sampled(lane: &Lane, scale: &Numeric, samples: usize) -> Vec<Option<Activity>> {
    let mut shares = vec![[0.0_f64; Activity::ALL.len()]; samples];
    for span in &lane.spans {
        let (Some(start), Some(end)) = (scale.clamped(span.start), scale.clamped(span.end)) else { continue };
        let (start, end) = (start * samples as f64, end * samples as f64);
        let which = Activity::ALL.iter().position(|a| *a == span.activity).unwrap_or(0);
        let last = (end.ceil() as usize).min(samples);
        for (i, share) in shares.iter_mut().enumerate().take(last).skip(start as usize) {
            share[which] += (end.min(i as f64 + 1.0) - start.max(i as f64)).max(0.0);
        }
    }
    shares
        .into_iter()
        .map(|share| {
            // Kernels hide a transfer that runs beside them, so theirs is the time first.
            let mut free = 1.0;
            let mut seen = [0.0; Activity::ALL.len()];
            for (own, share) in seen.iter_mut().zip(share) {
                *own = share.min(free);
                free -= *own;
            }
            let best = (0..seen.len()).max_by(|a, b| seen[*a].total_cmp(&seen[*b]).then(b.cmp(a)))?;
            (seen[best] > free.max(0.0)).then(|| Activity::ALL[best])
        })
        .collect()
}

/// Names of lanes that find room, the straggler's first, with a mark before it.
fn labels(canvas: &mut Canvas, lanes: &[&Lane], (left, top): (f64, f64), each: f64) {
    let mut taken: Vec<f64> = Vec::new();
    let order = lanes
        .iter()
        .enumerate()
        .filter(|(_, l)| l.straggler)
        .chain(lanes.iter().enumerate().filter(|(_, l)| !l.straggler));
    for (i, lane) in order {
        let y = top + each * (i as f64 + 0.5);
        if lane.straggler {
            let tip = left - 1.0;
            canvas.polygon(&[(tip, y), (tip - 8.0, y - 4.5), (tip - 8.0, y + 4.5)], Paint::Ink, 1.0, None);
        }
        if lane.label.is_empty() || taken.iter().any(|other| (other - y).abs() < TITLE_FONT) {
            continue;
        }
        taken.push(y);
        let label = text::fit(&lane.label, if lane.straggler { BOLD * FONT } else { FONT }, left - 17.0);
        let paint = if lane.straggler { Paint::Ink } else { Paint::Muted };
        canvas.text((left - 12.0, y), &label, FONT, paint, Align::Right, lane.straggler);
    }
}
