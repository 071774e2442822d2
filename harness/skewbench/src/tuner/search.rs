use std::collections::BTreeMap;

use super::Space;

/// A configuration: the position of a value on every axis.
pub type Point = Vec<usize>;

/// What a search found.
#[derive(Clone, Debug, PartialEq)]
pub struct Best {
    /// The configuration with the smallest objective, the first that was tried of several.
    pub point: Point,
    /// Its objective; nothing when no configuration could run.
    pub value: Option<f64>,
    /// Objective of the configuration that the search started from; nothing when it could not run.
    pub start: Option<f64>,
    /// Configurations that were tried.
    pub tried: u32,
    /// Configurations of these that could not run.
    pub failed: u32,
}

struct Search<'a> {
    space: &'a Space,
    budget: usize,
    /// Objective, and when it was tried; configurations that could not run are infinitely slow.
    known: BTreeMap<Point, (f64, usize)>,
}

/// Searches a space with at most `budget` configurations, the start included.
///
/// A round tries every configuration that differs from the best one in one option, nearest values of every option first, then
/// those that take the best value of the two, three, ... options that gained most. It ends when a round gains nothing or the budget
/// is spent. `evaluate` gets the configurations of a stage at once and returns their objectives, nothing for those that cannot run.
///
/// # Errors
/// Those of `evaluate`.
pub fn search<E>(
    space: &Space,
    budget: u32,
    mut evaluate: impl FnMut(&[Point]) -> Result<Vec<Option<f64>>, E>,
) -> Result<Best, E> {
    let start = space.start();
    let mut search = Search { space, budget: (budget as usize).max(1), known: BTreeMap::new() };
    let mut best = start.clone();
    loop {
        let mut stage = if search.known.is_empty() { vec![start.clone()] } else { Vec::new() };
        stage.extend(search.neighbours(&best));
        search.run(stage, &mut evaluate)?;
        let combined = search.combined(&best);
        search.run(combined, &mut evaluate)?;
        let found = search.best(&start);
        if found == best || search.left() == 0 {
            best = found;
            break;
        }
        best = found;
    }
    let value = |point: &Point| search.known.get(point).map(|known| known.0).filter(|v| v.is_finite());
    Ok(Best {
        value: value(&best),
        start: value(&start),
        tried: search.known.len() as u32,
        failed: search.known.values().filter(|(v, _)| v.is_infinite()).count() as u32,
        point: best,
    })
}

impl Search<'_> {
    fn left(&self) -> usize {
        self.budget.saturating_sub(self.known.len())
    }

    fn run<E>(
        &mut self,
        mut points: Vec<Point>,
        evaluate: &mut impl FnMut(&[Point]) -> Result<Vec<Option<f64>>, E>,
    ) -> Result<(), E> {
        points.retain(|p| !self.known.contains_key(p));
        points.truncate(self.left());
        if points.is_empty() {
            return Ok(());
        }
        let values = evaluate(&points)?;
        for (point, value) in points.into_iter().zip(values) {
            let order = self.known.len();
            self.known.insert(point, (value.filter(|v| v.is_finite()).unwrap_or(f64::INFINITY), order));
        }
        Ok(())
    }

    /// Points that differ from `centre` on one axis: of every axis the nearest values first.
    fn neighbours(&self, centre: &Point) -> Vec<Point> {
        let widest = self.space.axes.iter().map(|a| a.values.len()).max().unwrap_or(0);
        let mut points = Vec::new();
        for distance in 1..widest {
            for (i, axis) in self.space.axes.iter().enumerate() {
                let (up, down) = (centre[i] + distance, centre[i].checked_sub(distance));
                for at in [Some(up).filter(|at| *at < axis.values.len()), down].into_iter().flatten() {
                    points.push(moved(centre, i, at));
                }
            }
        }
        points
    }

    /// Points that take the best known value of the two, three, ... axes on which a change of `centre` alone gains most.
    fn combined(&self, centre: &Point) -> Vec<Point> {
        let value = |point: &Point| self.known.get(point).map_or(f64::INFINITY, |known| known.0);
        let here = value(centre);
        let mut gains: Vec<(f64, usize, usize)> = Vec::new();
        for (i, axis) in self.space.axes.iter().enumerate() {
            let line = (0..axis.values.len()).map(|at| (value(&moved(centre, i, at)), at));
            if let Some((best, at)) = line.min_by(|a, b| a.0.total_cmp(&b.0)).filter(|(best, _)| *best < here) {
                gains.push((best, i, at));
            }
        }
        gains.sort_by(|a, b| a.0.total_cmp(&b.0).then(a.1.cmp(&b.1)));
        let mut point = centre.clone();
        let steps = gains.into_iter().map(|(_, i, at)| {
            point = moved(&point, i, at);
            point.clone()
        });
        steps.skip(1).collect()
    }

    fn best(&self, start: &Point) -> Point {
        let best = self.known.iter().min_by(|a, b| a.1.0.total_cmp(&b.1.0).then(a.1.1.cmp(&b.1.1)));
        best.map_or_else(|| start.clone(), |(point, _)| point.clone())
    }
}

