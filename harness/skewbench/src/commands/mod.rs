//! One module a command.

pub mod calibrate;
pub mod compare;
pub mod env;
mod folder;
pub mod import;
mod output;
pub mod plan;
pub mod recommend;
pub mod report;
pub mod reproduce;
pub mod results;
pub mod run;
pub mod shell;
pub mod slurm;
pub mod systems;
pub mod tune;
mod validate;
pub mod verify;
pub mod workload;

pub(crate) use folder::set_aside;
