//! A node's configuration while it runs: read again when a file changes, at SIGHUP, and when a command asks. It is
//! judged as a whole. What is right is in force at once, and what is wrong changes nothing and is told.

use std::collections::{HashSet, VecDeque};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use anyhow::Context as _;
use bus::clock::Clock;
use bus::follow::CatalogView;
use bus::mint::Mint;
use bus::revisions::Revisions;
use bus::{BusError, Kv};
use gateway::Configuration;
use schemas::catalog::CredentialRef;
use schemas::configuration::{Cause, InForce, Report, Revision, Severity};
use schemas::id::{ModelName, NodeId};
use schemas::secret::Secret;
use schemas::time::Timestamp;
use tokio::signal::unix::{SignalKind, signal};
use tokio::sync::mpsc;
use tokio::time::sleep;
use tokio_util::sync::CancellationToken;
use tracing::{error, info, warn};

use super::catalog::{self, in_force};
use super::{Adapters, FINISH_WAIT, said};
use crate::catalog_files::{self, Seeds};
use crate::config::{self, Config};
use crate::control::Reload;
use crate::files::Stamps;
use crate::manifest;
use crate::models::Compiled;
use crate::patience;
use crate::seed::{self, Keeper};
use crate::watch::Watch;
use crate::yaml::Problem;

/// Sets of files whose credentials are kept, so that a rollback to one of them finds them.
const SETS_MAX: usize = 8;
/// When a catalogue that could not be written is tried again.
const AGAIN_AFTER: Duration = Duration::from_secs(5);

/// What reads the configuration of a node again while it runs.
pub(super) struct Reloader {
    /// What the node was started with.
    start: Config,
    /// What is in force.
    config: Config,
    kv: Arc<dyn Kv>,
    clock: Arc<dyn Clock>,
    mint: Arc<Mint>,
    api_key_secret: Secret<Vec<u8>>,
    view: CatalogView,
    node: NodeId,
    credentials: Arc<router_worker::Credentials>,
    configuration: Configuration,
    /// What the last sets of files refer to, the newest last.
    references: VecDeque<HashSet<CredentialRef>>,
    /// Models that are served.
    served: HashSet<ModelName>,
}

/// Why nothing was changed.
#[derive(Debug)]
enum Refusal {
    /// The files are wrong.
    Files(Problem),
    /// The catalogue cannot be written at the moment.
    Away(anyhow::Error),
}

impl Refusal {
    fn text(&self) -> String {
        match self {
            Self::Files(problem) => format!("{problem}\n"),
            Self::Away(problem) => format!("{problem:#}\n"),
        }
    }
}

impl From<config::error::Error> for Refusal {
    fn from(error: config::error::Error) -> Self {
        Self::Files(error.problem())
    }
}

impl From<seed::Error> for Refusal {
    fn from(error: seed::Error) -> Self {
        Self::Away(error.into())
    }
}

impl Reloader {
    pub(super) fn new(
        config: &Config,
        adapters: &Adapters,
        view: &CatalogView,
        seeded: catalog::Seeded,
    ) -> Self {
        Self {
            start: config.clone(),
            config: config.clone(),
            kv: adapters.carrier.kv(),
            clock: adapters.clock.clone(),
            mint: adapters.mint.clone(),
            api_key_secret: adapters.api_key_secret.clone(),
            view: view.clone(),
            node: adapters.node_id(config),
            credentials: seeded.credentials,
            configuration: seeded.configuration,
            references: VecDeque::from([seeded.references]),
            served: seeded.served,
        }
    }

    /// Reads the configuration again whenever there is a reason to, one reading after another.
    pub(super) async fn run(
        mut self,
        mut wishes: mpsc::Receiver<Reload>,
        end: CancellationToken,
    ) -> anyhow::Result<()> {
        let mut hangups = signal(SignalKind::hangup()).context("cannot listen for signals")?;
        let mut watch = Watch::new(self.config.files.stamps());
        let mut again = false;
        let mut open = true;
        loop {
            let wish = tokio::select! {
                () = end.cancelled() => return Ok(()),
                wish = wishes.recv(), if open => {
                    open = wish.is_some();
                    if !open {
                        continue;
                    }
                    wish
                }
                _ = hangups.recv() => None,
                () = watch.changed() => None,
                () = sleep(AGAIN_AFTER), if again => None,
            };
            let before = watch.look().await;
            let (read, told) = self.reload(before).await;
            again = matches!(told, Err(Refusal::Away(_)));
            watch = Watch::new(read);
            if let Some(wish) = wish {
                // Who asked may have left.
                let _ = wish.send(told.map_err(|refusal| refusal.text()));
            }
        }
    }

