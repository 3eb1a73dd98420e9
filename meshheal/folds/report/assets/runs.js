// The list of runs that a server shows, and two of them side by side.

class RunList {
  constructor() {
    this.query = "";
    this.state = "";
    this.picked = new Set();
    this.rows = el("tbody", {});
    this.count = el("output", { class: "quiet" });
    this.compare = el("button", { type: "button", disabled: true, onclick: () => (location.hash = `#/compare/${[...this.picked].map(part).join("/")}`) }, "Compare two");
    this.element = el("section", { id: "runs", "aria-labelledby": "runs-title" },
      el("div", { class: "head" }, el("h1", { id: "runs-title" }, "Runs")),
      el("div", { class: "row filters" },
        el("label", { class: "field grow" }, el("span", {}, "Find"), el("input", { type: "search", id: "find-run", placeholder: "name, method, model", oninput: (e) => { this.query = e.target.value; this.draw(); } })),
        choice("State", [["", "any"], ["running", "running or cut"], ["complete", "complete"]], "", (v) => { this.state = v; this.draw(); }),
        this.count, this.compare),
      el("div", { class: "scroll" }, el("table", { class: "tasks runs" },
        el("thead", {}, el("tr", {}, ["", "Run", "Models", "Methods", "Seeds", "Tasks", "Right, degraded phase", "State"].map((t) => el("th", { scope: "col", class: t === "Seeds" || t === "Tasks" ? "num" : null }, t || el("span", { class: "unseen" }, "Compare"))))),
        this.rows)));
  }

  async refresh() {
    this.runs = (await source.runs()).runs;
    this.draw();
  }

  draw() {
    if (!this.runs) return;
    const query = this.query.trim().toLowerCase();
    const found = this.runs.filter((r) => (!this.state || (this.state === "complete") === r.complete) &&
      (!query || [r.name, r.experiment, r.mode, ...r.methods, ...r.models].join(" ").toLowerCase().includes(query)));
    this.count.textContent = plural(found.length, "run");
    const held = document.activeElement?.dataset?.run && [document.activeElement.tagName, document.activeElement.dataset.run];
    replace(this.rows, found.length ? found.map((r) => this.row(r)) : el("tr", {}, el("td", { colspan: 8, class: "quiet" }, "No run is like that.")));
    if (held) [...this.rows.querySelectorAll(held[0])].find((n) => n.dataset.run === held[1])?.focus();
  }

  row(r) {
    const box = el("input", { type: "checkbox", "data-run": r.name, "aria-label": `Compare ${r.name}`, onchange: (e) => {
      if (e.target.checked) this.picked.add(r.name);
      else this.picked.delete(r.name);
      this.compare.disabled = this.picked.size !== 2;
    } });
    box.checked = this.picked.has(r.name);
    return el("tr", {},
      el("td", {}, box),
      el("td", { class: "id" }, el("a", { href: `#/run/${part(r.name)}`, "data-run": r.name }, r.name), r.error && el("p", { class: "quiet" }, r.error)),
      el("td", { "data-label": "Models" }, tag(r.mode)),
      el("td", { "data-label": "Methods" }, r.methods.join(", ")),
      el("td", { class: "num", "data-label": "Seeds" }, count(r.seeds)),
      el("td", { class: "num", "data-label": "Tasks" }, r.expected > r.tasks ? `${count(r.tasks)} of ${count(r.expected)}` : count(r.tasks)),
      el("td", { "data-label": "Right, degraded phase" }, Object.entries(r.accuracy).map(([m, v], i) => [i ? el("br") : "", `${m} `, el("b", {}, percent(v))])),
      el("td", { "data-label": "State" }, r.complete ? "complete" : el("b", {}, r.writing ? "running" : "not complete")));
  }
}

// Two runs: figures beside each other with their difference, accuracy over time in one chart.
async function comparePage(names) {
  const [a, b] = await Promise.all(names.map((name) => source.overview(name)));
  const both = [a, b];
  const mode = a.about.mode === b.about.mode ? a.about.mode : null;
  const short = ["A", "B"];
  const figure = (o, method, metric) => o.results?.arms[method]?.summary[metric];
  const methods = [...new Set(both.flatMap((o) => Object.keys(o.results?.arms ?? {})))];
  const body = methods.flatMap((method) => [
    el("tr", { class: "group" }, el("th", { scope: "rowgroup", colspan: 4 }, method)),
    ...METRICS.filter(([m]) => both.some((o) => figure(o, method, m)?.mean != null)).map(([metric, name, digits]) => {
      const [x, y] = both.map((o) => figure(o, method, metric));
      const cell = (v) => (v?.mean == null ? "–" : [el("b", {}, fixed(v.mean, digits)), v.ci95[0] === null ? "" : el("span", { class: "quiet" }, ` ${fixed(v.ci95[0], digits)} to ${fixed(v.ci95[1], digits)}`)]);
      const gap = x?.mean != null && y?.mean != null ? y.mean - x.mean : null;
      return el("tr", {}, el("th", { scope: "row" }, name), el("td", {}, cell(x)), el("td", {}, cell(y)), el("td", {}, gap === null ? "–" : `${gap > 0 ? "+" : ""}${fixed(gap, digits)}`));
    }),
  ]);
  const heads = both.flatMap((o, i) => o.heads.filter((h) => !h.twin).map((h) => ({ ...h, method: `${short[i]} ${h.method}` })));
  const phases = both.map((o) => o.about.phase);
  const about = { mode, phase: JSON.stringify(phases[0]) === JSON.stringify(phases[1]) ? phases[0] : null };
  const chart = accuracyPart(heads, about, { label: (h) => h.method });
  const differing = both.some((o) => !o.results);
  return {
    element: el("div", {},
      el("div", { class: "headline" }, el("h1", {}, "Two runs"),
        el("dl", { class: "pair" }, both.map((o, i) => el("div", {}, el("dt", {}, short[i]), el("dd", {}, el("a", { href: `#/run/${part(o.about.name)}` }, o.about.name), " ", tag(o.about.mode),
          el("span", { class: "quiet" }, ` ${plural(o.network.agents, "agent")}, ${o.about.workload}, healthy: ${o.about.healthy.join(", ")}`)))))),
      section("compare", "Figures", mode,
        differing && el("p", { class: "quiet" }, "A run that is not complete has no figures yet."),
        el("div", { class: "scroll", tabindex: 0, role: "region", "aria-label": "Figures of both runs" }, el("table", { class: "grid" },
          el("thead", {}, el("tr", {}, el("td", {}), ["A", "B", "B − A"].map((t) => el("th", { scope: "col" }, t)))), el("tbody", {}, body))),
        el("p", { class: "quiet note" }, "Means over seeds with 95 % intervals; the difference is of the means, without an interval of its own.")),
      chart.element),
    end: () => chart.drawing.end(),
  };
}
