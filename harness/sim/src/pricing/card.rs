use skewbench_plan::{Cost, LaunchShape, Mask, Pass};

use super::LinkFit;
use super::fit::PassLaws;
use super::law::{Heads, Kind, Law, Totals, unaligned};
use crate::profile::Profile;

/// A profile made ready for pricing. See the module's documentation for the model.
#[derive(Clone, Debug)]
pub struct Pricing {
    profile: Profile,
    forward: PassLaws,
    backward: PassLaws,
    intra: LinkFit,
}

impl Pricing {
    /// Fits the laws to the tables of a validated profile.
    pub fn new(profile: Profile) -> Self {
        Self {
            forward: PassLaws::fit(&profile, Pass::Forward),
            backward: PassLaws::fit(&profile, Pass::Backward),
            intra: LinkFit::new(profile.intra_link()),
            profile,
        }
    }

    /// The profile.
    pub fn profile(&self) -> &Profile {
        &self.profile
    }

    pub(crate) fn intra(&self) -> &LinkFit {
        &self.intra
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

    /// Picoseconds of one kernel call over tiles of (rows, keys), with query and KV heads.
    pub fn call_ps(
        &self,
        pass: Pass,
        mask: Mask,
        heads: (u32, u32),
        head_dim: u16,
        tiles: impl Iterator<Item = (u32, u32)> + Clone,
    ) -> u64 {
        let ns = match mask {
            Mask::Full => self.ns(pass, Kind::Full, heads, tiles.filter(|(q, k)| *q > 0 && *k > 0)),
            Mask::Causal => self.causal_ns(pass, heads, visible(tiles, 0)),
            Mask::CausalExclusive => self.causal_ns(pass, heads, visible(tiles, 1)),
        };
        let least = self.shortest_ns(pass);
        ((least + (ns - least) * self.head_scale(head_dim)) * 1e3 + 0.5) as u64
    }

    fn laws(&self, pass: Pass) -> &PassLaws {
        match pass {
            Pass::Forward => &self.forward,
            Pass::Backward => &self.backward,
        }
    }

    /// Nanoseconds of the shortest call that was measured; none is priced below it.
    fn shortest_ns(&self, pass: Pass) -> f64 {
        let overhead = self.profile.attention.launch_overhead_ns;
        match pass {
            Pass::Forward => overhead.forward,
            Pass::Backward => overhead.backward,
        }
    }

    fn head_scale(&self, head_dim: u16) -> f64 {
        f64::from(head_dim) / f64::from(self.profile.attention.head_dim)
    }

    fn causal_ns(&self, pass: Pass, heads: (u32, u32), tiles: impl Iterator<Item = (u32, u32)> + Clone) -> f64 {
        let squares = tiles.clone().all(|(q, k)| q == k);
        self.ns(pass, if squares { Kind::Square } else { Kind::BottomRight }, heads, tiles)
    }

    /// Nanoseconds of a call by the kernel of a kind; causal tiles have no more rows than keys.
    pub(super) fn ns(
        &self,
        pass: Pass,
        kind: Kind,
        heads: (u32, u32),
        tiles: impl Iterator<Item = (u32, u32)> + Clone,
    ) -> f64 {
        let laws = self.laws(pass);
        let mut totals = Totals::default();
        let mut late = 0.0f64;
        let longest_first = laws.ragged.longest_first(kind);
        for (q, k) in tiles.clone() {
            let before = totals;
            totals.add(pass, kind, q, k);
            late = late.max(laws.ragged.late(kind, heads.0, if longest_first { &before } else { &totals }, (q, k)));
        }
        let shortest = self.shortest_ns(pass);
        if totals.tiles == 0 {
            return shortest;
        }
        let heads = grouped(heads);
        let late = if totals.tiles > 1 { late } else { 0.0 };
        let of = |law: &Law, tiles| law.call_ns(kind, heads, &totals, &laws.droop, late, tiles);
        let ns = match totals.alone() {
            // Of many rounds of unaligned keys both take the same; more tiles must not cost less.
            true if unaligned(pass, kind, totals.k_max) => of(&laws.alone, tiles.clone()).min(of(&laws.ragged, tiles)),
            true => of(&laws.alone, tiles),
            false => of(&laws.ragged, tiles),
        };
        ns.max(shortest)
    }
}

fn grouped((query, kv): (u32, u32)) -> Heads {
    Heads { query, grouped: kv < query }
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

impl Cost for Pricing {
    fn launch_ps(&self, launch: &LaunchShape<'_>) -> u64 {
        let tiles = launch.tiles.iter().map(|tile| (tile.q, tile.k));
        self.call_ps(launch.pass, launch.mask, (launch.q_heads, launch.kv_heads), launch.head_dim, tiles)
    }

    fn transfer_ps(&self, bytes: u64, same_node: bool) -> u64 {
        let rate = if same_node { self.intra.bulk_ps_per_byte() } else { self.profile.network.ps_per_byte() };
        (bytes as f64 * rate) as u64
    }

    fn marginal_ps(&self, launch: &LaunchShape<'_>) -> u64 {
        let law = &self.laws(launch.pass).ragged;
        let heads = grouped((launch.q_heads, launch.kv_heads));
        let tile_ns = |kind, q, k| {
            let mut totals = Totals::default();
            totals.add(launch.pass, kind, q, k);
            law.added_ns(kind, heads, &totals)
        };
        let causal = |(q, k)| tile_ns(if q == k { Kind::Square } else { Kind::BottomRight }, q, k);
        let tiles = launch.tiles.iter().map(|tile| (tile.q, tile.k));
        let ns: f64 = match launch.mask {
            Mask::Full => tiles.filter(|(q, k)| *q > 0 && *k > 0).map(|(q, k)| tile_ns(Kind::Full, q, k)).sum(),
            Mask::Causal => visible(tiles, 0).map(causal).sum(),
            Mask::CausalExclusive => visible(tiles, 1).map(causal).sum(),
        };
        (ns * self.head_scale(launch.head_dim) * 1e3 + 0.5) as u64
    }

    fn copy_ps(&self, bytes: u64) -> u64 {
        Self::copy_ps(self, bytes)
    }

    fn transfer_rate_under_compute(&self) -> f64 {
        self.profile.overlap().transfer_rate
    }
}
