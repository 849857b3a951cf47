// Lets a reader zoom into a time series: the drawing that is there stays until then, and without this script for good.
"use strict";
(() => {
  const tone = (name) => getComputedStyle(document.documentElement).getPropertyValue(name).trim();
  const axis = () => ({ stroke: tone("--quiet"), grid: { stroke: tone("--line") }, ticks: { stroke: tone("--line") } });

  const drawn = (data, drawing) => {
    const place = document.createElement("div");
    drawing.after(place);
    const series = data.lines.map((line) => {
      const look = getComputedStyle(drawing.querySelector(`.curve.${line.look}`));
      const dash = (look.strokeDasharray.match(/[\d.]+/g) || []).map(Number);
      return { label: line.name, stroke: look.stroke, width: 1.6, dash, spanGaps: true };
    });
    new uPlot({
      width: Math.max(280, drawing.parentElement.clientWidth),
      height: 300,
      scales: { x: { time: false }, y: { range: (_, low, high) => [Math.min(0, low), high * 1.05 || 1] } },
      series: [{ label: "seconds" }, ...series],
      axes: [axis(), { ...axis(), size: 74, values: (_, ticks) => ticks.map(units[data.unit]) }],
      legend: { live: true },
    }, uPlot.join(data.lines.map((line) => [line.at, line.values])), place);
    return place;
  };

  const units = {
    share: (value) => `${Math.round(value * 100)}%`,
    bytes: (value) => value >= 2 ** 30 ? `${(value / 2 ** 30).toFixed(2)} GiB` : `${(value / 2 ** 20).toFixed(1)} MiB`,
    count: (value) => value.toLocaleString("en"),
  };

  for (const script of document.querySelectorAll("script.series")) {
    const figure = script.closest("figure");
    const drawing = figure.querySelector("svg.chart");
    const data = JSON.parse(script.textContent);
    const button = document.createElement("button");
    button.type = "button";
    button.className = "zoom";
    button.textContent = "Zoom";
    button.setAttribute("aria-pressed", "false");
    let place = null;
    button.addEventListener("click", () => {
      if (place) {
        place.remove();
        place = null;
      } else {
        place = drawn(data, drawing);
      }
      drawing.style.display = place ? "none" : "";
      button.textContent = place ? "Back to the drawing (drag to zoom, double click for all)" : "Zoom";
      button.setAttribute("aria-pressed", String(Boolean(place)));
    });
    script.after(button);
  }
})();
