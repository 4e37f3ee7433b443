// A column of sliders that report while they are dragged. Streamlit's own slider reports on release only.
//
// data.rows: [{id, label, unit, help, low, high, step, stops, log, value, text, unscored, error, toggle}]
//   value: number, or null for "off" / "unscored"; text: the read-out; stops: a list of allowed values (the slider
//   then moves over its indices).
// data.locked: the values are for reading only.
// data.epoch: sent back with every edit; an edit made before an undo and arriving after it is dropped.
// data.seen: the newest edit the server has answered. Newer local edits are never overwritten by an older answer,
//   and the next edit is sent only when the last one was answered: a slow machine skips values instead of queueing them.
export default function (component) {
  const { data, parentElement, setStateValue } = component;
  const root = parentElement.querySelector(".controls");
  const panel = (root.panel ??= { rows: new Map(), sent: 0, seen: 0, waiting: null, timer: null, gesture: 0 });
  panel.send = (edit) => setStateValue("edit", edit);
  panel.words = data.words;
  panel.locked = Boolean(data.locked);
  panel.epoch = data.epoch;
  panel.seen = Math.max(panel.seen, data.seen);
  if (data.seen >= panel.sent) flush(panel);

  const wanted = data.rows.map((row) => row.id);
  for (const [id, row] of panel.rows) if (!wanted.includes(id)) { row.box.remove(); panel.rows.delete(id); }
  root.classList.toggle("scroll", !data.two && data.rows.length > 12);
  root.classList.toggle("two", Boolean(data.two));
  data.rows.forEach((spec, index) => {
    let row = panel.rows.get(spec.id);
    if (!row) { row = build(panel, spec); panel.rows.set(spec.id, row); }
    if (root.children[index] !== row.box) root.insertBefore(row.box, root.children[index] ?? null);
    update(panel, row, spec, data.seen);
  });
}

const THROTTLE = 40; // milliseconds between two edits while a slider moves
const PATIENCE = 400; // send the next edit even if the last one was not answered by then

function build(panel, spec) {
  const box = document.createElement("div");
  box.className = "row";
  box.dataset.id = spec.id;
  const name = element("label", "name", box);
  const help = element("button", "help", box);
  const cell = element("input", "cell", box);
  const toggle = element("button", "toggle", box);
  const slider = element("input", "slider", box);
  const tip = element("div", "tip", box);
  const error = element("div", "error", box);
  const uid = "c" + Math.random().toString(36).slice(2);
  Object.assign(slider, { type: "range", id: uid });
  Object.assign(cell, { type: "text", inputMode: "decimal", autocomplete: "off", spellcheck: false });
  Object.assign(help, { type: "button", textContent: "?" });
  Object.assign(toggle, { type: "button" });
  name.htmlFor = uid;
  tip.id = uid + "t";
  tip.setAttribute("role", "tooltip");
  error.setAttribute("role", "alert");
  help.setAttribute("aria-describedby", tip.id);
  slider.setAttribute("aria-describedby", tip.id);
  const row = { box, name, help, cell, toggle, slider, tip, error, spec, own: 0 };

  const gesture = () => { panel.gesture = Date.now(); };
  slider.addEventListener("pointerdown", gesture);
  // A run of key presses is one gesture too, so that it is undone as one.
  slider.addEventListener("keydown", () => {
    if (Date.now() - (row.pressed ?? 0) > 1000) gesture();
    row.pressed = Date.now();
  });
  slider.addEventListener("input", () => {
    const value = fromPosition(row.spec, Number(slider.value));
    paint(row, value, show(row.spec, value));
    row.told = value;
    push(panel, row, value);
  });
  // On release, and after every key, a browser repeats what it has said while the slider moved: once is enough.
  slider.addEventListener("change", () => {
    const value = fromPosition(row.spec, Number(slider.value));
    if (value !== row.told) push(panel, row, value);
  });
  const typed = () => {
    if (cell.value === row.shown) return;
    gesture();
    push(panel, row, cell.value);
  };
  cell.addEventListener("keydown", (event) => {
    if (event.key === "Enter") typed();
    if (event.key === "Escape") { cell.value = row.shown; cell.blur(); }
  });
  cell.addEventListener("blur", typed);
  cell.addEventListener("focus", () => cell.select());
  toggle.addEventListener("click", () => {
    gesture();
    const off = row.spec.value === null;
    push(panel, row, off ? row.spec.back : null);
  });
  return row;
}

