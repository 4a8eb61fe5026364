//! Every dialect in, every provider out: what callers of each surface get, whatever their model's upstream speaks.

mod bugs;
mod cases;
mod choices;
mod efforts;
mod malformed;
mod overloads;
mod parameters;
pub(crate) mod pools;
mod providers;
mod references;
mod responses;
mod shapes;
mod surfaces;
mod thoughts;
