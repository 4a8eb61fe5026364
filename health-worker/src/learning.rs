//! Learns from the log how long the legs of models take and how long answers are, for models whose legs are chosen by
//! that, and tells all routers. What was before is read from the log as well: whoever takes over knows what was known.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use bus::{BATCH_MESSAGES_MAX, BusError, Expected, Stored};
use bytes::Bytes;
use schemas::balance::profile::{Call, Learned, Profile};
use schemas::catalog::Model;
use schemas::catalog::router::{RouteWise, Router};
use schemas::health::{PROFILE_AGE_MS_MAX, encode, profile_key};
use schemas::id::{EndpointId, ModelName};
use schemas::subject::{HEALTH_BUCKET, REQUESTS};
use tokio::time::{Instant, sleep, timeout};
use tracing::debug;

use crate::Ports;

/// Events of the past that are read at most.
const PAST_MAX: u64 = 50_000;
/// How often it is looked for models to learn of, where there are none; how long a read waits; and how long after one
/// that failed.
const PAUSE: Duration = Duration::from_millis(500);
/// How often routers are told of what has changed.
const TELL_EVERY: Duration = Duration::from_millis(500);
/// How often they are told of what has not.
const TELL_AGAIN: Duration = Duration::from_millis(PROFILE_AGE_MS_MAX / 4);
/// How often it is looked whether the log is another one.
const LOOK_EVERY: Duration = Duration::from_secs(10);
/// How long a write may take.
const WRITE_WITHIN: Duration = Duration::from_secs(1);

/// Learns until it is dropped.
pub(crate) async fn run(ports: &Ports) {
    let mut learning = Learning::new(ports);
    loop {
        let models = learning.models();
        if models.is_empty() {
            learning = Learning::new(ports);
            sleep(PAUSE).await;
            continue;
        }
        if let Err(problem) = learning.read(&models).await {
            debug!(
                error = &problem as &dyn std::error::Error,
                "the log cannot be learned from at the moment"
            );
            sleep(PAUSE).await;
        }
        learning.tell(&models).await;
    }
}

/// Where the reading of a log is.
#[derive(Debug, Clone, Copy)]
struct Place {
    created_at_micros: i64,
    next: u64,
    looked_at: Instant,
}

struct Learning<'a> {
    ports: &'a Ports,
    learned: Learned,
    place: Option<Place>,
    told: HashMap<ModelName, (Profile, Instant)>,
    told_at: Option<Instant>,
}

impl<'a> Learning<'a> {
    fn new(ports: &'a Ports) -> Self {
        Self {
            ports,
            learned: Learned::default(),
            place: None,
            told: HashMap::new(),
            told_at: None,
        }
    }

    /// The models of which something is learned: those of the operators whose legs are chosen by it.
    fn models(&self) -> HashMap<ModelName, Arc<Model>> {
        let catalog = self.ports.catalog.load();
        let models = catalog.models().into_iter();
        models
            .filter(|model| terms(model).is_some())
            .map(|model| (model.id.clone(), Arc::clone(model)))
            .collect()
    }

    /// Reads on, from a part of what is past at first, and learns from it.
    async fn read(&mut self, models: &HashMap<ModelName, Arc<Model>>) -> Result<(), BusError> {
        let place = self.place().await?;
        let stored = self.ports.bus.read(place.next, BATCH_MESSAGES_MAX, PAUSE).await?;
        for some in &stored {
            self.take(some, models);
        }
        if let Some(last) = stored.last() {
            self.place = Some(Place {
                next: last.sequence + 1,
                ..place
            });
        }
        Ok(())
    }

    async fn place(&mut self) -> Result<Place, BusError> {
        if let Some(place) = self.place.filter(|place| place.looked_at.elapsed() < LOOK_EVERY) {
            return Ok(place);
        }
        let state = self.ports.bus.state().await?;
        let known = self
            .place
            .filter(|place| place.created_at_micros == state.created_at_micros);
        let past = (state.last + 1).saturating_sub(PAST_MAX).max(state.first);
        let place = Place {
            created_at_micros: state.created_at_micros,
            next: known.map_or(past, |known| known.next.max(state.first)),
            looked_at: Instant::now(),
        };
        self.place = Some(place);
        Ok(place)
    }

    fn take(&mut self, stored: &Stored, models: &HashMap<ModelName, Arc<Model>>) {
        let message = &stored.message;
        if !message.subject.starts_with(REQUESTS) {
            return;
        }
        let Some(call) = Call::read(&message.payload) else {
            return;
        };
        let Some(model) = models.get(&call.model) else {
            return;
        };
        let legs: Vec<&EndpointId> = model.routes.iter().map(|route| &route.endpoint_id).collect();
        if let Some(terms) = terms(model) {
            self.learned.take(&call, terms, &legs);
        }
    }

    /// Tells routers what has changed.
    async fn tell(&mut self, models: &HashMap<ModelName, Arc<Model>>) {
        if self.told_at.is_some_and(|told_at| told_at.elapsed() < TELL_EVERY) {
            return;
        }
        self.told_at = Some(Instant::now());
        self.learned.keep(|model| models.contains_key(model));
        self.told.retain(|model, _| models.contains_key(model));
        let now_ms = u64::try_from(self.ports.clock.now().millis()).unwrap_or(0);
        for model in models.values() {
            let Some(terms) = terms(model) else {
                continue;
            };
            let profile = self.learned.profile(&model.id, terms, now_ms);
            let told = self.told.get(&model.id);
            if told.is_some_and(|(told, at)| *told == profile && at.elapsed() < TELL_AGAIN) {
                continue;
            }
            // Plain data has no way to fail.
            let Ok(bytes) = encode(&profile) else {
                continue;
            };
            let key = profile_key(&model.id);
            let put = self.ports.kv.put_for(
                (HEALTH_BUCKET, &key),
                Bytes::from(bytes),
                Expected::Any,
                Duration::from_millis(PROFILE_AGE_MS_MAX),
            );
            if let Ok(Ok(_)) = timeout(WRITE_WITHIN, put).await {
                self.told.insert(model.id.clone(), (profile, Instant::now()));
            }
        }
    }
}

fn terms(model: &Model) -> Option<&RouteWise> {
    model.router.as_deref().and_then(Router::routewise)
}

#[cfg(test)]
mod tests;
