"use strict";
// The runs' records, unpacked: seconds as floats, NaN where a call lacks an instant.

function unpack(packed) {
  const num = packed.calls.due.length;
  const column = () => new Float64Array(num);
  const calls = { due: column(), sent: column(), scheduled: column(), first: column(), last: column() };
  let due = 0;
  for (let i = 0; i < num; i++) {
    let at = due += packed.calls.due[i];
    calls.due[i] = at / 1000;
    for (const [name, step] of [["sent", "sent"], ["scheduled", "queue"], ["first", "prefill"], ["last", "decode"]]) {
      const passed = packed.calls[step][i];
      at = passed === null ? NaN : at + passed;
      calls[name][i] = at / 1000;
    }
  }
  const tools = { started: new Float64Array(packed.tools.started.length), ended: new Float64Array(packed.tools.started.length) };
  let started = 0;
  for (let i = 0; i < tools.started.length; i++) {
    started += packed.tools.started[i];
    tools.started[i] = started / 1000;
    tools.ended[i] = (started + packed.tools.took[i]) / 1000;
  }
  const seconds = (list) => Float64Array.from(list, (ms) => ms === null ? NaN : ms / 1000);
  const tasks = { ...packed.tasks, started_at: seconds(packed.tasks.started_at), ended_at: seconds(packed.tasks.ended_at) };
  const agentTask = new Int32Array(packed.agents.length).fill(-1);
  packed.calls.agent.forEach((agent, i) => { agentTask[agent] = packed.calls.task[i]; });
  const evictions = packed.evictions && { ...packed.evictions, at: new Float64Array(packed.evictions.at.length) };
  let evicted = 0;
  if (evictions) packed.evictions.at.forEach((passed, i) => { evicted += passed; evictions.at[i] = evicted / 1000; });
  const samples = { ...packed.samples, at: seconds(packed.samples.at) };
  let end = 0;
  for (const at of tasks.ended_at) end = Math.max(end, at || 0);
  for (const at of calls.last) end = Math.max(end, at || 0);
  return {
    label: packed.label, agents: packed.agents, max_num_seqs: packed.max_num_seqs, end, tasks, samples, evictions, agentTask,
    calls: { ...packed.calls, ...calls }, tools: { ...packed.tools, ...tools },
  };
}

/** The packed streams of all runs, once the browser has unzipped them. */
let streams = [];
async function loadStreams() {
  if (report.events === null) return false;
  const bytes = Uint8Array.from(atob(report.events), (character) => character.charCodeAt(0));
  const unzipped = new Blob([bytes]).stream().pipeThrough(new DecompressionStream("gzip"));
  streams = JSON.parse(await new Response(unzipped).text());
  return true;
}

const unpacked = new Map();
/** A run's stream, unpacked when it is first looked at. */
function runEvents(place) {
  if (!unpacked.has(place)) unpacked.set(place, unpack(streams[place]));
  return unpacked.get(place);
}

/** Place of the last entry of a sorted column that is at most `at`; -1 before the first. */
function lastBefore(column, at) {
  let low = 0, high = column.length;
  while (low < high) {
    const middle = (low + high) >> 1;
    if (column[middle] <= at) low = middle + 1; else high = middle;
  }
  return low - 1;
}

/** The evictions between the last look at the server that saw some and the look before it; empty before the first. */
function lastEvictions(run, at) {
  if (!run.evictions) return [];
  const last = lastBefore(run.evictions.at, at), rows = [];
  for (let i = last; i >= 0 && run.evictions.at[i] === run.evictions.at[last]; i--)
    rows.push({ at: run.evictions.at[i], agent: run.evictions.agent[i], blocks: run.evictions.blocks[i] });
  return rows.sort((a, b) => b.blocks - a.blocks || a.agent - b.agent);
}

const IDLE = 0, WAITING = 1, PREFILL = 2, DECODE = 3, TOOL = 4, DONE = 5;

/** What the run's records say about one instant. */
function stateAt(run, at) {
  const { calls, tools, tasks } = run;
  const state = {
    waiting: 0, prefill: 0, decode: 0, tools: 0, done: 0, waitingTokens: 0, prefillRate: 0, decodeRate: 0,
    prompt: 0, cached: 0, lost: [], taskState: new Uint8Array(tasks.id.length), batch: [],
  };
  const raise = (task, kind) => { if (state.taskState[task] < kind) state.taskState[task] = kind; };
  for (let i = 0; i < tasks.id.length; i++) if (tasks.ended_at[i] <= at) { state.taskState[i] = DONE; state.done++; }
  for (let i = 0; i < tools.started.length && tools.started[i] <= at; i++) {
    if (tools.ended[i] > at) { state.tools++; if (state.taskState[tools.task[i]] === IDLE) state.taskState[tools.task[i]] = TOOL; }
  }
  for (let i = 0; i < calls.due.length && calls.due[i] <= at; i++) {
    if (!(calls.sent[i] <= at)) continue;
    const prompt = calls.prompt[i] ?? 0, cached = calls.cached[i] ?? 0;
    if (calls.first[i] <= at) { state.prompt += prompt; state.cached += cached; }
    if (calls.last[i] <= at || Number.isNaN(calls.last[i])) {
      continue;
    }
    const task = calls.task[i];
    if (state.taskState[task] === TOOL) state.taskState[task] = IDLE;  // a call of the task outweighs its tools
    if (calls.scheduled[i] > at) {
      state.waiting++; state.waitingTokens += prompt - cached; raise(task, WAITING);
    } else if (calls.first[i] > at) {
      const took = calls.first[i] - calls.scheduled[i];
      state.prefill++; state.prefillRate += (prompt - cached) / took; raise(task, PREFILL); state.batch.push(PREFILL);
      state.waitingTokens += (prompt - cached) * (calls.first[i] - at) / took;
    } else {
      state.decode++; raise(task, DECODE); state.batch.push(DECODE);
      state.decodeRate += ((calls.output[i] ?? 1) - 1) / (calls.last[i] - calls.first[i]);
    }
  }
  return state;
}
