//! From a program to steps: what every stream of every rank issues, with all addresses resolved. No card is needed.

mod types;

pub use types::{
    Action, AttendCall, AttendMask, DeviceProgram, Element, Exchange, Message, PassSteps, RankDevice, Region, RowMove,
    Slot, Step, StepOptions, Strides, Work,
};
