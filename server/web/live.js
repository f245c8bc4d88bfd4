// The live view: figures, the rate over two minutes, and the blocks of the KV cache, from the events of /live.
"use strict";

const HISTORY = 240;  // half seconds
const FREE = 0, CACHED = 1, SHARED = 2, OWNED = 3;
const rates = [];

const css = (name) => getComputedStyle(document.documentElement).getPropertyValue(name).trim();
// neighbours in number are far apart in hue: the golden angle
const hue = (state) => `hsl(${((state - OWNED) * 137.508) % 360} 65% 52%)`;
const colourOf = (state) => state === FREE ? css("--free") : state === CACHED ? css("--cached") : state === SHARED ? css("--shared") : hue(state);

// A canvas as sharp as the screen; returns its pencil and its size in CSS pixels.
function pencil(canvas, height) {
  const width = canvas.clientWidth, ratio = window.devicePixelRatio || 1;
  canvas.style.height = `${height}px`;
  canvas.width = Math.round(width * ratio);
  canvas.height = Math.round(height * ratio);
  const pen = canvas.getContext("2d");
  pen.scale(ratio, ratio);
  return { pen, width };
}

function drawRate() {
  const canvas = at("rate"), height = 70, { pen, width } = pencil(canvas, height);
  const most = Math.max(10, ...rates), step = width / (HISTORY - 1);
  pen.fillStyle = css("--free");
  pen.fillRect(0, 0, width, height);
  pen.strokeStyle = css("--accent");
  pen.lineWidth = 2;
  pen.beginPath();
  rates.forEach((rate, i) => pen.lineTo(width - (rates.length - 1 - i) * step, height - 3 - rate / most * (height - 20)));
  pen.stroke();
  pen.fillStyle = css("--quiet");
  pen.font = "12px system-ui, sans-serif";
  pen.fillText(`${Math.round(most)} tokens/s`, 6, 14);
}

function drawBlocks(canvas, runs) {
  let cells = 0;
  for (let i = 1; i < runs.length; i += 2) cells += runs[i];
  const room = canvas.clientWidth, size = Math.max(3, Math.min(12, Math.floor(Math.sqrt(room * 220 / Math.max(cells, 1)))));
  const columns = Math.max(1, Math.floor(room / size));
  const { pen } = pencil(canvas, Math.ceil(cells / columns) * size);
  for (let i = 0, cell = 0; i < runs.length; i += 2) {
    pen.fillStyle = colourOf(runs[i]);
    for (let n = 0; n < runs[i + 1]; n++, cell++) {
      pen.fillRect((cell % columns) * size, Math.floor(cell / columns) * size, size - 1, size - 1);
    }
  }
}

const mib = (blocks, group) => `${(blocks * group.block_bytes / 2 ** 20).toFixed(blocks * group.block_bytes < 2 ** 27 ? 1 : 0)} MiB`;

function drawGroups(look) {
  const room = at("groups");
  while (room.children.length > look.groups.length) room.lastChild.remove();
  look.groups.forEach((group, i) => {
    if (!room.children[i]) {
      const made = make("div");
      made.append(make("p", "small quiet"), make("canvas"));
      room.append(made);
    }
    const [words, canvas] = room.children[i].children, picture = look.picture[i];
    const total = group.used + group.cached + group.free;
    words.textContent = `${total} blocks, ${mib(total, group)}: ${group.used} used (${mib(group.used, group)}), ${group.cached} cached, ${group.free} free`
      + (picture && picture.blocks_per_cell > 1 ? `; a cell is ${picture.blocks_per_cell} blocks` : "");
    canvas.setAttribute("role", "img");
    canvas.setAttribute("aria-label", words.textContent);
    if (picture) drawBlocks(canvas, picture.runs);
  });
}

function show(look) {
  const { prompt, decode } = look.tokens_per_second, first = look.time_to_first_token_seconds;
  at("decode").textContent = decode.toFixed(decode < 100 ? 1 : 0);
  at("prompt").textContent = prompt.toFixed(prompt < 100 ? 1 : 0);
  at("first").textContent = first === null ? "–" : first < 1 ? `${Math.round(first * 1000)} ms` : `${first.toFixed(1)} s`;
  at("running").textContent = look.running;
  at("waiting").textContent = look.waiting;
  at("model").textContent = look.model;
  setState(look.state, look.state === "ready" ? "ready" : "down");
  rates.push(decode);
  if (rates.length > HISTORY) rates.shift();
  drawRate();
  drawGroups(look);
}

function setState(words, cls) {
  at("state").textContent = words;
  at("state").className = `state ${cls}`;
}

// For as long as the page is in sight; a hidden one watches nothing, so it costs the server nothing.
async function watch() {
  for (;;) {
    await new Promise((go) => document.hidden ? document.addEventListener("visibilitychange", go, { once: true }) : go());
    const stop = new AbortController();
    const hide = () => document.hidden && stop.abort();
    document.addEventListener("visibilitychange", hide);
    try {
      await readEvents("live", { signal: stop.signal }, (data) => show(JSON.parse(data)));
    } catch (problem) {
      if (!document.hidden) setState(problem.code ? problem.message : "no connection", "down");
    }
    document.removeEventListener("visibilitychange", hide);
    await new Promise((go) => setTimeout(go, 2000));
  }
}

watch();
