//! Where a leg's backends are, and what is no address.

use schemas::catalog::ProviderKind;

use super::Context;
use crate::models::file::Leg;
use crate::yaml::Problem;
use dialects::provider::{self, Kind};

/// Where Claude is when nobody says otherwise.
const LOCATION_DEFAULT: &str = "global";

/// A project of Google's, and where in its cloud.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Place {
    pub(super) project: String,
    pub(super) location: String,
}

impl Context<'_> {
    /// The project of a leg of kind `claude`; `None` where its address says all.
    pub(super) fn place(&self, leg: &Leg, kind: &Kind<'_>, key: &str) -> Result<Option<Place>, Problem> {
        let own = [
            ("project", &leg.project),
            ("location", &leg.location),
            ("credentials_file", &leg.credentials_file),
        ];
        if kind.api != ProviderKind::Vertex {
            return match own.iter().find(|(_, told)| told.is_some()) {
                None => Ok(None),
                Some((name, _)) => Err(self.problem(
                    &format!("{key}.{name}"),
                    format!(
                        "`{name}` belongs to legs of kind claude, and this one is of kind {}",
                        kind.word
                    ),
                    "remove it",
                )),
            };
        }
        let entry = self.entry;
        let project = leg.project.as_ref().or(entry.project.as_ref());
        let location = leg.location.as_ref().or(entry.location.as_ref());
        let Some(project) = project else {
            return match location {
                None => Ok(None),
                Some(_) => Err(self.problem(key, "there is a `location` and no `project`", "add `project`")),
            };
        };
        let (project, location) = (
            project.trim(),
            location.map_or(LOCATION_DEFAULT, |told| told.trim()),
        );
        for (name, text) in [("project", project), ("location", location)] {
            // Blank is a variable that is not set, and is told with the address.
            if !text.bytes().all(is_name) {
                return Err(self.problem(
                    &self.at(key, &[name]),
                    format!("\"{text}\" is no {name} of Google's"),
                    "write it as Google's console shows it: letters, digits, `-`, `:` and `.`",
                ));
            }
        }
        Ok(Some(Place {
            project: project.to_owned(),
            location: location.to_owned(),
        }))
    }

    /// Base URLs without trailing slashes, or what is blank.
    pub(super) fn addresses(
        &self,
        leg: &Leg,
        (kind, place): (&Kind<'_>, Option<&Place>),
        key: &str,
    ) -> Result<Result<Vec<String>, Problem>, Problem> {
        if kind.api == ProviderKind::Echo {
            return Ok(Ok(Vec::new()));
        }
        if place.is_some_and(|place| place.project.is_empty() || place.location.is_empty()) {
            let message = format!("the project or the location of \"{}\" is blank", self.entry.id);
            return Ok(Err(self.problem(key, message, "set the variable it refers to")));
        }
        let preset = match place {
            Some(place) => Some(provider::vertex_base_url(&place.location)),
            None => kind.base_url().map(str::to_owned),
        };
        let written: Vec<String> = match (&leg.backends, &leg.base_url, &self.entry.base_url) {
            (Some(backends), None, _) if !backends.is_empty() => {
                backends.iter().map(|backend| backend.url().to_owned()).collect()
            }
            (Some(_), _, _) => {
                return Err(self.problem(
                    key,
                    "give either one `base_url` or a list of `backends`",
                    "remove one of them",
                ));
            }
            (None, Some(url), _) | (None, None, Some(url)) => vec![url.clone()],
            (None, None, None) => match preset {
                Some(url) => vec![url],
                None => return Err(self.problem(key, "the leg has no address", no_address(kind))),
            },
        };
        let mut addresses = Vec::new();
        for (place, url) in written.into_iter().enumerate() {
            let url = url.trim().trim_end_matches('/').to_owned();
            if url.is_empty() {
                let message = format!("the address of \"{}\" is blank", self.entry.id);
                return Ok(Err(self.problem(key, message, "set the variable it refers to")));
            }
            if let Err((message, remedy)) = check_address(&url) {
                return Err(self.problem(key, message, remedy));
            }
            if addresses.contains(&url) {
                return Err(self.problem(
                    &format!("{key}.backends[{place}]"),
                    "the address is there twice",
                    "remove one of them",
                ));
            }
            addresses.push(url);
        }
        Ok(Ok(addresses))
    }
}

const fn no_address(kind: &Kind<'_>) -> &'static str {
    match kind.api {
        ProviderKind::Vertex => "add `project`, and `location` where it is not global",
        _ => "add `base_url`",
    }
}

const fn is_name(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b':' | b'.')
}

/// Refuses what is no address, and an address that holds more: a path is put behind it, and secrets have
/// places where they are kept as such.
fn check_address(url: &str) -> Result<(), (&'static str, &'static str)> {
    let parsed = url.parse::<reqwest::Url>().ok();
    let Some(url) = parsed.filter(|url| matches!(url.scheme(), "http" | "https") && url.has_host()) else {
        return Err((
            "the address is not an http or https URL",
            "write it as http://HOST:PORT/PATH",
        ));
    };
    if !url.username().is_empty() || url.password().is_some() {
        return Err((
            "the address holds a user or a password",
            "give it as `api_key` with `auth_format`",
        ));
    }
    if url.query().is_some() || url.fragment().is_some() {
        return Err((
            "the address holds a query or a fragment",
            "give its parameters as `extra_query`",
        ));
    }
    Ok(())
}
