//! Systems without process groups: programs are refused when they are started.

use std::process::Command;
use std::time::Duration;

use super::{Process, Ready};
use crate::error::Cause;

pub(super) fn own_group(_: &mut Command) -> Result<(), Cause> {
    Err(Cause::Start("external systems need a Unix system: process groups and pollable pipes".to_owned()))
}

pub(super) fn kill_group(_: u32) {}

impl Process {
    pub(super) fn unblock(&self) -> std::io::Result<()> {
        Ok(())
    }

    pub(super) fn wait(&self, _: Duration, _: bool, _: bool) -> Result<Ready, Cause> {
        Ok(Ready::default())
    }

    pub(super) fn wait_for_stderr(&self) -> bool {
        false
    }

    pub(super) fn ended(&self) -> bool {
        true
    }
}