    /// Reads everything again; gives the files that count from now on, and what came of it. `before` are those that
    /// counted so far, as they were before.
    async fn reload(&mut self, before: Stamps) -> (Stamps, Result<String, Refusal>) {
        let now = self.clock.now();
        let mut stamps = before;
        let read = config::load(&self.start.flags, &self.start.environment);
        let told = match read {
            Ok(config) => {
                let taken = self.take(&config, now).await;
                // A configuration that is wrong has met some of its files, one that is taken over all of them.
                if taken.is_ok() {
                    stamps.clear();
                }
                stamps.extend(config.files.stamps());
                if taken.is_ok() {
                    self.config = config;
                }
                taken
            }
            Err(problem) => Err(problem.into()),
        };
        if let Err(refusal) = &told {
            self.refused(refusal, now);
        }
        (stamps, told)
    }

    /// Puts a configuration in force, if it is right as a whole; callers of what stays notice nothing.
    async fn take(&mut self, config: &Config, now: Timestamp) -> Result<String, Refusal> {
        let compiled = self.judged(config, now).await?;
        let book = compiled.book();
        let references: HashSet<CredentialRef> = book.keys().cloned().collect();
        let served: HashSet<ModelName> = compiled.models.iter().map(|model| model.id.clone()).collect();
        let records = {
            let seeds = Seeds {
                config,
                api_key_secret: &self.api_key_secret,
                mint: &self.mint,
                now,
            };
            let mut records = seeds.callers()?;
            records.extend(catalog_files::served(&compiled)?);
            records
        };
        let (models, endpoints) = (compiled.models.len(), compiled.endpoints.len());
        let mut warnings = catalog::warnings(config, &compiled);
        // First what is new, last what is gone: requests run on either side of the change.
        self.credentials.add(book);
        if catalog::writes(config) {
            warnings.extend(self.write(config, records, now).await?);
        }
        self.keep(references, served);
        self.configuration.tell_site(config.sign_in.site.clone());
        for problem in &warnings {
            warn!("{problem}");
        }
        let waiting = config.waits_for_start(&self.start);
        for problem in &waiting {
            warn!("{problem}");
        }
        for note in catalog_files::notes(config) {
            info!("{note}");
        }
        info!(
            models,
            endpoints,
            set = &*config.files.set(),
            "the configuration was read again"
        );
        let known = self.configuration.report();
        let problems = told(&waiting, Severity::Restart, now)
            .chain(told(&warnings, Severity::Warning, now))
            .collect();
        self.configuration.tell(Report {
            in_force: in_force_now(config, &known.in_force, now),
            read_at: now,
            ..known.told(problems)
        });
        let problems = warnings.iter().map(|problem| format!("{problem}\n"));
        let counts = format!("{models} models on {endpoints} endpoints are in force\n");
        Ok(problems.chain([counts]).collect())
    }

    /// What the files say, if all of it can be served.
    async fn judged(&self, config: &Config, now: Timestamp) -> Result<Compiled, Refusal> {
        config.servable()?;
        if let Some(problem) = config
            .manifest
            .broken
            .as_ref()
            .filter(|_| config.manifest.is_active())
        {
            return Err(Refusal::Files(problem.clone()));
        }
        if let Some(problem) = self.emptied(config)? {
            return Err(Refusal::Files(problem));
        }
        let compiled = catalog::compile(config, now).await.map_err(|problem| {
            match problem.downcast::<config::error::Error>() {
                Ok(problem) => problem.into(),
                Err(problem) => Refusal::Away(problem),
            }
        })?;
        let lost = compiled
            .left_out
            .iter()
            .find(|(name, _)| self.served.contains(name));
        match lost {
            Some((name, place)) => Err(Refusal::Files(left_out(config, &compiled, (name, place)))),
            None => Ok(compiled),
        }
    }

    /// A file that is empty where it was not: nobody means to take everything away like that.
    fn emptied(&self, config: &Config) -> Result<Option<Problem>, config::error::Error> {
        let flags = config.flags.config.clone();
        let named = || config.environment.get("WAYBILL_CONFIG").map(PathBuf::from);
        if config.is_empty && !self.config.is_empty {
            return Ok(flags.or_else(named).map(|path| empty(&path)));
        }
        let Some(path) = config.models_path.as_ref().filter(|_| !self.served.is_empty()) else {
            return Ok(None);
        };
        let text = config::read(&config.files, path)?;
        Ok(text.trim().is_empty().then(|| empty(path)))
    }

