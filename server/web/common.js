// What both halves of the page use: elements by id, and server-sent events read with fetch, so that the key goes along.
"use strict";

const at = (id) => document.getElementById(id);

function make(name, cls, text) {
  const made = document.createElement(name);
  if (cls) made.className = cls;
  if (text !== undefined) made.textContent = text;
  return made;
}

// Calls onEvent with the data of each event until the stream ends. Throws an Error with the server's own words and code.
async function readEvents(path, options, onEvent) {
  const answer = await fetch(path, options);
  if (!answer.ok) throw await problemOf(answer);
  const reader = answer.body.pipeThrough(new TextDecoderStream()).getReader();
  for (let rest = ""; ;) {
    const { value, done } = await reader.read();
    if (done) return;
    const parts = (rest + value).split("\n\n");
    rest = parts.pop();
    for (const part of parts) {
      for (const line of part.split("\n")) if (line.startsWith("data: ")) onEvent(line.slice(6));
    }
  }
}

async function problemOf(answer) {
  const body = await answer.json().catch(() => null);
  const problem = new Error(body?.error?.message ?? `the server answered ${answer.status}`);
  problem.code = body?.error?.code;
  return problem;
}
