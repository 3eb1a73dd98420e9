// Tasks: find one, and read its story down to prompts and replies.

const TASK_PAGE = 25;

class TaskList {
  constructor(run) {
    this.run = run;
    const { tasks, words } = run.arm;
    this.query = "";
    this.outcome = "";
    this.grade = "";
    this.page = 0;
    const outcomes = [...new Set(tasks.outcome)].map((o) => [String(o), words[o] || "under way"]);
    this.count = el("output", { class: "quiet" });
    this.body = el("tbody", {});
    this.pages = el("div", { class: "row pages" });
    this.element = section(
      "tasks", "Tasks", run.overview.about.mode,
      el("div", { class: "row filters" },
        el("label", { class: "field grow" }, el("span", {}, "Find"), el("input", { type: "search", placeholder: "id, ability, kind, agent 3", oninput: (e) => this.filter({ query: e.target.value }) })),
        choice("Outcome", [["", "any"], ...outcomes], "", (v) => this.filter({ outcome: v })),
        choice("Grade", [["", "any"], ["1", "right"], ["0", "wrong"], ["-1", "no answer"]], "", (v) => this.filter({ grade: v })), this.count),
      el("table", { class: "tasks" }, el("thead", {}, el("tr", {}, ["#", "Task", "Ability", "Producer", "Outcome", "Grade", "Tokens"].map((t) => el("th", { scope: "col", class: t === "#" || t === "Tokens" ? "num" : null }, t)))), this.body),
      this.pages,
      el("p", { class: "quiet note" }, run.storyNote()),
    );
    this.draw();
  }

  filter(change) {
    Object.assign(this, change, { page: 0 });
    this.draw();
  }

  rows() {
    const { tasks, words } = this.run.arm;
    const query = this.query.trim().toLowerCase();
    const agent = /^agent (\d+)$/.exec(query);
    const found = [];
    for (let r = 0; r < tasks.id.length; r++) {
      if (this.outcome !== "" && tasks.outcome[r] !== Number(this.outcome)) continue;
      if (this.grade !== "" && tasks.correct[r] !== Number(this.grade)) continue;
      if (agent ? tasks.producer[r] !== Number(agent[1]) && tasks.author[r] !== Number(agent[1])
        : query && !`${tasks.id[r]} ${words[tasks.ability[r]]} ${words[tasks.kind[r]]}`.toLowerCase().includes(query)) continue;
      found.push(r);
    }
    return found;
  }

  draw() {
    const { run } = this;
    const { tasks, words } = run.arm;
    const rows = this.rows();
    const pages = Math.max(1, Math.ceil(rows.length / TASK_PAGE));
    this.page = Math.min(this.page, pages - 1);
    this.count.textContent = plural(rows.length, "task");
    const grade = { 1: "right", 0: "wrong", "-1": "–" };
    replace(this.body, rows.slice(this.page * TASK_PAGE, (this.page + 1) * TASK_PAGE).map((r) => el("tr", {},
      el("td", { class: "num", "data-label": "#" }, count(tasks.x[r])),
      el("td", { class: "id" }, el("button", { type: "button", class: "link", onclick: () => run.openTask(tasks.id[r]) }, tasks.id[r])),
      el("td", { "data-label": "Ability" }, words[tasks.ability[r]]),
      el("td", { "data-label": "Producer" }, tasks.producer[r] < 0 ? "–" : [`agent ${tasks.producer[r]}`, tasks.author[r] >= 0 && tasks.author[r] !== tasks.producer[r] && ` → ${tasks.author[r]}`]),
      el("td", { "data-label": "Outcome" }, words[tasks.outcome[r]] || "under way"),
      el("td", { "data-label": "Grade", class: `grade g${tasks.correct[r]}` }, grade[tasks.correct[r]]),
      el("td", { class: "num", "data-label": "Tokens" }, count(tasks.tokens[r])))));
    const turn = (by, text) => el("button", { type: "button", disabled: this.page + by < 0 || this.page + by >= pages, onclick: () => { this.page += by; this.draw(); } }, text);
    replace(this.pages, pages > 1 && [turn(-1, "Previous"), el("span", { class: "quiet" }, `page ${count(this.page + 1)} of ${count(pages)}`), turn(1, "Next")]);
  }
}

