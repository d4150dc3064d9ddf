"use strict";
// Swim lanes of one task: every call, tool and wait of every agent, and the chain that decided when the task ended.

const LANE_KINDS = [
  ["waiting for the server", "#b8508f", ""], ["prefill", "#4f9aa8", "/"], ["decode", "#8f8a2f", "."],
  ["tools", "#6b6fc4", "x"], ["late or delayed", "#7f7f8f", "-"],
];

/** The parts of a task's calls and tools: [kind, agent, start, end, on the critical path, what to say]. */
function segmentsOf(run, task) {
  const { calls, tools } = run, segments = [];
  for (let i = 0; i < calls.due.length; i++) {
    if (calls.task[i] !== task) continue;
    const words = `call #${calls.index[i]}: ${number(calls.prompt[i])} prompt tokens, ${number(calls.cached[i])} cached, ${number(calls.output[i])} out`;
    const edges = [[4, calls.due[i], calls.sent[i]], [0, calls.sent[i], calls.scheduled[i]],
      [1, calls.scheduled[i], calls.first[i]], [2, calls.first[i], calls.last[i]]];
    for (const [kind, start, end] of edges)
      if (end > start) segments.push({ kind, agent: calls.agent[i], start, end, onPath: calls.on_path[i], words });
  }
  for (let i = 0; i < tools.started.length; i++) {
    if (tools.task[i] !== task) continue;
    segments.push({ kind: 3, agent: tools.agent[i], start: tools.started[i], end: tools.ended[i], onPath: tools.on_path[i],
      words: tools.names[tools.name[i]] });
  }
  return segments;
}

function plainText(text) { return String(text).replace(/[&<>]/g, (c) => ({ "&": "&amp;", "<": "&lt;", ">": "&gt;" })[c]); }

function laneName(run, task, agent) {
  const prefix = run.tasks.id[task] + "/", name = run.agents[agent];
  return name.startsWith(prefix) ? name.slice(prefix.length) : name;
}

function lanesFigure(run, task) {
  const segments = segmentsOf(run, task);
  const firstStart = new Map();
  for (const one of segments) firstStart.set(one.agent, Math.min(one.start, firstStart.get(one.agent) ?? Infinity));
  const agents = [...firstStart.keys()].sort((a, b) => firstStart.get(a) - firstStart.get(b) || a - b);
  const rows = agents.map((agent) => plainText(laneName(run, task, agent)));
  const data = LANE_KINDS.map(([name, fill, pattern], kind) => {
    const own = segments.filter((one) => one.kind === kind);
    return {
      type: "bar", orientation: "h", name, base: own.map((one) => one.start), x: own.map((one) => one.end - one.start),
      y: own.map((one) => agents.indexOf(one.agent)), width: 0.62,
      marker: { color: fill, pattern: { shape: pattern, fillmode: "overlay", fgcolor: "rgba(255,255,255,0.7)", size: 5, solidity: 0.3 } },
      customdata: own.map((one) => [plainText(one.words), one.start.toFixed(2), (one.end - one.start).toFixed(2)]),
      hovertemplate: `${name}, %{customdata[2]} s from %{customdata[1]} s<br>%{customdata[0]}<extra></extra>`,
    };
  }).filter((trace) => trace.x.length);
  const path = segments.filter((one) => one.onPath).sort((a, b) => a.start - b.start);
  const line = { type: "scatter", mode: "lines", name: "critical path", x: [], y: [], hoverinfo: "skip", line: { width: 3 } };
  for (const one of path) {
    line.x.push(one.start, one.end);
    line.y.push(agents.indexOf(one.agent) + 0.42, agents.indexOf(one.agent) + 0.42);
  }
  data.push(line);
  const layout = {
    height: 110 + 40 * Math.max(2, rows.length), margin: { l: 10, r: 16, t: 40, b: 44 }, barmode: "overlay",
    xaxis: { title: { text: "seconds since the run's start" }, automargin: true },
    yaxis: { tickvals: rows.map((_, row) => row), ticktext: rows, range: [rows.length - 0.4, -0.6], automargin: true },
    legend: { orientation: "h", x: 0, y: 1.02, yanchor: "bottom" },
  };
  return { data, layout };
}

