// Puts the page together, for a file and for a server alike.

const main = document.getElementById("main");
let current = null; // what is on the page and wants to be ended before something else is

// What an incident leaves out because there is none of it.
const NONE = { text: "", model: "", observers: 0, excluders: [], probes: 0, probes_passed: 0, withheld: 0, group: [], count: 1 };

function complete(arm) {
  arm.incidents = arm.incidents.map((i) => ({ ...NONE, ...i }));
  return arm;
}

class Run {
  // One run on the page: an arm of it is looked at, at a moment, with an agent picked.
  constructor(overview) {
    this.overview = overview;
    this.watchers = watchersOf(overview.network);
    this.parts = [];
  }

  async start(key) {
    const heads = this.overview.heads;
    const first = heads.find((h) => h.key === key) ?? heads.find((h) => !h.twin) ?? heads[0];
    await this.show(first.key);
  }

  async show(key, { keep = false } = {}) {
    this.head = this.overview.heads.find((h) => h.key === key);
    const reply = await source.arm(this.overview.about.name, key);
    this.arm = complete(reply.arm ?? reply);
    this.version = reply.version;
    this.rows = null;
    const first = this.arm.incidents.find((i) => i.agent !== undefined && i.agent !== null);
    if (!keep) {
      this.agent = first?.agent ?? 0;
      this.x = first?.all_excluded?.x ?? first?.excluded?.x ?? Math.max(0, this.arm.arrivals - 1);
    }
    this.draw();
  }

  draw() {
    for (const p of this.parts) p.end?.();
    const { overview } = this;
    this.network = new NetworkView(this);
    this.incidents = new IncidentList(this);
    this.agents = new AgentCharts(this);
    this.tasks = source.live && this.head.folded < 1 ? new TaskIndex(this) : new TaskList(this);
    this.accuracy = accuracyPart(overview.heads, overview.about, { cursor: () => this.x });
    this.parts = [this.network, this.agents, { end: () => this.accuracy.drawing.end() }];
    replace(main,
      headline(this), this.chooser(), this.progress(), summaryPart(this), this.network.element, this.incidents.element, this.agents.element,
      this.accuracy.element, tokensPart(overview.heads, overview.about), overview.results && figuresPart(overview.results, overview.about),
      this.tasks.element, this.foot());
    this.network.update();
  }

  chooser() {
    const { heads } = this.overview;
    if (heads.length < 2) return null;
    const methods = [...new Set(heads.map((h) => h.method))];
    const to = (change) => {
      const wanted = { method: this.head.method, seed: this.head.seed, twin: this.head.twin, ...change };
      const found = heads.find((h) => h.method === wanted.method && h.seed === wanted.seed && h.twin === wanted.twin) ??
        heads.find((h) => h.method === wanted.method && h.seed === wanted.seed) ?? heads.find((h) => h.method === wanted.method);
      if (found) this.show(found.key).then(() => document.querySelector(`[data-choice="${Object.keys(change)[0]}"] select`)?.focus());
    };
    const of = heads.filter((h) => h.method === this.head.method);
    const named = (name, label) => {
      label.dataset.choice = name;
      return label;
    };
    return el("div", { class: "row chooser", role: "group", "aria-label": "What is shown" },
      methods.length > 1 && named("method", choice("Method", methods.map((m) => [m, m]), this.head.method, (v) => to({ method: v }))),
      named("seed", choice("Seed", [...new Set(of.map((h) => h.seed))].map((s) => [s, String(s)]), this.head.seed, (v) => to({ seed: Number(v) }))),
      of.some((h) => h.twin) && named("twin", choice("Faults", [["", "as declared"], ["twin", "none (twin)"]], this.head.twin ? "twin" : "", (v) => to({ twin: v === "twin" }))));
  }

  progress() {
    const { head } = this;
    if (head.folded < 1) return el("p", { class: "reading" }, `${percent(head.folded, 0)} of the ${count(head.events)} events of this log are read; the page is drawn from these and goes on by itself.`);
    if (!head.complete) return el("p", { class: "reading" }, "This log has no end yet: the run goes on, or was cut.");
    return null;
  }

  foot() {
    const { overview, head, arm } = this;
    const lines = [
      `${head.key}: ${count(head.events)} events, ${head.complete ? `hash ${head.hash.slice(0, 12)}` : "not complete (still running, or cut)"}${head.folded < 1 ? `; ${percent(head.folded, 0)} of its log read so far` : ""}.`,
      arm.thinned.length ? `So that the page stays light it draws ${arm.thinned.join(", ")}, evenly spread; figures are of all.` : "",
      `meshheal ${overview.about.meshheal}. ${MODES[overview.about.mode]}`,
    ];
    return el("footer", {}, lines.filter(Boolean).map((l) => el("p", { class: "quiet" }, l)));
  }

  storyNote() {
    if (source.live) return "Open a task to read its story, down to prompts and replies.";
    const { stories, about } = this.overview;
    const here = Object.keys(stories.blocks[this.head.key] ?? {}).length;
    const all = this.arm.tasks.id.length;
    if (here >= all) return "Open a task to read its story, down to prompts and replies.";
    return `The stories of ${count(here)} of these ${count(all)} tasks are in this file: those that changed a belief or went wrong, and a sample of the rest. All of them: meshheal view ${about.name}`;
  }

  goTo(x) {
    this.x = Math.max(0, Math.min(this.arm.arrivals - 1, x));
    if (this.pending) return;
    this.pending = requestAnimationFrame(() => {
      this.pending = null;
      this.network.update();
      this.agents.update();
      this.accuracy.drawing.now();
    });
  }

