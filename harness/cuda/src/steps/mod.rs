//! From a program to steps: what every stream of every rank issues, with all addresses resolved. No card is needed.

mod contributions;
mod exchange;
mod launch;
mod lower;
mod memory;
mod moves;
mod order;
mod rank;
mod rows;
mod types;

pub use lower::device_program;
pub use types::{
    Action, AttendCall, AttendMask, DeviceProgram, Element, Exchange, Message, PassSteps, RankDevice, Region, RowMove,
    Slot, Step, StepOptions, Strides, Work,
};
