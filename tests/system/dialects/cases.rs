//! What gateways of this kind promise their callers, case by case.
