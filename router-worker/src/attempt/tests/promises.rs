//! The promises of the Dispatch port, kept by the router itself.

use std::sync::Arc;
use std::time::Duration;

use bus::conformance::dispatch::{self as promise, Answer, Scene as Promised};
use bus::dispatch::{Dispatch, Dispatcher};
use bytes::Bytes;
use schemas::catalog::Endpoint;
use schemas::id::EndpointId;

use crate::testing::{
    Act, PLAIN, STREAM, Scene, Server, chat, chunk, config, endpoint, events, model, response, route,
};

/// A router over an upstream for each answer.
struct Answers {
    scene: Scene,
    servers: Vec<Server>,
}

fn words() -> String {
    let role = chunk(r#"{"role":"assistant"}"#, "null");
    role + &chunk(r#"{"content":"Hello"}"#, "null")
}

fn id(answer: Answer) -> &'static str {
    match answer {
        Answer::Stream => "stream",
        Answer::Endless => "endless",
        Answer::Whole => "whole",
        Answer::Failure => "failure",
    }
}

impl Answers {
    async fn new() -> Self {
        let stream = words() + &chunk("{}", r#""stop""#) + "data: [DONE]\n\n";
        let failure = response("500 Internal Server Error", "application/json", b"{}");
        let acts = [
            (Answer::Stream, vec![Act::Send(events(&stream)), Act::Close]),
            (Answer::Endless, vec![Act::Send(events(&words())), Act::Hang]),
            (Answer::Whole, vec![Act::Send(chat("hello"))]),
            (Answer::Failure, vec![Act::Send(failure)]),
        ];
        let (mut servers, mut endpoints): (Vec<Server>, Vec<Endpoint>) = (Vec::new(), Vec::new());
        for (answer, acts) in acts {
            let server = Server::always(acts).await;
            endpoints.push(endpoint(id(answer), &[&server.url()]));
            servers.push(server);
        }
        let routes = endpoints.iter().map(|endpoint| route(endpoint.id.as_str(), 0));
        let model = model(routes.collect());
        Self {
            scene: Scene::new(config(), &endpoints, &model).await,
            servers,
        }
    }
}

impl Promised for Answers {
    fn dispatcher(&self) -> Arc<dyn Dispatcher> {
        Arc::new(self.scene.router.clone())
    }

    fn dispatch(&self, answer: Answer) -> Dispatch {
        let streams = matches!(answer, Answer::Stream | Answer::Endless);
        let mut dispatch = self.scene.offer(if streams { STREAM } else { PLAIN });
        dispatch.offer.candidates = [EndpointId::from(id(answer))].into();
        dispatch
    }

    fn text(&self, answer: Answer) -> Bytes {
        let sent = match answer {
            Answer::Whole => {
                let whole = String::from_utf8(chat("hello")).expect("text");
                whole.split_once("\r\n\r\n").map(|(_, body)| body.to_owned())
            }
            _ => Some(words() + &chunk("{}", r#""stop""#) + "data: [DONE]\n\n"),
        };
        sent.unwrap_or_default().replace("org/m-7b", "m").into()
    }

    fn upstreams(&self) -> usize {
        let open = |server: &Server| server.connections() - server.closed();
        self.servers.iter().map(open).sum()
    }
}

/// Declares a test for each promise.
macro_rules! promises {
    ($($name:ident),* $(,)?) => {$(
        #[tokio::test]
        async fn $name() {
            let answers = Answers::new().await;
            let kept = promise::$name(&answers);
            let kept = tokio::time::timeout(Duration::from_secs(20), kept).await;
            kept.expect("in time").expect("kept");
        }
    )*};
}

promises!(
    a_stream_is_a_head_chunks_and_an_end,
    a_whole_answer_is_one_frame,
    a_failure_before_content_is_an_end_alone,
    nothing_goes_upstream_before_the_first_poll,
    a_cancel_closes_the_upstream_and_reports,
    an_interrupt_closes_the_upstream_and_reports,
    the_first_reason_to_stop_stays,
    a_session_canceled_before_its_first_poll_reports,
    a_dropped_session_closes_its_upstream,
);
