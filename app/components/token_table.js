// A group's tokens as cells, coloured around zero, one row of cells for each completion. A cell is chosen by mouse or
// with the arrow keys; the choice is shown at once and reported.
//
// data.rows: [{key, name, note, texts, levels, numbers, flags, from, total, sum}]
//   levels: -100..100, the strength of the colour; numbers: the value as text; flags: 1 saturated, 2 does not train;
//   facts: for each token all there is to say on hovering, in the order of data.fact_names; only if there is more;
//   ends: for each token what the step that it ends was paid, "" where none ends (process supervision only);
//   from, total: which part of a long completion this is; key: changes when the texts do.
// data.selected: [completion, position] or null; data.seen: the newest choice the server has answered.
// Texts come from strangers: they are only ever set as textContent.
export default function ({ data, parentElement, setStateValue }) {
  const root = parentElement.querySelector(".token-table");
  const table = (root.table ??= build(root));
  table.data = data;
  table.send = (pick) => setStateValue("pick", pick);
  root.style.setProperty("--tt-up", data.colors.up);
  root.style.setProperty("--tt-down", data.colors.down);
  root.style.setProperty("--tt-page", data.colors.page);
  root.style.setProperty("--tt-ink", data.colors.ink);
  table.grid.setAttribute("aria-label", data.label);
  rows(table);
  legend(table);
  if (data.seen >= table.sent) select(table, data.selected, false);
}

const PAUSE = 70; // milliseconds: holding an arrow key reports where it stops, not every cell on the way

function element(tag, className, parent, role) {
  const node = document.createElement(tag);
  node.className = className;
  if (role) node.setAttribute("role", role);
  parent.appendChild(node);
  return node;
}

function build(root) {
  const table = { root, rows: [], sent: 0, timer: null, at: null };
  table.grid = element("div", "tt-grid", root, "grid");
  table.foot = element("div", "tt-foot", root);
  table.low = element("span", "tt-number", table.foot);
  element("span", "tt-scale", table.foot).setAttribute("aria-hidden", "true");
  table.high = element("span", "tt-number", table.foot);
  table.hint = element("span", "tt-hint", table.foot);
  table.ends = element("span", "tt-ends", table.foot);
  table.camera = element("button", "modebar-btn tt-camera", root);
  table.camera.type = "button";
  table.camera.tabIndex = -1;
  table.camera.setAttribute("aria-hidden", "true");
  table.camera.addEventListener("click", () => save(table));
  table.grid.addEventListener("click", (event) => clicked(table, event));
  table.grid.addEventListener("keydown", (event) => pressed(table, event));
  return table;
}

function rows(table) {
  const { grid, data } = table;
  while (table.rows.length > data.rows.length) table.rows.pop().box.remove();
  data.rows.forEach((spec, index) => {
    const row = (table.rows[index] ??= makeRow(grid));
    if (row.key !== spec.key) fill(row, spec, data.words, index);
    paint(row, spec, data);
  });
}

function makeRow(grid) {
  const box = element("div", "tt-row", grid, "row");
  const name = element("div", "tt-name", box, "rowheader");
  const title = element("span", "tt-title", name);
  const note = element("span", "tt-note", name);
  const cells = element("div", "tt-cells", box, "presentation");
  const sum = element("div", "tt-sum", box, "gridcell");
  return { box, title, note, cells, sum, key: null, tokens: [] };
}

function fill(row, spec, words, index) {
  row.key = spec.key;
  row.cells.replaceChildren();
  row.tokens = [];
  if (spec.from > 0) more(row, words.earlier, index, Math.max(0, spec.from - spec.texts.length));
  spec.texts.forEach((text, k) => {
    const cell = element("div", "tt-token", row.cells, "gridcell");
    cell.tabIndex = -1;
    cell.place = [index, spec.from + k];
    element("span", "tt-text", cell).textContent = text;
    element("span", "tt-value", cell);
    element("span", "tt-paid", cell);
    row.tokens.push(cell);
  });
  const end = spec.from + spec.texts.length;
  if (end < spec.total) more(row, words.later.replace("{count}", spec.total - end), index, end);
  if (!spec.total) element("div", "tt-empty", row.cells, "gridcell").textContent = words.empty;
}