// While a large log is being read: its tasks by the index, which has their ids only.
class TaskIndex {
  constructor(run) {
    this.run = run;
    this.from = 0;
    this.query = "";
    this.count = el("output", { class: "quiet" });
    this.list = el("ul", { class: "ids" });
    this.pages = el("div", { class: "row pages" });
    this.element = section("tasks", "Tasks", run.overview.about.mode,
      el("div", { class: "row filters" },
        el("label", { class: "field grow" }, el("span", {}, "Find"), el("input", { type: "search", placeholder: "part of an id", oninput: (e) => { this.query = e.target.value; this.from = 0; this.draw(); } })), this.count),
      this.list, this.pages, el("p", { class: "quiet note" }, "The log is still being read: its tasks by the index alone. Any of them opens at once."));
    this.draw();
  }

  async draw() {
    const asked = `${this.query} ${this.from}`;
    this.asked = asked;
    const page = 40;
    const { run } = this;
    const found = await source.tasks(run.overview.about.name, run.head.key, this.from, this.query);
    if (this.asked !== asked) return;
    this.count.textContent = plural(found.count, "task");
    replace(this.list, found.ids.slice(0, page).map((id) => el("li", {}, el("button", { type: "button", class: "link", onclick: () => run.openTask(id) }, id))));
    const turn = (by, text) => el("button", { type: "button", disabled: this.from + by < 0 || this.from + by >= found.count, onclick: () => { this.from += by; this.draw(); } }, text);
    replace(this.pages, found.count > page && [turn(-page, "Previous"), turn(page, "Next")]);
  }
}

// The story of one task in a dialog.
async function openStory(run, task) {
  const { about } = run.overview;
  const body = el("div", { class: "story" }, el("p", { class: "quiet" }, "Opening …"));
  const dialog = el("dialog", { "aria-labelledby": "story-title" },
    el("div", { class: "story-head" },
      el("div", {}, el("h2", { id: "story-title" }, task), el("p", { class: "quiet" }, `${run.head.key} · `, tag(about.mode))),
      el("button", { type: "button", onclick: () => dialog.close() }, "Close")),
    body);
  dialog.addEventListener("close", () => dialog.remove());
  dialog.addEventListener("click", (e) => e.target === dialog && dialog.close());
  document.body.append(dialog);
  dialog.showModal();
  let found = null;
  try {
    found = await source.story(about.name, run.head.key, task, run.overview);
  } catch (error) {
    replace(body, el("p", {}, `The story cannot be read: ${error.message}`));
    return;
  }
  if (!found) {
    replace(body,
      el("p", {}, "This task's story is not in this file, to keep it small. These show it:"),
      el("pre", {}, `meshheal view ${about.name}\nmeshheal log ${about.name} --method ${run.head.method}${run.head.twin ? "+twin" : ""} --seed ${run.head.seed} --task ${task}`));
    return;
  }
  const done = found.lines.filter((l) => !l[4]);
  const beliefs = found.lines.filter((l) => l[4]);
  const told = new Set();
  replace(body,
    el("ol", { class: "story-lines" }, done.map((line) => storyLine(line, found.texts, told))),
    el("h3", {}, beliefs.length ? "What was believed because of it" : "It changed nobody's belief."),
    beliefs.length > 0 && el("ol", { class: "story-lines" }, beliefs.map((line) => storyLine(line, found.texts, told))));
}

const LABELS = { user: "prompt", assistant: "prompt (the answer under review)", system: "system prompt", reply: "reply", reasoning: "reasoning", prompt: "task" };

function storyLine([at, who, kind, what, , quotes], texts, told) {
  return el("li", { class: kind === "ModelCalled" ? "call" : kind === "TaskSettled" || kind === "TaskGraded" ? "end" : "" },
    el("span", { class: "at" }, `${at.toFixed(2)} s`), el("span", { class: "by" }, who), el("span", { class: "what" }, what),
    quotes.map(([label, number]) => {
      const text = texts[number];
      const name = LABELS[label] ?? label;
      if (told.has(number)) return el("p", { class: "quote quiet" }, `${name}: as above`);
      told.add(number);
      const pre = el("pre", { class: label === "reply" ? "reply" : "" }, text);
      if (text.length < 500) return el("div", { class: "quote" }, el("span", { class: "label" }, name), pre);
      return el("details", { class: "quote", open: label === "reply" }, el("summary", {}, el("span", { class: "label" }, name), el("span", { class: "quiet" }, ` ${count(text.length)} characters`)), pre);
    }));
}
