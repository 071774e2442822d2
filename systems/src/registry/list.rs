use super::{NamedSystem, PlacementEntry, PlannerEntry, calibrated, libra};
use crate::placements::{arrival, lpt, random, sorted, vrsp, wlb as packing, zigzag, zigzag_swap, zigzag_swap_all};
use crate::planners::{distca, loongtrain, ring, ulysses, usp, wlb};

/// All placements.
pub const PLACEMENTS: &[PlacementEntry] = &[
    arrival::ENTRY,
    random::ENTRY,
    sorted::ENTRY,
    lpt::ENTRY,
    zigzag::ENTRY,
    zigzag_swap::ENTRY,
    zigzag_swap_all::ENTRY,
    vrsp::ENTRY,
    vrsp::TIME_ENTRY,
    packing::ENTRY,
    packing::NO_DEFERRAL,
];

/// All planners.
pub const PLANNERS: &[PlannerEntry] = &[
    ulysses::ENTRY,
    ring::NAIVE,
    ring::ZIGZAG,
    ring::STRIPED,
    usp::ENTRY,
    loongtrain::ENTRY,
    wlb::ENTRY,
    distca::ENTRY,
    libra::ENTRY,
    libra::GLOBAL,
    calibrated::ENTRY,
];

/// All named systems. `libra-tap` keeps the head pieces of `libra`, so that the two differ in placement alone.
pub const SYSTEMS: &[NamedSystem] = &[
    NamedSystem {
        name: "ulysses",
        planner: "ulysses",
        placement: "arrival",
        summary: "heads and sequence trade places by all-to-all around a whole-sequence kernel",
        source: "DeepSpeed-Ulysses, arXiv 2309.14509",
    },
    NamedSystem {
        name: "ulysses+sorted",
        planner: "ulysses",
        placement: "sorted",
        summary: "Ulysses with sequences of like work in one wave",
        source: "trivial baseline, ours",
    },
    NamedSystem {
        name: "ulysses+lpt",
        planner: "ulysses",
        placement: "lpt",
        summary: "Ulysses with the step's work balanced over data-parallel ranks",
        source: "trivial baseline, ours",
    },
    NamedSystem {
        name: "ring",
        planner: "ring",
        placement: "arrival",
        summary: ring::NAIVE.summary,
        source: ring::NAIVE.source,
    },
    NamedSystem {
        name: "ring-zigzag",
        planner: "ring-zigzag",
        placement: "arrival",
        summary: "keys and values rotate between ranks that hold a chunk from either end",
        source: "ring attention, arXiv 2310.01889; zigzag shards as in ring-flash-attention",
    },
    NamedSystem {
        name: "ring-striped",
        planner: "ring-striped",
        placement: "arrival",
        summary: ring::STRIPED.summary,
        source: ring::STRIPED.source,
    },
    NamedSystem {
        name: "usp",
        planner: "usp",
        placement: "arrival",
        summary: usp::ENTRY.summary,
        source: usp::ENTRY.source,
    },
    NamedSystem {
        name: "loongtrain",
        planner: "loongtrain",
        placement: "arrival",
        summary: loongtrain::ENTRY.summary,
        source: loongtrain::ENTRY.source,
    },
    NamedSystem {
        name: "wlb",
        planner: "wlb",
        placement: "wlb",
        summary: "documents packed by work, outliers kept for later steps, the cheaper of two CP shardings a sequence",
        source: "WLB-LLM, arXiv 2503.17924",
    },
    NamedSystem {
        name: "wlb-no-deferral",
        planner: "wlb",
        placement: "wlb-no-deferral",
        summary: "WLB-LLM without its queue of outliers, as others compare with",
        source: "WLB-LLM, arXiv 2503.17924, as in DistCA, arXiv 2510.18121",
    },
    NamedSystem {
        name: "distca-pool",
        planner: "tap-global",
        placement: "arrival",
        summary: "Libra's tiles and overlap over one pool of all ranks of a wave",
        source: "arXiv 2607.23250 (its comparison with DistCA, emulated)",
    },
    NamedSystem {
        name: "distca",
        planner: "distca",
        placement: "arrival",
        summary: "attention servers in place: head-tail pairs of rows move to ranks below the mean load, in ping-pong",
        source: "DistCA, arXiv 2510.18121",
    },
    NamedSystem {
        name: "libra-vrsp",
        planner: "ulysses",
        placement: "vrsp",
        summary: "Libra's placement with Ulysses inside every sequence",
        source: "arXiv 2607.23250 (fig. 14, VRSP)",
    },
    NamedSystem {
        name: "libra-tap",
        planner: "tap",
        placement: "arrival",
        summary: "Libra's tiled attention pooling over pools in loader order",
        source: "arXiv 2607.23250 (fig. 14, TAP)",
    },
    NamedSystem {
        name: "libra",
        planner: "tap",
        placement: "vrsp",
        summary: "variance-reduced placement, tiled attention pooling and pipelined head pieces",
        source: "arXiv 2607.23250",
    },
    NamedSystem {
        name: "libra-calibrated",
        planner: "tap-calibrated",
        placement: "vrsp-time",
        summary: "Libra on predicted times: surplus cut to the time that is left elsewhere, launches shaped for the kernels",
        source: "ours, after arXiv 2607.23250",
    },
];
