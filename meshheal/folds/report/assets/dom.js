// Elements and words. Text reaches the page as text nodes only, never as markup.

const SVG = "http://www.w3.org/2000/svg";

// Characters that do not show, or that turn the text around them, spelled out; broken surrogates too.
const UNSEEN =
  /[\u0000-\u0008\u000b-\u001f\u007f-\u009f\u00ad\u061c\u200b-\u200f\u2028-\u202e\u2060-\u206f\ufeff\ufff9-\ufffb]|[\ud800-\udbff](?![\udc00-\udfff])|(?<![\ud800-\udbff])[\udc00-\udfff]/g;

function shown(text) {
  return String(text).replace(UNSEEN, (c) => "\\u" + c.charCodeAt(0).toString(16).padStart(4, "0"));
}

function fill(node, attributes, children) {
  for (const [name, value] of Object.entries(attributes ?? {})) {
    if (value === undefined || value === null || value === false) continue;
    if (name.startsWith("on")) node.addEventListener(name.slice(2), value);
    else if (name === "style") for (const [k, v] of Object.entries(value)) node.style.setProperty(k, v);
    else if (name === "value") node.value = value;
    else node.setAttribute(name, value === true ? "" : shown(value));
  }
  append(node, children);
  return node;
}

function append(node, children) {
  for (const child of children.flat(Infinity)) {
    if (child === undefined || child === null || child === false) continue;
    node.append(child instanceof Node ? child : document.createTextNode(shown(child)));
  }
}

const el = (tag, attributes, ...children) => fill(document.createElement(tag), attributes, children);
const svg = (tag, attributes, ...children) => fill(document.createElementNS(SVG, tag), attributes, children);

function replace(node, ...children) {
  node.replaceChildren();
  append(node, children);
  return node;
}

// --- numbers as a person reads them ---

const whole = new Intl.NumberFormat("en", { maximumFractionDigits: 0 });
const count = (n) => whole.format(n);
const plural = (n, what) => `${count(n)} ${what}${n === 1 ? "" : "s"}`;
const percent = (share, digits = 1) => (share === null || share === undefined ? "–" : `${(100 * share).toFixed(digits)}\u202f%`);

const fixed = (v, digits) => v.toLocaleString("en", { minimumFractionDigits: digits, maximumFractionDigits: digits }).replace(/^-(?=[0.,]*$)/, "").replace("-", "−");

function duration(seconds) {
  if (seconds < 90) return `${seconds.toFixed(seconds < 10 ? 1 : 0)} s`;
  const minutes = Math.round(seconds / 60);
  if (minutes < 90) return `${minutes} min`;
  const hours = Math.floor(minutes / 60);
  if (hours < 48) return `${hours} h ${minutes % 60} min`;
  return `${count(Math.floor(hours / 24))} d ${hours % 24} h`;
}

function bytes(n) {
  for (const [unit, size] of [["GB", 1e9], ["MB", 1e6], ["kB", 1e3]]) if (n >= size) return `${(n / size).toFixed(1)} ${unit}`;
  return `${n} B`;
}

const agents = (list) => (list.length === 1 ? `agent ${list[0]}` : `agents ${list.join(", ")}`);

function median(values) {
  if (!values.length) return null;
  const sorted = [...values].sort((a, b) => a - b);
  const middle = sorted.length >> 1;
  return sorted.length % 2 ? sorted[middle] : (sorted[middle - 1] + sorted[middle]) / 2;
}

// --- themes ---

function theme() {
  const chosen = document.documentElement.dataset.theme;
  if (chosen) return chosen;
  return matchMedia("(prefers-color-scheme: dark)").matches ? "dark" : "light";
}

let inks = null;
function ink(name) {
  // Colours come from the style sheet, so that drawings follow the theme.
  if (!inks) inks = { read: getComputedStyle(document.documentElement), known: {} };
  return (inks.known[name] ??= inks.read.getPropertyValue(`--${name}`).trim());
}

const themed = new Set(); // drawings to draw again
function setTheme(name) {
  document.documentElement.dataset.theme = name;
  try {
    localStorage.setItem("meshheal-theme", name);
  } catch {
    // A page opened from a file may have no storage; the choice then lasts as long as the page.
  }
  redraw();
}

function redraw() {
  inks = null;
  for (const draw of themed) draw();
}

try {
  const kept = localStorage.getItem("meshheal-theme");
  if (kept === "dark" || kept === "light") document.documentElement.dataset.theme = kept;
} catch {
  // As above.
}
matchMedia("(prefers-color-scheme: dark)").addEventListener("change", redraw);

// A heading with the word that must stand wherever figures do.
function section(id, title, mode, ...children) {
  return el(
    "section", { id, "aria-labelledby": `${id}-title` },
    el("div", { class: "head" }, el("h2", { id: `${id}-title` }, title), mode && tag(mode)),
    ...children,
  );
}

const MODES = {
  simulated: "Models are simulated from published accuracies, tokens are estimated; no real model was called.",
  recorded: "Answers are real models' recorded ones; reviews are simulated by comparing answers; tokens are estimated.",
  live: "Answers, reviews and tokens are of real models, live.",
};
const tag = (mode) => el("span", { class: `tag ${mode}`, title: MODES[mode] }, mode);

function choice(label, options, value, onchange) {
  // A labelled select. Options are [value, text].
  const select = el("select", { onchange: (e) => onchange(e.target.value) },
    options.map(([v, text]) => el("option", { value: v, selected: v === value }, text)));
  return el("label", { class: "field" }, el("span", {}, label), select);
}
