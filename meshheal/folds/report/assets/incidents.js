// Every incident: onset, first evidence, who suspected and excluded, probes, the way back.

const SORTS = {
  degraded: "worse model",
  false_exclusion: "excluded though well",
  correlated: "group alarm",
  uninformative: "reviewers uninformative",
  withheld: "exclusion withheld",
  crash: "crash",
  failure: "error in an agent",
};
const PAGE = 20;

class IncidentList {
  constructor(run) {
    this.run = run;
    this.show = PAGE;
    this.sort = "";
    this.agent = "";
    this.open = new Set();
    const { incidents } = run.arm;
    const sorts = [...new Set(incidents.map((i) => i.sort))];
    this.body = el("div", { class: "list" });
    this.more = el("p", { class: "more" });
    this.element = section(
      "incidents", `Incidents`, run.overview.about.mode,
      incidents.length > 3 && el("div", { class: "row filters" },
        choice("Kind", [["", `all (${count(incidents.length)})`], ...sorts.map((s) => [s, `${SORTS[s]} (${count(incidents.filter((i) => i.sort === s).length)})`]),
          ...(incidents.some(missed) ? [["missed", `not found in time (${count(incidents.filter(missed).length)})`]] : [])],
        "", (v) => this.filter({ sort: v })),
        el("label", { class: "field" }, el("span", {}, "Agent"), el("input", { type: "number", min: 0, placeholder: "any", oninput: (e) => this.filter({ agent: e.target.value }) }))),
      this.body, this.more,
    );
    this.draw();
  }

  filter(change) {
    Object.assign(this, change, { show: PAGE });
    this.draw();
  }

  draw() {
    const { incidents } = this.run.arm;
    const wanted = incidents.filter((i) =>
      (!this.sort || (this.sort === "missed" ? missed(i) : i.sort === this.sort)) &&
      (this.agent === "" || i.agent === Number(this.agent) || i.group?.includes(Number(this.agent))));
    if (!incidents.length) replace(this.body, el("p", { class: "quiet" }, "Nothing out of the ordinary happened."));
    else replace(this.body, wanted.slice(0, this.show).map((i) => this.row(i)));
    replace(this.more, wanted.length > this.show &&
      el("button", { type: "button", onclick: () => { this.show += 5 * PAGE; this.draw(); } }, `Show more of ${count(wanted.length)}`));
  }

  row(incident) {
    const details = el("details", { class: "incident" },
      el("summary", {},
        el("span", { class: "whom" }, title(incident)),
        el("span", { class: "tale" }, tale(incident)),
        incident.sort === "degraded" || incident.sort === "false_exclusion" ? track(this.run, incident) : el("span", {})));
    details.addEventListener("toggle", () => {
      if (details.open && !details.querySelector(".inside")) details.append(this.inside(incident));
    });
    return details;
  }

  inside(incident) {
    const { run } = this;
    const agent = incident.agent ?? incident.group?.[0];
    const at = incident.onset.x;
    return el("div", { class: "inside" },
      el("div", { class: "row" },
        el("button", { type: "button", onclick: () => { run.goTo(at); if (agent !== undefined) run.pick(agent); run.reveal("network"); } }, "Show in the network"),
        agent !== undefined && el("button", { type: "button", onclick: () => { run.pick(agent); run.reveal("agents"); } }, `Scores of agent ${agent}`)),
      incident.agent !== undefined && observers(run, incident),
      timeline(run, incident));
  }
}

const missed = (i) => i.sort === "degraded" && i.delay == null && !i.already_excluded;

function title(i) {
  if (i.agent !== undefined && i.agent !== null) return [el("b", {}, `Agent ${i.agent}`), el("small", {}, SORTS[i.sort])];
  return [el("b", {}, i.group?.length ? (i.group.length > 4 ? plural(i.group.length, "agent") : agents(i.group)) : "Network"), el("small", {}, SORTS[i.sort])];
}

// One line that tells the incident from its onset to its end; numbers count tasks.
function tale(i) {
  const after = (mark) => count(mark.x - i.onset.x + 1);
  const from = `task ${count(i.onset.x)}`;
  if (i.sort === "degraded") {
    const parts = [`from ${from}`];
    if (i.first_evidence) parts.push(`evidence +${after(i.first_evidence)}`);
    if (i.suspected) parts.push(`suspect +${after(i.suspected)} by agent ${i.suspected.by}`);
    if (i.excluded) parts.push(`excluded +${after(i.excluded)} by agent ${i.excluded.by}`);
    if (i.delay != null) parts.push(`by all +${count(i.delay)}`);
    else if (i.already_excluded) parts.push("excluded already");
    else parts.push(i.recovered ? "not by all in time" : "not by all yet");
    if (i.probes) parts.push(`${plural(i.probes, "probe")}, ${count(i.probes_passed)} passed`);
    if (i.recovered) parts.push(`recovered at ${count(i.recovered.x)}`);
    if (i.delay_back != null) parts.push(`back +${count(i.delay_back)}`);
    else if (i.recovered && i.excluders?.length) parts.push("not back");
    return parts.join(" · ");
  }
  if (i.sort === "false_exclusion") {
    return `excluded at ${from} by agent ${i.excluded.by}${i.excluders.length > 1 ? ` and ${count(i.excluders.length - 1)} more` : ""}` +
      ` · ${plural(i.probes ?? 0, "probe")}${i.back ? ` · back +${after(i.back)}` : " · not back"}`;
  }
  return `${from}${i.onset.by !== undefined ? `, agent ${i.onset.by}` : ""}${i.text ? `: ${i.text}` : ""}${i.count > 1 ? ` (${count(i.count)} times)` : ""}` +
    (i.sort === "crash" ? (i.recovered ? ` · up again at ${count(i.recovered.x)}` : " · still down") : "");
}

