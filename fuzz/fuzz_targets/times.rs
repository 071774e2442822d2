#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| skewbench_fuzz::bodies::times(bytes));
