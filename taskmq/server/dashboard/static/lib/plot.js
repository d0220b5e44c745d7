// @ts-check
/** Draws time series as lines with distinct dashes, or as a table. */
import { instant } from "./format.js";
import { html, useEffect, useRef, useState } from "./html.js";
import { Table } from "./parts.js";

/** @typedef {{label: string, color: string, points: {at: string, value: number | null}[]}} Line */

const DASHES = [[], [8, 4], [2, 3], [10, 3, 2, 3]];
const HEIGHT = 190;

/** Add the styles for plots, once. */
function addStyles() {
  if (document.querySelector("[data-plots]")) return;
  const link = document.createElement("link");
  link.rel = "stylesheet";
  link.dataset.plots = "";
  link.href = new URL("../vendor/uplot.css", import.meta.url).href;
  document.head.append(link);
}

/** Return a colour of the theme.
 * @param {string} name */
const color = (name) => getComputedStyle(document.documentElement).getPropertyValue(`--${name}`).trim();

/** Label the marks of a time axis: the day at midnight, otherwise the time of day.
 * @param {unknown} _ @param {number[]} marks */
const times = (_, marks) => marks.map((mark) => {
  const text = instant(new Date(mark * 1000).toISOString());
  const [day, time] = [text.slice(0, text.lastIndexOf(",")), text.slice(-8, -3)];
  return time === "00:00" ? day.slice(0, -5) : time;
});

/** Build the rows of a plot: seconds since the epoch, then the values of each line; null is a gap.
 * @param {Line[]} lines @returns {(number | null)[][]} */
export function rows(lines) {
  const times = [...new Set(lines.flatMap((line) => line.points.map((point) => new Date(point.at).getTime() / 1000)))].sort((a, b) => a - b);
  const values = lines.map((line) => {
    const known = new Map(line.points.map((point) => [new Date(point.at).getTime() / 1000, point.value]));
    return times.map((time) => known.get(time) ?? null);
  });
  return [times, ...values];
}

/** @param {{title: string, unit: string, lines: Line[], show?: (value: number) => string}} props */
export function Plot({ title, unit, lines, show = (value) => String(Math.round(value * 1000) / 1000) }) {
  const at = useRef(/** @type {HTMLElement | null} */ (null));
  const [asTable, flip] = useState(false);
  const data = rows(lines);
  const key = JSON.stringify(data);
  const theme = document.documentElement.dataset.theme;
  useEffect(() => {
    const place = at.current;
    if (!place || asTable || !data[0].length) return undefined;
    let isGone = false;
    /** @type {{setSize: (size: {width: number, height: number}) => void, destroy: () => void} | null} */
    let plot = null;
    const axis = { stroke: color("dim"), font: `11px ${color("font")}`, grid: { stroke: color("line"), width: 1 }, ticks: { show: false } };
    const sized = new ResizeObserver(() => plot?.setSize({ width: place.clientWidth, height: HEIGHT }));
    addStyles();
    import("../vendor/uplot.mjs").then(({ default: uPlot }) => {
      if (isGone) return;
      plot = new uPlot({
        width: place.clientWidth, height: HEIGHT, legend: { show: false }, cursor: { y: false },
        axes: [{ ...axis, grid: { show: false }, space: 70, values: times }, { ...axis, size: 64, values: (/** @type {unknown} */ _, /** @type {number[]} */ found) => found.map(show) }],
        scales: { y: { range: (/** @type {unknown} */ _, /** @type {number} */ __, /** @type {number} */ most) => [0, most > 0 ? most * 1.08 : 1] } },
        series: [{}, ...lines.map((line, number) => ({ label: line.label, stroke: color(line.color), fill: number === 0 && lines.length > 1 ? `${color(line.color)}1f` : undefined, width: 1.5, dash: DASHES[number % DASHES.length], points: { size: 4 } }))],
      }, data, place);
      sized.observe(place);
    });
    return () => { isGone = true; sized.disconnect(); plot?.destroy(); };
  }, [key, asTable, theme]);
  const last = lines.map((line) => { const value = line.points.filter((point) => point.value !== null).at(-1)?.value; return `${line.label} ${value === undefined || value === null ? "none" : show(value)}`; }).join(", ");
  return html`<figure class="plot"><figcaption><strong>${title}</strong> <span class="dim">${unit}</span>
      <span class="legend">${lines.map((line, number) => html`<span key=${line.label} class=${`line-${number} c-${line.color}`}><svg width="26" height="8" aria-hidden="true"><line x1="0" y1="4" x2="26" y2="4" stroke="currentColor" stroke-width="2" stroke-dasharray=${DASHES[number % DASHES.length].join(" ")} /></svg> ${line.label}</span>`)}</span>
      <button type="button" class="plain" aria-pressed=${asTable} onClick=${() => flip(!asTable)}>Table<span class="sr"> of ${title}</span></button></figcaption>
    ${asTable ? html`<${Table} label=${title} columns=${["When", ...lines.map((line) => [line.label, "number"])]}>${data[0].map((time, row) => html`<tr key=${time}><td>${instant(new Date(Number(time) * 1000).toISOString())}</td>${lines.map((line, number) => { const value = data[number + 1][row]; return html`<td key=${line.label} class="number">${value === null ? "–" : show(value)}</td>`; })}</tr>`)}<//>`
      : data[0].length > 0 && html`<div ref=${at} role="img" aria-label=${`${title}, ${unit}. Last: ${last || "nothing"}`} data-points=${data[0].length}></div>`}
    ${!data[0].length && html`<p class="dim">No data in this period.</p>`}</figure>`;
}
