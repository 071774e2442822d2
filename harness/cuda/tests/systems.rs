//! Steps of programs of all systems compute attention, on a host that runs them in random order.

mod support;

use skewbench_systems::registry::SYSTEMS;
use support::{plans_of_case, right};

/// Cases of a system.
const CASES: u64 = 12;

fn systems_are_right(part: usize, parts: usize) {
    for system in SYSTEMS.iter().skip(part).step_by(parts) {
        for number in 0..CASES {
            for plan in plans_of_case(system.name, number, 2) {
                right(&plan, number).unwrap_or_else(|wrong| panic!("{}, case {number}: {wrong}", system.name));
            }
        }
    }
}

#[test]
fn steps_of_every_second_system_are_right() {
    systems_are_right(0, 2);
}

#[test]
fn steps_of_the_other_systems_are_right() {
    systems_are_right(1, 2);
}
