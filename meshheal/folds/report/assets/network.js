// The network at a moment of the run: what agents are (their core) and what their neighbours hold them to be (shape, ring).

class NetworkView {
  constructor(run) {
    this.run = run;
    const { network } = run.overview;
    this.neighbours = neighboursOf(network);
    this.beliefs = new Beliefs(run.arm, run.watchers);
    this.playing = null;
    this.last = Math.max(0, run.arm.arrivals - 1);
    const big = network.agents > 40;
    this.drawing = new Drawing(big ? 560 : 420, "Network of agents", (c, w, h) => this.paint(c, w, h));
    this.drawing.canvas.addEventListener("click", (e) => this.pick(e));
    this.drawing.canvas.addEventListener("mousemove", (e) => this.hover(e));
    this.drawing.canvas.addEventListener("mouseleave", () => (this.tip.hidden = true));
    this.tip = el("div", { class: "tip", hidden: true });
    this.drawing.box.append(this.tip);
    this.slider = el("input", {
      type: "range", min: 0, max: this.last, step: 1, id: "time", "aria-label": "Time, in tasks of the stream",
      oninput: (e) => run.goTo(Number(e.target.value)),
    });
    this.play = el("button", { type: "button", class: "play", onclick: () => this.toggle() }, "Play");
    this.when = el("output", { class: "when", for: "time" });
    this.ribbon = new Drawing(46, "Agents on a worse model and agents excluded, over time", (c, w, h) => this.paintRibbon(c, w, h));
    this.ribbon.canvas.addEventListener("click", (e) => run.goTo(Math.round(this.scale.back(e.offsetX))));
    this.now = el("div", { class: "now" });
    this.who = el("div", { class: "who" });
    this.element = section(
      "network", "The network", run.overview.about.mode,
      el("div", { class: "split" },
        el("div", { class: "stage" }, this.drawing.box, legend()),
        el("div", { class: "side" }, this.now, this.who)),
      el("div", { class: "time" },
        el("div", { class: "row" },
          this.play, this.stepButton(-1), this.stepButton(1), this.when,
          choice("Speed", [["20", "20 s a run"], ["60", "60 s a run"], ["8", "8 s a run"]], "20", (v) => (this.pace = Number(v)))),
        this.slider, this.ribbon.box),
    );
    this.pace = 20;
  }

  stepButton(way) {
    const label = way < 0 ? "Previous incident" : "Next incident";
    return el("button", { type: "button", onclick: () => this.step(way), title: label, "aria-label": label }, way < 0 ? "◂ incident" : "incident ▸");
  }

  step(way) {
    const marks = this.run.arm.incidents.flatMap((i) => [i.onset, i.excluded, i.all_excluded, i.recovered, i.back]).filter(Boolean).map((m) => m.x);
    const sorted = [...new Set(marks)].sort((a, b) => a - b);
    const { x } = this.run;
    const to = way > 0 ? sorted.find((m) => m > x) : sorted.reverse().find((m) => m < x);
    if (to !== undefined) this.run.goTo(to);
  }

  toggle() {
    if (this.playing) {
      cancelAnimationFrame(this.playing);
      this.playing = null;
      this.play.textContent = "Play";
      return;
    }
    if (this.run.x >= this.last) this.run.goTo(0);
    this.play.textContent = "Pause";
    let before = performance.now();
    let at = this.run.x;
    const still = matchMedia("(prefers-reduced-motion: reduce)").matches;
    const frame = (now) => {
      if (!still || now - before > 1000) {
        at += ((now - before) / 1000 / this.pace) * this.last;
        before = now;
        this.run.goTo(Math.min(this.last, Math.floor(at)));
      }
      if (at >= this.last) return this.toggle();
      this.playing = requestAnimationFrame(frame);
      return undefined;
    };
    this.playing = requestAnimationFrame(frame);
  }

  end() {
    if (this.playing) this.toggle();
    this.drawing.end();
    this.ribbon.end();
  }

  update() {
    const { run } = this;
    const x = run.x;
    this.beliefs.to(x);
    this.ill = degradedAt(run.arm, x);
    this.slider.value = x;
    const row = rowAt(run.arm.tasks.x, x);
    const t = row >= 0 ? run.arm.tasks.t[row] : 0;
    this.slider.setAttribute("aria-valuetext", `task ${x} of ${this.last}`);
    replace(this.when, el("b", {}, `task ${count(x)}`), ` of ${count(this.last)} · ${duration(t)}`);
    this.tell();
    this.drawing.now();
    this.ribbon.now();
  }

