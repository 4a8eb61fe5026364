//! Idempotency keys on several nodes before one bucket, run by a scheduler of our own: writes whose answers are lost,
//! writes that are done late, readers that are behind, nodes that are killed, paused or cut off, clocks that run
//! differently and jump. Whatever happens, a key is charged once, a replay has the first answer's bytes, and no key
//! stays locked by a request that does not run. Mistakes that are planted are found.
//!
//! A failure names its seed; `WAYBILL_SEEDS=n` runs n seeds instead of 200. Mistakes can be planted only in builds with
//! debug assertions.

#[cfg(test)]
mod bucket;
#[cfg(test)]
mod chance;
#[cfg(test)]
mod counts;
#[cfg(test)]
mod properties;
#[cfg(test)]
mod task;
#[cfg(test)]
mod world;
