use super::{Bandwidth, Link, Profile, Source, SourceKind, TablePass};

/// What datasheets say of a card that no run has measured.
struct Datasheet {
    name: &'static str,
    model: &'static str,
    memory_bytes: u64,
    /// Bytes a second of device memory.
    memory_bandwidth: f64,
    /// Dense bf16 FLOPs a second.
    bf16_flops_per_s: f64,
    multiprocessors: u32,
    /// Bytes a second of the links inside a node, each way.
    link_bandwidth: f64,
    /// Bytes a second of the port to the network that such nodes are usually sold with.
    network_bandwidth: f64,
}

/// Bytes a second, each way, of an H200's links inside a node by its datasheet: what measured links are scaled from.
const H200_LINK_BANDWIDTH: f64 = 450e9;

/// Cards by their datasheets: H100 SXM5, A100 SXM4 with 80 GB, B200 as in HGX B200.
const DATASHEETS: [Datasheet; 3] = [
    Datasheet {
        name: "h100",
        model: "NVIDIA H100 SXM",
        memory_bytes: 80_000_000_000,
        memory_bandwidth: 3.35e12,
        bf16_flops_per_s: 989.4e12,
        multiprocessors: 132,
        link_bandwidth: 450e9,
        network_bandwidth: 50e9,
    },
    Datasheet {
        name: "a100",
        model: "NVIDIA A100 SXM 80 GB",
        memory_bytes: 80_000_000_000,
        memory_bandwidth: 2.039e12,
        bf16_flops_per_s: 312e12,
        multiprocessors: 108,
        link_bandwidth: 300e9,
        network_bandwidth: 25e9,
    },
    Datasheet {
        name: "b200",
        model: "NVIDIA B200",
        memory_bytes: 180_000_000_000,
        memory_bandwidth: 7.7e12,
        bf16_flops_per_s: 2250e12,
        multiprocessors: 148,
        link_bandwidth: 900e9,
        network_bandwidth: 50e9,
    },
];

/// Names of the cards that are only assumed.
pub const ASSUMED: [&str; 3] = [DATASHEETS[0].name, DATASHEETS[1].name, DATASHEETS[2].name];

/// The profile of another card: a measured H200 profile scaled by the datasheets of both cards; every part counts as assumed.
pub(super) fn assumed(name: &str, h200: &Profile) -> Option<Profile> {
    let sheet = DATASHEETS.iter().find(|sheet| sheet.name == name)?;
    let mut profile = h200.clone();
    name.clone_into(&mut profile.name);
    profile.measured_on = None;
    let slower = h200.card.bf16_flops_per_s / sheet.bf16_flops_per_s;
    let memory = sheet.memory_bandwidth / h200.card.memory_bandwidth.bytes_per_s();
    let card = &mut profile.card;
    sheet.model.clone_into(&mut card.model);
    card.memory_bytes = sheet.memory_bytes;
    card.memory_bandwidth = Bandwidth::from_bytes_per_s(sheet.memory_bandwidth);
    card.bf16_flops_per_s = sheet.bf16_flops_per_s;
    card.multiprocessors = sheet.multiprocessors;
    card.source =
        Source { kind: SourceKind::Datasheet, run: None, note: format!("{}, vendor's datasheet", sheet.model) };
    let attention = &mut profile.attention;
    // A launch costs the host and the driver what it costs, whatever the card.
    let overhead = attention.launch_overhead_ns;
    let scaled = |pass: TablePass, ns: f64| {
        let launch = if pass == TablePass::Forward { overhead.forward } else { overhead.backward };
        launch + (ns - launch) * slower
    };
    for single in [&mut attention.bottom_right, &mut attention.square, &mut attention.rectangle].into_iter().flatten() {
        single.5 = scaled(single.0, single.5);
    }
    attention.ragged.iter_mut().for_each(|call| call.ns = scaled(call.pass, call.ns));
    profile.gemm.flops_per_s /= slower;
    profile.gemm.products.iter_mut().for_each(|product| product.3 *= slower);
    profile.copies.bandwidth = Bandwidth::from_bytes_per_s(h200.copies.bandwidth.bytes_per_s() * memory);
    for link in [&mut profile.intra_node.nccl, &mut profile.intra_node.copy_engines] {
        scale(link, H200_LINK_BANDWIDTH / sheet.link_bandwidth);
    }
    profile.network.bandwidth = Bandwidth::from_bytes_per_s(sheet.network_bandwidth);
    let what = [
        (&mut profile.attention.source, "times scaled by dense bf16 peaks, the cost of a launch unchanged"),
        (&mut profile.gemm.source, "rate scaled by dense bf16 peaks"),
        (&mut profile.copies.source, "bandwidth scaled by memory bandwidths"),
        (&mut profile.intra_node.nccl.source, "times beyond the latency scaled by link bandwidths"),
        (&mut profile.intra_node.copy_engines.source, "times beyond the latency scaled by link bandwidths"),
        (&mut profile.network.source, "the port that such nodes are usually sold with"),
        (&mut profile.contention.nccl.source, "as on the H200"),
        (&mut profile.contention.copy_engines.source, "as on the H200"),
    ];
    for (source, how) in what {
        *source = Source {
            kind: SourceKind::Assumed,
            run: None,
            note: format!("H200 to {} by datasheet: {how}", sheet.model),
        };
    }
    Some(profile)
}

/// Multiplies what a link takes beyond its latency, the time of the smallest call.
fn scale(link: &mut Link, by: f64) {
    let latency = link.points_bytes_ns.first().map_or(0.0, |point| point.1);
    link.points_bytes_ns.iter_mut().for_each(|(_, ns)| *ns = latency + (*ns - latency).max(0.0) * by);
}

#[cfg(test)]
mod tests {
    use super::super::Single;
    use super::*;

    #[test]
    fn scaled_profiles_are_valid_and_say_that_they_are_assumed() {
        let h200 = Profile::named("h200").unwrap();
        for name in ASSUMED {
            let profile = Profile::named(name).unwrap();
            assert_eq!(profile.name, name);
            assert!(profile.sources().iter().all(|(part, s)| s.kind != SourceKind::Measured || *part == "card_speed"));
            let launch = h200.attention.launch_overhead_ns;
            let Single(pass, .., before) = h200.attention.square[0];
            let launch = if pass == TablePass::Forward { launch.forward } else { launch.backward };
            let ratio = (profile.attention.square[0].5 - launch) / (before - launch);
            assert!(
                (ratio - h200.card.bf16_flops_per_s / profile.card.bf16_flops_per_s).abs() < 1e-12,
                "{name}: {ratio}"
            );
        }
    }
}
