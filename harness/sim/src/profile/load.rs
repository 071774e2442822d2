use skewbench_config::{hint, parse_strict_json};

use super::assumed::{ASSUMED, assumed};
use super::{Profile, Single, require};
use crate::ConfigError;

/// The profile that those of cards that nobody measured are scaled from.
const MEASURED: &str = BUILT_IN[0];

/// Names of the profiles that are built in.
pub const BUILT_IN: [&str; 1] = ["h200"];

const H200: &str = include_str!("../../../../results/profiles/h200.json");

/// Text of a built-in profile.
pub fn built_in(name: &str) -> Option<&'static str> {
    (name == "h200").then_some(H200)
}

/// Largest rate, bandwidth or time that is taken seriously.
const ABSURD: f64 = 1e20;

/// Nanoseconds of an hour, the longest call that is taken seriously.
const HOUR_NS: f64 = 3.6e12;

impl Profile {
    /// A built-in profile, or one scaled from it for another card by datasheet.
    ///
    /// # Errors
    /// When there is none of that name; the nearest is offered.
    pub fn named(name: &str) -> Result<Self, ConfigError> {
        if let Some(text) = built_in(name) {
            return Self::parse(text, name);
        }
        if ASSUMED.contains(&name)
            && let Some(profile) = assumed(name, &Self::named(MEASURED)?)
        {
            profile.validate(name)?;
            return Ok(profile);
        }
        let known = || BUILT_IN.into_iter().chain(ASSUMED);
        Err(ConfigError::Unknown {
            kind: "profile",
            name: name.to_owned(),
            hint: hint(name, known()),
            known: known().collect::<Vec<_>>().join(", "),
        })
    }

    /// Parses and validates a profile; `file` is named in messages.
    ///
    /// # Errors
    /// Unknown keys, wrong types and impossible values, with file, key and line.
    pub fn parse(text: &str, file: &str) -> Result<Self, ConfigError> {
        let profile: Self = parse_strict_json(text, file)?;
        profile.validate(file)?;
        Ok(profile)
    }

    /// Refuses values that no machine can have.
    ///
    /// # Errors
    /// The first bad key.
    pub fn validate(&self, file: &str) -> Result<(), ConfigError> {
        require(self.schema == 1, file, "schema", self.schema, "this build reads schema 1")?;
        require(!self.name.is_empty(), file, "name", "\"\"", "a profile needs a name")?;
        let positive = |key: &str, value: f64| {
            require(value > 0.0 && value < ABSURD, file, key, value, "must be above 0 and below 1e20")
        };
        let duration = |key: &str, value: f64| {
            require((0.0..=HOUR_NS).contains(&value), file, key, value, "must be between 0 and an hour of nanoseconds")
        };
        let share = |key: &str, value: f64| {
            require((0.001..=1.0).contains(&value), file, key, value, "must be between 0.001 and 1")
        };
        positive("card.memory_bytes", self.card.memory_bytes as f64)?;
        positive("card.memory_bandwidth", self.card.memory_bandwidth.bytes_per_s())?;
        positive("card.bf16_flops_per_s", self.card.bf16_flops_per_s)?;
        let sms = self.card.multiprocessors;
        require((1..=65536).contains(&sms), file, "card.multiprocessors", sms, "must be between 1 and 65536")?;
        positive("gemm.flops_per_s", self.gemm.flops_per_s)?;
        for (index, &(rows, columns, inner, ns)) in self.gemm.products.iter().enumerate() {
            let valid = rows > 0 && columns > 0 && inner > 0 && ns > 0.0 && ns <= HOUR_NS;
            let seen = format!("[{rows}, {columns}, {inner}, {ns}]");
            let key = format!("gemm.products[{index}]");
            require(valid, file, key, seen, "sizes must be above 0, a time above 0 and at most an hour")?;
        }
        positive("copies.bandwidth", self.copies.bandwidth.bytes_per_s())?;
        duration("copies.launch_ns", self.copies.launch_ns)?;
        for (key, link) in [("nccl", &self.intra_node.nccl), ("copy_engines", &self.intra_node.copy_engines)] {
            let points = &link.points_bytes_ns;
            let key = format!("intra_node.{key}.points_bytes_ns");
            require(points.len() >= 2, file, &key, format!("{} points", points.len()), "at least 2 are needed")?;
            let rising = points.windows(2).all(|pair| pair[0].0 < pair[1].0) && points[0].0 > 0;
            require(rising, file, &key, "points", "bytes must be above 0 and rise from point to point")?;
            for (bytes, ns) in points {
                let seen = format!("[{bytes}, {ns}]");
                require(*ns > 0.0 && *ns <= HOUR_NS, file, &key, seen, "a time must be above 0 and at most an hour")?;
            }
        }
        positive("network.bandwidth", self.network.bandwidth.bytes_per_s())?;
        share("network.efficiency", self.network.efficiency)?;
        duration("network.latency_ns", self.network.latency_ns)?;
        let over = self.network.oversubscription;
        let why = "must be between 1 (a full fat tree) and 1000";
        require((1.0..=1000.0).contains(&over), file, "network.oversubscription", over, why)?;
        for (key, factors) in [("nccl", &self.contention.nccl), ("copy_engines", &self.contention.copy_engines)] {
            share(&format!("contention.{key}.compute_rate"), factors.compute_rate)?;
            share(&format!("contention.{key}.transfer_rate"), factors.transfer_rate)?;
        }
        let sd = self.card_speed.relative_sd;
        require((0.0..=0.3).contains(&sd), file, "card_speed.relative_sd", sd, "must be between 0 and 0.3")?;
        self.validate_attention(file)
    }

