//! Shapes of upstreams, one model for each of them: all are served by the same two upstreams of the scene, which speak
//! the dialect of the path they are called at. Every surface can ask for every model.

use harness::{Answer, Model, NodeBuilder, PRICE, Scene, Surface, Transcript, Upstream};
use serde_json::Value;

/// The name of the model at the upstream of Gemini's API, which has rules of their own for each generation.
const GEMINI: &str = "gemini-3-pro";

/// The API of an upstream.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Shape {
    /// OpenAI's chat completions.
    Chat,
    /// Anthropic's Messages.
    Messages,
    /// Gemini's generateContent.
    Gemini,
    /// OpenAI's Responses, and nothing else.
    Responses,
}

impl Shape {
    /// Every one of them.
    pub(crate) const ALL: [Self; 4] = [Self::Chat, Self::Messages, Self::Gemini, Self::Responses];

    /// The model of [`scene`] that is served in this shape.
    pub(crate) const fn model(self) -> &'static str {
        match self {
            Self::Chat => "m",
            Self::Messages => "am",
            Self::Gemini => "gm",
            Self::Responses => "rm",
        }
    }

    /// `model` with one more leg, to an upstream of this shape.
    pub(crate) fn leg(self, model: Model, upstream: &Upstream, priority: u32) -> Model {
        let model = model.leg(upstream, priority);
        match self {
            Self::Chat => model,
            Self::Messages => model
                .set_leg("kind", "anthropic")
                .set_leg("base_url", upstream.root_url()),
            Self::Gemini => model
                .set_leg("kind", "gemini")
                .set_leg("base_url", upstream.root_url())
                .set_leg("provider_model_id", GEMINI),
            Self::Responses => model.set_leg("responses", "only"),
        }
    }
}

/// Every surface with every shape.
pub(crate) fn pairs() -> impl Iterator<Item = (Surface, Shape)> {
    of(&Surface::ALL)
}

/// Every surface that knows thoughts, tools and images with every shape.
pub(crate) fn rich_pairs() -> impl Iterator<Item = (Surface, Shape)> {
    of(&Surface::RICH)
}

fn of(surfaces: &[Surface]) -> impl Iterator<Item = (Surface, Shape)> {
    let with_shapes = |surface: Surface| Shape::ALL.into_iter().map(move |shape| (surface, shape));
    surfaces.iter().copied().flat_map(with_shapes)
}

/// A scene whose models `m`, `am`, `gm` and `rm` are served by the first upstream and, if that fails, by the second.
pub(crate) async fn scene() -> Scene {
    scene_with(|node| node).await
}

/// The same with a node of which something is different.
pub(crate) async fn scene_with(change: impl FnOnce(NodeBuilder) -> NodeBuilder) -> Scene {
    scene_of(|_, model| model, change).await
}

/// The same with models that are bent.
pub(crate) async fn scene_of(
    bend: impl Fn(Shape, Model) -> Model,
    change: impl FnOnce(NodeBuilder) -> NodeBuilder,
) -> Scene {
    let (o1, o2) = (Upstream::start(), Upstream::start());
    let models = Shape::ALL.map(|shape| {
        let model = shape.leg(Model::new(shape.model()), &o1, 0);
        bend(shape, shape.leg(model, &o2, 1))
    });
    started(o1, o2, &models, change).await
}

/// The same whose first upstream refuses what its provider would refuse, without a fallback.
pub(crate) async fn strict_scene() -> Scene {
    let (o1, o2) = (Upstream::start().strict(), Upstream::start());
    let models = Shape::ALL.map(|shape| shape.leg(Model::new(shape.model()), &o1, 0));
    started(o1, o2, &models, |node| node).await
}

/// The same without a fallback.
pub(crate) async fn one_leg_scene(change: impl FnOnce(NodeBuilder) -> NodeBuilder) -> Scene {
    let (o1, o2) = (Upstream::start(), Upstream::start());
    let models = Shape::ALL.map(|shape| shape.leg(Model::new(shape.model()), &o1, 0));
    started(o1, o2, &models, change).await
}

/// A scene of these models at the harness's prices.
pub(crate) async fn started(
    o1: Upstream,
    o2: Upstream,
    models: &[Model],
    change: impl FnOnce(NodeBuilder) -> NodeBuilder,
) -> Scene {
    let mut scene = Scene::start_on(o1, o2, |node| change(node.models(models))).await;
    for shape in Shape::ALL {
        scene.price(shape.model(), Some(PRICE));
    }
    scene
}

/// A plain call.
pub(crate) async fn ask(scene: &Scene, surface: Surface, model: &str) -> Answer {
    scene.client.post(surface, &surface.ask(model)).await
}

/// A streamed call, read to its end.
pub(crate) async fn stream(scene: &Scene, surface: Surface, model: &str) -> Transcript {
    streamed(scene, surface, &surface.ask_streamed(model)).await
}

/// A streamed call of a body, read to its end.
pub(crate) async fn streamed(scene: &Scene, surface: Surface, body: &Value) -> Transcript {
    scene.client.stream(surface, body).await.collect().await
}
