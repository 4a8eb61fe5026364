"""Conformance of a Waybill node with LiteLLM as its client, over OpenAI's chat and Responses and Anthropic's Messages."""

import json
import os

os.environ["LITELLM_LOCAL_MODEL_COST_MAP"] = "True"

import litellm
import openai
from conformance import (
    BROKEN, CITIES, CITY, GREET, GREETING, HELLO, INSTRUCTED, KEY, LONG_SYSTEM, MODEL, ODD, OUTPUT, PNG, REFUSALS, SCHEMA, SEE,
    SEEN, STRANGER, TOTAL_INPUT, URL, WEATHER, check_instructed, check_told, degrees, each, raises, run,
)

litellm.telemetry = False
litellm.suppress_debug_info = True
FUNCTION = {"name": "weather", "description": "The weather of a city, now.", "parameters": CITY}
TOOL = {"type": "function", "function": FUNCTION}
FORMAT = {"type": "json_schema", "json_schema": {"name": "greeting", "strict": True, "schema": SCHEMA}}
IMAGE = {"type": "image_url", "image_url": {"url": f"data:image/png;base64,{PNG}"}}


def said(prompt):
    return [{"role": "user", "content": prompt}]


def chat(key=KEY):
    return {"model": f"openai/{MODEL}", "api_base": f"{URL}/v1", "api_key": key}


def messages(key=KEY):
    return {"model": f"anthropic/{MODEL}", "api_base": URL, "api_key": key, "max_tokens": 2000}


def ask(over, turns, retries=0, **options):
    turns = said(turns) if isinstance(turns, str) else turns
    return litellm.completion(messages=turns, num_retries=retries, max_retries=0, **over(), **options)


def streamed(over, turns, **options):
    """A whole answer made of the pieces of a stream, as the library makes it."""
    pieces = list(ask(over, turns, stream=True, stream_options={"include_usage": True}, **options))
    return litellm.stream_chunk_builder(pieces)


def both(over, turns, **options):
    return [form(over, turns, **options) for form in (ask, streamed)]


def text_of(answer):
    return answer.choices[0].message.content


def check_usage(usage):
    assert (usage.prompt_tokens, usage.completion_tokens) == (TOTAL_INPUT, OUTPUT), usage


def answers(over):
    for answer in both(over, HELLO):
        assert text_of(answer).startswith("hello from"), answer
        assert answer.choices[0].finish_reason == "stop", answer
        check_usage(answer.usage)


def tools(over):
    for answer in both(over, WEATHER, tools=[TOOL]):
        message = answer.choices[0].message
        given = [json.loads(call.function.arguments) for call in message.tool_calls]
        assert given == CITIES and answer.choices[0].finish_reason == "tool_calls", answer
        results = [
            {"role": "tool", "tool_call_id": call.id, "content": degrees(wanted["city"])}
            for call, wanted in zip(message.tool_calls, given)
        ]
        check_told(text_of(ask(over, [*said(WEATHER), message.model_dump(exclude_none=True), *results], tools=[TOOL])))


def structured_output(over):
    for answer in both(over, GREET, response_format=FORMAT):
        assert json.loads(text_of(answer)) == GREETING, answer


def image(over):
    for answer in both(over, said([{"type": "text", "text": SEE}, IMAGE])):
        assert text_of(answer) == SEEN, answer


def long_system(over):
    for answer in both(over, [{"role": "system", "content": LONG_SYSTEM}, *said(INSTRUCTED)]):
        check_instructed(text_of(answer), LONG_SYSTEM)


def odd_streams(over):
    for writing in ODD:
        answer = streamed(over, f"odd {writing}")
        assert text_of(answer).startswith("hello from"), (writing, answer)
        assert answer.choices[0].finish_reason == "stop", (writing, answer)
        check_usage(answer.usage)


def errors(over):
    unknown = {**over(), "model": over()["model"].replace(MODEL, "no-such-model")}
    raises(openai.NotFoundError, lambda: litellm.completion(messages=said(HELLO), max_retries=0, **unknown))


def refusals(over):
    def act(prompt):
        error = raises(openai.APIError, lambda: ask(over, prompt))
        assert (error.status_code >= 500) == (REFUSALS[prompt] >= 500), (prompt, error)
        assert REFUSALS[prompt] >= 500 or error.status_code == REFUSALS[prompt], (prompt, error)

    each(REFUSALS, act, lambda: ask(over, HELLO))


def unauthorized(over):
    raises(openai.AuthenticationError, lambda: litellm.completion(messages=said(HELLO), max_retries=0, **over(STRANGER)))


def broken_streams(over):
    each(BROKEN, lambda prompt: raises(openai.APIError, lambda: streamed(over, prompt, tools=[TOOL])), lambda: ask(over, HELLO))


def tried_again_at_once(over):
    """The library goes by the status alone: it tries again what the node says is final."""
    for status in (429, 503, 529):
        assert text_of(ask(over, f"once {status} {over.__name__}", retries=2)).startswith("hello from"), status


def respond(prompt, **options):
    return litellm.responses(input=prompt, store=False, max_retries=0, **chat(), **options)


def items(answer, kind):
    return [item for item in answer.output if item.type == kind]


def response_text(answer):
    return items(answer, "message")[-1].content[0].text


def response_last(prompt, **options):
    """The answer that the last event of a stream brings; an error where it brings none."""
    last = list(respond(prompt, stream=True, **options))[-1]
    assert last.type == "response.completed", last
    return last.response


def responses():
    for answer in (respond(HELLO), response_last(HELLO)):
        assert response_text(answer).startswith("hello from"), answer
        assert (answer.usage.input_tokens, answer.usage.output_tokens) == (TOTAL_INPUT, OUTPUT), answer.usage


def responses_tools():
    for form in (respond, response_last):
        calls = items(form(WEATHER, tools=[{"type": "function", **FUNCTION}]), "function_call")
        assert [json.loads(call.arguments) for call in calls] == CITIES, calls


def responses_format():
    schema = {"format": {"type": "json_schema", "name": "greeting", "strict": True, "schema": SCHEMA}}
    for form in (respond, response_last):
        assert json.loads(response_text(form(GREET, text=schema))) == GREETING


def responses_streams():
    """Of models that it does not know the library asks whole answers, and makes streams of them by itself."""
    for writing in [writing for writing in ODD if writing != "garbled"]:
        assert response_text(response_last(f"odd {writing}")).startswith("hello from"), writing
    each(BROKEN, lambda prompt: raises((openai.APIError, AssertionError), lambda: response_last(prompt)), lambda: respond(HELLO))


def named(case, over):
    def bound():
        case(over)

    bound.__name__ = f"{over.__name__}_{case.__name__}"
    return bound


CASES = [
    answers, tools, structured_output, image, long_system, odd_streams, errors, refusals, unauthorized, broken_streams,
    tried_again_at_once,
]

if __name__ == "__main__":
    run([named(case, over) for over in (chat, messages) for case in CASES] + [
        responses, responses_tools, responses_format, responses_streams,
    ])