function more(row, text, index, position) {
  const cell = element("div", "tt-more", row.cells, "gridcell");
  const button = element("button", "tt-jump", cell);
  button.type = "button";
  button.textContent = text;
  button.place = [index, position];
}

function paint(row, spec, data) {
  row.title.textContent = spec.name;
  row.note.textContent = spec.note;
  row.sum.textContent = spec.sum;
  row.tokens.forEach((cell, k) => {
    const level = spec.levels[k], flag = spec.flags[k];
    const strength = Math.abs(level);
    const fill = blend(data.colors.page, level > 0 ? data.colors.up : data.colors.down, strength / 100);
    cell.style.background = `rgb(${fill.join(", ")})`;
    cell.style.color = strength ? readable(fill) : "var(--tt-ink)";
    cell.classList.toggle("saturated", Boolean(flag & 1));
    cell.classList.toggle("masked", Boolean(flag & 2));
    const [text, value, paid] = cell.children;
    value.textContent = data.show ? spec.numbers[k] : "";
    const reward = spec.ends?.[k] ?? "";
    cell.classList.toggle("ends", reward !== "");
    paid.textContent = reward === "" ? "" : "r " + reward;
    const end = reward === "" ? "" : data.words.step_end.replace("{reward}", reward);
    const state = flag & 2 ? data.words.masked : flag & 1 ? data.words.saturated : "";
    const said = [spec.numbers[k], state, end].filter(Boolean).join(", ");
    cell.setAttribute("aria-label", text.textContent + ": " + said);
    cell.title = spec.facts ? data.fact_names.map((name, i) => `${name}: ${spec.facts[k][i]}`).join("\n") : said;
  });
}

function blend(from, to, share) {
  const channel = (hex, k) => parseInt(hex.slice(1 + 2 * k, 3 + 2 * k), 16);
  return [0, 1, 2].map((k) => Math.round(channel(from, k) * (1 - share) + channel(to, k) * share));
}

// Black or white, whichever stands out more: one of them always reaches a contrast of 4.5.
function readable(rgb) {
  const linear = rgb.map((c) => { const x = c / 255; return x <= 0.04045 ? x / 12.92 : ((x + 0.055) / 1.055) ** 2.4; });
  const light = 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2];
  return (light + 0.05) / 0.05 > 1.05 / (light + 0.05) ? "#000000" : "#FFFFFF";
}

function legend(table) {
  const { data } = table;
  table.low.textContent = data.low;
  table.high.textContent = data.high;
  table.hint.textContent = data.hint;
  table.ends.textContent = data.words.steps ?? "";
}

function find(table, place) {
  if (!place) return null;
  const row = table.rows[place[0]];
  return row?.tokens.find((cell) => cell.place[1] === place[1]) ?? null;
}

function select(table, place, focus) {
  const cell = find(table, place);
  for (const old of table.grid.querySelectorAll('[aria-selected="true"]'))
    if (old !== cell) { old.setAttribute("aria-selected", "false"); old.tabIndex = -1; }
  table.at = place;
  const first = table.grid.querySelector(".tt-token");
  if (first && !cell) first.tabIndex = 0;
  if (!cell) return;
  if (first && first !== cell) first.tabIndex = -1;
  cell.setAttribute("aria-selected", "true");
  cell.tabIndex = 0;
  if (focus) cell.focus({ preventScroll: true });
  reveal(table.grid, cell);
}

// Scroll inside the table only: the page itself must not jump under the reader.
function reveal(grid, cell) {
  const outer = grid.getBoundingClientRect(), inner = cell.getBoundingClientRect();
  if (inner.top < outer.top) grid.scrollTop -= outer.top - inner.top + 4;
  if (inner.bottom > outer.bottom) grid.scrollTop += inner.bottom - outer.bottom + 4;
}

function pick(table, place) {
  clearTimeout(table.timer);
  table.sent = Math.max(Date.now(), table.sent + 1);
  table.send({ at: table.sent, completion: place[0], position: place[1] });
}

function clicked(table, event) {
  const target = event.target.closest(".tt-token, .tt-jump");
  if (!target?.place) return;
  if (target.classList.contains("tt-token")) select(table, target.place, true);
  pick(table, target.place);
}

