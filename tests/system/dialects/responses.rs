//! Responses that callers let us keep: gone on from, shown, listed and forgotten, by their tenant alone.
