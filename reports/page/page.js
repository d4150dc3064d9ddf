"use strict";
// The page's own part: theme, charts drawn when they come into view, downloads. No network, no eval.
const report = JSON.parse(document.getElementById("report").textContent);
const root = document.documentElement;
const drawn = new Map();

function storedTheme() {
  try { return localStorage.getItem("replayrig-theme"); } catch { return null; }  // file:// may refuse storage
}

function setTheme(theme) {
  root.dataset.theme = theme;
  document.getElementById("theme").textContent = theme === "dark" ? "Light" : "Dark";
  for (const [element, figure] of drawn) Plotly.relayout(element, themed(figure.layout));
  document.dispatchEvent(new CustomEvent("themechange"));
}

function colour(name) { return getComputedStyle(root).getPropertyValue(name).trim(); }

/** The figure's layout in the page's colours. Axis settings are set one by one, so that a zoom survives. */
function themed(layout) {
  const text = colour("--text"), line = colour("--line");
  const change = {
    paper_bgcolor: "rgba(0,0,0,0)", plot_bgcolor: "rgba(0,0,0,0)", "font.color": text, "legend.font.color": text,
    "hoverlabel.bgcolor": colour("--page"), "hoverlabel.font.color": text, "hoverlabel.bordercolor": line,
  };
  for (const key of Object.keys(layout)) {
    if (/^[xy]axis\d*$/.test(key)) {
      change[key + ".gridcolor"] = line;
      change[key + ".zerolinecolor"] = line;
      change[key + ".linecolor"] = line;
    }
  }
  return change;
}

function draw(element) {
  const figure = report.charts[element.dataset.chart];
  const layout = structuredClone(figure.layout);
  layout.font = { family: getComputedStyle(document.body).fontFamily, size: 12 };
  layout.dragmode = matchMedia("(pointer: coarse)").matches ? false : "zoom";
  layout.hovermode = "closest";
  drawn.set(element, figure);
  Plotly.newPlot(element, figure.data, layout, { displayModeBar: false, responsive: true })
    .then(() => Plotly.relayout(element, themed(figure.layout)));
}

function save(name, type, text) {
  const link = document.createElement("a");
  link.href = URL.createObjectURL(new Blob([text], { type }));
  link.download = name;
  link.click();
  setTimeout(() => URL.revokeObjectURL(link.href), 1000);
}

function asCsv(figure) {
  const quoted = (value) => /[",\n]/.test(value) ? '"' + String(value).replaceAll('"', '""') + '"' : value;
  const lines = ["run,series,x,y"];
  for (const one of figure.series)
    for (let i = 0; i < one.x.length; i++)
      lines.push([one.run ?? "", one.name, one.x[i], one.y[i]].map((value) => quoted(String(value))).join(","));
  return lines.join("\n") + "\n";
}

async function download(button) {
  const element = button.closest("figure").querySelector(".chart");
  if (!drawn.has(element)) draw(element);
  const name = element.dataset.chart, kind = button.dataset.save;
  if (kind === "csv") return save(name + ".csv", "text/csv", asCsv(report.charts[name]));
  const box = element.getBoundingClientRect();
  const options = { format: kind, width: Math.round(box.width), height: Math.round(box.height), scale: kind === "png" ? 2 : 1 };
  await Plotly.relayout(element, { paper_bgcolor: colour("--page") });
  await Plotly.downloadImage(element, { ...options, filename: name });
  await Plotly.relayout(element, themed(report.charts[name].layout));
}

setTheme(storedTheme() ?? (matchMedia("(prefers-color-scheme: dark)").matches ? "dark" : "light"));
matchMedia("(prefers-color-scheme: dark)").addEventListener("change", (event) => {
  if (storedTheme() === null) setTheme(event.matches ? "dark" : "light");
});
document.getElementById("theme").addEventListener("click", () => {
  const theme = root.dataset.theme === "dark" ? "light" : "dark";
  try { localStorage.setItem("replayrig-theme", theme); } catch { /* the choice then lasts as long as the page */ }
  setTheme(theme);
});
document.addEventListener("click", (event) => {
  const button = event.target.closest("button[data-save]");
  if (button) download(button);
});

const inView = new IntersectionObserver((entries) => {
  for (const entry of entries) {
    if (!entry.isIntersecting) continue;
    inView.unobserve(entry.target);
    draw(entry.target);
  }
}, { rootMargin: "300px" });
for (const element of document.querySelectorAll(".chart")) {
  element.style.minHeight = report.charts[element.dataset.chart].layout.height + "px";
  inView.observe(element);
}
addEventListener("beforeprint", () => {
  for (const element of document.querySelectorAll(".chart")) if (!drawn.has(element)) draw(element);
});
