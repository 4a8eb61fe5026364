"""Conformance of a Waybill node with the official OpenAI client for Python.

Reads WAYBILL_URL (http://HOST:PORT), WAYBILL_KEY and WAYBILL_MODEL (a chat model with tools and
structured output). Prints `ok NAME` per case, or `skip NAME: why`; exits 1 after the last case if
one failed. With --engine the model is a real one: tool calls are then asked for with `tool_choice`,
since a small model left alone writes what its engine refuses, and a JSON document may be cut short.
"""

import json
import os
import re
import sys
import traceback

import openai

URL = os.environ["WAYBILL_URL"].rstrip("/") + "/v1"
KEY = os.environ["WAYBILL_KEY"]
MODEL = os.environ["WAYBILL_MODEL"]
ENGINE = "--engine" in sys.argv[1:]
OUTPUT_TOKENS_MAX = 48
REQUEST_ID = re.compile(r"^[0-9a-f]{8}-[0-9a-f]{4}-7[0-9a-f]{3}-[89ab][0-9a-f]{3}-[0-9a-f]{12}$")
CALL = {"tool_choice": "required"} if ENGINE else {}
NO_CALL = {"tool_choice": "none"} if ENGINE else {}
MESSAGES = [{"role": "user", "content": "Say hello to the waybill in one short sentence."}]
TOOL = {
    "type": "function",
    "function": {
        "name": "weather",
        "description": "The weather of a city, now.",
        "parameters": {
            "type": "object",
            "properties": {"city": {"type": "string"}},
            "required": ["city"],
            "additionalProperties": False,
        },
    },
}
SCHEMA = {
    "type": "json_schema",
    "json_schema": {
        "name": "greeting",
        "strict": True,
        "schema": {
            "type": "object",
            "properties": {"text": {"type": "string"}, "count": {"type": "integer"}},
            "required": ["text", "count"],
            "additionalProperties": False,
        },
    },
}


class Skip(Exception):
    """The node under test has nothing to run this case on."""


def client(key=KEY):
    return openai.OpenAI(base_url=URL, api_key=key, max_retries=0, timeout=120)


def create(**options):
    settings = {"model": MODEL, "messages": MESSAGES, "max_tokens": OUTPUT_TOKENS_MAX, "temperature": 0}
    return client().chat.completions.create(**{**settings, **options})


def check_usage(usage):
    assert usage.prompt_tokens > 0, usage
    assert usage.completion_tokens > 0, usage
    assert usage.total_tokens == usage.prompt_tokens + usage.completion_tokens, usage


def read(stream):
    """All chunks of a stream, its text and its finish reasons; the client raises when it is illegal."""
    chunks = list(stream)
    choices = [choice for chunk in chunks for choice in chunk.choices]
    text = "".join(choice.delta.content or "" for choice in choices)
    finishes = [choice.finish_reason for choice in choices if choice.finish_reason]
    return chunks, text, finishes


def chat():
    answer = create()
    assert answer.object == "chat.completion", answer
    assert answer.id and answer.created > 0, answer
    assert answer.model == MODEL, answer.model
    assert len(answer.choices) == 1, answer
    assert answer.choices[0].message.role == "assistant", answer
    assert answer.choices[0].message.content, answer
    assert answer.choices[0].finish_reason in ("stop", "length"), answer
    check_usage(answer.usage)


def chat_headers():
    raw = client().chat.completions.with_raw_response.create(
        model=MODEL, messages=MESSAGES, max_tokens=OUTPUT_TOKENS_MAX
    )
    request_id = raw.headers["x-request-id"]
    assert REQUEST_ID.match(request_id), request_id
    assert raw.headers["request-id"] == request_id, raw.headers
    assert raw.headers["content-type"].startswith("application/json"), raw.headers


def chat_stream():
    chunks, text, finishes = read(create(stream=True))
    assert text, chunks
    assert finishes and finishes[-1] in ("stop", "length"), finishes
    assert len(finishes) == 1, finishes
    assert {chunk.model for chunk in chunks} == {MODEL}, chunks
    assert len({chunk.id for chunk in chunks}) == 1, chunks
    assert all(chunk.object == "chat.completion.chunk" for chunk in chunks), chunks
    assert all(chunk.choices for chunk in chunks), "a usage chunk came that nobody asked for"


def chat_stream_usage():
    chunks, text, finishes = read(create(stream=True, stream_options={"include_usage": True}))
    assert text and finishes, chunks
    last = chunks[-1]
    assert last.choices == [], last
    check_usage(last.usage)
    assert all(chunk.choices for chunk in chunks[:-1]), chunks


def chat_stream_closed_early():
    with create(stream=True) as stream:
        assert next(iter(stream)).object == "chat.completion.chunk"


