//! What a router that takes offers knows of the catalogue: it follows the bucket, or, in a pool of its own, it is told
//! with each offer what it must know to run it.

use std::collections::HashMap;
use std::sync::Arc;

use bytes::Bytes;
use parking_lot::Mutex;
use schemas::catalog::Catalog;
use schemas::command::Offer;
use schemas::id::{ModelName, TenantId};

use super::code::{self, Malformed};
use crate::follow::CatalogView;

/// Most models that are remembered; beyond, all are forgotten, and told anew with the next offers.
const MODELS_MAX: usize = 4_096;

/// How a router knows the catalogue.
pub enum Sight {
    /// It follows the bucket.
    Followed(CatalogView),
    /// It is told with offers.
    Told(Box<Learned>),
}

impl From<CatalogView> for Sight {
    fn from(view: CatalogView) -> Self {
        Self::Followed(view)
    }
}

impl From<Learned> for Sight {
    fn from(learned: Learned) -> Self {
        Self::Told(Box::new(learned))
    }
}

/// A catalogue made of what came with offers.
pub struct Learned {
    view: CatalogView,
    told: Mutex<Told>,
}

#[derive(Default)]
struct Told {
    catalog: Catalog,
    /// By whose model it is: at which revision its part was told, and the part.
    models: HashMap<(TenantId, ModelName), (u64, Bytes)>,
}

impl Learned {
    /// Shows in `view` what is told.
    pub fn new(view: CatalogView) -> Self {
        Self {
            view,
            told: Mutex::default(),
        }
    }

    /// Takes the part over that came with an offer. One that is older than what is known changes nothing.
    pub(super) fn hear(&self, offer: &Offer, part: &Bytes) -> Result<(), Malformed> {
        let revision = offer.catalog_revision;
        let model = (offer.owner.clone(), offer.model.clone());
        let mut told = self.told.lock();
        if let Some((at, known)) = told.models.get_mut(&model)
            && (*at > revision || known == part)
        {
            *at = revision.max(*at);
            return Ok(());
        }
        let read = code::read_part(part)?;
        if (&read.model.owner, &read.model.id) != (&model.0, &model.1) {
            return Err(Malformed::Foreign);
        }
        if told.models.len() >= MODELS_MAX {
            *told = Told::default();
        }
        // The message itself, with the body in it, is not kept.
        told.models
            .insert(model, (revision, Bytes::copy_from_slice(part)));
        told.catalog.learn(revision, read);
        self.view.tell(Arc::new(told.catalog.clone()));
        Ok(())
    }
}
