//! The skewbench command line: experiments in, runs and reports out.

pub mod calibrate;
pub mod card;
pub mod cards;
pub mod cells;
pub mod cli;
pub mod commands;
pub mod experiment;
pub mod failure;
pub mod imported;
pub mod metrics;
pub mod present;
pub mod progress;
pub mod replay;
pub mod scheduler;
pub mod share;
pub mod shipped;
pub mod terminal;
pub mod trace;
pub mod tuner;