def check_calls(calls):
    for name, arguments in calls:
        assert name == "weather", name
        json.loads(arguments)


def tools():
    answer = create(
        tools=[TOOL], messages=[{"role": "user", "content": "What is the weather in Oslo?"}], **CALL
    )
    choice = answer.choices[0]
    calls = choice.message.tool_calls or []
    assert calls or choice.message.content, answer
    if choice.finish_reason != "length":
        check_calls([(call.function.name, call.function.arguments) for call in calls])


def tools_stream():
    stream = create(
        tools=[TOOL],
        stream=True,
        messages=[{"role": "user", "content": "What is the weather in Oslo?"}],
        **CALL,
    )
    calls, text, finish = {}, "", None
    for chunk in stream:
        for choice in chunk.choices:
            text += choice.delta.content or ""
            finish = choice.finish_reason or finish
            for call in choice.delta.tool_calls or []:
                name, arguments = calls.get(call.index, ("", ""))
                calls[call.index] = (
                    name + (call.function.name or ""),
                    arguments + (call.function.arguments or ""),
                )
    assert finish, "the stream ended without a finish reason"
    assert calls or text, "the stream held nothing"
    if finish != "length":
        check_calls(calls.values())


def tool_result():
    call = {"id": "call_1", "type": "function", "function": {"name": "weather", "arguments": '{"city":"Oslo"}'}}
    answer = create(
        tools=[TOOL],
        messages=[
            {"role": "user", "content": "What is the weather in Oslo?"},
            {"role": "assistant", "content": None, "tool_calls": [call]},
            {"role": "tool", "tool_call_id": "call_1", "content": "4 degrees, rain"},
        ],
        **NO_CALL,
    )
    message = answer.choices[0].message
    assert message.content or message.tool_calls, answer


def response_format():
    answer = create(response_format=SCHEMA, messages=[{"role": "user", "content": "Greet me as JSON."}])
    choice = answer.choices[0]
    assert choice.message.content, answer
    if ENGINE and choice.finish_reason == "stop":
        document = json.loads(choice.message.content)
        assert isinstance(document["text"], str) and isinstance(document["count"], int), document


def models():
    listed = client().models.list()
    ids = [model.id for model in listed]
    assert MODEL in ids, ids
    assert len(ids) == len(set(ids)), ids
    assert all(model.object == "model" for model in listed), listed


def model():
    found = client().models.retrieve(MODEL)
    assert (found.id, found.object) == (MODEL, "model"), found


def model_with_slash():
    slashed = next((model.id for model in client().models.list() if "/" in model.id), None)
    if slashed is None:
        raise Skip("no model of this node has a slash in its id")
    assert client().models.retrieve(slashed).id == slashed


def expect(kind, status, act):
    try:
        act()
    except openai.APIStatusError as error:
        assert type(error) is kind, repr(error)
        assert error.status_code == status, error.status_code
        body = error.response.json()["error"]
        assert body["message"] and body["type"] and body["code"], body
        assert error.request_id == body["request_id"], (error.request_id, body)
        assert REQUEST_ID.match(error.request_id), error.request_id
        return body
    raise AssertionError(f"no error, {status} was due")


def not_found():
    body = expect(openai.NotFoundError, 404, lambda: create(model="no-such-model"))
    assert body["code"] == "model_not_found", body
    assert "no-such-model" not in json.dumps(body), body


def model_not_found():
    expect(openai.NotFoundError, 404, lambda: client().models.retrieve("no/such-model"))


def unauthorized():
    def act():
        client("sk-tenant-0000000000000000000000").chat.completions.create(model=MODEL, messages=MESSAGES)

    body = expect(openai.AuthenticationError, 401, act)
    assert body["code"] == "invalid_api_key", body


def bad_request():
    expect(openai.BadRequestError, 400, lambda: create(messages=[]))


def bad_request_stream():
    expect(openai.BadRequestError, 400, lambda: create(messages=[], stream=True))


def scripted(prompt, **options):
    """A call whose prompt the upstream of the harness answers by a script; no real model does."""
    if ENGINE:
        raise Skip("a real model follows no script")
    return create(messages=[{"role": "user", "content": prompt}], **options)


PNG = "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNkYPhfDwAChwGA60e6kgAAAABJRU5ErkJggg=="
WEATHER = "What is the weather in Oslo and in Bergen?"
ARGUMENTS = ['{"city":"Oslo"}', '{"city":"Bergen"}']
FLAT_TOOL = {"type": "function", **TOOL["function"], "strict": True}


def parallel_tools():
    message = scripted(WEATHER, tools=[TOOL]).choices[0].message
    calls = message.tool_calls
    assert [json.loads(call.function.arguments) for call in calls] == [json.loads(text) for text in ARGUMENTS], calls
    results = [{"role": "tool", "tool_call_id": call.id, "content": "4 degrees"} for call in calls]
    turns = [{"role": "user", "content": WEATHER}, message.model_dump(exclude_none=True), *results]
    assert create(tools=[TOOL], messages=turns).choices[0].message.content


