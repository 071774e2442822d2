use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use skewbench_plan::Pass;
use skewbench_store::stats::median;

/// A timed product of a layer's token-wise work: a row of `layer.csv`.
#[derive(Clone, Debug, PartialEq, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub struct LayerProduct {
    /// Model.
    pub model: String,
    /// Tokens of a rank.
    pub tokens: u32,
    /// Which weight.
    pub product: String,
    /// Pass; a backward has two products for each of the forward.
    pub pass: Pass,
    /// Rows of the product.
    pub rows: u32,
    /// Columns.
    pub columns: u32,
    /// Inner size.
    pub inner: u32,
    /// How often the layer runs it.
    pub times: u32,
    /// Repetition.
    pub sample: u32,
    /// Device time of one product, nanoseconds.
    pub ns: f64,
}

impl LayerProduct {
    pub(super) fn problem(&self) -> Option<String> {
        let counts = [self.tokens, self.rows, self.columns, self.inner, self.times];
        let wrong = counts.contains(&0) || !(self.ns.is_finite() && self.ns > 0.0);
        wrong.then(|| "tokens, sizes, times and ns must be above 0".into())
    }
}

/// Nanoseconds of all products of a layer, both passes, by model and tokens of a rank: medians over repetitions. The two
/// products of a backward can have one shape; a repetition that comes again is the second's.
pub fn layer_ns(products: &[LayerProduct]) -> BTreeMap<(String, u64), f64> {
    let mut samples: BTreeMap<_, Vec<f64>> = BTreeMap::new();
    let mut seen: BTreeMap<_, u32> = BTreeMap::new();
    for p in products {
        let key = (&p.model, p.tokens, &p.product, p.pass, (p.rows, p.columns, p.inner), p.times);
        let times = seen.entry((key, p.sample)).or_default();
        samples.entry((key, *times)).or_default().push(p.ns);
        *times += 1;
    }
    let mut layers = BTreeMap::new();
    for (((model, tokens, .., times), _), ns) in samples {
        *layers.entry((model.clone(), u64::from(tokens))).or_insert(0.0) += median(&ns) * f64::from(times);
    }
    layers
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn products_count_as_often_as_the_layer_runs_them() {
        let product = |pass, times, sample, ns| LayerProduct {
            model: "m".into(),
            tokens: 64,
            product: "experts".into(),
            pass,
            rows: 4,
            columns: 2,
            inner: 2,
            times,
            sample,
            ns,
        };
        let mut all: Vec<_> =
            [1.0, 9.0, 3.0].iter().zip(0..).map(|(ns, i)| product(Pass::Forward, 8, i, *ns)).collect();
        all.push(product(Pass::Backward, 1, 0, 5.0));
        assert_eq!(layer_ns(&all), BTreeMap::from([(("m".to_owned(), 64), 29.0)]));
        // The other product of the backward, of the same shape.
        all.push(product(Pass::Backward, 1, 0, 7.0));
        assert_eq!(layer_ns(&all), BTreeMap::from([(("m".to_owned(), 64), 36.0)]));
        assert!(product(Pass::Forward, 0, 0, 1.0).problem().is_some());
    }
}
