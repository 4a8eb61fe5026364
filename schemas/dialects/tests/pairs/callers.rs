//! How callers write what they ask for, one writer per dialect, apart from every codec: with the forms that a dialect
//! leaves them.

use dialects::dialect::Dialect;
use dialects::superset::request::{Conversation, Format, Media, Part, Role, Turn};
use dialects::superset::tool::{Input, Tool, ToolChoice};
use serde_json::{Value, json};

use crate::dice::Dice;

/// A request, for dialects that can carry all of it.
pub(crate) fn write(dialect: Dialect, conversation: &Conversation, dice: &mut Dice) -> Value {
    let mut body = match dialect {
        Dialect::Responses => responses(conversation, dice),
        Dialect::Messages => messages(conversation, dice),
        Dialect::Completions => completions(conversation),
        _ => chat(conversation, dice),
    };
    let sampling = &conversation.sampling;
    for (name, told) in [("temperature", &sampling.temperature), ("top_p", &sampling.top_p)] {
        if let Some(raw) = told {
            body[name] = serde_json::from_str(raw.get()).expect("a number");
        }
    }
    body["model"] = json!(conversation.model);
    if conversation.stream || dice.once_in(3) {
        body["stream"] = json!(conversation.stream);
    }
    body
}

fn text_of(part: &Part) -> &str {
    match part {
        Part::Text { text, .. } => text,
        _ => "",
    }
}

fn texts(turn: &Turn) -> String {
    turn.parts.iter().map(text_of).collect()
}

fn image_of(part: &Part) -> Option<(&str, &str)> {
    match part {
        Part::Image {
            source: Media::Inline { media_type, data },
            ..
        } => Some((media_type, data)),
        _ => None,
    }
}

fn schema(tool: &Tool) -> Value {
    match &tool.input {
        Input::Schema(Some(schema)) => serde_json::from_str(schema.get()).expect("a schema"),
        _ => Value::Null,
    }
}

fn format(conversation: &Conversation) -> Option<Value> {
    match &conversation.format {
        Format::JsonSchema { schema, .. } => Some(serde_json::from_str(schema.get()).expect("a schema")),
        _ => None,
    }
}

fn chat(conversation: &Conversation, dice: &mut Dice) -> Value {
    let mut messages = Vec::new();
    for turn in &conversation.turns {
        match turn.role {
            Role::System => messages.push(json!({"role": "system", "content": texts(turn)})),
            Role::Developer => messages.push(json!({"role": "developer", "content": texts(turn)})),
            Role::User => messages.push(json!({"role": "user", "content": chat_content(turn, dice)})),
            Role::Assistant => messages.push(chat_answer(turn, dice)),
            Role::Tool => {
                for part in &turn.parts {
                    let Part::ToolResult { id, parts, .. } = part else {
                        continue;
                    };
                    let said: String = parts.iter().map(text_of).collect();
                    messages.push(json!({"role": "tool", "tool_call_id": id, "content": said}));
                }
            }
        }
    }
    let limit = *dice.pick(&["max_tokens", "max_completion_tokens"]);
    let mut body = json!({"messages": messages, limit: conversation.max_tokens});
    let tools = conversation.tools.iter().map(|tool| {
        json!({"type": "function",
            "function": {"name": tool.name, "description": tool.description, "parameters": schema(tool)}})
    });
    let tools: Vec<Value> = tools.collect();
    if !tools.is_empty() {
        body["tools"] = json!(tools);
    }
    let choice = conversation.tool_choice.as_ref().map(|choice| match choice {
        ToolChoice::Required => json!("required"),
        ToolChoice::Never => json!("none"),
        ToolChoice::Named(name) => json!({"type": "function", "function": {"name": name}}),
        _ => json!("auto"),
    });
    if let Some(choice) = choice {
        body["tool_choice"] = choice;
    }
    match conversation.stop.as_slice() {
        [] => {}
        [one] if dice.once_in(2) => body["stop"] = json!(one),
        stops => body["stop"] = json!(stops),
    }
    if let Some(schema) = format(conversation) {
        body["response_format"] = json!({"type": "json_schema", "json_schema": {"name": "output", "strict": true, "schema": schema}});
    }
    body
}