/** Why the task took as long as it did, in words. */
function whySoLong(run, task) {
  const started = run.tasks.started_at[task], ended = run.tasks.ended_at[task], took = ended - started;
  const shares = run.tasks.shares[task];
  if (shares === undefined) return "This task did not end.";
  const names = ["waiting for the server", "in prefill", "in decode", "in tools", "in the agent's own delays"];
  const parts = shares.map((ms, i) => [ms / 1000, names[i]]).filter(([s]) => s > 0).sort((a, b) => b[0] - a[0]);
  const times = [...run.tasks.ended_at].map((end, i) => end - run.tasks.started_at[i]).sort((a, b) => a - b);
  const median = times[times.length >> 1];
  const { calls } = run;
  let longest = -1, numCalls = 0;
  for (let i = 0; i < calls.due.length; i++) {
    if (calls.task[i] !== task || !calls.on_path[i]) continue;
    numCalls++;
    if (longest < 0 || calls.last[i] - calls.due[i] > calls.last[longest] - calls.due[longest]) longest = i;
  }
  let words = `It took ${took.toFixed(1)} s, ${(took / median).toFixed(1)} times the median of its run. The chain that decided this has `
    + `${numCalls} calls: ` + parts.map(([s, name]) => `${s.toFixed(1)} s ${name}`).join(", ") + ".";
  if (longest >= 0) {
    const wait = calls.scheduled[longest] - calls.sent[longest];
    words += ` Its longest call was #${calls.index[longest]} of ${laneName(run, task, calls.agent[longest])}: `
      + `${(calls.last[longest] - calls.due[longest]).toFixed(1)} s, ${wait.toFixed(1)} s of them waiting.`;
  }
  return words;
}

function drawLanes() {
  const runPicker = document.getElementById("lanes-run"), taskPicker = document.getElementById("lanes-task");
  const run = runEvents(Number(runPicker.value)), task = Number(taskPicker.value);
  const element = document.getElementById("lanes-chart");
  const figure = lanesFigure(run, task);
  drawn.set(element, figure);
  const layout = { ...figure.layout, font: { family: getComputedStyle(document.body).fontFamily, size: 12 },
    dragmode: matchMedia("(pointer: coarse)").matches ? false : "zoom", hovermode: "closest" };
  figure.data.at(-1).line.color = colour("--text");
  Plotly.react(element, figure.data, layout, { displayModeBar: false, responsive: true })
    .then(() => Plotly.relayout(element, themed(figure.layout)));
  document.getElementById("lanes-why").textContent = whySoLong(run, task);
}

function fillTasks() {
  const run = runEvents(Number(document.getElementById("lanes-run").value)), picker = document.getElementById("lanes-task");
  const before = picker.selectedOptions[0]?.dataset.id;
  const took = (i) => run.tasks.ended_at[i] - run.tasks.started_at[i];
  const order = [...run.tasks.id.keys()].sort((a, b) => (took(b) || 0) - (took(a) || 0));
  picker.replaceChildren(...order.map((i) => {
    const option = document.createElement("option");
    option.value = i;
    option.dataset.id = run.tasks.id[i];
    option.textContent = `${run.tasks.id[i]} (${Number.isNaN(took(i)) || took(i) === undefined ? "did not end" : took(i).toFixed(1) + " s"})`;
    option.selected = run.tasks.id[i] === before;  // the same task in another run
    return option;
  }));
  drawLanes();
}

function startLanes() {
  document.getElementById("lanes-run").addEventListener("change", fillTasks);
  document.getElementById("lanes-task").addEventListener("change", drawLanes);
  document.addEventListener("themechange", () => { if (drawn.has(document.getElementById("lanes-chart"))) drawLanes(); });
  const seen = new IntersectionObserver((entries) => {
    if (!entries.some((entry) => entry.isIntersecting)) return;
    seen.disconnect();
    fillTasks();
  }, { rootMargin: "300px" });
  seen.observe(document.getElementById("lanes-chart"));
}

loadStreams().then((found) => {
  if (!found) return;
  startReplay();
  listenToReplay();
  startLanes();
  root.dataset.ready = "true";
});