function element(tag, className, parent) {
  const node = document.createElement(tag);
  node.className = className;
  parent.appendChild(node);
  return node;
}

function update(panel, row, spec, seen) {
  row.spec = spec;
  const { name, help, cell, toggle, slider, tip, error } = row;
  name.textContent = spec.label;
  row.box.classList.toggle("wide", Boolean(spec.wide));
  if (spec.color) row.box.style.setProperty("--accent", spec.color);
  if (spec.unit) { const unit = element("span", "unit", name); unit.textContent = " " + spec.unit; }
  tip.textContent = spec.help ?? "";
  help.hidden = !spec.help;
  help.setAttribute("aria-label", panel.words.help + ": " + spec.label);
  cell.setAttribute("aria-label", spec.label + ", " + panel.words.exact);
  toggle.hidden = !spec.toggle;
  if (spec.toggle) {
    toggle.textContent = spec.toggle;
    toggle.setAttribute("aria-pressed", String(spec.value === null));
    toggle.setAttribute("aria-label", spec.label + ": " + spec.toggle);
  }
  slider.disabled = cell.disabled = toggle.disabled = panel.locked;
  const [low, high, step] = positions(spec);
  slider.min = low; slider.max = high; slider.step = step;
  error.textContent = spec.error ?? "";
  cell.setAttribute("aria-invalid", String(Boolean(spec.error)));
  if (seen < row.own) return; // the reader has moved on since this answer was computed
  const shown = spec.value ?? spec.rest ?? null;
  slider.value = shown === null ? low : toPosition(spec, shown);
  paint(row, spec.value, spec.error ? spec.typed : spec.text);
}

function paint(row, value, text) {
  const { slider, cell, box } = row;
  const [low, high] = positions(row.spec);
  const share = high > low ? (Number(slider.value) - low) / (high - low) : 0;
  slider.style.setProperty("--fill", (100 * share).toFixed(2) + "%");
  slider.setAttribute("aria-valuetext", text + (row.spec.unit ? " " + row.spec.unit : ""));
  box.classList.toggle("off", value === null);
  row.shown = text;
  cell.value = text;
}

// What the slider's own position means: the value itself, an index into the stops, or a logarithm.
function positions(spec) {
  if (spec.stops?.length) return [0, spec.stops.length - 1, 1];
  if (spec.log) return [0, 1000, 1];
  return [spec.low, spec.high, spec.step];
}
function fromPosition(spec, position) {
  if (spec.stops?.length) return spec.stops[position];
  if (spec.log) {
    const value = spec.low * Math.pow(spec.high / spec.low, position / 1000);
    return spec.step >= 1 ? Math.round(value) : Number(value.toPrecision(3));
  }
  return Number(position.toFixed(decimals(spec.step)));
}
function toPosition(spec, value) {
  if (spec.stops?.length) {
    let best = 0;
    spec.stops.forEach((stop, i) => { if (Math.abs(stop - value) < Math.abs(spec.stops[best] - value)) best = i; });
    return best;
  }
  if (spec.log) return (1000 * Math.log(value / spec.low)) / Math.log(spec.high / spec.low);
  return value;
}
function decimals(step) {
  const text = String(step);
  return text.includes(".") ? text.split(".")[1].length : 0;
}
function show(spec, value) {
  if (spec.stops?.length) return String(value);
  return spec.log && spec.step < 1 ? String(value) : value.toFixed(decimals(spec.step));
}

function push(panel, row, value) {
  panel.waiting = { row, edit: { id: row.spec.id, value, gesture: panel.gesture, epoch: panel.epoch } };
  row.own = Infinity; // not yet sent: no answer can be newer
  schedule(panel);
}
function schedule(panel) {
  if (panel.timer !== null || !panel.waiting) return;
  const since = Date.now() - panel.sent;
  const pause = panel.seen >= panel.sent ? THROTTLE : PATIENCE;
  if (since >= pause) return deliver(panel);
  panel.timer = setTimeout(() => { panel.timer = null; schedule(panel); }, pause - since);
}
function flush(panel) {
  clearTimeout(panel.timer);
  panel.timer = null;
  schedule(panel);
}
function deliver(panel) {
  const { row, edit } = panel.waiting;
  panel.waiting = null;
  panel.sent = Math.max(Date.now(), panel.sent + 1);
  row.own = panel.sent;
  panel.send({ ...edit, at: panel.sent });
}
