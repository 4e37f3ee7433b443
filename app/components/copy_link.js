// The address of the view, and a button that copies it. Where the browser does not let a page copy (no HTTPS), the
// address is selected, so that the reader's own "copy" takes it.
export default function ({ data, parentElement }) {
  const root = parentElement.querySelector(".copy-link");
  const field = (root.field ??= make("input", "address", root));
  const button = (root.button ??= make("button", "copy", root));
  const said = (root.said ??= make("span", "said", root));
  const { origin, pathname } = window.location;
  field.type = "text";
  field.readOnly = true;
  field.value = origin + pathname + (data.query ? "?" + data.query : "");
  field.setAttribute("aria-label", data.words.address);
  field.onfocus = () => field.select();
  button.type = "button";
  button.textContent = data.words.copy;
  said.setAttribute("role", "status");
  if (root.query !== data.query) said.textContent = "";
  root.query = data.query;
  button.onclick = async () => {
    field.select();
    try {
      await navigator.clipboard.writeText(field.value);
      said.textContent = data.words.copied;
    } catch {
      said.textContent = document.execCommand?.("copy") ? data.words.copied : data.words.by_hand;
    }
  };
}

function make(tag, className, parent) {
  const node = document.createElement(tag);
  node.className = className;
  parent.appendChild(node);
  return node;
}