fn moved(point: &Point, axis: usize, at: usize) -> Point {
    point.iter().enumerate().map(|(i, p)| if i == axis { at } else { *p }).collect()
}

#[cfg(test)]
mod tests {
    use std::convert::Infallible;

    use serde_json::json;

    use super::super::Axis;
    use super::{Best, Point, Space, search};

    fn space(sizes: &[usize]) -> Space {
        let axis = |size: &usize| Axis { name: "option", values: (0..*size).map(|v| json!(v)).collect(), start: 0 };
        Space { axes: sizes.iter().map(axis).collect() }
    }

    fn run(sizes: &[usize], budget: u32, of: impl Fn(&Point) -> Option<f64>) -> (Best, Vec<Point>) {
        let mut tried = Vec::new();
        let best = search(&space(sizes), budget, |points| {
            tried.extend(points.to_vec());
            Ok::<_, Infallible>(points.iter().map(&of).collect())
        });
        let Ok(best) = best;
        (best, tried)
    }

    #[test]
    fn finds_the_least_of_a_separable_bowl() {
        let target = [3.0, 1.0, 0.0];
        let bowl = |p: &Point| Some(p.iter().zip(target).map(|(x, t)| (*x as f64 - t).powi(2)).sum());
        let (best, tried) = run(&[5, 3, 2], 30, bowl);
        assert_eq!((&best.point, best.value, best.start), (&vec![3, 1, 0], Some(0.0), Some(10.0)));
        assert!(best.tried <= 30 && best.failed == 0);
        let distinct: std::collections::BTreeSet<_> = tried.iter().collect();
        assert_eq!((distinct.len(), tried.len()), (tried.len(), best.tried as usize), "none is tried twice");
        assert_eq!(run(&[5, 3, 2], 30, bowl), (best, tried), "the same search");
    }

    #[test]
    fn budgets_are_kept_and_shared_by_the_options() {
        for budget in 1..12 {
            let (best, tried) = run(&[6, 6], budget, |p| Some(-(p[0] as f64) - p[1] as f64));
            assert_eq!((best.tried, tried.len()), (budget, budget as usize));
        }
        let (_, tried) = run(&[6, 6], 3, |_| Some(1.0));
        assert_eq!(tried, [[0, 0], [1, 0], [0, 1]], "nearest values of both");
    }

    #[test]
    fn equal_and_failed_configurations_do_not_displace_the_start() {
        let (best, _) = run(&[4, 4], 20, |_| Some(2.0));
        assert_eq!((best.point, best.tried), (vec![0, 0], 7));
        let (best, _) = run(&[4], 20, |p| (p[0] == 0).then_some(2.0));
        assert_eq!((best.point, best.failed), (vec![0], 3));
        let (best, _) = run(&[4], 20, |p| (p[0] > 1).then_some(f64::NAN).or((p[0] == 1).then_some(5.0)));
        assert_eq!((best.point, best.value, best.start), (vec![1], Some(5.0), None));
        let (best, _) = run(&[4, 2], 20, |_| None);
        assert_eq!((best.point, best.value, best.tried, best.failed), (vec![0, 0], None, 5, 5));
        let (best, _) = run(&[], 20, |_| Some(1.0));
        assert_eq!((best.tried, best.value), (1, Some(1.0)));
    }
}
