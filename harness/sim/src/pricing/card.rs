use skewbench_plan::{Cost, LaunchShape, Mask, Pass};

use super::{
    LinkFit,
    nodes::{MAX_HEADS, Nodes, block_ns},
    octaves::{LAST_OCTAVE, Log2Table},
    throughput::{Kernel, Observation, Throughput},
};
use crate::profile::{Profile, RaggedCall, Single};

/// Ragged over dense time where a profile has no ragged rows: the middle of the 5 to 8% seen on the h200.
const DEFAULT_PENALTY: f64 = 1.065;

/// One kernel in one pass.
#[derive(Clone, Debug)]
struct KernelPrice {
    card: Throughput,
    alone: Nodes,
    /// Time of ragged calls over the sum of their tiles' card time.
    penalty: f64,
}

/// One pass.
#[derive(Clone, Debug)]
struct PassPrice {
    overhead_ns: f64,
    square: KernelPrice,
    bottom_right: KernelPrice,
    rectangle: KernelPrice,
}

/// A profile made ready for pricing. See the module's documentation for the model.
#[derive(Clone, Debug)]
pub struct Pricing {
    profile: Profile,
    logs: Log2Table,
    forward: PassPrice,
    backward: PassPrice,
    intra: LinkFit,
}

impl Pricing {
    /// Fits the tables of a validated profile.
    pub fn new(profile: Profile) -> Self {
        let mut pricing = Self {
            logs: Log2Table::new(),
            forward: PassPrice::new(&profile, Pass::Forward),
            backward: PassPrice::new(&profile, Pass::Backward),
            intra: LinkFit::new(profile.intra_link()),
            profile,
        };
        pricing.fit_penalties();
        pricing
    }

    /// The profile.
    pub fn profile(&self) -> &Profile {
        &self.profile
    }

    pub(crate) fn intra(&self) -> &LinkFit {
        &self.intra
    }

    /// Picoseconds a byte through one port to the network.
    pub(crate) fn network_ps_per_byte(&self) -> f64 {
        let network = &self.profile.network;
        1e12 / (network.bandwidth.bytes_per_s() * network.efficiency)
    }

    /// Picoseconds of a kernel that moves `bytes`, counted once for every read and every write.
    pub fn copy_ps(&self, bytes: u64) -> u64 {
        let copies = &self.profile.copies;
        (copies.launch_ns * 1e3 + bytes as f64 / copies.bandwidth.bytes_per_s() * 1e12) as u64
    }

    /// True when launches of this head size are scaled by FLOPs from the calibrated one.
    pub fn head_dim_scaled(&self, head_dim: u16) -> bool {
        head_dim != self.profile.attention.head_dim
    }

    /// Picoseconds of one kernel call over tiles of (rows, keys).
    pub fn call_ps(
        &self,
        pass: Pass,
        mask: Mask,
        q_heads: u32,
        head_dim: u16,
        tiles: impl Iterator<Item = (u32, u32)> + Clone,
    ) -> u64 {
        let price = self.pass(pass);
        let ns = match mask {
            Mask::Full => self.full_ns(price, q_heads, tiles.filter(|(q, k)| *q > 0 && *k > 0)),
            Mask::Causal => self.causal_ns(price, q_heads, visible(tiles, 0)),
            Mask::CausalExclusive => self.causal_ns(price, q_heads, visible(tiles, 1)),
        };
        let scale = f64::from(head_dim) / f64::from(self.profile.attention.head_dim);
        ((price.overhead_ns + (ns - price.overhead_ns) * scale) * 1e3 + 0.5) as u64
    }

    fn pass(&self, pass: Pass) -> &PassPrice {
        match pass {
            Pass::Forward => &self.forward,
            Pass::Backward => &self.backward,
        }
    }

    fn full_ns(&self, price: &PassPrice, heads: u32, tiles: impl Iterator<Item = (u32, u32)> + Clone) -> f64 {
        let kernel = &price.rectangle;
        let (mut count, mut card, mut q_max, mut k_max) = (0u64, 0.0, 0, 0);
        for (q, k) in tiles.clone() {
            count += 1;
            card += kernel.card.card_ns(q, k);
            q_max = q_max.max(q);
            k_max = k_max.max(k);
        }
        let alone = |q, k| self.alone_ns(price, kernel, heads, q, k);
        together(price, count, kernel.penalty * card * f64::from(heads), alone(q_max, k_max), || {
            tiles.map(|(q, k)| alone(q, k)).fold(0.0, f64::max)
        })
    }

