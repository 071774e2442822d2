use cudarc::driver::CudaContext;
use cudarc::driver::sys::CUdevice_attribute::CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT;
use nvml_wrapper::Nvml;
use nvml_wrapper::enum_wrappers::device::Clock;
use serde::{Deserialize, Serialize};

use crate::CudaError;
use crate::attention::{CardTimer, CuDnn, CuDnnOptions};
use crate::libraries::{driver, fail, probe};

/// A card and what drives it, as manifests and profiles name it.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct CardInfo {
    /// Ordinal among the cards that the process sees.
    pub ordinal: usize,
    /// Model.
    pub name: String,
    /// Device memory.
    pub memory_bytes: u64,
    /// Multiprocessors.
    pub multiprocessors: u32,
    /// Version of the driver.
    pub driver: String,
    /// CUDA version that the driver runs.
    pub cuda: String,
    /// Version of cuDNN.
    pub cudnn: String,
    /// Version of NCCL; none where it is absent.
    pub nccl: Option<String>,
    /// Highest clock of the multiprocessors, as NVML tells it.
    pub sm_clock_max_mhz: Option<u32>,
    /// Their clock when the card was asked.
    pub sm_clock_mhz: Option<u32>,
    /// Clock of the memory when the card was asked.
    pub memory_clock_mhz: Option<u32>,
    /// Power limit in watts.
    pub power_limit_w: Option<u32>,
}

impl CardInfo {
    /// Asks a card.
    ///
    /// # Errors
    /// There is no driver, no such card, or no cuDNN.
    pub fn read(ordinal: usize) -> Result<Self, CudaError> {
        driver()?;
        let count = CudaContext::device_count().map_err(|e| fail(ordinal, "cuDeviceGetCount", e))?;
        if ordinal >= usize::try_from(count).unwrap_or(0) {
            return Err(CudaError::Program(format!("there is no card {ordinal}; this machine has {count}, from 0")));
        }
        let found = probe();
        let cudnn = found.cudnn?.version;
        let context = CudaContext::new(ordinal).map_err(|e| fail(ordinal, "cuDevicePrimaryCtxRetain", e))?;
        let name = context.name().map_err(|e| fail(ordinal, "cuDeviceGetName", e))?;
        let memory = context.total_mem().map_err(|e| fail(ordinal, "cuDeviceTotalMem", e))?;
        let multiprocessors = context
            .attribute(CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT)
            .map_err(|e| fail(ordinal, "cuDeviceGetAttribute", e))?;
        let uuid = context.uuid().map_err(|e| fail(ordinal, "cuDeviceGetUuid", e))?;
        let info = Self {
            ordinal,
            name,
            memory_bytes: memory as u64,
            multiprocessors: u32::try_from(multiprocessors).unwrap_or(0),
            driver: found.driver_version.unwrap_or_else(|| "unknown".to_owned()),
            cuda: found.cuda.map_or_else(|_| "unknown".to_owned(), |opened| opened.version),
            cudnn,
            nccl: found.nccl.ok().map(|opened| opened.version),
            ..Self::default()
        };
        Ok(info.with_clocks(&uuid_text(uuid.bytes.map(|byte| byte.cast_unsigned()))))
    }

    /// Clocks and power limit as NVML tells them, by the card's UUID: its ordinals may be others. What it does not tell stays empty.
    fn with_clocks(mut self, uuid: &str) -> Self {
        let Ok(nvml) = Nvml::init() else { return self };
        let Ok(device) = nvml.device_by_uuid(uuid) else { return self };
        self.sm_clock_max_mhz = device.max_clock_info(Clock::SM).ok();
        self.sm_clock_mhz = device.clock_info(Clock::SM).ok();
        self.memory_clock_mhz = device.clock_info(Clock::Memory).ok();
        self.power_limit_w = device.power_management_limit().ok().map(|milliwatts| milliwatts / 1000);
        if let Some(driver) = nvml.sys_driver_version().ok().filter(|_| self.driver == "unknown") {
            self.driver = driver;
        }
        self
    }
}

/// A timer of launches by cuDNN on a card. `seed` starts the random operands.
///
/// # Errors
/// There is no driver, no such card, no cuDNN or no NVRTC; the card refuses to start.
pub fn launch_timer(ordinal: usize, seed: u64) -> Result<CardTimer, CudaError> {
    driver()?;
    let context = CudaContext::new(ordinal).map_err(|e| fail(ordinal, "cuDevicePrimaryCtxRetain", e))?;
    let stream = context.new_stream().map_err(|e| fail(ordinal, "cuStreamCreate", e))?;
    let kernels = CuDnn::open(&context, CuDnnOptions::default())?;
    CardTimer::new(stream, Box::new(kernels), seed)
}

/// A UUID as NVML writes it.
fn uuid_text(bytes: [u8; 16]) -> String {
    let hex: String = bytes.iter().map(|byte| format!("{byte:02x}")).collect();
    format!("GPU-{}-{}-{}-{}-{}", &hex[..8], &hex[8..12], &hex[12..16], &hex[16..20], &hex[20..])
}

#[cfg(test)]
mod tests {
    use super::uuid_text;

    #[test]
    fn uuids_are_written_as_nvml_does() {
        let bytes = [0x12, 0x34, 0x56, 0x78, 0x9a, 0xbc, 0xde, 0xf0, 0x01, 0x23, 0x45, 0x67, 0x89, 0xab, 0xcd, 0xef];
        assert_eq!(uuid_text(bytes), "GPU-12345678-9abc-def0-0123-456789abcdef");
    }
}
