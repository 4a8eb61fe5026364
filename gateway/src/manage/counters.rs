//! `GET /api/v1/system/counters`: the counters of quotas against the books, of each quota and source: what the shared record
//! says that a source spent, up to a place in its spool, beside what its waybills up to that place charged. Both are as of
//! the same place, so that what is under way is no difference.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

use axum::extract::State;
use axum::response::Response;
use bus::{Change, Kv};
use schemars::JsonSchema;
use schemas::catalog::Catalog;
use schemas::failure::Failure;
use schemas::id::TenantId;
use schemas::limit::layers::{Name, Scope, subject};
use schemas::limit::quota::record::Record;
use schemas::query::{QUOTA_EVENTS_MAX, QuotasAnswer, QuotasQuery};
use schemas::subject::{QUERY_QUOTAS, QUOTA_BUCKET};
use serde::Serialize;

use super::openapi::Operation;
use super::{READ_WITHIN, answered, ask, rights, unavailable};
use crate::arrival::Arrival;
use crate::caller::Caller;
use crate::peers;
use crate::state::Shared;

/// Differences that an answer names.
const DIFFERENCES_MAX: usize = 1_000;

/// What the counters say beside the books.
#[derive(Debug, Default, Serialize, JsonSchema)]
#[schemars(rename = "Counters")]
struct Shown {
    /// Counters that were compared: each of one quota and one source.
    compared: u64,
    /// Those of them that differ.
    different: u64,
    /// These, at most a thousand.
    differences: Vec<Difference>,
    /// False where the books may lack what some node answered: differences may be of that.
    is_current: bool,
}

/// A counter that is not what the books say.
#[derive(Debug, PartialEq, Eq, Serialize, JsonSchema)]
#[schemars(rename = "CounterDifference")]
struct Difference {
    /// The name of the record.
    name: Name,
    /// Whose limit, as far as it is known: the tenant.
    tenant: Option<TenantId>,
    /// The member or the key, by id; null for a limit of the tenant, and for who is no more.
    subject: Option<String>,
    /// Whom the limit bounds.
    scope: Option<&'static str>,
    /// The spool whose node counted.
    spool: String,
    /// What the record says that it spent: calls, tokens or nano-dollars.
    counter: u64,
    /// What the books have.
    books: u64,
}

/// What the path does.
pub(crate) const COMPARE: Operation =
    Operation::read::<Shown>("Compares the counters of quotas with the books, and names those that differ")
        .of_operators();

/// Compares.
pub(crate) async fn compare(State(state): State<Shared>, arrival: Arrival, caller: Caller) -> Response {
    let read = async {
        rights::operates(&caller)?;
        let records = records(&*state.ports.kv).await?;
        // The records first: what they count is in the books then.
        let is_current = peers::booked(&state).await;
        let mut shown = Shown {
            is_current,
            ..Shown::default()
        };
        let told = by_source(&records);
        for (spool, counters) in &told {
            let booked = booked(&state, spool, counters).await?;
            shown.take(spool, counters, &booked);
        }
        name_all(&mut shown.differences, &state.ports.catalog.load());
        Ok(shown)
    };
    answered(&arrival, read.await)
}

/// All records of quotas. What cannot be read is nobody's counter.
async fn records(kv: &dyn Kv) -> Result<BTreeMap<Name, Record>, Failure> {
    let watch = kv.watch(QUOTA_BUCKET).await;
    let mut changes = watch.map_err(|_| unavailable("the counters cannot be read at the moment"))?;
    let mut records = BTreeMap::new();
    while let Some(Change::Entry(entry)) = changes.recv().await {
        let record = entry.value.as_deref().and_then(Record::decode);
        records.extend(record.map(|record| (Name::from(entry.key.as_str()), record)));
    }
    Ok(records)
}

/// What a source says that it spent of each quota, and up to which place.
type Counters = BTreeMap<Name, (u64, u64)>;

fn by_source(records: &BTreeMap<Name, Record>) -> BTreeMap<&str, Counters> {
    let mut told: BTreeMap<&str, Counters> = BTreeMap::new();
    for (name, record) in records {
        let gone = record.gone.iter();
        let gone = gone.map(|(spool, gone)| (spool, gone.spent, gone.seq));
        let holders = record.holders.iter();
        let holders = holders.map(|(spool, holder)| (spool, holder.spent, holder.seq));
        for (spool, spent, place) in gone.chain(holders) {
            let of_spool = told.entry(spool.as_str()).or_default();
            let counter = of_spool.entry(name.clone()).or_default();
            counter.0 = counter.0.saturating_add(spent);
            counter.1 = counter.1.max(place);
        }
    }
    told
}

