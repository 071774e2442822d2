//! Steps of programs of all systems compute attention, on a host that runs them in random order.

mod support;

use skewbench_systems::registry::SYSTEMS;
use support::{plans_of_case, right};

/// Cases of a system.
const CASES: u64 = 10;

#[test]
fn steps_of_all_systems_are_right() {
    for system in SYSTEMS {
        for number in 0..CASES {
            for plan in plans_of_case(system.name, number, 2) {
                right(&plan, number).unwrap_or_else(|wrong| panic!("{}, case {number}: {wrong}", system.name));
            }
        }
    }
}
