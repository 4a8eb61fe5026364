//! Who calls: two keys of one tenant, with limits of every kind.

use std::sync::Arc;

use schemas::id::{KeyId, ModelName, TenantId};
use schemas::limit::layers::{Bound, Subjects};
use schemas::limit::limits::Limits;

use crate::random::Random;

/// The bounds of two callers of one tenant; the sizes of limits differ from seed to seed.
pub(crate) fn callers(random: &mut Random) -> Vec<Arc<[Bound]>> {
    let mut size = |sizes: &[u64]| sizes[usize::try_from(random.below(sizes.len() as u64)).unwrap_or(0)];
    let usd = |nano: u64| format!("0.{nano:09}");
    let tenant = format!(r#"{{"monthly_usd":"{}"}}"#, usd(size(&[600, 2_500, 9_000])));
    let first = format!(
        r#"{{"qps":{},"concurrency":{},"daily_calls":{},"total_usd":"{}"}}"#,
        size(&[1, 3, 20]),
        size(&[1, 2, 4, 30]),
        size(&[3, 20, 300]),
        usd(size(&[300, 1_500])),
    );
    let second = format!(
        r#"{{"rpm":{},"tpm":{},"concurrency":{},"daily_tokens":{}}}"#,
        size(&[10, 60]),
        size(&[300, 2_000]),
        size(&[2, 5]),
        size(&[200, 1_000]),
    );
    let limits = |text: &str| serde_json::from_str::<Limits>(text).expect("limits");
    let (tenant, role) = (limits(&tenant), Limits::default());
    let bounds = |key: &str, own: &str| {
        let subjects = Subjects {
            tenant: (&TenantId::from("acme"), &tenant),
            user: None,
            key: (&KeyId::from(key), &limits(own)),
            role: &role,
        };
        subjects.bounds(&ModelName::from("m"), &[]).into()
    };
    vec![bounds("first", &first), bounds("second", &second)]
}
