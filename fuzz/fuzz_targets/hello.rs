#![no_main]

use skewbench_external::fuzz_bodies;

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| {
    fuzz_bodies::hello(bytes);
});
