// The playground: a conversation or a completion, streamed, each token tinted by its probability.
"use strict";

const NUM_ALTERNATIVES = 5;
const turns = [];  // the conversation as the API takes it
let stopper = null;  // of the answer that is being written
let pointed = null;  // the token whose alternatives are shown

const chance = (logprob) => Math.exp(logprob);
const percent = (p) => p >= 0.1 ? `${(p * 100).toFixed(0)} %` : p >= 0.0001 ? `${(p * 100).toFixed(2)} %` : "< 0.01 %";
const visible = (text) => text.replace(/ /g, "\u00b7").replace(/\n/g, "\u21b5").replace(/\t/g, "\u21e5") || "\u2205";

function parameters() {
  const asked = { model: at("model").textContent || undefined, stream: true, stream_options: { include_usage: true } };
  for (const name of ["temperature", "top_p", "max_tokens", "seed"]) {
    if (at(name).value !== "") asked[name] = Number(at(name).value);
  }
  if (at("stop").value) asked.stop = at("stop").value;
  return asked;
}

function request(text) {
  const asked = parameters();
  if (at("mode").value === "completion") return ["v1/completions", { ...asked, prompt: text, logprobs: NUM_ALTERNATIVES }];
  const system = at("system").value ? [{ role: "system", content: at("system").value }] : [];
  return ["v1/chat/completions", { ...asked, messages: [...system, ...turns], logprobs: true, top_logprobs: NUM_ALTERNATIVES }];
}

// Tokens of one event, each with its logprob and the best alternatives, from either endpoint's shape.
function tokensOf(choice) {
  if (choice.logprobs?.content) {
    return choice.logprobs.content.map((each) => ({ text: each.token, logprob: each.logprob, top: each.top_logprobs.map((t) => [t.token, t.logprob]) }));
  }
  if (choice.logprobs?.tokens) {
    const { tokens, token_logprobs, top_logprobs } = choice.logprobs;
    return tokens.map((text, i) => ({ text, logprob: token_logprobs[i], top: Object.entries(top_logprobs?.[i] ?? {}).sort((a, b) => b[1] - a[1]) }));
  }
  return [];
}

// The event's text, laid over its tokens. A token that is only a part of a character has no text of its own.
function append(turn, choice) {
  let text = choice.delta ? choice.delta.content ?? "" : choice.text ?? "";
  turn.said += text;
  const tokens = tokensOf(choice);
  tokens.forEach((token, i) => {
    const last = i === tokens.length - 1;
    const own = last ? text : text.startsWith(token.text) ? token.text : "";
    text = text.slice(own.length);
    const span = make("span", "token", own);
    span.token = token;
    if (token.logprob !== null) span.style.backgroundColor = `rgba(var(--token), ${(1 - chance(token.logprob)) * 0.45})`;
    turn.box.append(span);
  });
  if (!tokens.length && text) turn.box.append(make("span", "", text));
  const log = at("log");
  log.scrollTop = log.scrollHeight;
}

function addTurn(role, text) {
  const box = make("div", `turn ${role}`, text);
  if (role === "assistant") box.tabIndex = 0;
  at("log").append(box);
  return { box, said: "" };
}

async function send(text) {
  const chat = at("mode").value === "chat";
  at("problem").hidden = true;
  addTurn("user", text);
  if (chat) turns.push({ role: "user", content: text });
  const turn = addTurn("assistant", ""), began = performance.now();
  let first = null, usage = null;
  stopper = new AbortController();
  busy(true);
  try {
    const [path, body] = request(text);
    const options = { method: "POST", signal: stopper.signal, headers: { "content-type": "application/json" }, body: JSON.stringify(body) };
    await readEvents(path, options, (data) => {
      if (data === "[DONE]") return;
      const event = JSON.parse(data);
      if (event.error) throw Object.assign(new Error(event.error.message), { code: event.error.code });
      usage = event.usage ?? usage;
      for (const choice of event.choices) append(turn, choice);
      if (turn.said) first ??= performance.now();
    });
  } catch (problem) {
    if (problem.name !== "AbortError") explain(problem);
  }
  if (chat) turn.said ? turns.push({ role: "assistant", content: turn.said }) : turns.pop();
  if (!turn.said) turn.box.remove();
  figures(began, first, usage);
  busy(false);
}

