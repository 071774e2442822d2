use crate::{Machine, profile::Nic};

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
    transfer_rate: f64,
}

/// How long a card's compute stream is known to stay busy, for both ends of a flow.
pub(super) type BusyUntil = [u64; 2];

impl Links {
    pub(super) fn new(machine: &Machine) -> Self {
        let profile = machine.pricing.profile();
        let mut ids = machine.nodes.clone();
        ids.sort_unstable();
        ids.dedup();
        let node: Vec<u32> = machine.nodes.iter().map(|id| ids.partition_point(|other| other < id) as u32).collect();
        let mut population = vec![0u32; ids.len()];
        for n in &node {
            population[*n as usize] += 1;
        }
        let rate = machine.pricing.network_ps_per_byte();
        // The ranks' part of a port that all cards of the node share, the other cards being as busy.
        let share = |cards: u32| f64::from(cards) / f64::from(machine.cards_per_node.max(cards));
        let (port_of, port_rate): (Vec<u32>, Vec<f64>) = match profile.network.nic {
            Nic::PerCard => ((0..node.len() as u32).collect(), vec![rate; node.len()]),
            Nic::PerNode => (node.clone(), population.iter().map(|cards| rate / share(*cards)).collect()),
        };
        let oversubscription = profile.network.oversubscription;
        let uplink = |cards: &u32| match profile.network.nic {
            Nic::PerCard => rate * oversubscription / f64::from(*cards),
            Nic::PerNode => rate * oversubscription / share(*cards),
        };
        let uplink_rate: Vec<f64> =
            if oversubscription > 1.0 { population.iter().map(uplink).collect() } else { Vec::new() };
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
            network_latency: intra_latency.saturating_add((profile.network.latency_ns * 1e3) as u64),
            transfer_rate: profile.overlap().transfer_rate,
        }
    }

    pub(super) fn reset(&mut self) {
        for link in self.intra.iter_mut().chain(&mut self.ports).chain(&mut self.uplinks) {
            *link = [0; 2];
        }
    }

    pub(super) fn same_node(&self, from: u32, to: u32) -> bool {
        self.node[from as usize] == self.node[to as usize]
    }

    /// Queues a flow that is released `now` on every link of its path and returns when it ends. `intra_rates`: picoseconds a byte of the
    /// sender's injection and the receiver's ejection inside a node.
    pub(super) fn send(&mut self, now: u64, flow: [u32; 2], bytes: u64, intra_rates: [f64; 2], busy: BusyUntil) -> u64 {
        let bytes = bytes as f64;
        let contention = self.transfer_rate;
        let mut end = now;
        if self.same_node(flow[0], flow[1]) {
            for side in [0, 1] {
                let link = &mut self.intra[flow[side] as usize][side];
                *link = serve((*link).max(now), (bytes * intra_rates[side]) as u64, busy[side], contention);
                end = end.max(*link);
            }
            return end.saturating_add(self.intra_latency);
        }
        for side in [0, 1] {
            let port = self.port_of[flow[side] as usize] as usize;
            let link = &mut self.ports[port][side];
            *link = serve((*link).max(now), (bytes * self.port_rate[port]) as u64, busy[side], contention);
            end = end.max(*link);
            let node = self.node[flow[side] as usize] as usize;
            if let (Some(uplink), Some(rate)) = (self.uplinks.get_mut(node), self.uplink_rate.get(node)) {
                let link = &mut uplink[side];
                *link = (*link).max(now).saturating_add((bytes * rate) as u64);
                end = end.max(*link);
            }
        }
        end.saturating_add(self.network_latency)
    }
}

/// End of `work` picoseconds that start at `start`, at a reduced rate until `busy_until`.
fn serve(start: u64, work: u64, busy_until: u64, rate: f64) -> u64 {
    if rate >= 1.0 || start >= busy_until {
        return start.saturating_add(work);
    }
    let window = busy_until - start;
    let slowed = (work as f64 / rate) as u64;
    if slowed <= window {
        return start.saturating_add(slowed);
    }
    let done = (window as f64 * rate) as u64;
    busy_until.saturating_add(work.saturating_sub(done))
}

#[cfg(test)]
mod tests {
    use super::serve;

    #[test]
    fn contended_service_runs_slowly_until_compute_ends() {
        assert_eq!(serve(0, 100, 0, 0.25), 100);
        assert_eq!(serve(0, 100, 1000, 0.25), 400);
        assert_eq!(serve(0, 100, 200, 0.25), 250);
        assert_eq!(serve(10, 100, 1000, 1.0), 110);
    }
}