  tell() {
    const { beliefs, ill } = this;
    let all = 0, some = 0, suspect = 0, probation = 0, wrongly = 0, unfound = 0;
    for (let a = 0; a < beliefs.n; a++) {
      const excluded = beliefs.counts[a * 4 + EXCLUDED];
      if (excluded && beliefs.everybody(a, EXCLUDED)) all++;
      else if (excluded) some++;
      else if (beliefs.counts[a * 4 + 1]) suspect++;
      else if (beliefs.counts[a * 4 + 2]) probation++;
      if (excluded && !ill.has(a)) wrongly++;
      if (!excluded && ill.has(a)) unfound++;
    }
    const rows = [
      ["on a worse model", ill.size], [" of these not excluded", unfound], ["excluded by all neighbours", all],
      ["excluded by some", some], [" excluded and well", wrongly], ["suspect at most", suspect], ["on probation", probation],
    ];
    replace(this.now, el("table", { class: "plain" }, el("tbody", {}, rows.map(([what, n]) =>
      el("tr", { class: n ? "" : "none" }, el("th", { scope: "row", class: what.startsWith(" ") ? "sub" : "" }, what.trim()), el("td", {}, count(n)))))));
    const summary = rows.map(([what, n]) => `${what.trim()} ${n}`).join(", ");
    this.drawing.canvas.setAttribute("aria-label", `Network of ${beliefs.n} agents at task ${this.run.x}: ${summary}`);
    this.tellAgent();
  }

  tellAgent() {
    const { run, beliefs } = this;
    const agent = run.agent;
    const field = el("label", { class: "field" }, el("span", {}, "Agent"),
      el("input", { type: "number", min: 0, max: beliefs.n - 1, value: agent, id: "agent", onchange: (e) => run.pick(Number(e.target.value)) }));
    if (this.who.contains(document.activeElement)) this.who.lastChild.replaceWith(this.aboutAgent(agent));
    else replace(this.who, field, this.aboutAgent(agent));
  }

  aboutAgent(agent) {
    const { run, beliefs } = this;
    const groups = STATES.map(() => []);
    for (const by of run.watchers[agent]) groups[beliefs.of(by, agent)].push(by);
    const abilities = run.overview.network.abilities[agent] ?? [];
    const window = run.arm.windows.find((w) => w.agent === agent && w.start <= run.x && (w.end === null || run.x < w.end));
    return el("div", { class: "about" },
      el("p", { class: "quiet" }, abilities.join(", ")),
      el("p", {}, window ? ["runs on ", el("b", {}, window.model), window.degraded ? " (worse)" : " (swapped)"] : "runs on its own model"),
      el("ul", { class: "held" }, [3, 2, 1, 0].filter((s) => groups[s].length).map((s) =>
        el("li", {}, stateIcon(s), ` ${STATES[s]} for ${groups[s].length > 12 ? plural(groups[s].length, "neighbour") : agents(groups[s])}`))));
  }

  // --- drawing ---

  place(width, height) {
    const { at } = this.run.overview.network;
    const n = at.x.length;
    const pad = n > 40 ? 16 : 46;
    const size = n <= 12 ? Math.min(width, height) - 2 * pad : 0;
    const w = size || width - 2 * pad;
    const h = size || height - 2 * pad;
    const left = (width - w) / 2;
    const top = (height - h) / 2;
    this.px = at.x.map((x) => left + (x / 1000) * w);
    this.py = at.y.map((y) => top + (y / 1000) * h);
    this.r = n <= 12 ? 15 : n <= 40 ? 9 : Math.max(2.2, Math.min(5, 0.19 * Math.sqrt((w * h) / n)));
  }

  paint(c, width, height) {
    this.place(width, height);
    this.paintEdges(c);
    const { beliefs, px, py, r, ill } = this;
    const labels = beliefs.n <= 40;
    for (let a = 0; a < beliefs.n; a++) {
      const state = beliefs.shown(a);
      stateMark(c, state, px[a], py[a], r);
      c.fillStyle = stateInk(state);
      c.fill();
      this.paintRing(c, a);
      if (ill.has(a)) {
        c.beginPath();
        c.arc(px[a], py[a], r * 0.5, 0, 7);
        c.fillStyle = ink("core");
        c.fill();
        c.lineWidth = 0.5;
      }
      if (a === this.run.agent) {
        c.beginPath();
        c.arc(px[a], py[a], r + (labels ? 10 : 5), 0, 7);
        c.strokeStyle = ink("ink");
        c.lineWidth = 1.5;
        c.stroke();
      }
      if (labels) {
        c.fillStyle = ink("ink");
        c.textAlign = "center";
        const out = beliefs.n <= 12 ? r + 19 : r + 11;
        const dx = px[a] - width / 2, dy = py[a] - height / 2, d = beliefs.n <= 12 ? Math.hypot(dx, dy) || 1 : 0;
        c.font = `${a === this.run.agent ? "600 " : ""}12px ${ink("font")}`;
        c.fillText(String(a), px[a] + (d ? (dx / d) * out : 0), py[a] + (d ? (dy / d) * out : out));
      }
    }
  }

