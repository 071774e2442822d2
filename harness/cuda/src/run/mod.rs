//! Runs steps on cards.
//!
//! A [`Session`] gives every rank a thread and a card. [`Session::load`] prepares the programs of a wave; nothing of it is
//! timed. [`Session::execute`] issues a pass on all ranks, without a wait of the host for a card inside it, and times it
//! by events of the cards. [`Generated`] inputs are the same bit by bit on cards and on the host, so that sampled rows of
//! large results can be verified ([`Sampler`]) without copying anything else.
//!
//! Ranks are threads of one process ([`Session::open`]), or each has a process of its own ([`Session::join`]), which meet in
//! a folder ([`Rendezvous`]). Both give the same results.

mod board;
mod card;
mod courier;
mod exact;
mod inputs;
mod lane;
mod launched;
mod nccl;
mod options;
mod owned;
mod peers;
#[cfg(test)]
mod pretence;
mod processes;
mod rank;
mod rendezvous;
mod rows;
mod sample;
mod script;
mod session;
mod state;
mod tables;
mod timers;
mod wave;
mod words;
mod worker;

pub use card::cards;
pub use courier::Courier;
pub use inputs::{Generated, rounded, value};
pub use options::{Execution, Mode, Placement, RankTime, SessionOptions, Transport};
pub use rendezvous::{Meeting, Rendezvous};
pub use sample::{
    SAMPLE_LSE_TOLERANCE, SAMPLE_TOLERANCE, SampleOptions, SampleReport, SampleWrong, Sampler, TensorSample, tolerances,
};
pub use session::{AttentionFactory, Session};
pub use state::CardState;
pub use timers::SessionTimer;
