// A button that saves a chart as PNG, by pressing the camera that Plotly has in its own toolbar.
export default function ({ data, parentElement }) {
  const button = parentElement.querySelector(".save");
  button.textContent = data.label;
  button.onclick = () => {
    const chart = document.querySelector(".st-key-" + CSS.escape(data.chart));
    chart?.querySelector('.modebar-btn[data-title*="Download"], .modebar-btn')?.click();
  };
}
