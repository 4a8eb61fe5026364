"""Conformance of a Waybill node with LangChain for Python, over its packages for OpenAI (chat and Responses) and for
Anthropic."""

import asyncio
import os

os.environ["LANGSMITH_TRACING"] = "false"

import anthropic
import openai
from conformance import (
    BROKEN, CACHED, CITIES, ENDING_MAX, ENGINE, GREET, GREETING, HELLO, INSTRUCTED, KEY, LONG_SYSTEM, MODEL, ODD, OUTPUT,
    PASSING, PNG, REFUSALS, REFUSALS_ON_MESSAGES, SAID_MAX, SCHEMA, SEE, SEEN, STRANGER, STUBBORN, TOTAL_INPUT, UPSTREAM, URL,
    WEATHER, check_instructed, check_told, degrees, each, raises, run, served_after_wait, speaks,
)
from langchain_anthropic import ChatAnthropic
from langchain_core.messages import HumanMessage, SystemMessage, ToolMessage
from langchain_core.tools import tool
from langchain_openai import ChatOpenAI

# The libraries beneath keep their connections from one call to the next, and with them the loop.
LOOP = asyncio.Runner()
FAILURES = (openai.APIError, anthropic.APIError, ValueError, RuntimeError)
SETTINGS = {"api_key": KEY, "model": MODEL, "timeout": 120}
# What a small model has to be told besides.
CALL = {"tool_choice": "any"} if ENGINE else {}


def limit(tokens):
    return {"max_tokens": tokens} if ENGINE else {}


@tool
def weather(city: str) -> str:
    """The weather of a city, now."""
    return degrees(city)


def chat(retries=0, tokens=SAID_MAX, **more):
    settings = {**SETTINGS, **limit(tokens), "stream_usage": True, **more}
    return ChatOpenAI(base_url=f"{URL}/v1", max_retries=retries, **settings)


def responses(retries=0, tokens=SAID_MAX, **more):
    settings = {**SETTINGS, **limit(tokens), "use_responses_api": True, **more}
    return ChatOpenAI(base_url=f"{URL}/v1", max_retries=retries, **settings)


def messages(retries=0, tokens=SAID_MAX, **more):
    settings = {**SETTINGS, "max_tokens": tokens if ENGINE else 2000, **more}
    return ChatAnthropic(base_url=URL, max_retries=retries, **settings)


def text_of(answer):
    return answer.text if isinstance(answer.text, str) else answer.text()


def check_usage(answer):
    usage = answer.usage_metadata
    assert usage["input_tokens"] > 0 and usage["output_tokens"] > 0, usage
    if ENGINE:
        return
    assert (usage["input_tokens"], usage["output_tokens"]) == (TOTAL_INPUT, OUTPUT), usage
    assert usage["input_token_details"]["cache_read"] == CACHED, usage


def whole_of(stream):
    whole = None
    for chunk in stream:
        whole = chunk if whole is None else whole + chunk
    if whole.response_metadata.get("status") == "failed":
        raise ValueError("the answer says that it failed")
    return whole


def invoke(over):
    answer = over().invoke(HELLO)
    assert speaks(text_of(answer)), answer
    check_usage(answer)


def stream(over):
    whole = whole_of(over().stream(HELLO))
    assert speaks(text_of(whole)), whole
    check_usage(whole)


def tools(over):
    first = over(tokens=ENDING_MAX).bind_tools([weather], **CALL).invoke(WEATHER)
    assert [call["args"] for call in first.tool_calls] == CITIES, first
    results = [ToolMessage(weather.invoke(call["args"]), tool_call_id=call["id"]) for call in first.tool_calls]
    # LangChain takes every word for a tool of Anthropic's that it does not know.
    none = {"type": "none"} if over is messages else "none"
    bound = over().bind_tools([weather], **({"tool_choice": none} if ENGINE else {}))
    answer = bound.invoke([HumanMessage(WEATHER), first, *results])
    check_told(text_of(answer))


def tools_stream(over):
    whole = whole_of(over(tokens=ENDING_MAX).bind_tools([weather], **CALL).stream(WEATHER))
    assert [call["args"] for call in whole.tool_calls] == CITIES, whole


