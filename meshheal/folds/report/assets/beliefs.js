// Who believes what of whom at an arrival, from the columns of an arm.

const STATES = ["healthy", "suspect", "probation", "excluded"];
const EXCLUDED = 3;

class Beliefs {
  // Walks along the state changes; going back starts again.
  constructor(arm, watchers) {
    this.states = arm.states;
    this.n = watchers.length;
    this.observers = watchers.map((around) => around.length);
    this.rewind();
  }

  rewind() {
    this.row = 0;
    this.x = -1;
    this.held = new Map(); // by * n + agent -> Map(ability -> state), healthy ones left out
    this.counts = new Int32Array(this.n * 4);
  }

  to(x) {
    if (x < this.x) this.rewind();
    const { states } = this;
    while (this.row < states.x.length && states.x[this.row] <= x) this.apply(this.row++);
    this.x = x;
    return this;
  }

  apply(row) {
    const { by, agent, to, ability } = this.states;
    const key = by[row] * this.n + agent[row];
    let held = this.held.get(key);
    const before = worst(held);
    if (!held) this.held.set(key, (held = new Map()));
    // A change of the whole agent replaces what was held of its abilities when it leaves exclusion.
    if (ability[row] < 0 && held.get(-1) === EXCLUDED && to[row] !== EXCLUDED) held.clear();
    if (to[row]) held.set(ability[row], to[row]);
    else held.delete(ability[row]);
    const after = worst(held);
    if (before) this.counts[agent[row] * 4 + before]--;
    if (after) this.counts[agent[row] * 4 + after]++;
  }

  of(by, agent) {
    return worst(this.held.get(by * this.n + agent));
  }

  share(agent, state) {
    return this.observers[agent] ? this.counts[agent * 4 + state] / this.observers[agent] : 0;
  }

  // The worst state that at least half of its neighbours hold it in, or worse.
  shown(agent) {
    let sum = 0;
    for (let state = 3; state > 0; state--) {
      sum += this.counts[agent * 4 + state];
      if (sum && 2 * sum >= this.observers[agent]) return state;
    }
    return 0;
  }

  everybody(agent, state) {
    return this.observers[agent] > 0 && this.counts[agent * 4 + state] >= this.observers[agent];
  }
}

function worst(held) {
  let state = 0;
  if (held) for (const s of held.values()) if (s > state) state = s;
  return state;
}

function degradedAt(arm, x) {
  const agents = new Set();
  for (const w of arm.windows) if (w.degraded && w.start <= x && (w.end === null || x < w.end)) agents.add(w.agent);
  return agents;
}

// Per agent, the neighbours that share an ability with it: those whose beliefs about it matter.
function watchersOf(network) {
  const held = network.abilities.map((list) => new Set(list));
  return neighboursOf(network).map((around, a) => around.filter((b) => network.abilities[a]?.some((x) => held[b].has(x))));
}

function neighboursOf(network) {
  const around = Array.from({ length: network.agents }, () => []);
  for (let i = 0; i < network.edges.length; i += 2) {
    around[network.edges[i]].push(network.edges[i + 1]);
    around[network.edges[i + 1]].push(network.edges[i]);
  }
  return around;
}

// For each of `bins` stretches of the stream, how many agents are excluded by some, and by all, of their neighbours.
function exclusionsOverTime(arm, watchers, bins) {
  const beliefs = new Beliefs(arm, watchers);
  const some = new Int32Array(bins);
  const all = new Int32Array(bins);
  for (let i = 0; i < bins; i++) {
    beliefs.to(Math.round(((i + 1) / bins) * arm.arrivals) - 1);
    for (let a = 0; a < beliefs.n; a++) {
      const c = beliefs.counts[a * 4 + EXCLUDED];
      if (c) some[i]++;
      if (c && c >= beliefs.observers[a]) all[i]++;
    }
  }
  return { some, all };
}
