// Tell the browser which language the page speaks: screen readers, hyphenation and the choice of CJK glyphs follow it.
export default function ({ data }) {
  document.documentElement.lang = data.language === "zh" ? "zh-CN" : data.language;
}