def structured_output(over):
    schema = {**SCHEMA, "title": "greeting", "description": "A greeting."}
    bound = over(tokens=ENDING_MAX).with_structured_output(schema, method="json_schema")
    for answer in (bound.invoke(GREET), list(bound.stream(GREET))[-1]):
        assert answer == GREETING, answer


def errors(over):
    library = anthropic if over is messages else openai
    raises(library.NotFoundError, lambda: over(model="no-such-model").invoke(HELLO))
    raises(library.AuthenticationError, lambda: over(api_key=STRANGER).invoke(HELLO))
    raises(library.AuthenticationError, lambda: list(over(api_key=STRANGER).stream(HELLO)))


def image(over):
    part = {"type": "image", "base64": PNG, "mime_type": "image/png"}
    turns = [HumanMessage([{"type": "text", "text": SEE}, part])]
    for answer in (over().invoke(turns), whole_of(over().stream(turns))):
        assert text_of(answer) == SEEN, answer


def long_system(over):
    turns = [SystemMessage(LONG_SYSTEM), HumanMessage(INSTRUCTED)]
    for answer in (over().invoke(turns), whole_of(over().stream(turns))):
        check_instructed(text_of(answer), LONG_SYSTEM)


def odd_streams(over):
    for writing in ODD:
        whole = whole_of(over().stream(f"odd {writing}"))
        assert text_of(whole).startswith("hello from"), (writing, whole)
        # LangChain adds up what a chat server tells with each piece, and such a stream passes as it is.
        if (writing, over, UPSTREAM) != ("counting", chat, "openai"):
            check_usage(whole)


async def whole_asynchronously(prompt, over):
    return whole_of([chunk async for chunk in over().bind_tools([weather]).astream(prompt)])


def streams_asynchronous(over):
    for writing in ODD:
        whole = LOOP.run(whole_asynchronously(f"odd {writing}", over))
        assert text_of(whole).startswith("hello from"), (writing, whole)
    each(
        BROKEN,
        lambda prompt: raises(FAILURES, lambda: LOOP.run(whole_asynchronously(prompt, over))),
        lambda: over().invoke(HELLO),
    )


def refusals(over):
    def act(prompt):
        error = raises((openai.APIStatusError, anthropic.APIStatusError), lambda: over().invoke(prompt))
        due = REFUSALS_ON_MESSAGES if over is messages else REFUSALS
        assert error.status_code == due[prompt], error

    each(REFUSALS, act, lambda: over().invoke(HELLO))


def broken_streams(over):
    bound = over().bind_tools([weather])
    each(BROKEN, lambda prompt: raises(FAILURES, lambda: whole_of(bound.stream(prompt))), lambda: over().invoke(HELLO))


def not_tried_again(over):
    """Every leg was tried: the node says so, and the client beneath believes it."""
    def act(prompt):
        raises((openai.APIStatusError, anthropic.APIStatusError), lambda: over(2).invoke(prompt))

    each(STUBBORN, act, lambda: over().invoke(HELLO))


def tried_again_when_told(over):
    for prompt in PASSING:
        answer = over(2).invoke(f"{prompt} {over.__name__}")
        assert text_of(answer).startswith("hello from"), (prompt, answer)


def tried_again(over):
    def once():
        return over().invoke("refuse 500")

    answer = served_after_wait((openai.APIStatusError, anthropic.APIStatusError), once, lambda: over(2).invoke(HELLO))
    assert "hello" in text_of(answer), answer


def named(case, over):
    def bound():
        case(over)

    bound.__name__ = f"{over.__name__}_{case.__name__}"
    return bound


ANY_MODEL = [invoke, stream, tools, tools_stream, structured_output, errors]
SCRIPTED = [
    image, long_system, odd_streams, streams_asynchronous, refusals, broken_streams, not_tried_again, tried_again_when_told,
    tried_again,
]

if __name__ == "__main__":
    cases = ANY_MODEL if ENGINE else ANY_MODEL + SCRIPTED
    run([named(case, over) for over in (chat, responses, messages) for case in cases])
