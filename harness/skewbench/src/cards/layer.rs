use skewbench_cuda::gemm::{GemmShape, GemmTimer};
use skewbench_plan::Pass;
use skewbench_sim::step_model::Model;

use crate::failure::Failure;
use crate::shipped::LayerProduct;

/// One product of a layer's token-wise work.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Product {
    /// Which weight.
    pub name: &'static str,
    /// Forward shape on the tokens of a rank.
    pub shape: GemmShape,
    /// How often the layer runs it.
    pub times: u32,
}

/// The matrix products of one layer in the forward on so many tokens of a rank. Tokens visit experts evenly, the best case
/// for products; norms, rotary embedding, routing and activations are not among them.
pub(super) fn products(model: &Model, tokens: u32) -> Vec<Product> {
    let (q, kv) =
        (u32::from(model.q_heads) * u32::from(model.head_dim), u32::from(model.kv_heads) * u32::from(model.head_dim));
    let dense = |name, columns, inner| Product { name, shape: GemmShape { rows: tokens, columns, inner }, times: 1 };
    let mut all = vec![dense("qkv", q + 2 * kv, model.hidden), dense("output", model.hidden, q)];
    if model.experts == 0 {
        all.push(dense("gate and up", 2 * model.ffn, model.hidden));
        all.push(dense("down", model.hidden, model.ffn));
        return all;
    }
    all.push(dense("router", model.experts, model.hidden));
    let visits = u64::from(tokens) * u64::from(model.experts_per_token);
    let rows = visits.div_ceil(u64::from(model.experts)).max(1) as u32;
    let expert =
        |name, columns, inner| Product { name, shape: GemmShape { rows, columns, inner }, times: model.experts };
    all.push(expert("experts, gate and up", 2 * model.moe_ffn, model.hidden));
    all.push(expert("experts, down", model.hidden, model.moe_ffn));
    all
}

/// What the backward of a product runs: the gradient of its operand, and that of its weight.
fn backward(shape: GemmShape) -> [GemmShape; 2] {
    let GemmShape { rows, columns, inner } = shape;
    [GemmShape { rows, columns: inner, inner: columns }, GemmShape { rows: inner, columns, inner: rows }]
}

const WARM_UP: u32 = 2;
const SAMPLES: u32 = 5;

/// Times the products of a layer on so many tokens of a rank.
///
/// # Errors
/// A card that fails.
pub(super) fn time_layer(model: &Model, tokens: u32, timer: &mut dyn GemmTimer) -> Result<Vec<LayerProduct>, Failure> {
    let mut rows = Vec::new();
    for Product { name, shape, times } in products(model, tokens) {
        let passes = [(Pass::Forward, vec![shape]), (Pass::Backward, backward(shape).to_vec())];
        for (pass, shapes) in passes {
            for shape in shapes {
                let samples = timer.time(shape, WARM_UP, SAMPLES)?;
                rows.extend((0u32..).zip(samples).map(|(sample, ns)| LayerProduct {
                    model: model.name.clone(),
                    tokens,
                    product: name.to_owned(),
                    pass,
                    rows: shape.rows,
                    columns: shape.columns,
                    inner: shape.inner,
                    times,
                    sample,
                    ns,
                }));
            }
        }
    }
    Ok(rows)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn products_have_the_flops_of_the_model() {
        for model in Model::presets().unwrap() {
            let tokens = 1 << 14;
            let sum: f64 = products(&model, tokens).iter().map(|p| p.shape.flops() * f64::from(p.times)).sum();
            let expected = model.layer_flops_per_token() * f64::from(tokens);
            assert!((sum / expected - 1.0).abs() < 1e-9, "{}: {sum} {expected}", model.name);
        }
    }

    #[test]
    fn a_backward_is_twice_its_forward() {
        let shape = GemmShape { rows: 7, columns: 5, inner: 3 };
        assert_eq!(backward(shape).iter().map(|s| s.flops()).sum::<f64>(), 2.0 * shape.flops());
    }
}
