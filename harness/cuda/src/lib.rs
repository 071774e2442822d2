//! Runs a lowered [`skewbench_exec::Program`] on CUDA cards.
//!
//! [`steps`] turns a program into what streams issue, with every address resolved, and needs no card. [`attention`] runs
//! kernel calls, through cuDNN or through a plain kernel of its own. [`mod@run`] issues steps on cards. [`libraries`] finds
//! and opens NVIDIA's libraries at run time: the crate builds and links where there are none.

pub mod attention;
mod card_info;
mod error;
pub mod gemm;
pub mod libraries;
pub mod run;
pub mod steps;
mod timers;
mod tolerance;

pub use card_info::{CardInfo, launch_timer};
pub use error::CudaError;
pub use timers::{CopyTimer, LinkTimer, Overlap};
pub use tolerance::{BF16_TOLERANCE, LSE_TOLERANCE};
