// Methods side by side: accuracy over time, where tokens went, and the table of figures.

const LINES = ["series-1", "series-2", "series-3", "series-4", "series-5", "series-6"];
const DASHES = [[], [7, 3], [2, 3], [9, 3, 2, 3], [12, 4], [4, 4]];
const PURPOSES = ["produce", "review", "deliberate", "takeover", "probe"];

// Right and done summed over seeds, by method (and its twin).
function curves(heads, label = (h) => h.method + (h.twin ? ", no faults" : "")) {
  const found = new Map();
  for (const h of heads) {
    const key = label(h);
    let line = found.get(key);
    if (!line) found.set(key, (line = { key, twin: h.twin, method: h.method, width: h.curve.width, done: [], right: [], seeds: 0 }));
    if (h.curve.width !== line.width) continue; // a log that is still much shorter
    line.seeds++;
    h.curve.done.forEach((n, i) => {
      line.done[i] = (line.done[i] ?? 0) + n;
      line.right[i] = (line.right[i] ?? 0) + h.curve.right[i];
    });
  }
  return [...found.values()];
}

// Share right over a moving window, by stretch.
function moving(line, stretches) {
  const points = [];
  for (let i = 0; i < line.done.length; i++) {
    let done = 0, right = 0;
    for (let k = Math.max(0, i - stretches + 1); k <= i; k++) {
      done += line.done[k];
      right += line.right[k];
    }
    if (done) points.push([(i + 1) * line.width, right / done]);
  }
  return points;
}

function accuracyPart(heads, about, { cursor = () => null, label, id = "accuracy", title = "Accuracy over time" } = {}) {
  const lines = curves(heads, label);
  const names = [...new Set(lines.map((l) => (label ? l.key : l.method)))];
  const arrivals = Math.max(1, ...heads.map((h) => h.arrivals));
  const width = Math.max(1, ...lines.map((l) => l.width));
  const span = Math.max(Math.ceil(arrivals / 24), 20); // tasks that a point is the mean of, for each seed
  const stretches = Math.max(1, Math.round(span / width));
  const drawn = lines.map((l) => ({ ...l, points: moving(l, stretches), ink: LINES[names.indexOf(label ? l.key : l.method) % LINES.length], dash: DASHES[names.indexOf(label ? l.key : l.method) % DASHES.length] }));
  const lowest = Math.min(1, ...drawn.flatMap((l) => l.points.slice(Math.min(2, l.points.length - 1)).map(([, v]) => v)));
  const low = Math.max(0, Math.floor(lowest * 10 - 0.5) / 10);
  const drawing = new Drawing(230, `Accuracy over time: ${drawn.map((l) => `${l.key} ends at ${percent(l.points.at(-1)?.[1])}`).join("; ")}`, (c, w, h) => {
    const right = w > 600 ? w - 170 : w - 8;
    const scale = arrivalsScale(arrivals, 38, right);
    const top = 8, bottom = h - 22;
    const y = (v) => bottom - ((bottom - top) * (v - low)) / Math.max(0.05, 1 - low);
    if (about.phase) windowBand(c, scale, about.phase[0], Math.min(arrivals, about.phase[1]), top, bottom);
    for (const v of ticks(low, 1, 4)) {
      c.fillStyle = ink("line");
      c.fillRect(scale.left, Math.round(y(v)), scale.right - scale.left, 1);
      c.fillStyle = ink("quiet");
      c.textAlign = "right";
      c.fillText(`${Math.round(100 * v)} %`, scale.left - 6, y(v));
    }
    for (const l of [...drawn].sort((a, b) => b.twin - a.twin)) {
      c.strokeStyle = ink(l.ink);
      c.globalAlpha = l.twin ? 0.55 : 1;
      c.lineWidth = l.twin ? 1 : 2;
      c.setLineDash(l.twin ? [1, 2.5] : l.dash);
      c.beginPath();
      l.points.forEach(([x, v]) => c.lineTo(scale(Math.min(x, arrivals)), y(Math.max(low, v))));
      c.stroke();
    }
    c.setLineDash([]);
    c.globalAlpha = 1;
    if (w > 600) names_at_the_end(c, drawn.filter((l) => !l.twin || label), scale.right + 8, y, top, bottom);
    arrivalsAxis(c, scale, bottom);
    const x = cursor();
    if (x !== null) {
      c.fillStyle = ink("ink");
      c.fillRect(scale(x + 0.5) - 0.5, top, 1, bottom - top);
    }
  });
  const seeds = Math.max(...lines.map((l) => l.seeds), 0);
  const note = `Share of right answers over the last ${count(stretches * width)} tasks${seeds > 1 ? `, ${seeds} seeds together` : ""}. ` +
    `${about.phase ? "Shaded: the degraded phase. " : ""}${lines.some((l) => l.twin) ? "Thin and dotted: the same tasks without faults." : ""}`;
  const element = section(id, title, about.mode,
    el("p", { class: "legend" }, drawn.filter((l) => !l.twin || label).map((l) => el("span", {}, lineIcon(l), ` ${l.key}`))),
    drawing.box, el("p", { class: "quiet note" }, note));
  return { element, drawing };
}

function lineIcon(l) {
  return svg("svg", { class: "icon", viewBox: "0 0 28 10", width: 28, height: 10, "aria-hidden": "true" },
    svg("line", { x1: 1, x2: 27, y1: 5, y2: 5, "stroke-width": 2, stroke: `var(--${l.ink})`, "stroke-dasharray": l.dash.join(" ") || null }));
}

