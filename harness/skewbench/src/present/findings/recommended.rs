//! Which system to run, for `recommend`.

use super::super::recommend::{recommendations, sentences};
use super::Context;

pub(super) fn write(context: &Context<'_>) -> Vec<String> {
    sentences(&recommendations(context.loaded, context.resources))
}
