use crate::{
    Machine,
    profile::{Network, Nic},
};

/// Busy times of all links of a machine.
pub(super) struct Links {
    /// Injection and ejection inside the node, by rank.
    intra: Vec<[u64; 2]>,
    /// Out of and into the network, by port.
    ports: Vec<[u64; 2]>,
    /// Up from and down to a node; empty without oversubscription.
    uplinks: Vec<[u64; 2]>,
    /// Port of every rank.
    port_of: Vec<u32>,
    /// Picoseconds a byte of every port.
    port_rate: Vec<f64>,
    /// Picoseconds a byte of every node's uplink.
    uplink_rate: Vec<f64>,
    /// Node of every rank, numbered from 0.
    node: Vec<u32>,
    intra_latency: u64,
    network_latency: u64,
    contention: Contention,
}

/// How long a card's compute stream is known to stay busy, for both ends of a flow.
pub(super) type BusyUntil = [u64; 2];

impl Links {
    /// Links of a machine, those between its nodes of a given network.
    pub(super) fn new(machine: &Machine, network: &Network) -> Self {
        let profile = machine.pricing.profile();
        let mut ids = machine.nodes.clone();
        ids.sort_unstable();
        ids.dedup();
        let node: Vec<u32> = machine.nodes.iter().map(|id| ids.partition_point(|other| other < id) as u32).collect();
        let mut population = vec![0u32; ids.len()];
        for n in &node {
            population[*n as usize] += 1;
        }
        let rate = network.ps_per_byte();
        // The ranks' part of a port that all cards of the node share, the other cards being as busy.
        let share = |cards: u32| f64::from(cards) / f64::from(machine.cards_per_node.max(cards));
        let (port_of, port_rate): (Vec<u32>, Vec<f64>) = match network.nic {
            Nic::PerCard => ((0..node.len() as u32).collect(), vec![rate; node.len()]),
            Nic::PerNode => (node.clone(), population.iter().map(|cards| rate / share(*cards)).collect()),
        };
        let oversubscription = network.oversubscription;
        let uplink = |cards: &u32| match network.nic {
            Nic::PerCard => rate * oversubscription / f64::from(*cards),
            Nic::PerNode => rate * oversubscription / share(*cards),
        };
        let uplink_rate: Vec<f64> =
            if oversubscription > 1.0 { population.iter().map(uplink).collect() } else { Vec::new() };
        let transfer_rate = profile.overlap().transfer_rate;
        let intra_latency = machine.pricing.intra().latency_ps();
        Self {
            intra: vec![[0; 2]; node.len()],
            ports: vec![[0; 2]; port_rate.len()],
            uplinks: vec![[0; 2]; uplink_rate.len()],
            port_of,
            port_rate,
            uplink_rate,
            node,
            intra_latency,
            network_latency: intra_latency.saturating_add((network.latency_ns * 1e3) as u64),
            contention: Contention { rate: transfer_rate, slowdown: 1.0 / transfer_rate },
        }
    }

    pub(super) fn reset(&mut self) {
        for link in self.intra.iter_mut().chain(&mut self.ports).chain(&mut self.uplinks) {
            *link = [0; 2];
        }
    }

    /// What the flows of one part have in common.
    pub(super) fn part(&self, row_bytes: u64) -> PartRate {
        let row_bytes = row_bytes as f64;
        // Ports that every card owns are alike, and without oversubscription nothing lies behind them.
        let port_ps = (self.uplinks.is_empty() && self.port_rate.len() == self.node.len())
            .then(|| self.port_rate.first().map_or(0.0, |rate| rate * row_bytes));
        PartRate { row_bytes, port_ps }
    }

    /// Queues a flow inside a node, released `now`, on both links of its path and returns when it ends. `rates`: picoseconds a byte of the
    /// sender's injection and the receiver's ejection.
    #[inline]
    pub(super) fn send_inside(
        &mut self,
        now: u64,
        flow: [u32; 2],
        bytes: f64,
        rates: [f64; 2],
        busy: BusyUntil,
    ) -> u64 {
        let mut end = now;
        for side in [0, 1] {
            let link = &mut self.intra[flow[side] as usize][side];
            *link = self.contention.serve((*link).max(now), whole_ps(bytes * rates[side]), busy[side]);
            end = end.max(*link);
        }
        end.saturating_add(self.intra_latency)
    }

    /// Queues a flow of `rows` between nodes, released `now`, on every link of its path and returns when it ends.
    #[inline]
    pub(super) fn send_between(&mut self, now: u64, flow: [u32; 2], rows: f64, part: PartRate, busy: BusyUntil) -> u64 {
        let mut end = now;
        if let Some(row_ps) = part.port_ps {
            let work = whole_ps(rows * row_ps);
            for side in [0, 1] {
                let link = &mut self.ports[flow[side] as usize][side];
                *link = self.contention.serve((*link).max(now), work, busy[side]);
                end = end.max(*link);
            }
            return end.saturating_add(self.network_latency);
        }
        let bytes = rows * part.row_bytes;
        for side in [0, 1] {
            let port = self.port_of[flow[side] as usize] as usize;
            let link = &mut self.ports[port][side];
            *link = self.contention.serve((*link).max(now), whole_ps(bytes * self.port_rate[port]), busy[side]);
            end = end.max(*link);
            let node = self.node[flow[side] as usize] as usize;
            if let (Some(uplink), Some(rate)) = (self.uplinks.get_mut(node), self.uplink_rate.get(node)) {
                let link = &mut uplink[side];
                *link = (*link).max(now).saturating_add(whole_ps(bytes * rate));
                end = end.max(*link);
            }
        }
        end.saturating_add(self.network_latency)
    }
}

/// What the flows of one part of a call have in common.
#[derive(Clone, Copy)]
pub(super) struct PartRate {
    pub(super) row_bytes: f64,
    /// Picoseconds a row through a port, where a port is all that a flow between nodes meets.
    port_ps: Option<f64>,
}

/// Whole picoseconds of a duration; at most 2^63, beyond which the engine reports an overflow. Signed conversions are the fast ones.
#[inline]
fn whole_ps(ps: f64) -> u64 {
    (ps as i64).cast_unsigned()
}

/// Rate of a transfer under compute, and its inverse.
#[derive(Clone, Copy)]
struct Contention {
    rate: f64,
    slowdown: f64,
}

impl Contention {
    /// End of `work` picoseconds that start at `start`, at a reduced rate until `busy_until`.
    #[inline]
    fn serve(self, start: u64, work: u64, busy_until: u64) -> u64 {
        if start >= busy_until || self.rate >= 1.0 {
            return start.saturating_add(work);
        }
        let window = busy_until - start;
        let slowed = whole_ps(work.cast_signed() as f64 * self.slowdown);
        if slowed <= window {
            return start.saturating_add(slowed);
        }
        let done = whole_ps(window.cast_signed() as f64 * self.rate);
        busy_until.saturating_add(work.saturating_sub(done))
    }
}

#[cfg(test)]
mod tests {
    use super::Contention;

    #[test]
    fn contended_service_runs_slowly_until_compute_ends() {
        let quarter = Contention { rate: 0.25, slowdown: 4.0 };
        assert_eq!(quarter.serve(0, 100, 0), 100);
        assert_eq!(quarter.serve(0, 100, 1000), 400);
        assert_eq!(quarter.serve(0, 100, 200), 250);
        assert_eq!(Contention { rate: 1.0, slowdown: 1.0 }.serve(10, 100, 1000), 110);
    }
}
