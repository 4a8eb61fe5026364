//! Faults that others had in the field, each on every surface and in both directions of translation.

mod broken;
mod cut;
mod embeddings;
mod fallback;
mod gone;
mod models;
mod parallel;
mod twice;
mod usage;
