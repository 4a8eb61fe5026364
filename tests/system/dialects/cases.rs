//! What gateways of this kind promise their callers, case by case.

mod answers;
mod calls;
mod images;
mod inside;
mod messages;
mod refusals;
mod requests;
mod thoughts;
