//! Tests of profiles, prices, the event simulation and the step model.

mod common;
mod event;
mod links;
mod pricing;
mod profile;
mod step;