    async fn write(
        &self,
        config: &Config,
        records: seed::Records,
        now: Timestamp,
    ) -> Result<Vec<Problem>, Refusal> {
        let keeper = Keeper {
            revisions: Revisions::new(self.kv.clone()),
            told: revision(config, (&self.node, now), Cause::Reload),
        };
        let write = || said::apply(config, &*self.kv, records.clone(), &keeper);
        let written = patience::until("the catalogue cannot be written", FINISH_WAIT, write).await?;
        if let Some(last) = written.last {
            let seen = in_force(&self.view, last).await;
            seen.map_err(|_| seed::Error::Bus(BusError::Timeout))?;
        }
        Ok(written.of_others)
    }

    /// Forgets the credentials to which none of the last sets of files refers.
    fn keep(&mut self, references: HashSet<CredentialRef>, served: HashSet<ModelName>) {
        if self.references.back() != Some(&references) {
            self.references.push_back(references);
        }
        if self.references.len() > SETS_MAX {
            self.references.pop_front();
        }
        let all = self.references.iter().flatten().cloned().collect();
        self.credentials.retain(&all);
        self.served = served;
    }

    /// True for what keeps a manifest from being served.
    fn is_of_manifest(&self, problem: &Problem) -> bool {
        let manifest = self.start.environment.get(manifest::PATH);
        let names_it = manifest.is_some_and(|path| Path::new(path) == Path::new(&problem.file));
        self.start.manifest.is_active() && (names_it || self.config.models_of_manifest)
    }

    /// Nothing was changed: says why, once for each thing that is wrong.
    fn refused(&self, refusal: &Refusal, now: Timestamp) {
        let problem = match refusal {
            Refusal::Files(problem) => problem.clone(),
            Refusal::Away(problem) => Problem {
                file: "catalogue".into(),
                line: 0,
                path: String::new(),
                message: format!("the files were read and are not in force yet: {problem:#}"),
                remedy: "nothing: it is tried again".into(),
            },
        };
        let known = self.configuration.report();
        let stays = known
            .problems
            .iter()
            .filter(|problem| problem.severity != Severity::Error)
            .cloned();
        let report = known.told(
            told(std::slice::from_ref(&problem), Severity::Error, now)
                .chain(stays)
                .collect(),
        );
        if report.problems != known.problems {
            if self.is_of_manifest(&problem) {
                error!(
                    "CRITICAL: the distribution's manifest cannot be used; the models stay as they were: {problem}"
                );
            } else {
                error!("the configuration stays as it was: {problem}");
            }
        }
        self.configuration.tell(Report {
            read_at: now,
            ..report
        });
    }
}

/// Problems as they are reported.
pub(super) fn told(
    problems: &[Problem],
    severity: Severity,
    now: Timestamp,
) -> impl Iterator<Item = schemas::configuration::Problem> {
    problems
        .iter()
        .map(move |problem| schemas::configuration::Problem {
            severity,
            file: problem.file.clone(),
            line: (problem.line > 0).then_some(problem.line),
            key: problem.path.clone(),
            message: problem.message.clone(),
            remedy: problem.remedy.clone(),
            since: now,
        })
}

/// What is in force now, having been so since it first was.
pub(super) fn in_force_now(config: &Config, before: &InForce, now: Timestamp) -> InForce {
    let set = config.files.set();
    let since = if before.set == set { before.since } else { now };
    InForce {
        set,
        since,
        files: config.files.digests(),
    }
}

/// What is said of a change of the catalogue.
pub(super) fn revision(config: &Config, (node, now): (&NodeId, Timestamp), cause: Cause) -> Revision {
    Revision {
        number: 0,
        at: now,
        node: node.clone(),
        cause,
        actor: None,
        set: config.files.set(),
        files: config.files.digests(),
        changed: 0,
        pieces: 0,
        catalog_revision: None,
    }
}

/// A file that is being written anew is empty for a moment; one that stays so is a mistake.
fn empty(path: &Path) -> Problem {
    Problem {
        file: path.display().to_string(),
        line: 0,
        path: String::new(),
        message: "the file is empty".into(),
        remedy: "write what is to be in force; `models: []` is how no models are said".into(),
    }
}

/// A model that is served must not vanish because a variable is blank: that is told as it would be at a start, and
/// changes nothing.
fn left_out(config: &Config, compiled: &Compiled, (name, place): (&ModelName, &str)) -> Problem {
    let of_models = config.models_path.as_ref().map(|path| path.display().to_string());
    let cause = compiled
        .problems
        .iter()
        .find(|problem| Some(&problem.file) == of_models.as_ref() && problem.path.starts_with(place));
    let unsaid = || Problem {
        file: of_models.clone().unwrap_or_default(),
        line: 0,
        path: String::new(),
        message: format!("\"{name}\" could not be served any more"),
        remedy: "set its variables, or take it out of the file".into(),
    };
    cause.cloned().unwrap_or_else(unsaid)
}
