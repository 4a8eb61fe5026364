//! Requests through every upstream's dialect: a conversation is written for an upstream and read back by that
//! dialect's own reader (for Gemini, which no caller speaks, by a small one here). What was asked for must be there
//! again: who said what in which order, calls with their arguments and results, tools, and every setting.

use dialects::dialect::Dialect;
use dialects::profile;
use dialects::superset::request::{Call, Conversation, Format, Media, Part, Role, Target, Turn};
use dialects::superset::tool::{Input, Tool, ToolChoice};
use dialects::translate::{decode_request, encode_request};
use serde_json::Value;
use serde_json::value::RawValue;

use crate::dice::Dice;
use crate::gemini_reader;
use crate::speakers::UPSTREAMS;

/// A conversation without what dialects are free to say differently.
#[derive(Debug, PartialEq, Default, Clone)]
pub(crate) struct Essence {
    /// All instructions, blanks left out: dialects join them differently.
    pub(crate) instructions: String,
    /// Who (`true` for the model) and what, neighbors of one side together.
    pub(crate) turns: Vec<(bool, Vec<Saying>)>,
    pub(crate) tools: Vec<(String, String, Value)>,
    pub(crate) choice: Option<ToolChoice>,
    pub(crate) max_tokens: Option<u64>,
    pub(crate) temperature: Option<f64>,
    pub(crate) top_p: Option<f64>,
    pub(crate) stop: Vec<String>,
    pub(crate) schema: Option<Value>,
}

/// Something said.
#[derive(Debug, PartialEq, Clone)]
pub(crate) enum Saying {
    Text(String),
    Image(String),
    /// The name and the arguments.
    Call(String, Value),
    /// The result of the call of this number in the conversation.
    Result(usize, String),
}

impl Essence {
    /// Adds what one side says, after what it said before.
    pub(crate) fn say(&mut self, model: bool, sayings: impl IntoIterator<Item = Saying>) {
        let mut sayings = sayings.into_iter().peekable();
        if sayings.peek().is_none() {
            return;
        }
        match self.turns.last_mut() {
            Some((side, said)) if *side == model => said.extend(sayings),
            _ => self.turns.push((model, sayings.collect())),
        }
    }

    pub(crate) fn of(conversation: &Conversation) -> Self {
        let mut essence = Self::default();
        let mut ids: Vec<String> = Vec::new();
        for turn in &conversation.turns {
            if matches!(turn.role, Role::System | Role::Developer) {
                let texts = turn.parts.iter().filter_map(|part| match part {
                    Part::Text { text, .. } => Some(text.as_str()),
                    _ => None,
                });
                texts.for_each(|text| essence.instructions.extend(text.split_whitespace()));
                continue;
            }
            for part in &turn.parts {
                let saying = saying(part, &mut ids);
                essence.say(turn.role == Role::Assistant, saying);
            }
        }
        essence.settings(conversation);
        essence
    }

    fn settings(&mut self, conversation: &Conversation) {
        let number = |raw: &Option<Box<RawValue>>| raw.as_ref().and_then(|raw| raw.get().parse().ok());
        self.temperature = number(&conversation.sampling.temperature);
        self.top_p = number(&conversation.sampling.top_p);
        self.max_tokens = conversation.max_tokens;
        self.stop.clone_from(&conversation.stop);
        self.choice = conversation
            .tool_choice
            .clone()
            .filter(|choice| *choice != ToolChoice::Auto);
        self.tools = conversation.tools.iter().map(tool).collect();
        if let Format::JsonSchema { schema, .. } = &conversation.format {
            self.schema = serde_json::from_str(schema.get()).ok();
        }
    }
}

fn tool(tool: &Tool) -> (String, String, Value) {
    let schema = match &tool.input {
        Input::Schema(Some(schema)) => serde_json::from_str(schema.get()).expect("a schema"),
        _ => Value::Null,
    };
    (
        tool.name.clone(),
        tool.description.clone().unwrap_or_default(),
        schema,
    )
}

fn saying(part: &Part, ids: &mut Vec<String>) -> Option<Saying> {
    match part {
        Part::Text { text, .. } => Some(Saying::Text(text.clone())),
        Part::Image {
            source: Media::Url(url),
            ..
        } => Some(Saying::Image(url.clone())),
        Part::Image {
            source: Media::Inline { media_type, data },
            ..
        } => Some(Saying::Image(format!("data:{media_type};base64,{data}"))),
        Part::ToolCall(call) => {
            ids.push(call.id.clone());
            Some(Saying::Call(
                call.name.clone(),
                serde_json::from_str(&call.arguments).expect("an object"),
            ))
        }
        Part::ToolResult { id, parts, .. } => {
            let place = ids
                .iter()
                .rposition(|other| other == id)
                .expect("the call of a result");
            let text = parts.iter().map(|part| match part {
                Part::Text { text, .. } => text.as_str(),
                _ => "",
            });
            Some(Saying::Result(place, text.collect()))
        }
        _ => None,
    }
}

fn raw(text: impl Into<String>) -> Box<RawValue> {
    RawValue::from_string(text.into()).expect("JSON")
}

fn text(dice: &mut Dice) -> Part {
    Part::Text {
        text: dice.text(),
        cache: None,
    }
}

