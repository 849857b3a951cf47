//! Containers with any labels, as an engine describes them: the result is deterministic and refers to no file or
//! variable.

#![no_main]

use discover::{Container, translate};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|bytes: &[u8]| {
    let Ok(told) = serde_json::from_slice::<serde_json::Value>(bytes) else { return };
    let containers: Vec<Container> =
        told.as_array().into_iter().flatten().filter_map(Container::read).collect();
    assert_eq!(translate(&containers), translate(&containers));
});
