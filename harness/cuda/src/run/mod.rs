//! Runs steps on cards.
