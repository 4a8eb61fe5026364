//! Versions of prices of an imported catalogue: such as their own path would make, and no others.

use schemas::catalog::Catalog;
use schemas::catalog::pricing;
use schemas::catalog::rates::PriceRecord;
use schemas::failure::Failure;

use super::{Wanted, wanted_price};
use crate::manage::records::differing;

/// Refuses a version of a price that could not be made by its own path, naming what is wrong with it.
pub(in crate::manage) fn judge(catalog: &Catalog, price: &PriceRecord) -> Result<(), Failure> {
    let wanted = Wanted {
        model: price.model.to_string(),
        tenant: Some(price.tenant.to_string()),
        endpoint: price.endpoint.as_ref().map(ToString::to_string),
        pricing: pricing::written(&price.price),
        pricing_schedule: price.schedule.as_ref().map(pricing::written_schedule),
        effective_from: Some(price.effective_from),
    };
    let made = wanted_price(catalog, &wanted, (&price.id, price.created_at))?;
    differing(price, &made)
}
