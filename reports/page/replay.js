"use strict";
// The replay: two runs on one simulated clock. Canvas, because it is redrawn every frame; the numbers are text.

const replay = { at: 0, playing: false, isPoster: true, speed: 1, sides: [], end: 1, lastFrame: 0, lastText: 0 };
const PHASE_COLOURS = ["", "#b8508f", "#4f9aa8", "#8f8a2f", "#6b6fc4", ""];

function number(value) {
  if (value === null || Number.isNaN(value)) return "-";
  if (value >= 1e6) return (value / 1e6).toFixed(1) + " M";
  return Math.round(value).toLocaleString("en");
}

/** Prefill queue and batch over the whole run, for the strip under each side and for its scale. */
function outline(run, width) {
  const points = [];
  for (let k = 0; k <= width; k++) {
    const state = stateAt(run, run.end * k / width);
    points.push({ at: run.end * k / width, queue: state.waitingTokens, batch: state.batch.length });
  }
  return points;
}

function makeSide(element, place) {
  const run = runEvents(place);
  const side = { element, run, canvas: element.querySelector("canvas"), outline: outline(run, 160) };
  side.topQueue = Math.max(1, ...side.outline.map((point) => point.queue));
  side.topBatch = Math.max(1, ...side.outline.map((point) => point.batch));
  side.numSlots = Math.max(run.max_num_seqs ?? 0, side.topBatch);
  side.losses = lossesOf(run);
  element.classList.toggle("loses", side.losses.length > 0 || (run.evictions?.at.length ?? 0) > 0);
  return side;
}

/** The calls that had to compute again what was evicted before, by when they had: [when, agent, tokens]. */
function lossesOf({ calls }) {
  const losses = [];
  for (let i = 0; i < calls.lost.length; i++)
    if (calls.lost[i] > 0 && !Number.isNaN(calls.first[i])) losses.push({ at: calls.first[i], agent: calls.agent[i], tokens: calls.lost[i] });
  return losses.sort((a, b) => a.at - b.at);
}

/** How fast a counter of the server grew around this instant; where it was not sampled, what the calls say. */
function rateOf(run, counter, sample, otherwise) {
  const { at } = run.samples, next = Math.min(sample + 1, at.length - 1), before = next - 1;
  if (sample < 0 || before < 0 || !(at[next] > at[before]) || run.samples[counter][next] === null) return otherwise;
  return replay.at >= run.end ? 0 : (run.samples[counter][next] - run.samples[counter][before]) / (at[next] - at[before]);
}

function setSides() {
  replay.sides = [...document.querySelectorAll(".side")].map((element) => {
    const chosen = element.querySelector("select").value;
    return chosen === "" ? null : makeSide(element, Number(chosen));
  }).filter((side) => side !== null);
  for (const element of document.querySelectorAll(".side"))
    element.classList.toggle("empty", element.querySelector("select").value === "");
  replay.end = Math.max(1e-3, ...replay.sides.map((side) => side.run.end));
  replay.topQueue = Math.max(...replay.sides.map((side) => side.topQueue));
  const range = document.getElementById("replay-at");
  range.max = replay.end;
  range.step = replay.end / 1000;
  seek(Math.min(replay.at, replay.end));
}

function seek(at) {
  replay.at = Math.max(0, Math.min(at, replay.end));
  const range = document.getElementById("replay-at");
  range.value = replay.at;
  range.setAttribute("aria-valuetext", replay.at.toFixed(1) + " simulated seconds");
  document.getElementById("replay-clock").textContent = replay.at.toFixed(1) + " s";
  for (const side of replay.sides) drawSide(side);
}

function frame(now) {
  if (!replay.playing) return;
  const passed = Math.min(0.1, (now - replay.lastFrame) / 1000);
  replay.lastFrame = now;
  seek(replay.at + passed * replay.speed);
  if (replay.at >= replay.end) return setPlaying(false);
  requestAnimationFrame(frame);
}