  paintEdges(c) {
    const { edges } = this.run.overview.network;
    const { px, py } = this;
    c.strokeStyle = ink("edge");
    c.lineWidth = 1;
    c.beginPath();
    for (let i = 0; i < edges.length; i += 2) {
      c.moveTo(px[edges[i]], py[edges[i]]);
      c.lineTo(px[edges[i + 1]], py[edges[i + 1]]);
    }
    c.stroke();
    // What each neighbour holds of the picked agent.
    const agent = this.run.agent;
    for (const by of this.run.watchers[agent]) {
      const state = this.beliefs.of(by, agent);
      c.strokeStyle = state ? stateInk(state) : ink("quiet");
      c.lineWidth = state ? 2 : 1.2;
      c.setLineDash([[], [2, 3], [6, 3], []][state]);
      c.beginPath();
      c.moveTo(px[by], py[by]);
      c.lineTo(px[agent], py[agent]);
      c.stroke();
    }
    c.setLineDash([]);
  }

  // Around an agent: the share of its neighbours in each state that is not healthy.
  paintRing(c, a) {
    const { beliefs, px, py, r } = this;
    let from = -Math.PI / 2;
    c.lineWidth = Math.max(1.3, r * 0.22);
    for (const state of [3, 1, 2]) {
      const share = Math.min(1, beliefs.share(a, state));
      if (!share) continue;
      c.strokeStyle = stateInk(state);
      c.beginPath();
      c.arc(px[a], py[a], r * 1.45 + 1.5, from, from + share * 2 * Math.PI);
      c.stroke();
      from += share * 2 * Math.PI;
    }
  }

  paintRibbon(c, width, height) {
    const { arm } = this.run;
    const scale = (this.scale = arrivalsScale(arm.arrivals, 8, width - 8));
    const bottom = height - 18;
    const bins = Math.max(1, Math.min(400, Math.round(scale.right - scale.left), arm.arrivals));
    if (this.bins !== bins) {
      this.bins = bins;
      this.over = exclusionsOverTime(arm, this.run.watchers, bins);
      this.ills = Array.from({ length: bins }, (_, i) => degradedAt(arm, Math.round(((i + 0.5) / bins) * arm.arrivals)).size);
    }
    const most = Math.max(1, ...this.ills, ...this.over.some);
    const step = (scale.right - scale.left) / bins;
    const area = (numbers, name) => {
      c.fillStyle = ink(name);
      c.beginPath();
      c.moveTo(scale.left, bottom);
      numbers.forEach((n, i) => {
        const y = bottom - (n / most) * (bottom - 2);
        c.lineTo(scale.left + i * step, y);
        c.lineTo(scale.left + (i + 1) * step, y);
      });
      c.lineTo(scale.right, bottom);
      c.fill();
    };
    area(this.over.some, "excluded-soft");
    area(this.over.all, "excluded");
    c.strokeStyle = ink("ink");
    c.lineWidth = 1.2;
    c.beginPath();
    this.ills.forEach((n, i) => {
      const y = bottom - (n / most) * (bottom - 2);
      c.lineTo(scale.left + i * step, y);
      c.lineTo(scale.left + (i + 1) * step, y);
    });
    c.stroke();
    arrivalsAxis(c, scale, bottom);
    c.fillStyle = ink("ink");
    c.fillRect(scale(this.run.x + 0.5) - 0.75, 0, 1.5, bottom);
  }

  // --- pointing ---

  nearest(e) {
    let best = -1, least = 20 * 20;
    for (let a = 0; a < this.px.length; a++) {
      const d = (this.px[a] - e.offsetX) ** 2 + (this.py[a] - e.offsetY) ** 2;
      if (d < least) [best, least] = [a, d];
    }
    return best;
  }

  pick(e) {
    const agent = this.nearest(e);
    if (agent >= 0) this.run.pick(agent);
  }

  hover(e) {
    const agent = this.nearest(e);
    this.drawing.canvas.style.cursor = agent >= 0 ? "pointer" : "default";
    this.tip.hidden = agent < 0;
    if (agent < 0) return;
    const state = STATES[this.beliefs.shown(agent)];
    replace(this.tip, `agent ${agent}: ${state}${this.ill.has(agent) ? ", on a worse model" : ""}`);
    const right = this.px[agent] > this.drawing.box.clientWidth / 2;
    this.tip.style.left = right ? "auto" : `${this.px[agent] + 14}px`;
    this.tip.style.right = right ? `${this.drawing.box.clientWidth - this.px[agent] + 14}px` : "auto";
    this.tip.style.top = `${this.py[agent] - 12}px`;
  }
}

function legend() {
  return el("p", { class: "legend" },
    STATES.map((name, s) => el("span", {}, stateIcon(s), ` ${name}`)),
    el("span", {}, el("i", { class: "core" }), " core: on a worse model"),
    el("span", {}, el("i", { class: "ring" }), " ring: share of neighbours that hold it so"));
}

// The last row of a sorted column that is not beyond x.
function rowAt(column, x) {
  let low = 0, high = column.length;
  while (low < high) {
    const middle = (low + high) >> 1;
    if (column[middle] <= x) low = middle + 1;
    else high = middle;
  }
  return low - 1;
}