fn chat_content(turn: &Turn, dice: &mut Dice) -> Value {
    if turn.parts.len() == 1 && dice.once_in(2) {
        return json!(texts(turn));
    }
    let part = |part: &Part| match image_of(part) {
        Some((kind, data)) => {
            json!({"type": "image_url", "image_url": {"url": format!("data:{kind};base64,{data}")}})
        }
        None => json!({"type": "text", "text": text_of(part)}),
    };
    turn.parts.iter().map(part).collect()
}

fn chat_answer(turn: &Turn, dice: &mut Dice) -> Value {
    let said = texts(turn);
    let mut message = json!({"role": "assistant", "content": said});
    if said.is_empty() && dice.once_in(2) {
        message["content"] = Value::Null;
    }
    let calls = turn.parts.iter().filter_map(|part| match part {
        Part::ToolCall(call) => Some(json!({"id": call.id, "type": "function",
            "function": {"name": call.name, "arguments": call.arguments}})),
        _ => None,
    });
    let calls: Vec<Value> = calls.collect();
    if !calls.is_empty() {
        message["tool_calls"] = json!(calls);
    }
    message
}

fn messages(conversation: &Conversation, dice: &mut Dice) -> Value {
    let (mut system, mut messages) = (Vec::new(), Vec::<Value>::new());
    for turn in &conversation.turns {
        let role = match turn.role {
            Role::System | Role::Developer => {
                system.push(json!({"type": "text", "text": texts(turn)}));
                continue;
            }
            Role::Assistant => "assistant",
            Role::User | Role::Tool => "user",
        };
        let blocks: Vec<Value> = turn.parts.iter().map(|part| block(part, dice)).collect();
        match messages.last_mut().filter(|last| last["role"] == role) {
            Some(last) => last["content"].as_array_mut().expect("blocks").extend(blocks),
            None => messages.push(json!({"role": role, "content": blocks})),
        }
    }
    for message in &mut messages {
        let only = message["content"][0]["text"].as_str().map(str::to_owned);
        if let Some(text) = only
            && message["content"].as_array().map(Vec::len) == Some(1)
            && dice.once_in(2)
        {
            message["content"] = json!(text);
        }
    }
    let mut body = json!({"messages": messages, "max_tokens": conversation.max_tokens});
    match system.as_slice() {
        [] => {}
        [one] if dice.once_in(2) => body["system"] = one["text"].clone(),
        _ => body["system"] = json!(system),
    }
    let tools = conversation.tools.iter().map(
        |tool| json!({"name": tool.name, "description": tool.description, "input_schema": schema(tool)}),
    );
    let tools: Vec<Value> = tools.collect();
    if !tools.is_empty() {
        body["tools"] = json!(tools);
    }
    if let Some(choice) = &conversation.tool_choice {
        body["tool_choice"] = match choice {
            ToolChoice::Required => json!({"type": "any"}),
            ToolChoice::Never => json!({"type": "none"}),
            ToolChoice::Named(name) => json!({"type": "tool", "name": name}),
            _ => json!({"type": "auto"}),
        };
    }
    if !conversation.stop.is_empty() {
        body["stop_sequences"] = json!(conversation.stop);
    }
    if let Some(schema) = format(conversation) {
        body["output_config"] = json!({"format": {"type": "json_schema", "schema": schema}});
    }
    body
}

fn block(part: &Part, dice: &mut Dice) -> Value {
    match part {
        Part::ToolCall(call) => {
            let input: Value = serde_json::from_str(&call.arguments).expect("an object");
            json!({"type": "tool_use", "id": call.id, "name": call.name, "input": input})
        }
        Part::ToolResult { id, parts, .. } => {
            let said: String = parts.iter().map(text_of).collect();
            let content = if dice.once_in(2) {
                json!(said)
            } else {
                json!([{"type": "text", "text": said}])
            };
            json!({"type": "tool_result", "tool_use_id": id, "content": content})
        }
        other => match image_of(other) {
            Some((kind, data)) => {
                json!({"type": "image", "source": {"type": "base64", "media_type": kind, "data": data}})
            }
            None => json!({"type": "text", "text": text_of(other)}),
        },
    }
}

