//! A catalogue that is not followed but told, part by part, with the calls that need it: that of routers in a pool of
//! their own.

use std::sync::Arc;

use super::{Catalog, Stored};
use crate::pool::Part;

impl Catalog {
    /// Takes a part over, as it was at `revision` of the whole catalogue. What has not changed stays the same record.
    pub fn learn(&mut self, revision: u64, part: Part) {
        self.revision = self.revision.max(revision);
        self.revision_text = self.revision.to_string().into();
        for endpoint in part.endpoints {
            let known = self.endpoints.get(&endpoint.id);
            if known.is_none_or(|known| *known.record != endpoint) {
                let record = Arc::new(endpoint);
                self.endpoints
                    .insert(record.id.clone(), Stored { revision, record });
            }
        }
        self.serve_told(part.model);
    }
}
