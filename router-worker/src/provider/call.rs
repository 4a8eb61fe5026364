//! One request on its way: where it goes, what proves who sends it, and the answer's head. The only place where a
//! credential has to be changed into something else first.

use dialects::splice::Spliced;
use http::{HeaderMap, HeaderName, HeaderValue, StatusCode};
use schemas::catalog::ProviderKind;
use schemas::command::Raw;
use schemas::secret::Secret;

use crate::credential::google;
use crate::fault::{Fault, Refusal, Unusable};
use crate::plan::Candidate;
use crate::state::Shared;
use crate::upstream::{self, Answer, Trust};

use super::Purpose;

/// A request that is to be sent.
pub(crate) struct Ask<'a> {
    /// To whom.
    pub(crate) candidate: &'a Candidate,
    /// For what.
    pub(crate) purpose: Purpose,
    /// With this credential, as it is in the book; none for upstreams without.
    pub(crate) credential: Option<&'a Secret<String>>,
    /// With these headers beside those of the endpoint.
    pub(crate) extra: &'a [(HeaderName, HeaderValue)],
    /// It.
    pub(crate) body: &'a Spliced,
    /// What stands beside it, where it passes as it is.
    pub(crate) raw: Option<&'a Raw>,
}

/// There is no answer.
#[derive(Debug, thiserror::Error)]
pub(crate) enum Error {
    /// The endpoint cannot be called as it is configured.
    #[error(transparent)]
    Target(#[from] super::Error),
    /// The wire failed.
    #[error(transparent)]
    Upstream(#[from] upstream::Error),
    /// The credential cannot be changed into a token.
    #[error(transparent)]
    Token(#[from] google::Error),
}

impl Error {
    /// Whether the request, or part of it, went out.
    pub(crate) fn was_sent(&self) -> bool {
        matches!(self, Self::Upstream(error) if !error.is_unconnected())
    }

    /// What it means for the attempt.
    pub(crate) fn fault(&self) -> Fault {
        match self {
            Self::Target(_) => Fault::Misconfigured,
            Self::Upstream(error) if error.is_forbidden() => Fault::Misconfigured,
            Self::Upstream(error) if error.is_connect_timeout() => Fault::Unconnected,
            Self::Upstream(upstream::Error::Unreachable(_) | upstream::Error::Silent(_))
            | Self::Token(google::Error::Silent | google::Error::Malformed) => Fault::Unreachable,
            Self::Upstream(upstream::Error::Coding) => Fault::Unusable(Unusable::Coding),
            // As if the upstream itself had not accepted it.
            Self::Token(google::Error::Account | google::Error::Refused(_)) => {
                Refusal::of_answer(StatusCode::UNAUTHORIZED.as_u16(), &HeaderMap::new(), &[]).into()
            }
        }
    }
}

/// Posts a request and waits for the answer's head.
pub(crate) async fn send(shared: &Shared, ask: &Ask<'_>) -> Result<Answer, Error> {
    match ask.credential {
        Some(credential)
            if ask.candidate.endpoint.kind == ProviderKind::Vertex && google::is_account(credential) =>
        {
            Box::pin(send_with_token(shared, ask, credential)).await
        }
        credential => send_once(shared, ask, credential).await,
    }
}

/// The same with a token that is bought first. One that is refused is replaced, once.
async fn send_with_token(
    shared: &Shared,
    ask: &Ask<'_>,
    credential: &Secret<String>,
) -> Result<Answer, Error> {
    let tokens = &shared.targets.tokens;
    let clock = shared.clock.as_ref();
    // Where tokens are bought is written in the credential: it is trusted as far as the endpoint.
    let upstream = (&shared.upstream, Trust::of(&ask.candidate.endpoint));
    let token = tokens.token(upstream, clock, credential).await?;
    let answer = send_once(shared, ask, Some(&token)).await?;
    if answer.status != StatusCode::UNAUTHORIZED {
        return Ok(answer);
    }
    drop(answer);
    tokens.forget(credential, &token);
    let token = tokens.token(upstream, clock, credential).await?;
    send_once(shared, ask, Some(&token)).await
}

async fn send_once(
    shared: &Shared,
    ask: &Ask<'_>,
    credential: Option<&Secret<String>>,
) -> Result<Answer, Error> {
    if let Some(raw) = ask.raw {
        let endpoint = &ask.candidate.endpoint;
        let request = super::raw::request(ask.candidate, raw, credential, ask.body.joined())?;
        let sent = shared.upstream.pass(request, endpoint.http2, Trust::of(endpoint));
        return Ok(sent.await?);
    }
    let mut target = shared.targets.target(ask.candidate, ask.purpose, credential)?;
    target.extra = ask.extra.to_vec();
    Ok(shared.upstream.send(&target, ask.body).await?)
}
