//! Process groups, pipes that can be waited for together, and ends that are seen before they are reaped.

use std::os::unix::process::CommandExt;
use std::process::Command;
use std::time::Duration;

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::{Errno, ioctl_fionbio};
use rustix::process::{Pid, Signal, WaitId, WaitIdOptions, kill_process_group, waitid};

use super::{Process, Ready};
use crate::error::Cause;

pub(super) fn own_group(command: &mut Command) -> Result<(), Cause> {
    command.process_group(0);
    Ok(())
}

/// A group that is gone already is no error.
pub(super) fn kill_group(leader: u32) {
    if let Some(pid) = i32::try_from(leader).ok().and_then(Pid::from_raw) {
        let _gone = kill_process_group(pid, Signal::KILL);
    }
}

impl Process {
    pub(super) fn unblock(&self) -> rustix::io::Result<()> {
        self.stdout.as_ref().map_or(Ok(()), |pipe| ioctl_fionbio(pipe, true))?;
        self.stdin.as_ref().map_or(Ok(()), |pipe| ioctl_fionbio(pipe, true))?;
        self.stderr.as_ref().map_or(Ok(()), |pipe| ioctl_fionbio(pipe, true))
    }

    /// Waits until a pipe is ready, at most `limit`; not at all when the process has `ended`.
    pub(super) fn wait(&self, limit: Duration, write: bool, ended: bool) -> Result<Ready, Cause> {
        let limit = if ended { Duration::ZERO } else { limit };
        let stdin = self.stdin.as_ref().filter(|_| write);
        let mut polled: Vec<PollFd<'_>> = Vec::with_capacity(3);
        polled.extend(self.stdout.as_ref().map(|pipe| PollFd::new(pipe, PollFlags::IN)));
        polled.extend(self.stderr.as_ref().map(|pipe| PollFd::new(pipe, PollFlags::IN)));
        polled.extend(stdin.map(|pipe| PollFd::new(pipe, PollFlags::OUT)));
        let timeout = Timespec { tv_sec: limit.as_secs() as i64, tv_nsec: limit.subsec_nanos().into() };
        match poll(&mut polled, Some(&timeout)) {
            Ok(_) | Err(Errno::INTR) => {}
            Err(e) => return Err(Cause::Io(e.to_string())),
        }
        let mut ready = polled.iter().map(|fd| !fd.revents().is_empty());
        let mut next = |there: bool| there && ready.next().unwrap_or(false);
        Ok(Ready {
            stdout: next(self.stdout.is_some()),
            stderr: next(self.stderr.is_some()),
            stdin: next(stdin.is_some()),
        })
    }

    /// True when there is something to read on standard error, or soon is.
    pub(super) fn wait_for_stderr(&self) -> bool {
        let limit = Timespec { tv_sec: 0, tv_nsec: 5_000_000 };
        let Some(pipe) = &self.stderr else {
            std::thread::sleep(Duration::from_millis(5));
            return false;
        };
        let mut polled = [PollFd::new(pipe, PollFlags::IN)];
        poll(&mut polled, Some(&limit)).is_ok_and(|n| n > 0)
    }

    /// True when the process has ended; it stays to be waited for, so that its number is not given away.
    pub(super) fn ended(&self) -> bool {
        if self.reaped {
            return true;
        }
        let Some(pid) = i32::try_from(self.child.id()).ok().and_then(Pid::from_raw) else { return true };
        let look = WaitIdOptions::EXITED | WaitIdOptions::NOHANG | WaitIdOptions::NOWAIT;
        match waitid(WaitId::Pid(pid), look) {
            Ok(status) => status.is_some(),
            Err(_) => true,
        }
    }
}