    /// Tiles have no more rows than keys.
    fn causal_ns(&self, price: &PassPrice, heads: u32, tiles: impl Iterator<Item = (u32, u32)> + Clone) -> f64 {
        let (square, bottom_right) = (&price.square, &price.bottom_right);
        let (mut count, mut card, mut q_max, mut k_max) = (0u64, 0.0, 0, 0);
        let square_alone = |q| self.alone_ns(price, square, heads, q, q);
        if tiles.clone().all(|(q, k)| q == k) {
            for (_, k) in tiles {
                count += 1;
                card += square.card.card_ns(k, k);
                k_max = k_max.max(k);
            }
            let longest = square_alone(k_max);
            return together(price, count, square.penalty * card * f64::from(heads), longest, || longest);
        }
        for (q, k) in tiles.clone() {
            count += 1;
            // The square of a tile's own rows is part of it; noise of the fits must not make the whole cheaper.
            card += bottom_right.card.card_ns(q, k).max(square.card.card_ns(q, q));
            q_max = q_max.max(q);
            k_max = k_max.max(k);
        }
        let alone = |q, k| self.alone_ns(price, bottom_right, heads, q, k).max(square_alone(q));
        let penalty = bottom_right.penalty.max(square.penalty);
        together(price, count, penalty * card * f64::from(heads), alone(q_max, k_max), || {
            tiles.map(|(q, k)| alone(q, k)).fold(0.0, f64::max)
        })
    }

    /// Nanoseconds of a square run by the bottom-right kernel, which a call of squares alone never is.
    pub(super) fn bottom_right_square_ns(&self, pass: Pass, heads: u32, k: u32) -> f64 {
        let price = self.pass(pass);
        self.alone_ns(price, &price.bottom_right, heads, k, k)
    }

    /// Nanoseconds of a call of this one tile.
    fn alone_ns(&self, price: &PassPrice, kernel: &KernelPrice, heads: u32, q: u32, k: u32) -> f64 {
        let ns = libm::exp2(kernel.alone.log2_ns(&self.logs, heads, q, k));
        let limit = 1u32 << LAST_OCTAVE;
        if heads <= MAX_HEADS && q <= limit && k <= limit {
            return ns;
        }
        let beyond = |n: u32, limit: u32| f64::from(n.max(limit)) / f64::from(limit);
        price.overhead_ns + (ns - price.overhead_ns) * beyond(heads, MAX_HEADS) * beyond(q, limit) * beyond(k, limit)
    }

    fn fit_penalties(&mut self) {
        let mut logs = [[(0.0, 0u32); 2]; 2];
        for call in &self.profile.attention.ragged {
            let price = self.pass(call.pass.pass());
            let square = is_square(call);
            let kernel = if square { &price.square } else { &price.bottom_right };
            let card: f64 =
                call.q_len.iter().zip(&call.kv_len).map(|(q, k)| kernel.card.card_ns((*q).min(*k), *k)).sum();
            let sum = &mut logs[call.pass.pass() as usize][usize::from(square)];
            sum.0 += libm::log2((call.ns - price.overhead_ns) / (card * f64::from(call.q_heads)));
            sum.1 += 1;
        }
        for (price, logs) in [&mut self.forward, &mut self.backward].into_iter().zip(logs) {
            let [bottom_right, square] = logs.map(|(sum, n)| match n {
                0 => DEFAULT_PENALTY,
                n => libm::exp2(sum / f64::from(n)).max(1.0),
            });
            price.square.penalty = square;
            price.bottom_right.penalty = bottom_right;
            // No ragged call of rectangles was measured; bottom-right tiles are the nearest thing.
            price.rectangle.penalty = bottom_right;
        }
    }
}

/// True when every tile has as many rows as keys.
fn is_square(call: &RaggedCall) -> bool {
    call.q_len == call.kv_len
}

