// Score timelines of agents: first looks and probes, stretches on a worse model, evidence, beliefs.

const SHOWN_AGENTS = 6;

class AgentCharts {
  constructor(run) {
    this.run = run;
    this.list = el("div", { class: "charts" });
    this.drawings = [];
    this.index();
    this.element = section(
      "agents", "Agents", run.overview.about.mode,
      el("p", { class: "legend" },
        el("span", {}, el("i", { class: "dot" }), " first look"), el("span", {}, el("i", { class: "cross" }), " probe"),
        el("span", {}, el("i", { class: "mean" }), " mean of the last 12"), el("span", {}, el("i", { class: "ill" }), " on a worse model"),
        el("span", {}, el("i", { class: "evidence" }), " highest evidence against it (log)"),
        el("span", {}, "strip: share of neighbours that hold it", [1, 3, 2].map((s) => [stateIcon(s), STATES[s]]))),
      this.list);
    this.choose();
  }

  // Rows of the columns by agent, made once.
  index() {
    const by = (column) => {
      const rows = new Map();
      column.forEach((a, row) => (rows.get(a) ?? rows.set(a, []).get(a)).push(row));
      return rows;
    };
    const { arm } = this.run;
    this.scores = by(arm.scores.agent);
    this.evidence = by(arm.evidence.agent);
    this.changes = by(arm.states.agent);
  }

  choose() {
    const { run } = this;
    const n = run.overview.network.agents;
    const special = [...new Set(run.arm.incidents.map((i) => i.agent).filter((a) => a !== undefined && a !== null))];
    const order = [run.agent, ...special, ...Array.from({ length: Math.min(n, 40) }, (_, a) => a)];
    const wanted = n <= SHOWN_AGENTS ? Array.from({ length: n }, (_, a) => a) : [...new Set(order)].slice(0, SHOWN_AGENTS);
    if (this.shown && wanted.every((a, i) => a === this.shown[i])) return this.mark();
    this.shown = wanted;
    this.drawings.forEach((d) => d.end());
    this.drawings = wanted.map((a) => {
      const drawing = new Drawing(118, this.describe(a), (c, w, h) => this.paint(c, w, h, a));
      drawing.canvas.addEventListener("click", (e) => { run.pick(a); if (drawing.scale) run.goTo(Math.round(drawing.scale.back(e.offsetX))); });
      return drawing;
    });
    this.titles = wanted.map((a) => el("h3", {}, el("button", { type: "button", class: "link", onclick: () => run.pick(a) }, `Agent ${a}`),
      el("small", {}, run.overview.network.abilities[a]?.join(", "))));
    replace(this.list, wanted.map((a, i) => el("div", { class: "chart" }, this.titles[i], this.drawings[i].box)),
      n > wanted.length && el("p", { class: "quiet" }, `${SHOWN_AGENTS} of ${count(n)} agents: the one picked in the network first, then those with incidents.`));
    return this.mark();
  }

  describe(agent) {
    const rows = this.scores.get(agent) ?? [];
    const { arm } = this.run;
    const mean = rows.length ? rows.reduce((sum, r) => sum + arm.scores.score[r], 0) / rows.length / 100 : 0;
    const windows = arm.windows.filter((w) => w.agent === agent && w.degraded).map((w) => `worse from task ${w.start} to ${w.end ?? "the end"}`);
    return `Agent ${agent}: ${rows.length} scores, mean ${mean.toFixed(2)}${windows.length ? "; " + windows.join(", ") : ""}`;
  }

  mark() {
    this.titles.forEach((t, i) => t.classList.toggle("picked", this.shown[i] === this.run.agent));
  }

  update() {
    this.drawings.forEach((d) => d.now());
  }

  end() {
    this.drawings.forEach((d) => d.end());
  }

  paint(c, width, height, agent) {
    const { arm, x } = this.run;
    const scale = arrivalsScale(arm.arrivals, 26, width - 4);
    const drawing = this.drawings[this.shown.indexOf(agent)];
    if (drawing) drawing.scale = scale;
    const top = 6, bottom = height - 34;
    const y = (score) => bottom - (bottom - top) * score;
    for (const w of arm.windows) if (w.agent === agent && w.degraded) windowBand(c, scale, w.start, w.end ?? arm.arrivals, top - 4, bottom + 4);
    c.fillStyle = ink("quiet");
    c.textAlign = "right";
    for (const v of [0, 0.5, 1]) {
      c.fillText(String(v), 20, y(v));
      c.fillStyle = ink("line");
      c.fillRect(scale.left, Math.round(y(v)), scale.right - scale.left, 1);
      c.fillStyle = ink("quiet");
    }
    this.paintEvidence(c, scale, agent, top, bottom);
    this.paintScores(c, scale, agent, y);
    this.paintBeliefs(c, scale, agent, bottom + 7, 9);
    arrivalsAxis(c, scale, bottom + 18);
    c.fillStyle = ink("ink");
    c.fillRect(scale(x + 0.5) - 0.5, top - 4, 1, bottom + 20 - top);
  }

