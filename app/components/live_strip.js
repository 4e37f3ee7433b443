// The groups of a step side by side. A press names the group and the step that was on show: while a run goes on, the
// server may have read a newer one in the meantime.
//
// data.step; data.chosen: index; data.label: name of the whole; data.groups: [{name, kind, share, text}]
export default function ({ data, parentElement, setTriggerValue }) {
  const strip = parentElement.querySelector(".strip");
  strip.setAttribute("aria-label", data.label);
  while (strip.children.length > data.groups.length) strip.lastChild.remove();
  data.groups.forEach((group, index) => {
    const chip = strip.children[index] ?? build(strip);
    chip.className = "chip " + group.kind;
    chip.setAttribute("aria-pressed", String(index === data.chosen));
    chip.children[0].textContent = group.name;
    chip.children[1].textContent = group.text;
    chip.children[2].style.setProperty("--share", group.share);
    chip.onclick = () => setTriggerValue("pick", { step: data.step, index });
  });
}

function build(strip) {
  const chip = document.createElement("button");
  chip.type = "button";
  for (const part of ["name", "text", "bar"]) {
    const span = document.createElement("span");
    span.className = part;
    chip.appendChild(span);
  }
  return strip.appendChild(chip);
}