fn responses(conversation: &Conversation, dice: &mut Dice) -> Value {
    let mut body = json!({"max_output_tokens": conversation.max_tokens});
    let mut input = Vec::new();
    for (number, turn) in conversation.turns.iter().enumerate() {
        if number == 0 && turn.role == Role::System && dice.once_in(2) {
            body["instructions"] = json!(texts(turn));
            continue;
        }
        responses_items(turn, &mut input, dice);
    }
    body["input"] = match input.as_slice() {
        [only] if only["role"] == "user" && only["content"].is_string() && dice.once_in(2) => {
            only["content"].clone()
        }
        _ => json!(input),
    };
    let tools = conversation.tools.iter().map(|tool| {
        json!({"type": "function", "name": tool.name, "description": tool.description, "strict": false,
            "parameters": schema(tool)})
    });
    let tools: Vec<Value> = tools.collect();
    if !tools.is_empty() {
        body["tools"] = json!(tools);
    }
    if let Some(choice) = &conversation.tool_choice {
        body["tool_choice"] = match choice {
            ToolChoice::Required => json!("required"),
            ToolChoice::Never => json!("none"),
            ToolChoice::Named(name) => json!({"type": "function", "name": name}),
            _ => json!("auto"),
        };
    }
    if let Some(schema) = format(conversation) {
        body["text"] =
            json!({"format": {"type": "json_schema", "name": "output", "strict": true, "schema": schema}});
    }
    body
}

fn responses_items(turn: &Turn, input: &mut Vec<Value>, dice: &mut Dice) {
    let role = match turn.role {
        Role::System => "system",
        Role::Developer => "developer",
        Role::Assistant => "assistant",
        Role::User | Role::Tool => "user",
    };
    let kind = if turn.role == Role::Assistant {
        "output_text"
    } else {
        "input_text"
    };
    let mut said = Vec::new();
    for part in &turn.parts {
        match part {
            Part::ToolCall(call) => {
                push(role, &mut said, input, dice);
                input.push(
                    json!({"type": "function_call", "call_id": call.id, "name": call.name,
                    "arguments": call.arguments, "id": format!("fc_{}", call.id), "status": "completed"}),
                );
            }
            Part::ToolResult { id, parts, .. } => {
                let text: String = parts.iter().map(text_of).collect();
                let output = if dice.once_in(2) {
                    json!(text)
                } else {
                    json!([{"type": "input_text", "text": text}])
                };
                input.push(json!({"type": "function_call_output", "call_id": id, "output": output}));
            }
            other => said.push(match image_of(other) {
                Some((media, data)) => {
                    json!({"type": "input_image", "image_url": format!("data:{media};base64,{data}")})
                }
                None => json!({"type": kind, "text": text_of(other)}),
            }),
        }
    }
    push(role, &mut said, input, dice);
}

/// A message of what was said so far, if anything was.
fn push(role: &str, said: &mut Vec<Value>, input: &mut Vec<Value>, dice: &mut Dice) {
    if said.is_empty() {
        return;
    }
    let mut message = json!({"role": role, "content": said});
    if dice.once_in(2) {
        message["type"] = json!("message");
    }
    if let [only] = said.as_slice()
        && only["text"].is_string()
        && dice.once_in(2)
    {
        message["content"] = only["text"].clone();
    }
    input.push(message);
    said.clear();
}

fn completions(conversation: &Conversation) -> Value {
    let prompt: String = conversation.turns.iter().map(texts).collect();
    json!({"prompt": prompt, "max_tokens": conversation.max_tokens, "stop": conversation.stop})
}
