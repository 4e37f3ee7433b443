// A formula wider than its column scrolls: then the keyboard must reach it. Streamlit draws the formulas, so we look for
// those that scroll whenever the page has changed and come to rest.
export default function () {
  if (window.grpoReach) return;
  let timer = null;
  const look = () => {
    for (const box of document.querySelectorAll(".katex-display")) {
      if (box.scrollWidth > box.clientWidth) box.tabIndex = 0;
      else box.removeAttribute("tabindex");
    }
  };
  const later = () => { clearTimeout(timer); timer = setTimeout(look, 250); };
  window.grpoReach = new MutationObserver(later);
  window.grpoReach.observe(document.body, { childList: true, subtree: true });
  window.addEventListener("resize", later);
  document.fonts.addEventListener("loadingdone", later); // letters of another width: nothing else tells
  later();
}
