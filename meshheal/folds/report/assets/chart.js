// Drawing on a canvas: sharp on any screen, in the colours of the theme.

class Drawing {
  // `paint(context, width, height)` is called whenever size, theme or data changed.
  constructor(height, label, paint) {
    this.canvas = el("canvas", { role: "img", "aria-label": label, class: "drawing" });
    this.box = el("div", { class: "canvas" }, this.canvas);
    this.box.style.height = `${height}px`;
    this.paint = paint;
    this.draw = () => this.now();
    themed.add(this.draw);
    this.watch = new ResizeObserver(() => this.now());
    this.watch.observe(this.box);
  }

  now() {
    const width = this.box.clientWidth;
    const height = this.box.clientHeight;
    if (!width || !height) return;
    const ratio = devicePixelRatio || 1;
    if (this.canvas.width !== Math.round(width * ratio) || this.canvas.height !== Math.round(height * ratio)) {
      this.canvas.width = Math.round(width * ratio);
      this.canvas.height = Math.round(height * ratio);
    }
    const context = this.canvas.getContext("2d");
    context.setTransform(ratio, 0, 0, ratio, 0, 0);
    context.clearRect(0, 0, width, height);
    context.font = `11px ${ink("font")}`;
    context.textBaseline = "middle";
    this.paint(context, width, height);
  }

  end() {
    themed.delete(this.draw);
    this.watch.disconnect();
  }
}

// Round values for an axis from `low` to `high`, about `many` of them.
function ticks(low, high, many) {
  const rough = (high - low) / Math.max(1, many);
  const power = 10 ** Math.floor(Math.log10(rough || 1));
  const step = [1, 2, 5, 10].map((s) => s * power).find((s) => s >= rough) ?? power;
  const values = [];
  for (let v = Math.ceil(low / step) * step; v <= high + step * 1e-9; v += step) values.push(Number(v.toFixed(10)));
  return values;
}

// The axis of arrivals along the bottom.
function arrivalsAxis(c, scale, y, { labels = true } = {}) {
  c.strokeStyle = ink("line");
  c.lineWidth = 1;
  c.beginPath();
  c.moveTo(scale.left, y + 0.5);
  c.lineTo(scale.right, y + 0.5);
  c.stroke();
  if (!labels) return;
  c.fillStyle = ink("quiet");
  c.textAlign = "center";
  const many = Math.max(2, Math.floor((scale.right - scale.left) / 90));
  for (const v of ticks(0, scale.arrivals, many).filter(Number.isInteger)) {
    const x = scale(v);
    if (x > scale.right - 34 - 3 * count(v).length && v !== 0) continue; // the word stands there
    c.fillText(count(v), Math.max(x, scale.left + 3), y + 10);
  }
  c.textAlign = "right";
  c.fillText("tasks", scale.right, y + 10);
}

function arrivalsScale(arrivals, left, right) {
  const span = Math.max(1, arrivals);
  const scale = (x) => left + ((right - left) * x) / span;
  return Object.assign(scale, { left, right, arrivals, back: (px) => ((px - left) / (right - left)) * span });
}

// Stretches on a worse model: a tint, and a line on top that shows without colour.
function windowBand(c, scale, start, end, top, bottom) {
  const x0 = scale(start);
  const x1 = Math.max(x0 + 1, scale(end));
  c.fillStyle = ink("window");
  c.fillRect(x0, top, x1 - x0, bottom - top);
  c.fillStyle = ink("ink");
  c.fillRect(x0, top, x1 - x0, 1.5);
}

// The shape of a state: readable without its colour.
function stateMark(c, state, x, y, r) {
  c.beginPath();
  if (state === 0) c.arc(x, y, r, 0, 7);
  else if (state === 1) {
    c.moveTo(x, y - r * 1.25);
    c.lineTo(x + r * 1.15, y + r * 0.85);
    c.lineTo(x - r * 1.15, y + r * 0.85);
    c.closePath();
  } else if (state === 2) {
    c.moveTo(x, y - r * 1.3);
    c.lineTo(x + r * 1.3, y);
    c.lineTo(x, y + r * 1.3);
    c.lineTo(x - r * 1.3, y);
    c.closePath();
  } else c.rect(x - r, y - r, 2 * r, 2 * r);
}

const stateInk = (state) => ink(STATES[state]);

// The same shapes as elements, for legends and text.
function stateIcon(state) {
  const paths = ["M6 1.5a4.5 4.5 0 1 1 0 9a4.5 4.5 0 1 1 0-9Z", "M6 1 11.2 10.4H.8Z", "M6 .6 11.4 6 6 11.4 .6 6Z", "M1.5 1.5h9v9h-9Z"];
  return svg("svg", { class: `icon ${STATES[state]}`, viewBox: "0 0 12 12", width: 12, height: 12, "aria-hidden": "true" },
    svg("path", { d: paths[state] }));
}
