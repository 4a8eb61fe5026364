//! Calls of the command line to the management API of a running node.

use std::net::SocketAddr;

use serde_json::Value;

use crate::command_line::Flags;
use crate::config::Config;
use crate::data::{self, DataDirectory};

/// The variables that hold an operator's credential.
pub const OPERATOR: &[&str] = &["WAYBILL_KEY", "ADMIN_TOKEN"];

/// The node could not be asked, or refused.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// There is no node.
    #[error("no node runs on this data directory; start one, or name its own with --data-dir or --config")]
    NotRunning,
    /// The node holds the data directory and does not say where it listens.
    #[error("a node runs on this data directory, but it does not say where it listens; start it again")]
    NoAddress,
    /// No credential was given.
    #[error("a node runs on this data directory; give {} with --key, or set {}", what_of(variables), variables.join(" or "))]
    NoKey {
        /// The variables that could hold it.
        variables: &'static [&'static str],
    },
    /// The node did not answer.
    #[error("the node at {address} does not answer")]
    Unreachable {
        /// Where it should be.
        address: SocketAddr,
        /// Why.
        #[source]
        source: reqwest::Error,
    },
    /// The node said no.
    #[error("the node refused with status {status}: {message}{}", of(param.as_deref()))]
    Refused {
        /// The HTTP status.
        status: u16,
        /// Its message.
        message: String,
        /// The field or the parameter that it names.
        param: Option<String>,
    },
}

impl Error {
    /// True when the command can be given better: the node is there and works.
    pub fn is_usage(&self) -> bool {
        match self {
            Self::NoKey { .. } => true,
            Self::Refused { status, .. } => (400..500).contains(status),
            Self::NotRunning | Self::NoAddress | Self::Unreachable { .. } => false,
        }
    }
}

/// What of a call a refusal is about.
fn of(param: Option<&str>) -> String {
    param
        .map(|param| format!(" (param: {param})"))
        .unwrap_or_default()
}

/// What is presented that these variables hold.
fn what_of(variables: &[&str]) -> &'static str {
    if variables == OPERATOR {
        "an operator's key"
    } else {
        "the token of whoever hands out grants"
    }
}

/// A running node.
pub struct RunningNode {
    address: SocketAddr,
    key: String,
    client: reqwest::Client,
}

impl RunningNode {
    /// The node that runs on the configured data directory, if one does, with the credential that a flag gives, or one of
    /// `variables`.
    pub fn running(
        config: &Config,
        flags: &Flags,
        variables: &'static [&'static str],
    ) -> Result<Self, Error> {
        let held = config.data_dir.exists()
            && matches!(
                DataDirectory::hold(&config.data_dir),
                Err(data::Error::Held { .. })
            );
        if held {
            Self::find(config, flags, variables)
        } else {
            Err(Error::NotRunning)
        }
    }

    /// The node that holds the configured data directory.
    pub fn find(config: &Config, flags: &Flags, variables: &'static [&'static str]) -> Result<Self, Error> {
        let address = data::announced(&config.data_dir).ok_or(Error::NoAddress)?;
        let held = || config.environment.first(variables).map(str::to_owned);
        let given = flags.key.clone().or_else(held);
        Ok(Self {
            address,
            key: given.ok_or(Error::NoKey { variables })?,
            client: reqwest::Client::builder().no_proxy().build().unwrap_or_default(),
        })
    }

    /// Calls `method path` with a JSON body; the answer's JSON.
    pub async fn call(
        &self,
        method: reqwest::Method,
        path: &str,
        body: Option<Value>,
    ) -> Result<Value, Error> {
        self.call_if(method, path, body, None).await
    }

    /// The same if what is changed still has `revision`; refused with 409 if it has not.
    pub async fn call_if(
        &self,
        method: reqwest::Method,
        path: &str,
        body: Option<Value>,
        revision: Option<u64>,
    ) -> Result<Value, Error> {
        let unreachable = |source| Error::Unreachable {
            address: self.address,
            source,
        };
        let mut request = self
            .client
            .request(method, format!("http://{}{path}", self.address))
            .bearer_auth(&self.key);
        if let Some(body) = body {
            request = request.json(&body);
        }
        if let Some(revision) = revision {
            request = request.header(reqwest::header::IF_MATCH, format!("\"{revision}\""));
        }
        let response = request.send().await.map_err(unreachable)?;
        let status = response.status();
        let bytes = response.bytes().await.map_err(unreachable)?;
        let answer: Value = serde_json::from_slice(&bytes).unwrap_or(Value::Null);
        if status.is_success() {
            return Ok(answer);
        }
        let told = |field: &str| answer["error"][field].as_str().map(str::to_owned);
        Err(Error::Refused {
            status: status.as_u16(),
            message: told("message").unwrap_or_else(|| "no message".to_owned()),
            param: told("param"),
        })
    }
}
