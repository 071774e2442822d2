//! Every named system against every backend, one line each.

use skewbench_systems::registry::SYSTEMS;

macro_rules! stamp {
    ($($module:ident: $name:literal),* $(,)?) => {
        skewbench_verify::conformance! { cases = 48; $($module: $name),* }

        #[test]
        fn every_named_system_is_stamped() {
            let stamped = [$($name),*];
            let missing: Vec<&str> = SYSTEMS.iter().map(|s| s.name).filter(|name| !stamped.contains(name)).collect();
            assert!(missing.is_empty(), "add a line for {missing:?}");
        }
    };
}

stamp! {
    ulysses: "ulysses",
    ulysses_sorted: "ulysses+sorted",
    ulysses_lpt: "ulysses+lpt",
    ring: "ring",
    ring_zigzag: "ring-zigzag",
    ring_striped: "ring-striped",
    usp: "usp",
    loongtrain: "loongtrain",
    wlb: "wlb",
    wlb_no_deferral: "wlb-no-deferral",
    distca_pool: "distca-pool",
    distca: "distca",
    libra_vrsp: "libra-vrsp",
    libra_tap: "libra-tap",
    libra: "libra",
    libra_calibrated: "libra-calibrated",
}
