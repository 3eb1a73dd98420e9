// Where data come from: this file, or the server that it was opened from. Both answer the same questions.

async function inflated(id) {
  const script = document.getElementById(id);
  if (!script) return null;
  const packed = Uint8Array.from(atob(script.textContent), (c) => c.charCodeAt(0));
  const stream = new Blob([packed]).stream().pipeThrough(new DecompressionStream("gzip"));
  return JSON.parse(await new Response(stream).text());
}

const fromFile = {
  live: false,
  overview: () => inflated("overview"),
  arm: (run, key) => inflated(`arm ${key}`),
  async story(run, key, task, overview) {
    const block = overview.stories.blocks[key]?.[task];
    if (block === undefined) return null;
    const { texts, stories } = await inflated(`stories ${key} ${block}`);
    return { texts, lines: stories[task] };
  },
};

async function asked(path, signal) {
  const reply = await fetch(path, { signal, headers: { Accept: "application/json" } });
  if (reply.status === 304) return null;
  const body = await reply.json().catch(() => ({ error: `status ${reply.status}` }));
  if (!reply.ok) throw new Error(body.error ?? `status ${reply.status}`);
  return body;
}

const part = encodeURIComponent;
const fromServer = {
  live: true,
  runs: () => asked("api/runs"),
  overview: (run) => asked(`api/runs/${part(run)}`),
  arm: (run, key, since) => asked(`api/runs/${part(run)}/arms/${part(key)}${since === undefined ? "" : `?since=${since}`}`),
  async story(run, key, task) {
    const { texts, stories } = await asked(`api/runs/${part(run)}/arms/${part(key)}/story?task=${part(task)}`);
    return stories[task] ? { texts, lines: stories[task] } : null;
  },
  tasks: (run, key, from, query) =>
    asked(`api/runs/${part(run)}/arms/${part(key)}/tasks?from=${from}&query=${part(query)}`),
};

const source = document.documentElement.dataset.source === "served" ? fromServer : fromFile;