  pick(agent) {
    if (!Number.isInteger(agent) || agent < 0 || agent >= this.overview.network.agents) return;
    this.agent = agent;
    this.agents.choose();
    this.goTo(this.x);
  }

  reveal(id) {
    document.getElementById(id).scrollIntoView({ block: "start" });
  }

  rowOf(task) {
    this.rows ??= new Map(this.arm.tasks.id.map((id, row) => [id, row]));
    return this.rows.get(task) ?? -1;
  }

  openTask(task) {
    return openStory(this, task);
  }

  end() {
    for (const p of this.parts) p.end?.();
    clearTimeout(this.timer);
  }

  // A run in progress: ask again, and draw again when there is more.
  follow() {
    clearTimeout(this.timer);
    this.timer = setTimeout(async () => {
      if (current !== this) return;
      try {
        await this.refresh();
      } catch (error) {
        announce(`No answer from the server: ${error.message}`);
      }
      if (current === this && this.unfinished()) this.follow();
    }, 1500);
  }

  unfinished() {
    return this.overview.heads.some((h) => !h.complete || h.folded < 1) || !this.overview.results;
  }

  async refresh() {
    const overview = await source.overview(this.overview.about.name);
    const head = overview.heads.find((h) => h.key === this.head.key);
    if (!head) return;
    const reply = await source.arm(overview.about.name, head.key, this.version);
    const same = reply === null || reply.unchanged;
    if (current !== this || (same && JSON.stringify(overview.heads) === JSON.stringify(this.overview.heads))) return;
    const take = () => this.take(overview, head, same ? null : reply);
    // Not under the hands of somebody who reads a story, watches the run play, or is about to press something.
    const busy = document.querySelector("dialog[open], details[open]") || this.network.playing || main.querySelector(":focus");
    if (busy) replace(said, el("button", { type: "button", class: "link", onclick: take }, `Show news (${plural(head.events, "event")})`));
    else take();
  }

  take(overview, head, reply) {
    const atEnd = this.x >= this.arm.arrivals - 1;
    this.overview = overview;
    this.head = head;
    if (reply) {
      this.arm = complete(reply.arm);
      this.version = reply.version;
      this.rows = null;
    }
    if (atEnd) this.x = Math.max(0, this.arm.arrivals - 1);
    const y = scrollY;
    this.draw();
    scrollTo({ top: y, behavior: "instant" });
    announce("");
  }
}

const said = el("span", { id: "said", role: "status" });

function bar(links) {
  const button = el("button", { type: "button", id: "theme", onclick: () => { setTheme(theme() === "dark" ? "light" : "dark"); label(); } });
  const label = () => {
    button.textContent = theme() === "dark" ? "Light" : "Dark";
    button.setAttribute("aria-label", `Switch to the ${theme() === "dark" ? "light" : "dark"} theme`);
  };
  label();
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", label);
  replace(document.getElementById("bar"), el("span", { class: "brand" }, "MeshHeal"), el("nav", { "aria-label": "Parts of the page" }, links.map(([href, text]) => el("a", { href }, text))), said, button);
}

const announce = (text) => replace(said, text);

const PARTS = [["what", "What happened"], ["network", "Network"], ["incidents", "Incidents"], ["agents", "Agents"], ["accuracy", "Accuracy"], ["tokens", "Tokens"], ["tasks", "Tasks"]];

// Links inside the page scroll; the address stays free to name what is shown.
document.addEventListener("click", (e) => {
  const link = e.target.closest?.("a[href^='#']");
  const id = link?.getAttribute("href").slice(1);
  if (!link || id.startsWith("/")) return;
  const target = document.getElementById(id);
  if (!target) return;
  e.preventDefault();
  target.scrollIntoView({ block: "start" });
  const heading = target.querySelector("h2") ?? target;
  heading.setAttribute("tabindex", "-1");
  heading.focus({ preventScroll: true });
});

async function route() {
  current?.end?.();
  current = null;
  const [, what, ...names] = location.hash.split("/").map(decodeURIComponent);
  if (source.live && what === "compare" && names.length === 2) {
    bar([["#/", "Runs"]]);
    current = await comparePage(names);
    replace(main, current.element);
    return;
  }
  if (source.live && what !== "run") {
    bar([]);
    const list = new RunList();
    await list.refresh();
    replace(main, list.element);
    current = { end: () => clearInterval(timer) };
    const timer = setInterval(() => list.refresh().then(() => announce(""), (e) => announce(`No answer from the server: ${e.message}`)), 3000);
    return;
  }
  bar([...(source.live ? [["#/", "Runs"]] : []), ...PARTS.map(([id, text]) => [`#${id}`, text])]);
  const overview = await source.overview(names[0]);
  const run = new Run(overview);
  current = run;
  if (!overview.heads.length) replace(main, el("p", { class: "quiet" }, "Nothing was recorded in this run yet."));
  else await run.start();
  if (source.live && run.unfinished()) run.follow();
}

function opened() {
  route().then(
    () => (document.documentElement.dataset.ready = "yes"),
    (error) => {
      console.error(error);
      replace(main, el("p", {}, `This page cannot be drawn: ${error.message}`));
    },
  );
}
addEventListener("hashchange", () => source.live && opened());
if (typeof DecompressionStream === "undefined") replace(main, el("p", {}, "This browser is too old to open the data in this page (it lacks DecompressionStream)."));
else opened();
