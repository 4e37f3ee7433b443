// A Plotly chart that stays. Streamlit's own chart is built anew for every change of its data, which would lose the
// reader's zoom and hover several times a second; this one is redrawn in place.
//
// data.source: where plotly.js is served; data.figure: {data, layout}; data.version: changes when the figure does;
// data.name: the file name of a saved picture; data.alt: what a screen reader says; data.missing: said without Plotly.
export default function ({ data, parentElement }) {
  const box = parentElement.querySelector(".live-plot");
  box.setAttribute("role", "figure"); // not "img": the camera button is inside
  box.setAttribute("aria-label", data.alt);
  if (!box.style.minHeight) box.style.minHeight = data.figure.layout.height + "px";
  box.wanted = data;
  if (box.drawing) return box.leave;
  box.drawing = true;
  library(data.source).then(
    (Plotly) => { box.drawing = false; draw(Plotly, box); },
    () => { box.drawing = false; box.textContent = data.missing; },
  );
  box.leave = () => {
    box.watcher?.disconnect();
    // Not while Plotly is still at it: it would look for what has been cleared away.
    Promise.resolve(box.busy).finally(() => { if (!box.isConnected && box._fullLayout) window.Plotly.purge(box); });
  };
  return box.leave;
}

let loading = null;
function library(source) {
  if (window.Plotly) return Promise.resolve(window.Plotly);
  loading ??= new Promise((resolve, reject) => {
    const script = document.createElement("script");
    script.src = source;
    script.onload = () => resolve(window.Plotly);
    script.onerror = () => { loading = null; reject(new Error(source)); };
    document.head.appendChild(script);
  });
  return loading;
}

function draw(Plotly, box) {
  const { figure, version, name } = box.wanted;
  if (box.shown === version || !box.isConnected) return;
  box.shown = version;
  box.style.minHeight = figure.layout.height + "px";
  // Plotly keeps its own notes in what it is given: a copy leaves ours as it came.
  const { data, layout } = structuredClone(figure);
  const config = {
    displaylogo: false,
    modeBarButtons: [["toImage"]],
    toImageButtonOptions: { format: "png", scale: 2, filename: name },
  };
  box.busy = Promise.resolve(box.busy).catch(() => {}).then(() => box.isConnected && Plotly.react(box, data, layout, config));
  if (box.watcher) return;
  let width = box.clientWidth;
  box.watcher = new ResizeObserver(() => {
    if (box.clientWidth === width || !box.clientWidth) return;
    width = box.clientWidth;
    box.busy = Promise.resolve(box.busy).catch(() => {}).then(() => box.isConnected && Plotly.Plots.resize(box));
  });
  box.watcher.observe(box);
}
