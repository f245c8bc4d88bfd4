"""OpenAI's client for node: chat, completions, streams, responses, structured outputs, errors. One script for all.

KVELL_NODE_MODULES is the folder in which `npm install openai zod` was run.
"""

import json
import os
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest

from tests.helpers.live_server import LiveServer

MODULES = Path(os.environ.get("KVELL_NODE_MODULES", "."))
SCRIPT = """
import OpenAI from "openai";
import { zodResponseFormat, zodTextFormat } from "openai/helpers/zod";
import { z } from "zod";

const client = new OpenAI({ baseURL: process.env.URL + "/v1", apiKey: "none", maxRetries: 0 });
const chat = { model: "tiny", messages: [{ role: "user", content: "hi" }], max_tokens: 8, temperature: 0 };
const found = {};

found.models = (await client.models.list()).data.map((model) => model.id);
found.chat = (await client.chat.completions.create(chat)).choices[0].message.content;

found.stream = "";
found.usage = null;
const streaming = { stream: true, stream_options: { include_usage: true } };
for await (const chunk of await client.chat.completions.create({ ...chat, ...streaming })) {
  found.stream += chunk.choices[0]?.delta?.content ?? "";
  found.usage = chunk.usage ?? found.usage;
}

const runner = client.chat.completions.stream(chat);
found.runner = await runner.finalContent();

const prompt = { model: "tiny", prompt: "once", max_tokens: 8, temperature: 0 };
found.completion = (await client.completions.create(prompt)).choices[0].text;
found.completionStream = "";
for await (const chunk of await client.completions.create({ ...prompt, stream: true })) {
  found.completionStream += chunk.choices[0].text;
}

const asked = { model: "tiny", input: "hi", max_output_tokens: 8, temperature: 0, store: false };
found.response = (await client.responses.create(asked)).output_text;
found.responseEvents = [];
for await (const event of await client.responses.create({ ...asked, stream: true })) {
  found.responseEvents.push(event.type);
}
found.responseStream = (await client.responses.stream(asked).finalResponse()).output_text;

const format = zodResponseFormat(z.object({ ok: z.boolean(), n: z.enum(["a", "b"]) }), "answer");
const parsed = await client.chat.completions.parse({ ...chat, max_tokens: 200, response_format: format });
found.parsed = parsed.choices[0].message.parsed;

const schema = z.object({ ok: z.boolean(), n: z.enum(["a", "b"]) });
const asking = { ...asked, max_output_tokens: 200, text: { format: zodTextFormat(schema, "answer") } };
found.parsedResponse = (await client.responses.parse(asking)).output_parsed;

const parameters = {
  type: "object",
  properties: { city: { enum: ["Ulm", "Köln"] } },
  required: ["city"],
  additionalProperties: false,
};
const once = { tool_choice: "required", parallel_tool_calls: false };
const tools = [{ type: "function", function: { name: "weather", parameters } }];
const calling = { ...chat, ...once, max_tokens: 200, tools };
const first = (await client.chat.completions.create(calling)).choices[0];
found.call = first.message.tool_calls[0];
found.callEnd = first.finish_reason;
const streamed = await client.chat.completions.stream(calling).finalMessage();
found.streamedCall = streamed.tool_calls[0];
const brought = { role: "tool", tool_call_id: found.call.id, content: "rain" };
const history = [...chat.messages, first.message, brought];
const more = { ...calling, messages: history, tool_choice: "auto", max_tokens: 8 };
found.grew = (await client.chat.completions.create(more)).usage.prompt_tokens;
found.began = (await client.chat.completions.create(calling)).usage.prompt_tokens;

const tool = { type: "function", name: "weather", parameters, strict: true };
const answered = await client.responses.create({ ...asked, ...once, max_output_tokens: 200, tools: [tool] });
found.responseCall = answered.output.find((item) => item.type === "function_call");

try {
  await client.chat.completions.create({ ...chat, temperature: 7 });
} catch (error) {
  found.error = [error instanceof OpenAI.BadRequestError, error.status, error.code, error.param];
}
console.log(JSON.stringify(found));
"""


@pytest.fixture(scope="module")
def found(server: LiveServer) -> dict[str, Any]:
    """What the client got."""
    if shutil.which("node") is None:
        pytest.skip("needs node")
    if not (MODULES / "node_modules" / "openai").is_dir():
        pytest.skip("needs npm's openai, see make test-clients")
    run = subprocess.run(
        ["node", "--input-type=module", "-e", SCRIPT],
        cwd=MODULES,
        env=os.environ | {"URL": server.url},
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert run.returncode == 0, run.stderr
    read: dict[str, Any] = json.loads(run.stdout.splitlines()[-1])
    return read


def test_it_lists_the_model(found: dict[str, Any]) -> None:
    assert found["models"] == ["tiny"]


def test_it_chats_and_every_way_of_streaming_says_the_same(found: dict[str, Any]) -> None:
    assert found["chat"]
    assert found["stream"] == found["runner"] == found["chat"]
    assert found["usage"]["completion_tokens"] == 8


def test_it_completes_text_streamed_or_not(found: dict[str, Any]) -> None:
    assert found["completionStream"] == found["completion"] != ""


def test_it_uses_the_responses_api(found: dict[str, Any]) -> None:
    assert found["response"] == found["responseStream"] == found["chat"]
    assert found["responseEvents"][0] == "response.created"
    assert found["responseEvents"][-1] == "response.incomplete"
    assert found["responseEvents"].count("response.output_text.done") == 1


def test_it_parses_structured_outputs(found: dict[str, Any]) -> None:
    assert type(found["parsed"]["ok"]) is bool
    assert found["parsed"]["n"] in ("a", "b")


def test_it_parses_structured_outputs_of_responses(found: dict[str, Any]) -> None:
    assert type(found["parsedResponse"]["ok"]) is bool
    assert found["parsedResponse"]["n"] in ("a", "b")


def test_it_gets_calls_whole_and_streamed_and_goes_on_with_what_they_brought(found: dict[str, Any]) -> None:
    assert found["callEnd"] == "tool_calls"
    assert found["call"]["function"]["name"] == "weather"
    assert json.loads(found["call"]["function"]["arguments"])["city"] in ("Ulm", "Köln")
    assert found["streamedCall"]["function"] == found["call"]["function"]
    assert found["grew"] > found["began"]


def test_it_gets_calls_of_responses(found: dict[str, Any]) -> None:
    assert found["responseCall"]["name"] == "weather"
    assert json.loads(found["responseCall"]["arguments"])["city"] in ("Ulm", "Köln")


def test_it_reads_our_errors(found: dict[str, Any]) -> None:
    assert found["error"] == [True, 400, "invalid_value", "temperature"]
