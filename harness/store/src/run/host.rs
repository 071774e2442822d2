use serde::{Deserialize, Serialize};

/// The machine that ran, without anything that identifies its owner.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Host {
    /// Processor brand.
    pub cpu: String,
    /// Threads that the process may use.
    pub cores: usize,
    /// Main memory.
    pub memory_bytes: u64,
    /// Operating system and version.
    pub os: String,
    /// Kernel version.
    pub kernel: String,
    /// Instruction set.
    pub architecture: String,
}

impl Host {
    /// Describes this machine; what cannot be found out is empty.
    pub fn current() -> Self {
        use sysinfo::{CpuRefreshKind, MemoryRefreshKind, RefreshKind, System};
        let wanted = RefreshKind::nothing()
            .with_cpu(CpuRefreshKind::nothing())
            .with_memory(MemoryRefreshKind::nothing().with_ram());
        let system = System::new_with_specifics(wanted).ok();
        let cpu = system.as_ref().and_then(|s| s.cpus().first()).map(|c| c.brand().trim().to_owned());
        Self {
            cpu: cpu.unwrap_or_default(),
            cores: std::thread::available_parallelism().map_or(0, usize::from),
            memory_bytes: system.as_ref().map_or(0, System::total_memory),
            os: System::long_os_version().unwrap_or_default(),
            kernel: System::kernel_version().unwrap_or_default(),
            architecture: System::cpu_arch(),
        }
    }
}

/// The system's name for this machine; for people and launchers, never for a manifest.
pub fn host_name() -> String {
    sysinfo::System::host_name().unwrap_or_else(|_| "this host".to_owned())
}

/// The day, `YYYY-MM-DD`, in UTC.
pub fn today() -> String {
    jiff::Timestamp::now().strftime("%Y-%m-%d").to_string()
}
