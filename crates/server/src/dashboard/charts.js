// Lines over time, drawn by uPlot. Each chart shows its latest value as text, too.

import { colour, h } from "./dom.js";

const HEIGHT = 128;
const LINES = ["--line-1", "--line-2"];

/** The span of time that charts show, in seconds: it grows with what is known. */
const LEAST_SPAN = 120;
const SPAN = 600;

/** Samples without a value after which a value is no longer the latest. */
const RECENT = 5;

/** Steps of an axis of bytes. */
const BINARY = Array.from({ length: 41 }, (_, power) => 2 ** power);

/** A panel with a chart. `lines` are `{name, label}` of series of the history. */
export class Chart {
  constructor({ title, lines, unit, top, binary }) {
    Object.assign(this, { lines, unit, top, binary });
    this.value = h("p", { class: "chart-value" }, "–");
    this.plotted = h("div", { class: "chart-plot", "aria-hidden": "true" });
    this.legend = h("ul", { class: "legend" }, lines.map(({ label }, at) =>
      h("li", {}, h("span", { class: `key key-${at + 1}`, "aria-hidden": "true" }), label, " ",
        lines.length > 1 ? h("span", { class: "legend-value" }) : null)));
    this.element = h("section", { class: "panel chart", "aria-label": title },
      h("div", { class: "chart-head" }, h("h2", {}, title), this.value),
      this.plotted, this.legend);
  }

  /** Draws what there is; makes the plot anew where `fresh` (the colours have changed). */
  draw(history, fresh) {
    const data = [history.times, ...this.lines.map(({ name }) => history.series[name] ?? [])];
    const latest = data.slice(1).map((values) => values.slice(-RECENT).findLast((value) => value !== null));
    this.value.textContent = this.unit(latest[0] ?? NaN);
    [...this.legend.querySelectorAll(".legend-value")].forEach((place, at) => {
      place.textContent = this.unit(latest[at] ?? NaN);
    });
    const width = this.plotted.clientWidth;
    if (width === 0) return;
    if (fresh) this.end();
    if (!this.plot) this.plot = new uPlot(this.#options(width), data, this.plotted);
    else {
      if (this.plot.width !== width) this.plot.setSize({ width, height: HEIGHT });
      this.plot.setData(data);
    }
  }

  end() {
    this.plot?.destroy();
    this.plot = undefined;
  }

  #options(width) {
    const [ink, grid] = [colour("--muted"), colour("--grid")];
    const axis = {
      stroke: ink,
      font: "11px system-ui, sans-serif",
      grid: { stroke: grid, width: 1 },
      ticks: { show: false },
    };
    const series = this.lines.map(({ label }, at) => ({
      label,
      stroke: colour(LINES[at]),
      width: 1.5,
      fill: at === 0 && this.lines.length === 1 ? colour("--fill-1") : undefined,
      points: { show: false },
      spanGaps: true,
    }));
    const unit = this.unit;
    return {
      width,
      height: HEIGHT,
      padding: [8, 18, 0, 0],
      legend: { show: false },
      cursor: { y: false, points: { size: 6 }, drag: { x: false, y: false }, sync: { key: "all" } },
      scales: {
        x: { time: true, range: (_, low, high) => [high - Math.min(Math.max(high - low, LEAST_SPAN), SPAN), high] },
        y: { range: (_, low, high) => [0, this.top ?? (high > 0 ? high * 1.1 : 1)] },
      },
      axes: [
        { ...axis, grid: { show: false }, size: 28, gap: 10, space: 70, values: "{HH}:{mm}" },
        { ...axis, size: 62, gap: 6, space: 26, incrs: this.binary ? BINARY : undefined,
          values: (_, all) => all.map((value) => unit(value)) },
      ],
      series: [{}, ...series],
      hooks: { setLegend: [(plot) => this.#under(plot)] },
    };
  }

  /** Shows the values under the pointer in place of the latest. */
  #under(plot) {
    const at = plot.cursor.idx;
    if (at === null || at === undefined) return;
    const values = this.lines.map((_, line) => plot.data[line + 1][at]);
    this.value.textContent = this.unit(values[0] ?? NaN);
    [...this.legend.querySelectorAll(".legend-value")].forEach((place, line) => {
      place.textContent = this.unit(values[line] ?? NaN);
    });
  }
}