  paintScores(c, scale, agent, y) {
    const { scores } = this.run.arm;
    const rows = this.scores.get(agent) ?? [];
    const r = rows.length > 800 ? 1.1 : 1.7;
    c.globalAlpha = rows.length > 300 ? 0.55 : 0.8;
    const means = [];
    const recent = [];
    for (const row of rows) {
      const px = scale(scores.x[row] + 0.5);
      const py = y(scores.score[row] / 100);
      if (scores.probe[row]) {
        c.strokeStyle = ink("probe");
        c.lineWidth = 1;
        c.beginPath();
        c.moveTo(px - r - 0.6, py - r - 0.6);
        c.lineTo(px + r + 0.6, py + r + 0.6);
        c.moveTo(px + r + 0.6, py - r - 0.6);
        c.lineTo(px - r - 0.6, py + r + 0.6);
        c.stroke();
      } else {
        c.fillStyle = ink("score");
        c.beginPath();
        c.arc(px, py, r, 0, 7);
        c.fill();
      }
      recent.push(scores.score[row]);
      if (recent.length > 12) recent.shift();
      means.push([px, y(recent.reduce((a, b) => a + b, 0) / recent.length / 100)]);
    }
    c.globalAlpha = 1;
    c.strokeStyle = ink("score");
    c.lineWidth = 1.4;
    c.beginPath();
    means.forEach(([px, py]) => c.lineTo(px, py));
    c.stroke();
  }

  // The highest evidence that any neighbour holds, as a line from the bottom up; its top is 2^12.
  paintEvidence(c, scale, agent, top, bottom) {
    const { evidence } = this.run.arm;
    const rows = this.evidence.get(agent) ?? [];
    const held = new Map();
    let before = 0;
    c.strokeStyle = ink("evidence");
    c.lineWidth = 1.2;
    c.setLineDash([3, 2]);
    c.beginPath();
    const at = (level) => bottom - (bottom - top) * Math.min(1, level / 120);
    c.moveTo(scale.left, bottom);
    for (const row of rows) {
      held.set(evidence.by[row], evidence.level[row]);
      const most = Math.max(0, ...held.values());
      const px = scale(evidence.x[row] + 0.5);
      c.lineTo(px, at(before));
      c.lineTo(px, at(most));
      before = most;
    }
    c.lineTo(scale.right, at(before));
    c.stroke();
    c.setLineDash([]);
  }

  // A strip: which share of the neighbours holds it suspect, excluded, on probation.
  paintBeliefs(c, scale, agent, top, height) {
    const { run } = this;
    const { states, arrivals } = run.arm;
    const around = run.watchers[agent].length || 1;
    const held = new Map();
    let from = 0;
    const flush = (to) => {
      const totals = [0, 0, 0, 0];
      for (const abilities of held.values()) totals[worst(abilities)]++;
      let y = top + height;
      for (const state of [3, 1, 2]) {
        const h = (height * Math.min(around, totals[state])) / around;
        if (!h) continue;
        c.fillStyle = stateInk(state);
        y -= h;
        c.fillRect(scale(from), y, Math.max(0.8, scale(to) - scale(from)), h);
      }
      from = to;
    };
    c.fillStyle = ink("line");
    c.fillRect(scale.left, top + height, scale.right - scale.left, 1);
    for (const row of this.changes.get(agent) ?? []) {
      if (states.x[row] > from) flush(states.x[row]);
      const by = states.by[row];
      const abilities = held.get(by) ?? held.set(by, new Map()).get(by);
      if (states.ability[row] < 0 && abilities.get(-1) === EXCLUDED && states.to[row] !== EXCLUDED) abilities.clear();
      if (states.to[row]) abilities.set(states.ability[row], states.to[row]);
      else abilities.delete(states.ability[row]);
    }
    flush(arrivals);
  }
}
