//! The binary as its users meet it.

mod answering;
mod bad_files;
mod bad_values;
mod common;
mod comparing;
mod disturbed;
mod external;
mod folders;
mod fuzz;
mod help;
mod imported;
mod measured;
mod names;
mod plans;
mod recommend;
mod runs;
mod safety;
mod shared;
mod slurm;
mod statistics;
mod stored;
mod sweeps;
mod tuning;
mod tutorial;
mod verify;
mod workloads;
