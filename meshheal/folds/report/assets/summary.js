// The top of a run: what happened in three sentences, and the figures that they rest on.

function summaryPart(run) {
  const { overview, head } = run;
  const f = head.figures;
  const incidents = run.arm.incidents.filter((i) => i.sort === "degraded");
  const found = incidents.filter((i) => i.delay !== undefined && i.delay !== null);
  const back = incidents.map((i) => i.delay_back).filter((d) => d !== undefined && d !== null);
  const recovered = incidents.filter((i) => i.recovered && i.excluders.length);
  const delay = median(found.map((i) => i.delay));
  const figures = [
    ["Right, degraded phase", percent(f.accuracy_degraded), f.accuracy_twin === null || f.accuracy_twin === undefined ? "" : `${percent(f.accuracy_twin)} without faults`],
    ["Right, healthy phase", percent(f.accuracy_healthy), ""],
    ["Found", incidents.length ? `${count(found.length)} of ${count(incidents.length)}` : "–", delay === null ? "" : `after ${count(delay)} tasks (median)`],
    ["Taken back", recovered.length ? `${count(back.length)} of ${count(recovered.length)}` : "–", back.length ? `after ${count(median(back))} tasks (median)` : ""],
    ["False exclusions", count(f.false_exclusions), `in ${count(f.observations_healthy)} outputs of healthy agents`],
    ["Tokens a task", count(f.tokens_per_task), `${f.calls_per_task.toFixed(2)} model calls`],
  ];
  return section(
    "what", "What happened", overview.about.mode,
    el("p", { class: "sentences" }, head.sentences.join(" ")),
    el("dl", { class: "figures" }, figures.map(([what, value, note]) =>
      el("div", {}, el("dt", {}, what), el("dd", {}, el("b", {}, value), note && el("span", {}, note))))),
  );
}

function headline(run) {
  const { about, network } = run.overview;
  return el(
    "div", { class: "headline" },
    el("h1", {}, about.experiment),
    el("p", { class: "quiet" },
      `${plural(network.agents, "agent")} · ${network.name} · ${about.workload}, ${about.in_flight} · healthy: ${about.healthy.join(", ")} · run ${about.name}`),
    el("p", { class: `mode ${about.mode}` }, el("b", {}, about.mode), ` ${MODES[about.mode]}`),
  );
}
