// Keep the address bar equal to the view, without a history entry for every slider position.
export default function ({ data }) {
  const current = window.location.search.replace(/^\?/, "");
  if (current === data.query) return;
  const url = window.location.pathname + (data.query ? "?" + data.query : "") + window.location.hash;
  window.history.replaceState(window.history.state, "", url);
}