/// What the books have of each of these, up to the place that its counter names.
async fn booked(state: &Shared, spool: &str, counters: &Counters) -> Result<BTreeMap<Name, u64>, Failure> {
    let own = &state.ports.spool;
    let cluster = own.source().strip_suffix(own.id().as_str()).unwrap_or_default();
    let source = format!("{cluster}{spool}");
    let mut by_place: BTreeMap<u64, Vec<&Name>> = BTreeMap::new();
    for (name, (_, place)) in counters {
        by_place.entry(*place).or_default().push(name);
    }
    let (mut sums, mut booked, mut after) = (HashMap::new(), BTreeMap::new(), 0);
    for (place, names) in by_place {
        while after < place {
            let query = QuotasQuery {
                source: source.clone(),
                after,
                upto: place.min(after.saturating_add(QUOTA_EVENTS_MAX)),
            };
            let QuotasAnswer { quotas } = ask(state, QUERY_QUOTAS, &query, READ_WITHIN).await?;
            for (name, amount) in quotas {
                let sum: &mut u64 = sums.entry(name).or_default();
                *sum = sum.saturating_add(amount);
            }
            after = query.upto;
        }
        let sum = |name: &Name| (name.clone(), sums.get(name).copied().unwrap_or_default());
        booked.extend(names.into_iter().map(sum));
    }
    Ok(booked)
}

impl Shown {
    fn take(&mut self, spool: &str, counters: &Counters, booked: &BTreeMap<Name, u64>) {
        for (name, (counter, _)) in counters {
            let books = booked.get(name).copied().unwrap_or_default();
            self.compared += 1;
            if books == *counter {
                continue;
            }
            self.different += 1;
            if self.differences.len() < DIFFERENCES_MAX {
                self.differences.push(Difference {
                    name: name.clone(),
                    tenant: None,
                    subject: None,
                    scope: None,
                    spool: spool.to_owned(),
                    counter: *counter,
                    books,
                });
            }
        }
    }
}

/// Says whose counters these are: names hold digests of members and keys.
fn name_all(differences: &mut [Difference], catalog: &Catalog) {
    if differences.is_empty() {
        return;
    }
    let mut known: HashMap<String, (TenantId, Scope, Option<Arc<str>>)> = HashMap::new();
    for (_, key) in catalog.keys() {
        let tenant = &key.tenant;
        let of_tenant = subject(tenant, Scope::Tenant, None);
        known.insert(of_tenant, (tenant.clone(), Scope::Tenant, None));
        let of_key = subject(tenant, Scope::Key, Some(key.id.as_str()));
        known.insert(of_key, (tenant.clone(), Scope::Key, Some(Arc::clone(&key.id.0))));
        if let Some(user) = &key.user {
            let of_user = subject(tenant, Scope::User, Some(user.as_str()));
            known.insert(of_user, (tenant.clone(), Scope::User, Some(Arc::clone(&user.0))));
        }
    }
    for difference in differences {
        let text = difference.name.as_str();
        let mut ends = text.rmatch_indices('.').map(|(at, _)| at);
        let Some((tenant, scope, id)) = ends.find_map(|at| known.get(&text[..at])) else {
            continue;
        };
        difference.tenant = Some(tenant.clone());
        difference.scope = Some(scope.as_str());
        difference.subject = id.as_ref().map(ToString::to_string);
    }
}

#[cfg(test)]
mod tests {
    use schemas::limit::quota::record::{Gone, Holder};

    use super::*;

    #[test]
    fn what_a_source_spent_is_what_it_holds_and_what_was_counted_when_it_was_gone() {
        let mut record = Record::default();
        let spool = schemas::id::SpoolId::from("s1");
        record.gone.insert(spool.clone(), Gone { spent: 5, seq: 3 });
        let holder = Holder {
            taken: 9,
            spent: 4,
            seq: 8,
            by: "b".into(),
        };
        record.holders.insert(spool, holder);
        let name = Name::from("acme.t.daily_usd.2026-11-30");
        let records = BTreeMap::from([(name.clone(), record)]);

        let told = by_source(&records);

        assert_eq!(told["s1"], Counters::from([(name.clone(), (9, 8))]));
        let mut shown = Shown::default();
        shown.take("s1", &told["s1"], &BTreeMap::from([(name.clone(), 9)]));
        assert_eq!((shown.compared, shown.different), (1, 0));
        shown.take("s1", &told["s1"], &BTreeMap::from([(name, 8)]));
        assert_eq!((shown.compared, shown.different), (2, 1));
        assert_eq!((shown.differences[0].counter, shown.differences[0].books), (9, 8));
    }
}
