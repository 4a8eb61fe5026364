//! Of which kinds of records a node's files are the whole truth.
//!
//! A node alone has a catalogue to itself. In a cluster a node whose files never spoke of a kind leaves what others' files
//! say of it alone: a gateway without `keys` may stand beside one that has them. A kind of which its files spoke before and
//! speak no more has been taken out of them, and with it all its records: that is what the node remembers in the
//! catalogue's bucket, under its name.

use std::collections::BTreeSet;

use bus::{Expected, Kv, Revision};
use bytes::Bytes;
use schemas::catalog::said_key;
use schemas::subject::{CATALOG_BUCKET, catalog};

use crate::config::Config;
use crate::seed::{self, Error, Keeper, Records};
use crate::yaml::Problem;

/// Kinds of records, by their prefixes.
type Kinds = BTreeSet<String>;

/// Sections of waybill.yaml with the kind of their records.
const SECTIONS: [(&str, &str); 4] = [
    ("keys", catalog::KEY),
    ("tenants", catalog::TENANT),
    ("users", catalog::USER),
    ("role_limits", catalog::ROLE),
];

/// What became of a node's files.
pub(super) struct Written {
    /// With which revision all of it is in force; `None` where nothing had to be written.
    pub(super) last: Option<Revision>,
    /// What is in force from files of others, of kinds of which this node's files never spoke.
    pub(super) of_others: Vec<Problem>,
}

/// Makes the catalogue say what the files of a node say ([`seed::apply`]), and remembers of what they spoke.
pub(super) async fn apply(
    config: &Config,
    kv: &dyn Kv,
    records: Records,
    keeper: &Keeper,
) -> Result<Written, Error> {
    if !config.bus.is_shared() {
        let all = every().map(str::to_owned).collect();
        let last = seed::apply(kv, records, &prefixes(&all), keeper).await?;
        return Ok(Written {
            last,
            of_others: Vec::new(),
        });
    }
    let place = said_key(&keeper.told.node);
    let (before, mut revision) = read(kv, &place).await?;
    let now = spoken_of(config);
    let complete = &before | &now;
    // Ahead of the records, so that a node that ends in between knows what it may have written.
    if complete != before {
        revision = Expected::Revision(write(kv, &place, &complete, revision).await?);
    }
    let last = seed::apply(kv, records, &prefixes(&complete), keeper).await?;
    if now != complete {
        write(kv, &place, &now, revision).await?;
    }
    let present = seed::current(kv).await?;
    let of_files = present.iter().filter(|(_, entry)| seed::is_of_file(entry));
    let of_files: Vec<&str> = of_files.map(|(key, _)| key.as_str()).collect();
    Ok(Written {
        last,
        of_others: of_others(&now, &of_files),
    })
}

fn every() -> impl Iterator<Item = &'static str> {
    let sections = SECTIONS.iter().map(|(_, kind)| *kind);
    [catalog::MODEL, catalog::ENDPOINT].into_iter().chain(sections)
}

/// The kinds of which a node's files speak, be it to say that there are none.
fn spoken_of(config: &Config) -> Kinds {
    let manifest = &config.manifest;
    let models = config.models_path.is_some() || (manifest.is_active() && manifest.broken.is_some());
    let of_models = [catalog::MODEL, catalog::ENDPOINT].into_iter().filter(|_| models);
    let sections = SECTIONS
        .iter()
        .filter(|(section, _)| config.sections.contains(section));
    let kinds = of_models.chain(sections.map(|(_, kind)| *kind));
    kinds.map(str::to_owned).collect()
}

fn prefixes(kinds: &Kinds) -> Vec<&str> {
    kinds.iter().map(String::as_str).collect()
}

/// Says which records of others' files count beside this node's, given the keys of all that are of files.
fn of_others(now: &Kinds, of_files: &[&str]) -> Vec<Problem> {
    let models = std::iter::once(("models_path", catalog::MODEL));
    let kinds = models.chain(SECTIONS).filter(|(_, kind)| !now.contains(*kind));
    kinds
        .filter_map(|(section, kind)| {
            let count = of_files.iter().filter(|key| key.starts_with(kind)).count();
            (count > 0).then(|| Problem {
                file: "waybill.yaml".into(),
                line: 0,
                path: section.into(),
                message: format!(
                    "{count} that files of other nodes say are in force, and this node's say nothing of them"
                ),
                remedy: remedy(section),
            })
        })
        .collect()
}

fn remedy(section: &str) -> String {
    match section {
        "models_path" => "nothing, if other nodes have a models.yaml; a models.yaml with `models: []` says that there are none".into(),
        "role_limits" => "nothing, if other nodes' files have the section; `role_limits: {}` says that there are none".into(),
        section => format!("nothing, if other nodes' files have the section; `{section}: []` says that there are none"),
    }
}

async fn read(kv: &dyn Kv, place: &str) -> Result<(Kinds, Expected), Error> {
    let Some(entry) = kv.get(CATALOG_BUCKET, place).await? else {
        return Ok((Kinds::new(), Expected::Absent));
    };
    let kinds = entry.value.as_deref().map(serde_json::from_slice).transpose()?;
    Ok((kinds.unwrap_or_default(), Expected::Revision(entry.revision)))
}

async fn write(kv: &dyn Kv, place: &str, kinds: &Kinds, expected: Expected) -> Result<Revision, Error> {
    let value = Bytes::from(serde_json::to_vec(kinds)?);
    Ok(kv.put(CATALOG_BUCKET, place, value, expected).await?)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::testing::loaded;

    fn config(text: &str, variables: &[(&str, &str)]) -> Config {
        loaded(text, variables).expect("load")
    }

    fn spoken(text: &str, variables: &[(&str, &str)]) -> Vec<String> {
        spoken_of(&config(text, variables)).into_iter().collect()
    }

    #[test]
    fn of_what_files_have_they_speak_even_if_there_is_none() {
        let nats = ("NATS_URL", "nats://h");
        let models = ("MODELS_CONFIG_PATH", "models.yaml");
        let keys = "keys: [{ name: a, key: sk-0123456789abcdef }]\n";

        assert_eq!(spoken(keys, &[nats, models]), ["endpoint.", "key.", "model."]);
        let limited = "users: [{ id: a }]\nrole_limits: { free: { rpm: 1 } }\n";
        assert_eq!(spoken(limited, &[nats]), ["role.", "user."]);
        assert_eq!(
            spoken("users: []\nrole_limits: {}\n", &[nats]),
            ["role.", "user."]
        );
        assert!(spoken("roles: [gateway, router]\n", &[nats]).is_empty());
    }

    #[test]
    fn a_manifest_that_is_served_and_cannot_be_says_that_there_are_no_models() {
        let active = [
            ("NATS_URL", "nats://h"),
            ("DISTRIBUTION_CONFIG_MODE", "active"),
            ("DISTRIBUTION_CONFIG_PATH", "/nowhere/manifest.yaml"),
        ];

        assert_eq!(spoken("", &active), ["endpoint.", "model."]);
    }

    #[test]
    fn what_others_say_and_this_node_does_not_is_told_with_how_to_end_it() {
        let present = ["key.00", "key.01", "model.61", "endpoint.61", "user.acme.61"];
        let now = Kinds::from([catalog::MODEL.to_owned(), catalog::USER.to_owned()]);

        let told = of_others(&now, &present);

        assert_eq!(told.len(), 1);
        assert_eq!(told[0].path, "keys");
        assert!(told[0].message.starts_with("2 "), "{}", told[0].message);
        assert!(told[0].remedy.contains("`keys: []`"), "{}", told[0].remedy);
    }
}