def parallel_tools_stream_helper():
    if ENGINE:
        raise Skip("a real model follows no script")
    messages = [{"role": "user", "content": WEATHER}]
    with client().chat.completions.stream(model=MODEL, messages=messages, tools=[TOOL]) as stream:
        for _ in stream:
            pass
        calls = stream.get_final_completion().choices[0].message.tool_calls
    assert [json.loads(call.function.arguments) for call in calls] == [json.loads(text) for text in ARGUMENTS], calls


def image():
    url = {"url": f"data:image/png;base64,{PNG}"}
    parts = [{"type": "text", "text": "What is this?"}, {"type": "image_url", "image_url": url}]
    assert scripted(parts).choices[0].message.content


def long_system():
    system = {"role": "system", "content": "You answer for a freight office. " * 1500}
    if ENGINE:
        raise Skip("too long for a small model")
    assert create(messages=[system, *MESSAGES]).choices[0].message.content


def cut_stream():
    for prompt in ("cut", "break"):
        stream = scripted(prompt, stream=True)
        try:
            read(stream)
        except openai.APIError:
            continue
        raise AssertionError("a stream that was cut is whole")


def overloaded():
    try:
        scripted("overload")
    except openai.APIStatusError as error:
        assert error.status_code in (429, 503), error
        return
    raise AssertionError("no error")


def respond(prompt, **options):
    if ENGINE:
        raise Skip("a real model follows no script")
    return client().responses.create(model=MODEL, input=prompt, store=False, **options)


def responses():
    answer = respond("Say hello.", instructions="Be brief.")
    assert answer.status == "completed" and "hello" in answer.output_text, answer
    assert answer.usage.total_tokens == answer.usage.input_tokens + answer.usage.output_tokens, answer.usage


def responses_tools():
    answer = respond(WEATHER, tools=[FLAT_TOOL])
    calls = [item for item in answer.output if item.type == "function_call"]
    assert [json.loads(call.arguments) for call in calls] == [json.loads(text) for text in ARGUMENTS], calls
    results = [{"type": "function_call_output", "call_id": call.call_id, "output": "4 degrees"} for call in calls]
    history = [item.model_dump(exclude_none=True) for item in answer.output]
    again = respond([{"role": "user", "content": WEATHER}, *history, *results], tools=[FLAT_TOOL])
    assert "hello" in again.output_text, again


def responses_stream():
    events = list(respond(WEATHER, tools=[FLAT_TOOL], stream=True))
    assert [event.sequence_number for event in events] == list(range(len(events))), events
    assert events[0].type == "response.created" and events[-1].type == "response.completed", events
    done = [event.item.arguments for event in events if event.type == "response.output_item.done" and event.item.type == "function_call"]
    assert [json.loads(text) for text in done] == [json.loads(text) for text in ARGUMENTS], done


def responses_stream_helper():
    if ENGINE:
        raise Skip("a real model follows no script")
    with client().responses.stream(model=MODEL, input="Say hello.", store=False) as stream:
        for _ in stream:
            pass
        final = stream.get_final_response()
    assert "hello" in final.output_text, final


def responses_format():
    form = {"type": "json_schema", **SCHEMA["json_schema"]}
    answer = respond("Greet me as JSON.", text={"format": form})
    assert json.loads(answer.output_text) == {"text": "hello", "count": 1}, answer


def responses_cut():
    for prompt in ("cut", "break"):
        kinds = []
        try:
            kinds = [event.type for event in respond(prompt, stream=True)]
        except openai.APIError:
            continue
        assert kinds[-1] == "response.failed", kinds


CASES = [
    parallel_tools,
    parallel_tools_stream_helper,
    image,
    long_system,
    cut_stream,
    overloaded,
    responses,
    responses_tools,
    responses_stream,
    responses_stream_helper,
    responses_format,
    responses_cut,
    chat,
    chat_headers,
    chat_stream,
    chat_stream_usage,
    chat_stream_closed_early,
    tools,
    tools_stream,
    tool_result,
    response_format,
    models,
    model,
    model_with_slash,
    not_found,
    model_not_found,
    unauthorized,
    bad_request,
    bad_request_stream,
]


def main():
    failed = 0
    for case in CASES:
        try:
            case()
            print(f"ok {case.__name__}", flush=True)
        except Skip as why:
            print(f"skip {case.__name__}: {why}", flush=True)
        except Exception:  # every case is tried, whatever the others did
            failed += 1
            print(f"not ok {case.__name__}", flush=True)
            traceback.print_exc()
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