function explain(problem) {
  const none = problem.code === "no_chat_template";
  if (none) at("mode").value = "completion";
  at("problem").textContent = none ? "This model has no chat template; the mode is now completion. Send again." : problem.message;
  at("problem").hidden = false;
}

function figures(began, first, usage) {
  if (first === null) return void (at("figures").textContent = "");
  const seconds = (performance.now() - first) / 1000, parts = [`first token after ${Math.round(first - began)} ms`];
  if (usage) parts.push(`${usage.prompt_tokens} + ${usage.completion_tokens} tokens`);
  if (usage && seconds > 0 && usage.completion_tokens > 1) parts.push(`${((usage.completion_tokens - 1) / seconds).toFixed(1)} tokens/s`);
  at("figures").textContent = parts.join(", ");
}

function busy(on) {
  at("send").disabled = on;
  at("halt").disabled = !on;
  at("log").setAttribute("aria-busy", on);
  if (!on) at("text").focus();
}

// The alternatives of one token, beside it; null hides them.
function point(span) {
  pointed?.classList.remove("at");
  pointed = span;
  const tip = at("tip");
  tip.hidden = !span;
  if (!span) return;
  span.classList.add("at");
  const { text, logprob, top } = span.token, table = make("table");
  const rows = top.some(([other]) => other === text) ? top : [[text, logprob], ...top];
  for (const [other, value] of rows) {
    const row = make("tr", other === text ? "chosen" : "");
    row.append(make("td", "", visible(other)), make("td", "", value === null ? "" : percent(chance(value))));
    table.append(row);
  }
  tip.replaceChildren(table);
  const spot = span.getBoundingClientRect(), size = tip.getBoundingClientRect();
  tip.style.left = `${Math.max(4, Math.min(spot.left, window.innerWidth - size.width - 4))}px`;
  tip.style.top = `${spot.bottom + size.height + 6 < window.innerHeight ? spot.bottom + 4 : spot.top - size.height - 4}px`;
}

function step(box, forward) {
  const tokens = [...box.querySelectorAll(".token")], now = tokens.indexOf(pointed);
  const next = tokens[now < 0 ? (forward ? 0 : tokens.length - 1) : now + (forward ? 1 : -1)];
  if (!next) return;
  next.scrollIntoView({ block: "nearest" });
  point(next);
}

at("ask").addEventListener("submit", (event) => {
  event.preventDefault();
  const text = at("text").value;
  if (!text.trim() || at("send").disabled) return;
  at("text").value = "";
  send(text);
});
at("text").addEventListener("keydown", (event) => {
  if (event.key !== "Enter" || event.shiftKey || event.isComposing) return;
  event.preventDefault();
  at("ask").requestSubmit();
});
at("halt").addEventListener("click", () => stopper?.abort());
at("clear").addEventListener("click", () => {
  stopper?.abort();
  turns.length = 0;
  point(null);
  at("log").replaceChildren();
  at("problem").hidden = true;
  at("figures").textContent = "";
});
document.addEventListener("keydown", (event) => {
  const box = event.target.closest?.(".turn.assistant");
  if (event.key === "Escape") pointed ? point(null) : stopper?.abort();
  else if (box && (event.key === "ArrowRight" || event.key === "ArrowLeft")) {
    event.preventDefault();
    step(box, event.key === "ArrowRight");
  }
});
at("log").addEventListener("pointerover", (event) => point(event.target.closest(".token")));
at("log").addEventListener("pointerleave", () => point(null));
at("log").addEventListener("focusout", () => point(null));
