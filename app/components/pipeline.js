// The way from one prompt to one number, as a table that is read from left to right: a row for each completion, a column
// for each step. Column heads are buttons that open the step's page. All text goes through textContent: a completion may
// look like markup and stays text.
export default function ({ data, parentElement, setTriggerValue }) {
  const root = parentElement.querySelector(".pipeline");
  const focused = root.getRootNode().activeElement?.dataset?.page;
  root.style.setProperty("--up", data.colors.up);
  root.style.setProperty("--down", data.colors.down);
  root.style.setProperty("--flat", data.colors.old);
  root.style.setProperty("--kl", data.colors.reference);
  root.style.setProperty("--band", data.colors.band);
  root.style.setProperty("--band-opacity", data.colors.band_opacity);
  root.replaceChildren(prompt(data), table(data, setTriggerValue), total(data));
  if (focused) root.querySelector(`[data-page="${CSS.escape(focused)}"]`)?.focus();
}

function make(tag, className, text, parent) {
  const node = document.createElement(tag);
  node.className = className;
  if (text !== undefined && text !== null) node.textContent = text;
  parent?.appendChild(node);
  return node;
}
function draw(tag, attributes, parent) {
  const node = document.createElementNS("http://www.w3.org/2000/svg", tag);
  for (const [name, value] of Object.entries(attributes)) node.setAttribute(name, value);
  parent?.appendChild(node);
  return node;
}
function sign(value) { return value > 0 ? "var(--up)" : value < 0 ? "var(--down)" : "var(--flat)"; }

function prompt(data) {
  const box = make("div", "prompt");
  make("span", "tag", data.words.prompt, box);
  make("span", "text", data.prompt, box);
  if (data.answer) { make("span", "tag", data.words.answer, box); make("span", "text", data.answer, box); }
  return box;
}

function table(data, setTriggerValue) {
  const grid = make("div", "grid");
  grid.setAttribute("role", "table");
  const head = make("div", "line head", undefined, grid);
  head.setAttribute("role", "row");
  for (const stage of data.stages) {
    const cell = make("div", "cell " + stage.id, undefined, head);
    cell.setAttribute("role", "columnheader");
    const card = make(stage.page ? "button" : "div", "card", undefined, cell);
    make("span", "title", stage.title, card);
    make("span", "formula", stage.formula, card);
    if (stage.page) {
      card.type = "button";
      card.dataset.page = stage.page + ":" + stage.id;
      card.title = stage.hint;
      card.onclick = () => setTriggerValue("open", stage.page);
    }
  }
  for (const row of data.rows) grid.appendChild(line(row, data));
  if (data.more) make("div", "more", data.more, grid);
  return grid;
}

function line(row, data) {
  const box = make("div", "line");
  box.setAttribute("role", "row");
  const cells = {};
  for (const stage of data.stages) {
    cells[stage.id] = make("div", "cell " + stage.id, undefined, box);
    cells[stage.id].setAttribute("role", "cell");
  }
  const text = make("span", "completion" + (row.tokens.length ? "" : " none"), row.tokens.length ? undefined : data.words.empty, cells.completions);
  row.tokens.forEach((token, i) => make("span", row.trains[i] ? "token" : "token masked", token, text));
  text.title = row.tokens.join("");
  make("span", "count", row.note, cells.completions);
  make("span", row.reward === null ? "number unscored" : "number", row.reward_text, cells.rewards);
  cells.advantages.appendChild(bar(row.advantage, data.scale.advantage));
  make("span", "number", row.advantage_text, cells.advantages);
  cells.ratio.appendChild(strip(row, data));
  if (cells.kl) { cells.kl.appendChild(columns(row.kl, data.scale.kl, "var(--kl)", data.scale.tokens)); make("span", "number small", row.kl_text, cells.kl); }
  cells.reduction.appendChild(columns(row.weights, data.scale.weight, sign(row.advantage), data.scale.tokens));
  cells.loss.appendChild(bar(-row.share, data.scale.share));
  make("span", "number", row.share_text, cells.loss);
  return box;
}

// A bar to the left or right of the middle.
function bar(value, scale) {
  const svg = draw("svg", { viewBox: "0 0 100 20", preserveAspectRatio: "none", class: "bar", "aria-hidden": "true" });
  const length = scale > 0 ? (48 * Math.abs(value)) / scale : 0;
  draw("rect", { x: value >= 0 ? 50 : 50 - length, y: 3, width: Math.max(length, 0), height: 14, fill: sign(value) }, svg);
  draw("line", { x1: 50, x2: 50, y1: 0, y2: 20, stroke: "currentColor", "stroke-opacity": 0.35, "vector-effect": "non-scaling-stroke" }, svg);
  return svg;
}

// Token ratios on a logarithmic line with the clip range behind them; hollow where clipping has ended the gradient.
function strip(row, data) {
  const { low, high, from, to } = data.scale.ratio;
  const at = (r) => 4 + (112 * (Math.log(Math.min(Math.max(r, from), to)) - Math.log(from))) / (Math.log(to) - Math.log(from));
  const svg = draw("svg", { viewBox: "0 0 120 20", class: "strip", role: "img", "aria-label": row.ratio_text });
  const title = draw("title", {}, svg);
  title.textContent = row.ratio_text;
  const left = at(Math.max(low, from));
  draw("rect", { x: left, y: 0, width: Math.max(at(high) - left, 0.6), height: 20, fill: "var(--band)", "fill-opacity": "var(--band-opacity)" }, svg);
  draw("line", { x1: at(1), x2: at(1), y1: 0, y2: 20, stroke: "currentColor", "stroke-opacity": 0.3 }, svg);
  row.ratios.forEach((r, i) => {
    const color = sign(row.advantage);
    draw("circle", { cx: at(r), cy: 10, r: 3.1, stroke: color, "stroke-width": 1.3, fill: row.saturated[i] ? "var(--st-background-color)" : color, "fill-opacity": 0.85 }, svg);
  });
  return svg;
}

// One thin column a token.
function columns(values, scale, color, widest) {
  const svg = draw("svg", { viewBox: "0 0 100 20", preserveAspectRatio: "none", class: "columns", "aria-hidden": "true" });
  const step = 100 / Math.max(widest, 8);
  draw("line", { x1: 0, x2: 100, y1: 19.5, y2: 19.5, stroke: "currentColor", "stroke-opacity": 0.22, "vector-effect": "non-scaling-stroke" }, svg);
  values.forEach((value, i) => {
    const height = scale > 0 ? Math.min((19 * Math.abs(value)) / scale, 19) : 0;
    draw("rect", { x: i * step, y: 19.5 - height, width: step * 0.86, height, fill: color }, svg);
  });
  return svg;
}

function total(data) {
  const box = make("div", "total");
  for (const part of data.total) {
    const card = make("div", "sum" + (part.result ? " result" : ""), undefined, box);
    make("span", "tag", part.label, card);
    make("span", "number", part.text, card);
  }
  return box;
}
