use cudarc::driver::CudaContext;
use nvml_wrapper::enum_wrappers::device::{Clock, TemperatureSensor};
use nvml_wrapper::{Device, Nvml};
use serde::{Deserialize, Serialize};

/// What a card does and why, as NVML tells.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct CardState {
    /// Clock of the multiprocessors, MHz.
    pub sm_mhz: Option<u32>,
    /// Clock of the memory, MHz.
    pub memory_mhz: Option<u32>,
    /// Temperature of the processor, degrees Celsius.
    pub temperature_c: Option<u32>,
    /// Power, milliwatts.
    pub power_mw: Option<u32>,
    /// Why the clocks are lower than they could be, by NVML's names; empty when nothing holds them back.
    pub throttle_reasons: Vec<String>,
}

/// Asks NVML. Cards are found by their place on the bus, since NVML does not know which cards a process may see.
pub(super) struct Monitor {
    nvml: Option<Nvml>,
    places: Vec<Option<String>>,
}

impl Monitor {
    /// A monitor of these cards; where NVML is absent, one that knows nothing.
    pub fn new<'a>(cards: impl Iterator<Item = &'a CudaContext>) -> Self {
        Self { nvml: Nvml::init().ok(), places: cards.map(place).collect() }
    }

    /// The state of every card; none where NVML does not know it.
    pub fn states(&self) -> Vec<Option<CardState>> {
        let device = |place: &Option<String>| {
            let (nvml, place) = (self.nvml.as_ref()?, place.as_ref()?);
            nvml.device_by_pci_bus_id(place.as_str()).ok().map(|device| state(&device))
        };
        self.places.iter().map(device).collect()
    }
}

fn place(card: &CudaContext) -> Option<String> {
    use cudarc::driver::sys::CUdevice_attribute::{
        CU_DEVICE_ATTRIBUTE_PCI_BUS_ID, CU_DEVICE_ATTRIBUTE_PCI_DEVICE_ID, CU_DEVICE_ATTRIBUTE_PCI_DOMAIN_ID,
    };
    let domain = card.attribute(CU_DEVICE_ATTRIBUTE_PCI_DOMAIN_ID).ok()?;
    let bus = card.attribute(CU_DEVICE_ATTRIBUTE_PCI_BUS_ID).ok()?;
    let device = card.attribute(CU_DEVICE_ATTRIBUTE_PCI_DEVICE_ID).ok()?;
    Some(format!("{domain:08X}:{bus:02X}:{device:02X}.0"))
}

fn state(device: &Device<'_>) -> CardState {
    let reasons = device.current_throttle_reasons().ok();
    let names =
        reasons.into_iter().flat_map(|all| all.iter_names().map(|(name, _)| name.to_lowercase()).collect::<Vec<_>>());
    CardState {
        sm_mhz: device.clock_info(Clock::SM).ok(),
        memory_mhz: device.clock_info(Clock::Memory).ok(),
        temperature_c: device.temperature(TemperatureSensor::Gpu).ok(),
        power_mw: device.power_usage().ok(),
        throttle_reasons: names.collect(),
    }
}