/// Causal tiles without the rows that see no key and, for the exclusive mask, without the last key.
fn visible(
    tiles: impl Iterator<Item = (u32, u32)> + Clone,
    hidden_keys: u32,
) -> impl Iterator<Item = (u32, u32)> + Clone {
    tiles.filter_map(move |(q, k)| {
        let k = k.saturating_sub(hidden_keys);
        let q = q.min(k);
        (q > 0).then_some((q, k))
    })
}

/// Nanoseconds of a call of `count` tiles that take `card_ns` of a full card: never below the longest tile alone. `bound` is at least that.
fn together(price: &PassPrice, count: u64, card_ns: f64, bound: f64, longest: impl FnOnce() -> f64) -> f64 {
    match count {
        0 => price.overhead_ns,
        1 => bound,
        _ => {
            let full = price.overhead_ns + card_ns;
            if bound <= full { full } else { full.max(longest()) }
        }
    }
}

impl PassPrice {
    /// Nanoseconds a head that a causal tile, no taller than wide, adds to a ragged call of its kind.
    fn causal_marginal_ns(&self, q: u32, k: u32) -> f64 {
        let square = self.square.penalty * self.square.card.card_ns(q, q);
        if q == k {
            return square;
        }
        (self.bottom_right.penalty * self.bottom_right.card.card_ns(q, k)).max(square)
    }

    fn new(profile: &Profile, pass: Pass) -> Self {
        let attention = &profile.attention;
        let backward = pass == Pass::Backward;
        let overhead_ns =
            if backward { attention.launch_overhead_ns.backward } else { attention.launch_overhead_ns.forward };
        let observations = |rows: &[Single]| -> Vec<Observation> {
            rows.iter()
                .filter(|row| row.0.pass() == pass)
                .map(|&Single(_, heads, _, q, k, ns)| Observation { heads, q, k, ns })
                .collect()
        };
        let sms = profile.card.multiprocessors;
        let bottom_right = observations(&attention.bottom_right);
        let block = block_ns(backward, sms, overhead_ns, &bottom_right);
        let kernel = |kernel, rows: &[Observation]| {
            let card = Throughput::fit(kernel, backward, sms, overhead_ns, rows);
            let alone = Nodes::new(kernel, backward, overhead_ns, block, &card, rows);
            KernelPrice { card, alone, penalty: 1.0 }
        };
        Self {
            overhead_ns,
            square: kernel(Kernel::Square, &observations(&attention.square)),
            bottom_right: kernel(Kernel::BottomRight, &bottom_right),
            rectangle: kernel(Kernel::Rectangle, &observations(&attention.rectangle)),
        }
    }
}

impl Cost for Pricing {
    fn launch_ps(&self, launch: &LaunchShape<'_>) -> u64 {
        let tiles = launch.tiles.iter().map(|tile| (tile.q, tile.k));
        self.call_ps(launch.pass, launch.mask, launch.q_heads, launch.head_dim, tiles)
    }

    fn transfer_ps(&self, bytes: u64, same_node: bool) -> u64 {
        let rate = if same_node { self.intra.bulk_ps_per_byte() } else { self.network_ps_per_byte() };
        (bytes as f64 * rate) as u64
    }

    fn marginal_ps(&self, launch: &LaunchShape<'_>) -> u64 {
        let price = self.pass(launch.pass);
        let tiles = launch.tiles.iter().map(|tile| (tile.q, tile.k));
        let ns: f64 = match launch.mask {
            Mask::Full => {
                let kernel = &price.rectangle;
                let seen = tiles.filter(|(q, k)| *q > 0 && *k > 0);
                seen.map(|(q, k)| kernel.penalty * kernel.card.card_ns(q, k)).sum()
            }
            Mask::Causal => visible(tiles, 0).map(|(q, k)| price.causal_marginal_ns(q, k)).sum(),
            Mask::CausalExclusive => visible(tiles, 1).map(|(q, k)| price.causal_marginal_ns(q, k)).sum(),
        };
        let scale = f64::from(launch.head_dim) / f64::from(self.profile.attention.head_dim);
        (ns * f64::from(launch.q_heads) * scale * 1e3 + 0.5) as u64
    }

    fn copy_ps(&self, bytes: u64) -> u64 {
        Self::copy_ps(self, bytes)
    }

    fn transfer_rate_under_compute(&self) -> f64 {
        self.profile.overlap().transfer_rate
    }
}