function setPlaying(playing) {
  if (playing && (replay.isPoster || replay.at >= replay.end)) seek(0);
  replay.isPoster = false;
  replay.playing = playing;
  const button = document.getElementById("replay-play");
  button.textContent = playing ? "Pause" : "Play";
  button.setAttribute("aria-pressed", String(playing));
  if (playing) { replay.lastFrame = performance.now(); requestAnimationFrame(frame); }
}

function drawSide(side) {
  const state = stateAt(side.run, replay.at);
  const sample = lastBefore(side.run.samples.at, replay.at);
  const evictions = lastEvictions(side.run, replay.at);
  drawCanvas(side, state, sample, evictions);
  const now = performance.now();
  if (replay.playing && replay.at < replay.end && now - (side.textAt ?? 0) < 100) return;  // text ten times a second
  side.textAt = now;
  const samples = side.run.samples;
  const values = {
    done: `${state.done} of ${side.run.tasks.id.length}`,
    waiting: number(state.waiting), queue: number(state.waitingTokens),
    batch: `${state.batch.length} of ${side.numSlots}`,
    prefill: number(rateOf(side.run, "num_computed_prompt_tokens", sample, state.prefillRate)),
    decode: number(rateOf(side.run, "num_generated_tokens", sample, state.decodeRate)),
    hits: state.prompt ? (100 * state.cached / state.prompt).toFixed(1) + " %" : "-",
    evicted: sample < 0 ? "-" : number(samples.num_evicted_blocks[sample]),
  };
  for (const [name, text] of Object.entries(values)) side.element.querySelector(`[data-value="${name}"]`).textContent = text;
  side.element.querySelector(".over").textContent = replay.at >= side.run.end ? `all done at ${side.run.end.toFixed(1)} s` : "";
  drawLosses(side, evictions, sample < 0 ? null : samples.num_evicted_blocks[sample]);
  side.canvas.setAttribute("aria-label", `Tasks, running batch and KV pool at ${replay.at.toFixed(1)} s: ${poolWords(side.run, sample)}`);
}

/** The parts of the KV pool at a sample, as shares. */
function poolShares(run, sample) {
  const samples = run.samples;
  if (sample < 0 || samples.num_blocks[sample] === null || samples.num_used_blocks[sample] === null) return null;
  const whole = Math.max(1, samples.num_blocks[sample]);
  const cached = samples.num_cached_blocks[sample];
  return [samples.num_used_blocks[sample] / whole, cached === null ? null : cached / whole];
}

function poolWords(run, sample) {
  const shares = poolShares(run, sample);
  if (shares === null) return "KV pool unknown";
  const [used, cached] = shares.map((share) => share === null ? null : Math.round(100 * share));
  if (cached === null) return `KV pool ${used} % in use; how much is cached this server does not say`;
  return `KV pool ${used} % in use, ${cached} % cached, ${Math.max(0, 100 - used - cached)} % free`;
}

const NUM_SHOWN = 4;

function fillList(list, lines) {
  list.replaceChildren(...lines.map((line) => {
    const item = document.createElement("li");
    item.textContent = item.title = line;
    return item;
  }));
}

/** Whose blocks were evicted last, and who had to compute again what was lost. */
function drawLosses(side, evictions, numEvicted) {
  const { agents } = side.run, find = (name) => side.element.querySelector(name);
  const lines = evictions.slice(0, NUM_SHOWN).map((one) => `${number(one.blocks)} of ${agents[one.agent]}`);
  if (evictions.length > NUM_SHOWN) lines[NUM_SHOWN - 1] = `and ${evictions.length - NUM_SHOWN + 1} agents more`;
  fillList(find(".evicted"), lines);
  const found = side.losses.filter((one) => one.at <= replay.at).slice(-NUM_SHOWN).reverse();
  fillList(find(".losses"), found.map((one) => `${number(one.tokens)} by ${agents[one.agent]}, ${one.at.toFixed(1)} s`));
  find(".evicted-when").textContent = lines.length ? `at ${evictions[0].at.toFixed(1)} s:`
    : numEvicted > 0 ? "This server does not say whose they were." : numEvicted === 0 ? "None so far." : "This server does not say.";
  find(".losses-when").textContent = found.length ? "the latest first:" : "None so far.";
}

