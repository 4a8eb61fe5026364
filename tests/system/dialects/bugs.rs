//! What went wrong in other gateways of this kind, on every surface and in both directions of translation.
