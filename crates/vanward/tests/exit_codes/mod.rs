//! Exit codes of `fleet`, `lab run` and `lab resilience`: each row of `docs/exit-codes.md` and `docs/resilience.md`
//! that no other test has.

/// States of a fleet.
#[cfg(feature = "fleet")]
mod fleet;
/// Parts of the lab that end or are late, and proxies that cannot take part.
mod lab;