function span(run, i) {
  const end = Math.max(i.back?.x ?? 0, i.recovered?.x ?? 0, i.excluded?.x ?? 0, (i.recovered?.x ?? 0) + (i.healthy_after ?? 0), i.back || i.recovered ? 0 : run.arm.arrivals);
  const width = Math.max(8, end - i.onset.x);
  return [Math.max(0, i.onset.x - 0.06 * width), Math.min(run.arm.arrivals, end + 0.06 * width)];
}

// Onset to return on one line.
function track(run, i) {
  const [from, to] = span(run, i);
  const at = (x) => 4 + (232 * (x - from)) / Math.max(1, to - from);
  const end = i.sort === "degraded" ? i.recovered?.x ?? run.arm.arrivals : i.onset.x;
  const marks = [[1, i.suspected], [3, i.excluded], [2, i.returned]].filter(([, m]) => m);
  return svg("svg", { class: "track", viewBox: "0 0 240 22", preserveAspectRatio: "none", "aria-hidden": "true" },
    svg("line", { class: "base", x1: 4, x2: 236, y1: 11, y2: 11 }),
    i.sort === "degraded" && svg("rect", { class: "ill", x: at(i.onset.x), y: 3, width: Math.max(1, at(end) - at(i.onset.x)), height: 16 }),
    i.excluded && svg("rect", { class: "fill excluded", x: at(i.excluded.x), y: 9, width: Math.max(2, at(i.back?.x ?? to) - at(i.excluded.x)), height: 4 }),
    i.all_excluded && svg("line", { class: "tick", x1: at(i.all_excluded.x), x2: at(i.all_excluded.x), y1: 4, y2: 18 }),
    marks.map(([state, m]) => svg("circle", { class: `fill ${STATES[state]}`, cx: at(m.x), cy: 11, r: 4 })));
}

// Rows: observers. What each held of the agent, from before the onset to the end.
function observers(run, i) {
  const [from, to] = span(run, i);
  const watching = run.watchers[i.agent];
  const some = watching.slice(0, 24);
  const rows = new Map(some.map((by) => [by, [[from, 0]]]));
  const beliefs = new Beliefs(run.arm, run.watchers);
  const { states } = run.arm;
  for (let row = 0; row < states.x.length; row++) {
    beliefs.apply(row);
    if (states.agent[row] !== i.agent || states.x[row] > to) continue;
    rows.get(states.by[row])?.push([Math.max(from, states.x[row]), beliefs.of(states.by[row], i.agent)]);
  }
  const height = 15, left = 64, width = 640;
  const at = (x) => left + ((width - left) * (x - from)) / Math.max(1, to - from);
  const bars = some.map((by, k) => {
    const pieces = rows.get(by);
    return pieces.map(([x, state], p) => {
      const end = pieces[p + 1]?.[0] ?? to;
      return state && end >= x && svg("rect", { class: `fill ${STATES[state]}`, x: at(x), y: k * height + 2, width: Math.max(1.5, at(end) - at(x)), height: height - 5 },
        svg("title", {}, `agent ${by}: ${STATES[state]}, tasks ${Math.round(x)} to ${Math.round(end)}`));
    });
  });
  const bottom = some.length * height;
  const end = i.sort === "degraded" ? i.recovered?.x ?? run.arm.arrivals : null;
  return el("figure", {},
    el("figcaption", {}, `What its neighbours held of agent ${i.agent}`, watching.length > some.length && ` (${some.length} of ${watching.length})`,
      " ", [1, 3, 2].map((s) => el("span", { class: "key" }, stateIcon(s), ` ${STATES[s]} `)), end !== null && el("span", { class: "key" }, el("i", { class: "ill" }), " on the worse model")),
    svg("svg", { class: "observers", viewBox: `0 0 ${width} ${bottom + 16}`, role: "img", "aria-label": `Beliefs of ${some.length} neighbours about agent ${i.agent}` },
      end !== null && svg("rect", { class: "ill", x: at(i.onset.x), y: 0, width: Math.max(1, at(end) - at(i.onset.x)), height: bottom }),
      some.map((by, k) => svg("text", { x: 0, y: k * height + 10 }, `agent ${by}`)),
      bars,
      ticks(from, to, 6).filter(Number.isInteger).map((v) => svg("text", { class: "quiet", x: at(v), y: bottom + 12, "text-anchor": "middle" }, count(v)))));
}

