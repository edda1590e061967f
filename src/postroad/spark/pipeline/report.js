// Draws the charts in the colours of the page. Shows only the chosen queue in all charts and tables.
(() => {
  const specs = JSON.parse(document.getElementById("charts").textContent);
  const select = document.getElementById("queue");
  const views = [];
  let drawn = 0;

  const config = () => {
    const style = getComputedStyle(document.documentElement);
    const [ink, faint, line] = ["--ink", "--faint", "--line"].map((name) => style.getPropertyValue(name).trim());
    const axis = { labelColor: faint, titleColor: faint, gridColor: line, domainColor: line, tickColor: line };
    return {
      background: null,
      font: "system-ui, 'Segoe UI', Roboto, sans-serif",
      view: { stroke: null },
      axis: { ...axis, labelFontSize: 12, titleFontSize: 12, titleFontWeight: "normal" },
      text: { color: ink, fontSize: 13 },
      rule: { color: faint },
    };
  };

  const choose = (queue) => {
    if (select) select.value = queue ?? "";
    for (const view of views) view.signal("queue", queue).runAsync();
    for (const row of document.querySelectorAll("tr[data-queue]"))
      row.hidden = queue !== null && row.dataset.queue !== queue;
  };

  const draw = async () => {
    const round = ++drawn;
    for (const view of views.splice(0)) view.finalize();
    for (const place of document.querySelectorAll("[data-chart]")) {
      const spec = structuredClone(specs[place.dataset.chart]);
      const made = await vegaEmbed(place, spec, { actions: false, renderer: "svg", logLevel: 1, config: config() });
      if (round !== drawn) return;
      views.push(made.view);
      made.view.addEventListener("click", (event, item) => {
        const queue = item && item.datum && item.datum.queue;
        if (queue) choose(select && select.value === queue ? null : queue);
      });
    }
    choose(select && select.value !== "" ? select.value : null);
    document.body.dataset.drawn = views.length;
  };

  if (select) select.addEventListener("change", () => choose(select.value === "" ? null : select.value));
  for (const each of document.querySelectorAll("details"))
    each.addEventListener("toggle", () => dispatchEvent(new Event("resize")));
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", draw);
  draw();
})();
