// Draw every chart in place of its picture. This script runs inside the bundle, where vegaEmbed is in scope.
// Expressions are interpreted (ast), because the page's policy does not allow generated code.
const narrow = matchMedia("(max-width: 48rem)");
const config = () => ({
  background: "transparent",
  font: "system-ui, sans-serif",
  axis: {labelFontSize: 11, titleFontSize: 12, labelLimit: narrow.matches ? 90 : 180},
  legend: narrow.matches ? {orient: "bottom", columns: 2} : {orient: "right"},
});

// On a phone, a panel is made narrower rather than scaled down, so that its text stays readable.
function fit(panel) {
  if (panel.width > 250 && !panel.usermeta?.fill) panel.width = 250;
  for (const key of ["hconcat", "vconcat", "layer"]) (panel[key] ?? []).forEach(fit);
  return panel;
}

async function draw() {
  for (const figure of document.querySelectorAll("figure[data-chart]")) {
    const holder = figure.querySelector(".chart");
    let text = document.getElementById(figure.dataset.chart).textContent;
    // Panels side by side would be too small to read on a phone. A name cannot match,
    // because JSON escapes its quotes.
    if (narrow.matches) text = text.replaceAll('"hconcat":', '"vconcat":');
    const dark = matchMedia("(prefers-color-scheme: dark)").matches;
    try {
      const chart = JSON.parse(text);
      if (chart.usermeta?.fill) chart.width = Math.max(280, figure.clientWidth - 4);
      await vegaEmbed(holder, narrow.matches ? fit(chart) : chart,
        {renderer: "svg", actions: false, ast: true, config: config(), tooltip: {theme: dark ? "dark" : "light"}});
      figure.dataset.drawn = narrow.matches ? "narrow" : "wide";
    } catch (error) {
      figure.dataset.drawn = "failed";
      console.error(error);
    }
  }
}
narrow.addEventListener("change", draw);
draw();