function pressed(table, event) {
  const cell = event.target.closest(".tt-token");
  if (!cell) return;
  const wanted = neighbour(table, cell, event.key);
  if (wanted === undefined) return;
  event.preventDefault();
  if (!wanted) return;
  select(table, wanted.place, true);
  table.sent = Math.max(Date.now(), table.sent + 1); // older answers must not move the choice back
  clearTimeout(table.timer);
  table.timer = setTimeout(() => pick(table, wanted.place), PAUSE);
}

// The cell that a key leads to: undefined for other keys, null at the edge.
function neighbour(table, cell, key) {
  const [index, position] = cell.place;
  const row = table.rows[index].tokens, k = row.indexOf(cell);
  if (key === "Enter" || key === " ") return cell;
  if (key === "Home") return row[0];
  if (key === "End") return row[row.length - 1];
  if (key === "ArrowRight") return row[k + 1] ?? step(table, index, 1, 0);
  if (key === "ArrowLeft") return row[k - 1] ?? step(table, index, -1, Infinity);
  if (key === "ArrowDown") return step(table, index, 1, position);
  if (key === "ArrowUp") return step(table, index, -1, position);
  return undefined;
}

function step(table, index, by, position) {
  for (let i = index + by; i >= 0 && i < table.rows.length; i += by) {
    const row = table.rows[i].tokens;
    if (!row.length) continue;
    return row.find((cell) => cell.place[1] >= position) ?? row[row.length - 1];
  }
  return null;
}

// Paint what is on the screen onto a canvas, and offer it as a file.
function save(table) {
  const { grid, root, data } = table;
  const scale = 2, origin = root.getBoundingClientRect();
  const height = Math.ceil(grid.scrollHeight + table.foot.offsetHeight + 16);
  const canvas = document.createElement("canvas");
  canvas.width = Math.ceil(origin.width) * scale;
  canvas.height = height * scale;
  const pen = canvas.getContext("2d");
  pen.scale(scale, scale);
  pen.fillStyle = data.colors.page;
  pen.fillRect(0, 0, canvas.width, canvas.height);
  const shift = grid.scrollTop;
  const box = (node, inside) => {
    const r = node.getBoundingClientRect();
    return { x: r.left - origin.left, y: r.top - origin.top + (inside ? shift : grid.scrollHeight - grid.clientHeight), w: r.width, h: r.height };
  };
  const write = (node, inside) => {
    if (!node.textContent) return;
    const style = getComputedStyle(node), r = box(node, inside);
    pen.font = `${style.fontWeight} ${style.fontSize} ${style.fontFamily}`;
    pen.fillStyle = style.color;
    pen.globalAlpha = Number(style.opacity);
    pen.textBaseline = "middle";
    pen.textAlign = "left";
    pen.fillText(node.textContent, r.x, r.y + r.h / 2);
    pen.globalAlpha = 1;
  };
  for (const cell of grid.querySelectorAll(".tt-token")) {
    const r = box(cell, true), style = getComputedStyle(cell);
    pen.fillStyle = style.backgroundColor;
    pen.fillRect(r.x, r.y, r.w, r.h);
    pen.strokeStyle = style.borderTopColor;
    pen.lineWidth = 1;
    pen.setLineDash(cell.classList.contains("saturated") ? [4, 3] : []);
    pen.strokeRect(r.x + 0.5, r.y + 0.5, r.w - 1, r.h - 1);
    pen.fillStyle = style.borderRightColor;
    if (cell.classList.contains("ends")) pen.fillRect(r.x + r.w - 4, r.y, 4, r.h);
  }
  pen.setLineDash([]);
  for (const node of grid.querySelectorAll(".tt-title, .tt-note, .tt-text, .tt-value, .tt-paid, .tt-sum, .tt-empty")) write(node, true);
  for (const node of table.foot.querySelectorAll(".tt-number, .tt-hint, .tt-ends")) write(node, false);
  paintScale(pen, box(table.foot.querySelector(".tt-scale"), false), data.colors);
  const link = document.createElement("a");
  link.download = data.file + ".png";
  link.href = canvas.toDataURL("image/png");
  link.click();
}

function paintScale(pen, r, colors) {
  const ramp = pen.createLinearGradient(r.x, 0, r.x + r.w, 0);
  [colors.down, colors.page, colors.up].forEach((color, i) => ramp.addColorStop(i / 2, color));
  pen.fillStyle = ramp;
  pen.fillRect(r.x, r.y, r.w, r.h);
}
