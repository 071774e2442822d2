use serde::{Deserialize, Serialize};
use skewbench_config::{hint, parse_strict};
use skewbench_plan::AttentionShape;

use crate::{ConfigError, profile::require};

const PRESETS: &str = include_str!("../../data/models.toml");

/// Sizes of a transformer with gated feed-forward layers.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Model {
    /// Name.
    pub name: String,
    /// Transformer layers.
    pub layers: u32,
    /// Model width.
    pub hidden: u32,
    /// Query heads.
    pub q_heads: u16,
    /// Key/value heads.
    pub kv_heads: u16,
    /// Elements of a head.
    pub head_dim: u16,
    /// Width of a dense feed-forward layer; not used with experts.
    pub ffn: u32,
    /// Experts of a layer, 0 for a dense model.
    pub experts: u32,
    /// Experts that each token visits.
    pub experts_per_token: u32,
    /// Width of one expert.
    pub moe_ffn: u32,
    /// Vocabulary.
    pub vocab: u32,
    /// Where the sizes come from.
    pub source: String,
    /// Sizes that were not checked against the publisher's configuration.
    pub unverified: Vec<String>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct ModelFile {
    model: Vec<Model>,
}

impl Model {
    /// All built-in models.
    ///
    /// # Errors
    /// Never for an unchanged build: the file is part of it.
    pub fn presets() -> Result<Vec<Self>, ConfigError> {
        Self::parse_list(PRESETS, "built-in models")
    }

    /// A built-in model.
    ///
    /// # Errors
    /// When there is none of that name; the nearest is offered.
    pub fn named(name: &str) -> Result<Self, ConfigError> {
        let presets = Self::presets()?;
        let names: Vec<String> = presets.iter().map(|model| model.name.clone()).collect();
        presets.into_iter().find(|model| model.name == name).ok_or_else(|| ConfigError::Unknown {
            kind: "model",
            name: name.to_owned(),
            hint: hint(name, names.iter().map(String::as_str)),
            known: names.join(", "),
        })
    }

    /// Models of a TOML file of `[[model]]` tables; `file` is named in messages.
    ///
    /// # Errors
    /// Unknown or missing keys, wrong types and impossible sizes, with file, key and line.
    pub fn parse_list(text: &str, file: &str) -> Result<Vec<Self>, ConfigError> {
        let parsed: ModelFile = parse_strict(text, file)?;
        for model in &parsed.model {
            model.validate(file)?;
        }
        let mut names: Vec<&str> = parsed.model.iter().map(|model| model.name.as_str()).collect();
        names.sort_unstable();
        let repeated = names.windows(2).find(|pair| pair[0] == pair[1]).map_or("", |pair| pair[0]);
        require(repeated.is_empty(), file, "model.name", repeated, "is given twice; names must differ")?;
        Ok(parsed.model)
    }

    fn validate(&self, file: &str) -> Result<(), ConfigError> {
        let key = |name: &str| format!("model {}: {name}", self.name);
        require(!self.name.is_empty(), file, "model.name", "\"\"", "a model needs a name")?;
        let sizes = [
            ("layers", self.layers, 1, 10_000),
            ("hidden", self.hidden, 1, 1 << 20),
            ("q_heads", u32::from(self.q_heads), 1, 1024),
            ("kv_heads", u32::from(self.kv_heads), 1, 1024),
            ("head_dim", u32::from(self.head_dim), 8, 1024),
            ("ffn", self.ffn, 0, 1 << 22),
            ("experts", self.experts, 0, 1 << 16),
            ("moe_ffn", self.moe_ffn, 0, 1 << 22),
            ("vocab", self.vocab, 1, 1 << 24),
        ];
        for (name, value, low, high) in sizes {
            require(
                (low..=high).contains(&value),
                file,
                key(name),
                value,
                &format!("must be between {low} and {high}"),
            )?;
        }
        let grouped = self.q_heads.is_multiple_of(self.kv_heads);
        require(grouped, file, key("kv_heads"), self.kv_heads, "must divide q_heads")?;
        let dense = self.experts == 0;
        require(!dense || self.ffn > 0, file, key("ffn"), self.ffn, "a model without experts needs a dense size")?;
        let chosen =
            if dense { self.experts_per_token == 0 } else { (1..=self.experts).contains(&self.experts_per_token) };
        let why = "must be between 1 and experts, and 0 without experts";
        require(chosen, file, key("experts_per_token"), self.experts_per_token, why)?;
        let why = "must be above 0 with experts, and 0 without";
        require(dense == (self.moe_ffn == 0), file, key("moe_ffn"), self.moe_ffn, why)
    }

    /// Heads of one tensor-parallel shard.
    pub fn shape(&self, tp: u32) -> AttentionShape {
        let shard = |heads: u16| (u32::from(heads) / tp.max(1)) as u16;
        AttentionShape { q_heads: shard(self.q_heads), kv_heads: shard(self.kv_heads), head_dim: self.head_dim }
    }

    /// Elements of Q and of O of a token.
    pub(super) fn q_width(&self) -> f64 {
        f64::from(self.q_heads) * f64::from(self.head_dim)
    }

    /// Elements of K (or V) of a token.
    pub(super) fn kv_width(&self) -> f64 {
        f64::from(self.kv_heads) * f64::from(self.head_dim)
    }

    /// Feed-forward width that a token passes through.
    pub(super) fn active_ffn(&self) -> f64 {
        if self.experts == 0 {
            f64::from(self.ffn)
        } else {
            f64::from(self.experts_per_token) * f64::from(self.moe_ffn)
        }
    }

    /// Parameters of a layer outside its experts.
    pub(super) fn dense_layer_parameters(&self) -> f64 {
        let hidden = f64::from(self.hidden);
        let projections = hidden * (2.0 * self.q_width() + 2.0 * self.kv_width());
        projections
            + hidden * (f64::from(self.experts) + 2.0)
            + if self.experts == 0 { 3.0 * hidden * f64::from(self.ffn) } else { 0.0 }
    }

    /// Parameters of all experts of a layer.
    pub(super) fn expert_layer_parameters(&self) -> f64 {
        3.0 * f64::from(self.hidden) * f64::from(self.experts) * f64::from(self.moe_ffn)
    }

    /// Parameters of the embedding, and of the output projection.
    pub(super) fn embedding_parameters(&self) -> f64 {
        f64::from(self.hidden) * f64::from(self.vocab)
    }

    /// Forward FLOPs of one token in one layer: attention projections, router, feed-forward of its experts.
    pub fn layer_flops_per_token(&self) -> f64 {
        let hidden = f64::from(self.hidden);
        let projections = hidden * (2.0 * self.q_width() + 2.0 * self.kv_width());
        2.0 * (projections + hidden * f64::from(self.experts) + 3.0 * hidden * self.active_ffn())
    }

    /// Forward FLOPs of one token in the output projection.
    pub fn head_flops_per_token(&self) -> f64 {
        2.0 * self.embedding_parameters()
    }
}