// Names where the lines end, moved apart where they would overlap.
function names_at_the_end(c, lines, x, y, top, bottom) {
  const ends = lines.filter((l) => l.points.length).map((l) => ({ l, at: y(l.points.at(-1)[1]) })).sort((a, b) => a.at - b.at);
  ends.forEach((e, i) => (e.at = Math.max(e.at, i ? ends[i - 1].at + 14 : top + 4)));
  for (let i = ends.length - 1, most = bottom - 4; i >= 0; i--, most -= 14) ends[i].at = Math.min(ends[i].at, most);
  c.textAlign = "left";
  for (const { l, at } of ends) {
    c.fillStyle = ink(l.ink);
    c.font = `600 11px ${ink("font")}`;
    c.fillText(`${l.key.length > 20 ? `${l.key.slice(0, 19)}…` : l.key} ${percent(l.points.at(-1)[1], 0)}`, x, at);
  }
}

function tokensPart(heads, about) {
  const methods = [...new Set(heads.filter((h) => !h.twin).map((h) => h.method))];
  const rows = methods.map((method) => {
    const of = heads.filter((h) => h.method === method && !h.twin);
    const mean = (purpose) => of.reduce((sum, h) => sum + (h.figures.tokens_by_purpose[purpose] ?? 0), 0) / of.length;
    const parts = PURPOSES.map((p) => [p, mean(p)]).filter(([, n]) => n > 0);
    const models = new Map();
    for (const h of of) for (const [m, n] of Object.entries(h.models)) models.set(m, (models.get(m) ?? 0) + n);
    return { method, parts, total: parts.reduce((s, [, n]) => s + n, 0), models: [...models].sort((a, b) => b[1] - a[1]), seeds: of.length };
  });
  const most = Math.max(1, ...rows.map((r) => r.total));
  const bar = (r) => el("div", { class: "bar-row" },
    el("div", { class: "bar-name" }, el("b", {}, r.method), el("span", {}, `${count(r.total)} a task`)),
    el("div", { class: "stack", role: "img", "aria-label": `${r.method}: ${r.parts.map(([p, n]) => `${p} ${count(n)}`).join(", ")}` },
      r.parts.map(([p, n]) => el("span", { class: `part ${p}`, style: { width: `${(100 * n) / most}%` }, title: `${p}: ${count(n)} tokens a task` }))),
    el("p", { class: "bar-parts" }, r.parts.map(([p, n]) => el("span", {}, el("i", { class: `part ${p}` }), ` ${p} `, el("b", {}, count(n)), ` ${percent(n / r.total, 0)}`))),
    el("p", { class: "quiet bar-models" }, "by model: ", r.models.slice(0, 6).map(([m, n], i) => `${i ? " · " : ""}${m} ${percent(n / r.models.reduce((s, [, k]) => s + k, 0), 0)}`)));
  return section("tokens", "Where tokens went", about.mode,
    el("div", { class: "bars" }, rows.map(bar)),
    el("p", { class: "quiet note" }, `Tokens a task by purpose${rows.some((r) => r.seeds > 1) ? ", mean over seeds" : ""}; ${about.mode === "live" ? "measured" : "estimated"}. Reviews of probes count as probes.`));
}

const METRICS = [
  ["accuracy_healthy", "Accuracy, healthy phase", 3], ["accuracy_degraded", "Accuracy, degraded phase", 3], ["accuracy_twin", "Accuracy, twin (no faults)", 3],
  ["degraded_minus_twin", "Degraded minus twin", 3], ["detected", "Episodes detected", 2], ["detection_tasks", "Detection, tasks", 1],
  ["reintegrated", "Reinstated", 2], ["reintegration_tasks", "Reintegration, tasks", 1], ["false_exclusions", "False exclusions a run", 2],
  ["tokens_per_task", "Tokens a task", 0], ["calls_per_task", "Model calls a task", 2], ["probe_calls_per_task", "Probe calls a task", 2],
];

// results.json as a table: one column a method, means with 95 % intervals.
function figuresPart(results, about) {
  const methods = Object.keys(results.arms);
  const cell = (value, digits) => {
    if (!value || value.mean === null) return "–";
    const number = (v) => fixed(v, digits);
    const [low, high] = value.ci95;
    return [el("b", {}, number(value.mean)), low === null || high === null ? "" : el("span", { class: "quiet" }, ` ${number(low)} to ${number(high)}`)];
  };
  const rows = METRICS.filter(([m]) => methods.some((k) => results.arms[k].summary[m] && results.arms[k].summary[m].mean !== null));
  return section("figures", "Figures", about.mode,
    el("div", { class: "scroll", tabindex: 0, role: "region", "aria-label": "Figures by method" }, el("table", { class: "grid" },
      el("thead", {}, el("tr", {}, el("td", {}), methods.map((m) => el("th", { scope: "col" }, m)))),
      el("tbody", {}, rows.map(([metric, name, digits]) => el("tr", {}, el("th", { scope: "row" }, name), methods.map((m) => el("td", {}, cell(results.arms[m].summary[metric], digits)))))))),
    el("p", { class: "quiet note" }, `Means over ${plural(results.seeds.length, "seed")} with 95 % intervals, as in results.json.`));
}