function drawCanvas(side, state, sample, evictions) {
  const canvas = side.canvas, ratio = devicePixelRatio || 1;
  const width = canvas.clientWidth, text = colour("--text"), quiet = colour("--quiet"), line = colour("--line");
  const rows = layoutRows(side, width);
  if (canvas.width !== Math.round(width * ratio) || canvas.height !== Math.round(rows.height * ratio)) {
    canvas.width = Math.round(width * ratio);
    canvas.height = Math.round(rows.height * ratio);
    canvas.style.height = rows.height + "px";
  }
  const pen = canvas.getContext("2d");
  pen.setTransform(ratio, 0, 0, ratio, 0, 0);
  pen.clearRect(0, 0, width, rows.height);
  pen.font = "12px " + getComputedStyle(document.body).fontFamily;
  pen.textBaseline = "alphabetic";
  const label = (words, y) => { pen.fillStyle = quiet; pen.fillText(words, 0, y); };

  label("Tasks: what each one does now", rows.tasks.y - 5);
  for (let i = 0; i < state.taskState.length; i++) {
    const x = (i % rows.tasks.columns) * rows.tasks.cell, y = rows.tasks.y + Math.floor(i / rows.tasks.columns) * rows.tasks.cell;
    drawCell(pen, x, y, rows.tasks.cell - 1.5, state.taskState[i], quiet, line);
  }
  // Only what was evicted up to the look that is shown: older losses are history.
  pen.strokeStyle = colour("--bad");
  pen.lineWidth = 2;
  if (sample >= 0 && evictions.length && evictions[0].at === side.run.samples.at[sample])
    for (const task of new Set(evictions.map((one) => side.run.agentTask[one.agent]))) {
      if (task < 0) continue;
      const x = (task % rows.tasks.columns) * rows.tasks.cell, y = rows.tasks.y + Math.floor(task / rows.tasks.columns) * rows.tasks.cell;
      pen.beginPath(); pen.moveTo(x, y); pen.lineTo(x + rows.tasks.cell - 1.5, y + rows.tasks.cell - 1.5); pen.stroke();
    }
  label("Running batch, one cell a sequence", rows.batch.y - 5);
  for (let i = 0; i < side.numSlots; i++) {
    const x = (i % rows.batch.columns) * rows.batch.cell, y = rows.batch.y + Math.floor(i / rows.batch.columns) * rows.batch.cell;
    drawCell(pen, x, y, rows.batch.cell - 1.5, state.batch[i] ?? IDLE, quiet, line);
  }
  label("Prefill queue: prompt tokens to compute", rows.queue - 5);
  drawBar(pen, rows.queue, width, [[state.waitingTokens / replay.topQueue, PHASE_COLOURS[WAITING]]], line);
  label(poolWords(side.run, sample), rows.pool - 5);
  const shares = poolShares(side.run, sample);
  if (shares !== null) drawBar(pen, rows.pool, width, [[shares[0], PHASE_COLOURS[WAITING]], [shares[1], PHASE_COLOURS[PREFILL]]], line);
  label("Queue (filled) and batch (line) over the run", rows.strip - 5);
  drawStrip(pen, side, rows.strip, width, text, line);
}

function layoutRows(side, width) {
  const grid = (count, most) => {
    const cell = Math.max(4, Math.min(most, Math.floor(Math.sqrt(width * 84 / Math.max(1, count)))));
    const columns = Math.max(1, Math.floor(width / cell));
    return { cell, columns, height: Math.ceil(count / columns) * cell };
  };
  const tasks = grid(side.run.tasks.id.length, 14), batch = grid(side.numSlots, 12);
  tasks.y = 18;
  batch.y = tasks.y + tasks.height + 26;
  const queue = batch.y + batch.height + 26, pool = queue + 40, strip = pool + 40;
  return { tasks, batch, queue, pool, strip, height: strip + 52 };
}