/// Any conversation that every dialect can carry.
pub(crate) fn conversation(dice: &mut Dice) -> Conversation {
    let mut turns = Vec::new();
    let turn = |role, parts| Turn {
        role,
        name: None,
        parts,
    };
    if dice.once_in(2) {
        turns.push(turn(
            *dice.pick(&[Role::System, Role::Developer]),
            vec![text(dice)],
        ));
    }
    let tools: Vec<Tool> = (0..dice.below(3)).map(|number| tool_of(dice, number)).collect();
    turns.push(turn(Role::User, user(dice)));
    for round in 0..dice.below(3) {
        let mut parts = if dice.once_in(2) {
            vec![text(dice)]
        } else {
            Vec::new()
        };
        let calls = if tools.is_empty() { 0 } else { dice.below(3) };
        let ids: Vec<String> = (0..calls).map(|call| format!("call_{round}_{call}")).collect();
        for id in &ids {
            let value = Value::String(dice.text());
            parts.push(Part::ToolCall(Call {
                id: id.clone(),
                name: dice.pick(&tools).name.clone(),
                namespace: None,
                arguments: format!("{{\"value\":{value}}}"),
                custom: false,
                proof: None,
            }));
        }
        if parts.is_empty() {
            parts.push(text(dice));
        }
        turns.push(turn(Role::Assistant, parts));
        if !ids.is_empty() {
            let results = ids.into_iter().map(|id| Part::ToolResult {
                id,
                parts: vec![text(dice)],
                failed: false,
            });
            turns.push(turn(Role::Tool, results.collect()));
        }
        if calls == 0 || dice.once_in(2) {
            turns.push(turn(Role::User, user(dice)));
        }
    }
    let mut conversation = Conversation {
        model: "public".to_owned(),
        turns,
        tools,
        ..Conversation::default()
    };
    settings(&mut conversation, dice);
    conversation
}

fn user(dice: &mut Dice) -> Vec<Part> {
    let mut parts = vec![text(dice)];
    if dice.once_in(4) {
        let source = Media::Inline {
            media_type: "image/png".to_owned(),
            data: "iVBORw0KGgo=".to_owned(),
        };
        parts.push(Part::Image { source, detail: None });
    }
    parts
}

fn tool_of(dice: &mut Dice, number: usize) -> Tool {
    let schema = *dice.pick(&[
        r#"{"type":"object","properties":{"value":{"type":"string","description":"z before a"},"a":{"type":"integer"}}}"#,
        r#"{"type":"object","properties":{"value":{"type":"string"}},"required":["value"],"additionalProperties":false}"#,
    ]);
    Tool {
        name: format!("tool_{number}"),
        namespace: None,
        description: Some(dice.text()),
        input: Input::Schema(Some(raw(schema))),
        strict: None,
        cache: None,
    }
}

fn settings(conversation: &mut Conversation, dice: &mut Dice) {
    if !conversation.tools.is_empty() && dice.once_in(2) {
        let named = ToolChoice::Named(dice.pick(&conversation.tools).name.clone());
        conversation.tool_choice = Some(
            dice.pick(&[ToolChoice::Auto, ToolChoice::Required, ToolChoice::Never, named])
                .clone(),
        );
    }
    conversation.max_tokens = Some(16 + dice.below(5000) as u64);
    if dice.once_in(2) {
        conversation.sampling.temperature = Some(raw(*dice.pick(&["0", "0.25", "0.7000000000000001"])));
    }
    if dice.once_in(3) {
        conversation.sampling.top_p = Some(raw("0.95"));
    }
    if dice.once_in(4) {
        conversation.format = Format::JsonSchema {
            name: "output".to_owned(),
            description: None,
            schema: raw(
                r#"{"type":"object","properties":{"a":{"type":"string"}},"required":["a"],"additionalProperties":false}"#,
            ),
            strict: Some(true),
        };
    }
    conversation.stream = dice.once_in(2);
}

/// One throw: a conversation and a dialect. Panics with both when something is lost.
pub(crate) fn one(dice: &mut Dice) {
    let upstream = *dice.pick(UPSTREAMS);
    let mut conversation = conversation(dice);
    if upstream != Dialect::Responses && dice.once_in(3) {
        conversation.stop = vec!["END".to_owned(), "\n##".to_owned()];
    }
    let target = Target {
        model: "upstream-model",
        profile: &profile::DEFAULT,
        efforts: &[],
        max_tokens_default: 4096,
        max_tokens_limit: None,
        drop_params: false,
    };
    let encoded = match encode_request(upstream, &conversation, &target) {
        Ok(encoded) => encoded,
        Err(refused) => panic!("{upstream:?} refuses {refused}: {conversation:#?}"),
    };
    let body = String::from_utf8_lossy(&encoded.body).into_owned();
    let read = if upstream == Dialect::Gemini {
        gemini_reader::read(&encoded.body)
    } else {
        Essence::of(
            &decode_request(upstream, &encoded.body).unwrap_or_else(|refused| panic!("{refused}: {body}")),
        )
    };
    let meant = Essence::of(&conversation);
    assert_eq!(read, meant, "{upstream:?}: {body}");
    assert!(
        encoded.dropped.is_empty(),
        "{upstream:?} drops {:?}: {body}",
        encoded.dropped
    );
}

#[test]
fn a_conversation_comes_whole_through_every_upstreams_dialect() {
    crate::streams::throw_all(1500, 10, one);
}
