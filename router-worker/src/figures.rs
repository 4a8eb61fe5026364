//! What engines say of themselves that want to know who asks: whoever looks after health holds no credential, so a router
//! asks for him, with the endpoint's own, at the backend's own address. What it passes on says how busy the engine is, and
//! no more.

use std::sync::Arc;
use std::time::Duration;

use bus::{Bus, Question};
use bytes::Bytes;
use http::Request;
use http::header::USER_AGENT;
use http_body_util::{BodyExt as _, Full, Limited};
use schemas::engine::{FiguresAnswer, FiguresQuery, busy_lines};
use schemas::subject::QUERY_FIGURES;
use schemas::wake::root;
use tokio::time::timeout;
use tokio_util::sync::CancellationToken;

use crate::Error;
use crate::keypool::Declared;
use crate::provider::{OUR_USER_AGENT, proof};
use crate::questions::{self, Asked};
use crate::state::Shared;
use crate::upstream::Trust;

/// How long an engine may take.
const WITHIN: Duration = Duration::from_secs(2);
/// Engines that are asked at once.
const ASKED_MAX: usize = 16;
/// Most bytes of what one says that are read.
const FIGURES_BYTES_MAX: usize = 4 * 1_024 * 1_024;
/// Where engines tell their figures, beside their API.
const FIGURES: &str = "/metrics";

/// Answers until `shutdown`; whoever comes beyond those that are asked at once asks again.
pub(crate) async fn serve(
    shared: &Arc<Shared>,
    bus: Arc<dyn Bus>,
    shutdown: CancellationToken,
) -> Result<(), Error> {
    let asked = Asked {
        subject: QUERY_FIGURES,
        at_once_max: ASKED_MAX,
        waiting: "the router cannot be asked for figures",
        refused: "engines that want to know who asks are not asked for their figures through this router",
    };
    let answer = |question| answer(Arc::clone(shared), question);
    questions::serve(bus, asked, (answer, drop), shutdown).await
}

async fn answer(shared: Arc<Shared>, question: Question) {
    let text = match serde_json::from_slice(&question.payload) {
        Ok(query) => timeout(WITHIN, told(&shared, &query)).await.ok().flatten(),
        Err(_) => None,
    };
    if let Ok(bytes) = serde_json::to_vec(&FiguresAnswer { text }) {
        // An asker who has given up needs no answer.
        let _ = question.reply.send(Bytes::from(bytes));
    }
}

/// What a backend tells whoever proves that he is who calls it.
async fn told(shared: &Shared, query: &FiguresQuery) -> Option<String> {
    let catalog = shared.catalog.load();
    let endpoint = catalog.endpoint(&query.endpoint)?;
    let mut backends = endpoint.backends.iter();
    let backend = backends.find(|backend| backend.id == query.backend)?;
    let Declared::Key(held) = shared.pools.first(endpoint, &shared.credentials) else {
        return None;
    };
    let (name, value) = proof(endpoint, &held.declaration.secret).ok()?;
    let request = Request::get(format!("{}{FIGURES}", root(&backend.base_url)))
        .header(USER_AGENT, OUR_USER_AGENT)
        .header(name, value)
        .body(Full::new(Bytes::new()))
        .ok()?;
    let answer = shared.upstream.ask(request, Trust::of(endpoint)).await.ok()?;
    let is_success = answer.status().is_success();
    let body = Limited::new(answer.into_body(), FIGURES_BYTES_MAX)
        .collect()
        .await
        .ok()?;
    let text = body.to_bytes();
    is_success.then(|| busy_lines(&String::from_utf8_lossy(&text)))
}

#[cfg(test)]
mod tests {
    use schemas::catalog::CredentialRef;
    use schemas::id::{BackendId, EndpointId};

    use crate::testing::{Act, Scene, Server, config, endpoint, model, response, route};

    use super::*;

    #[tokio::test]
    async fn an_engine_is_asked_with_the_credential_of_its_endpoint_beside_its_api() {
        let page = b"llamacpp:requests_processing 1\nllamacpp:requests_deferred 4\nother 5\n";
        let engine = Server::always(vec![Act::Send(response("200 OK", "text/plain", page))]).await;
        let mut closed = endpoint("e1", &[&format!("{}/v1", engine.url())]);
        closed.credentials = vec![CredentialRef("k1".to_owned())];
        let scene = Scene::new(config(), &[closed.clone()], &model(vec![route("e1", 0)])).await;
        let query = |backend: &BackendId| FiguresQuery {
            endpoint: EndpointId::from("e1"),
            backend: backend.clone(),
        };
        let shared = &scene.router.shared;

        let told = told(shared, &query(&closed.backends[0].id)).await;

        assert_eq!(
            told.as_deref(),
            Some("llamacpp:requests_processing 1\nllamacpp:requests_deferred 4\n")
        );
        assert_eq!(super::told(shared, &query(&BackendId::from("e1#9"))).await, None);
        let heads = engine.requests();
        assert_eq!(heads.len(), 1);
        assert!(
            heads[0].starts_with("GET /metrics ") && heads[0].contains("authorization: Bearer secret-k1"),
            "{}",
            heads[0]
        );
    }
}