// What happened, line by line, with the task because of which it did. Like things at one time are one line.
function timeline(run, i) {
  const { tasks } = run.arm;
  const item = (line) => el("li", {},
    el("span", { class: "at" }, line.until > line.x ? `${count(line.x)} to ${count(line.until)}` : `task ${count(line.x)}`), el("span", { class: "clock" }, duration(line.t)),
    el("span", { class: "what" }, line.state !== undefined && [stateIcon(line.state), " "], line.what(),
      line.task >= 0 && [" ", el("button", { type: "button", class: "link", onclick: () => run.openTask(tasks.id[line.task]) }, "task")]));
  const lines = merged([...landmarks(run, i), ...beliefLines(run, i), ...probeLines(run, i)].sort((a, b) => a.t - b.t || a.x - b.x));
  const most = 50;
  const list = el("ol", { class: "timeline" }, lines.slice(0, most).map(item));
  const rest = lines.length > most && el("button", { type: "button", onclick: (e) => { append(list, lines.slice(most).map(item)); e.target.remove(); } }, `Show ${count(lines.length - most)} more lines`);
  return el("div", {}, list, rest);
}

function landmarks(run, i) {
  const lines = [];
  const add = (mark, what, task = -1, state = undefined) => lines.push({ x: mark.x, t: mark.t, state, task, what: () => what });
  if (i.sort === "degraded") add(i.onset, `its models become ${i.model}`);
  else if (i.text) add(i.onset, `${i.onset.by !== undefined ? `agent ${i.onset.by}: ` : ""}${i.text}`, i.onset.task ? run.rowOf(i.onset.task) : -1);
  if (i.first_evidence) add(i.first_evidence, `first evidence, at agent ${i.first_evidence.by} (${i.first_evidence.evidence.toPrecision(2)})`, i.first_evidence.task ? run.rowOf(i.first_evidence.task) : -1);
  if (i.all_excluded) add(i.all_excluded, `all ${count(i.observers)} neighbours exclude it: found after ${plural(i.delay, "task")}`, -1, EXCLUDED);
  if (i.recovered) add(i.recovered, i.sort === "crash" ? "it is up again" : "its own models are back");
  if (i.back && i.sort !== "crash") add(i.back, i.delay_back != null ? `nobody excludes it any more: back after ${plural(i.delay_back, "task")}` : "nobody excludes it any more", -1, 0);
  return lines;
}

// Rows of a table that are about the incident's agent, from its onset to its end.
function rowsOf(run, i, table) {
  if (i.sort !== "degraded" && i.sort !== "false_exclusion") return [];
  const [, to] = span(run, i);
  const rows = [];
  for (let r = 0; r < table.x.length; r++) if (table.agent[r] === i.agent && table.x[r] <= to && table.t[r] >= i.onset.t - 0.01) rows.push(r);
  return rows;
}

function beliefLines(run, i) {
  const { states, words } = run.arm;
  return rowsOf(run, i, states).map((r) => {
    const where = states.ability[r] >= 0 ? ` in ${words[states.ability[r]]}` : "";
    const reason = words[states.reason[r]];
    const line = { x: states.x[r], t: states.t[r], state: states.to[r], task: states.task[r], by: [states.by[r]], evidence: [states.evidence[r]],
      like: `${states.x[r]} ${states.to[r]} ${where} ${reason}` };
    line.what = () => `${agents(line.by.sort((a, b) => a - b))} ${line.by.length > 1 ? "hold" : "holds"} it ${STATES[line.state]}${where} (evidence ${ranged(line.evidence)}${reason && reason !== "evidence" ? `, ${reason}` : ""})`;
    return line;
  });
}

function probeLines(run, i) {
  const { probes, words } = run.arm;
  const passing = 100 * run.overview.about.accept_at;
  return rowsOf(run, i, probes).map((r) => {
    const motive = words[probes.why[r]];
    const line = { x: probes.x[r], t: probes.t[r], task: probes.task[r], by: [probes.by[r]], scores: [probes.score[r]], like: `probe ${motive}` };
    line.what = () => `${plural(line.scores.length, `${motive} probe`)} by ${agents([...new Set(line.by)].sort((a, b) => a - b))}: ${line.scores.filter((s) => s >= passing).length} passed`;
    return line;
  });
}

// Lines that are alike and follow each other become one; the task is then that of the first.
function merged(lines) {
  const found = [];
  for (const line of lines) {
    const last = found.at(-1);
    if (last?.like && last.like === line.like) {
      last.by.push(...line.by);
      last.evidence?.push(...line.evidence);
      last.scores?.push(...line.scores);
      last.until = line.x;
    } else found.push(line);
  }
  return found;
}

function ranged(values) {
  const [low, high] = [Math.min(...values), Math.max(...values)];
  const short = (v) => (v >= 100 ? count(v) : String(v));
  return low === high ? short(low) : `${short(low)} to ${short(high)}`;
}