/** A task or a sequence as a small square; its shape says the same as its colour. */
function drawCell(pen, x, y, size, kind, quiet, line) {
  if (kind === IDLE || kind === DONE) {
    pen.fillStyle = kind === DONE ? quiet : line;
    const inset = kind === DONE ? 0 : size * 0.38;
    pen.globalAlpha = kind === DONE ? 0.35 : 1;
    pen.fillRect(x + inset, y + inset, size - 2 * inset, size - 2 * inset);
    pen.globalAlpha = 1;
    return;
  }
  pen.fillStyle = pen.strokeStyle = PHASE_COLOURS[kind];
  if (kind === WAITING) { pen.lineWidth = 1.5; pen.strokeRect(x + 0.75, y + 0.75, size - 1.5, size - 1.5); }
  else if (kind === PREFILL) { pen.fillRect(x, y + size / 2, size, size / 2); pen.lineWidth = 1; pen.strokeRect(x + 0.5, y + 0.5, size - 1, size - 1); }
  else if (kind === DECODE) pen.fillRect(x, y, size, size);
  else { pen.beginPath(); pen.arc(x + size / 2, y + size / 2, size / 2.6, 0, 7); pen.fill(); }
}

function drawBar(pen, y, width, parts, line) {
  pen.fillStyle = line;
  pen.fillRect(0, y, width, 12);
  let x = 0;
  for (const [share, fill] of parts) {
    const part = Math.min(width - x, share * width);
    pen.fillStyle = fill;
    pen.fillRect(x, y, part, 12);
    x += part;
  }
}

function drawStrip(pen, side, y, width, text, line) {
  const height = 46, toX = (at) => at / replay.end * width;
  pen.fillStyle = PHASE_COLOURS[WAITING];
  pen.globalAlpha = 0.45;
  pen.beginPath();
  pen.moveTo(0, y + height);
  for (const point of side.outline) pen.lineTo(toX(point.at), y + height - point.queue / replay.topQueue * height);
  pen.lineTo(toX(side.run.end), y + height);
  pen.fill();
  pen.globalAlpha = 1;
  pen.strokeStyle = PHASE_COLOURS[DECODE];
  pen.lineWidth = 1.5;
  pen.beginPath();
  for (const point of side.outline) pen.lineTo(toX(point.at), y + height - point.batch / side.numSlots * height);
  pen.stroke();
  pen.strokeStyle = line;
  pen.strokeRect(0.5, y + 0.5, width - 1, height);
  pen.fillStyle = text;
  pen.fillRect(toX(replay.at) - 1, y - 2, 2, height + 4);
}

function startReplay() {
  const speeds = document.getElementById("replay-speed");
  const whole = Math.max(...streams.map((_, place) => runEvents(place).end));
  const around = whole / 30;  // by default the longest run takes half a minute
  const distance = (option) => Math.abs(Math.log(option.value / around));
  [...speeds.options].reduce((best, option) => distance(option) < distance(best) ? option : best).selected = true;
  replay.speed = Number(speeds.value);
  setSides();
  seek(Math.min(...replay.sides.map((side) => side.run.end)) * 0.3);  // before Play is pressed, a moment that tells something
  new ResizeObserver(() => seek(replay.at)).observe(document.querySelector(".sides"));
}

function listenToReplay() {
  document.getElementById("replay-speed").addEventListener("change", (event) => { replay.speed = Number(event.target.value); });
  document.getElementById("replay-play").addEventListener("click", () => setPlaying(!replay.playing));
  document.getElementById("replay-at").addEventListener("input", (event) => { replay.isPoster = false; seek(Number(event.target.value)); });
  for (const select of document.querySelectorAll(".side select")) select.addEventListener("change", setSides);
  document.addEventListener("themechange", () => seek(replay.at));
}