    fn validate_attention(&self, file: &str) -> Result<(), ConfigError> {
        let attention = &self.attention;
        let dim = attention.head_dim;
        require((8..=1024).contains(&dim), file, "attention.head_dim", dim, "must be between 8 and 1024")?;
        let overhead = attention.launch_overhead_ns;
        for (key, ns) in [("forward", overhead.forward), ("backward", overhead.backward)] {
            let key = format!("attention.launch_overhead_ns.{key}");
            require(ns > 0.0 && ns <= 1e9, file, key, ns, "must be above 0 and at most a second")?;
        }
        let call = |key: &str, heads: (u32, u32), q: &[u32], k: &[u32], ns: f64, floor: f64| {
            let seen = format!("{heads:?} heads, {} tiles, {ns} ns", q.len());
            let sizes = q.iter().chain(k).all(|n| (1..=1 << 26).contains(n)) && !q.is_empty() && q.len() == k.len();
            require(
                sizes,
                file,
                key,
                &seen,
                "rows and keys must be between 1 and 2^26, as many of the one as of the other",
            )?;
            let grouped = heads.1 > 0 && heads.0.is_multiple_of(heads.1) && (1..=1024).contains(&heads.0);
            require(grouped, file, key, &seen, "KV heads must divide between 1 and 1024 query heads")?;
            require(
                ns > floor && ns <= HOUR_NS,
                file,
                key,
                &seen,
                "must take longer than the launch overhead, at most an hour",
            )
        };
        let floor = |pass: super::TablePass| match pass {
            super::TablePass::Forward => overhead.forward,
            super::TablePass::Backward => overhead.backward,
        };
        let tables = [
            ("bottom_right", &attention.bottom_right),
            ("square", &attention.square),
            ("rectangle", &attention.rectangle),
        ];
        for (name, rows) in tables {
            for (index, &Single(pass, q_heads, kv_heads, q, k, ns)) in rows.iter().enumerate() {
                let key = format!("attention.{name}[{index}]");
                call(&key, (q_heads, kv_heads), &[q], &[k], ns, floor(pass))?;
                let shape = format!("{q} rows, {k} keys");
                let fits = match name {
                    "square" => q == k,
                    "bottom_right" => q <= k,
                    _ => true,
                };
                require(
                    fits,
                    file,
                    key,
                    shape,
                    "a square has as many rows as keys, a bottom-right tile no more rows than keys",
                )?;
            }
            for pass in [super::TablePass::Forward, super::TablePass::Backward] {
                let count = rows.iter().filter(|row| row.0 == pass).count();
                let key = format!("attention.{name}");
                let seen =
                    format!("{count} rows of pass {}", if pass == super::TablePass::Forward { "fwd" } else { "bwd" });
                require(count >= 2, file, key, seen, "at least 2 are needed")?;
            }
        }
        for (index, row) in attention.ragged.iter().enumerate() {
            let key = format!("attention.ragged[{index}]");
            call(&key, (row.q_heads, row.kv_heads), &row.q_len, &row.kv_len, row.ns, floor(row.pass))?;
        }
        Ok(())
    }
}
