// @ts-check
/** Draws time series as lines with distinct dashes, as stacked areas, as heat strips, or as a table. */
import { instant, timeLabel } from "./format.js";
import { HeatKey, Strips } from "./heat.js";
import { html, useMemo, useSize, useState } from "./html.js";
import { Table } from "./parts.js";
import { positionOf, timeMarks, valueMarks } from "./scale.js";

/** @typedef {{label: string, color: string, points: {at: string, value: number | null}[]}} Line */
/** @typedef {{version: string, first: string}} Deploy A version of the app, and when it was first seen. */

const DASHES = ["", "6 3", "2 3", "10 3 2 3"];
// Pixels that the name of a version takes.
const FLAG_SPACE = 46;
const EDGE = { left: 52, right: 12, top: 16, bottom: 20 };
const TIME_SPACE = 80;

/** Build the rows of a plot: milliseconds since the epoch, then the values of each line; null is a gap.
 * @param {Line[]} lines @returns {(number | null)[][]} */
export function rows(lines) {
  const times = [...new Set(lines.flatMap((line) => line.points.map((point) => new Date(point.at).getTime())))].sort((a, b) => a - b);
  const values = lines.map((line) => {
    const known = new Map(line.points.map((point) => [new Date(point.at).getTime(), point.value]));
    return times.map((time) => known.get(time) ?? null);
  });
  return [times, ...values];
}

/** Return the path of a line; with `floor`, the outline of the area between both.
 * @param {(number | null)[]} line heights @param {(at: number) => number} x @param {number[]} [floor] */
function path(line, x, floor) {
  let drawn = "";
  for (let at = 0; at < line.length; at += 1) {
    const from = at;
    while (at < line.length && line[at] !== null) at += 1;
    if (from === at) continue;
    const part = Array.from({ length: at - from }, (_, step) => from + step);
    const ways = floor ? [...part.map((one) => [x(one), line[one]]), ...part.reverse().map((one) => [x(one), floor[one]])] : part.map((one) => [x(one), line[one]]);
    const points = ways.map(([left, top]) => `${Number(left).toFixed(1)} ${Number(top).toFixed(1)}`);
    // A point between two gaps is a short dash.
    drawn += `M${points.join("L")}${floor ? "Z" : points.length > 1 ? "" : "h2"}`;
  }
  return drawn;
}

/** @param {{title: string, lines: Line[], data: (number | null)[][], show: (value: number) => string, mark: (value: number) => string, isLog: boolean, isStacked: boolean, least: number, label: string, deploys: Deploy[]}} props */
function Drawing({ title, lines, data, show, mark, isLog, isStacked, least, label, deploys }) {
  const [place, { width, height }] = useSize();
  const [over, point] = useState(-1);
  const times = /** @type {number[]} */ (data[0]);
  const [first, last] = [times[0], Math.max(times[times.length - 1], times[0] + 1)];
  const [inner, bottom] = [width - EDGE.left - EDGE.right, height - EDGE.bottom];
  const left = (/** @type {number} */ time) => EDGE.left + ((time - first) / (last - first)) * inner;
  const chart = useMemo(() => {
    /** @type {(number | null)[][]} */
    const tops = [];
    for (const values of data.slice(1)) {
      const below = tops[tops.length - 1];
      tops.push(isStacked && below ? values.map((one, at) => (one === null && below[at] === null ? null : (one ?? 0) + (below[at] ?? 0))) : values);
    }
    const marks = valueMarks(/** @type {number[]} */ (tops.flat().filter((one) => one !== null)), isLog, least);
    const top = (/** @type {number} */ value) => bottom - positionOf(value, marks, isLog) * (bottom - EDGE.top);
    const heights = tops.map((values) => values.map((one) => (one === null ? null : top(one))));
    const x = (/** @type {number} */ at) => left(times[at]);
    const drawn = heights.map((line, at) => ({
      line: path(line, x),
      area: isStacked ? path(line, x, times.map((_, time) => heights[at - 1]?.[time] ?? bottom)) : "",
    }));
    return { drawn, values: marks.map((one) => ({ at: top(one), text: mark(one) })) };
  }, [data, width, height]);
  const name = title.replace(/\W/g, "");
  const nearest = (/** @type {number} */ time) => times.reduce((best, one, at) => (Math.abs(one - time) < Math.abs(times[best] - time) ? at : best), 0);
  const onMove = (/** @type {PointerEvent} */ event) => point(nearest(first + ((event.offsetX - EDGE.left) / inner) * (last - first)));
  return html`<div class="chart" ref=${place} role="img" aria-label=${label} data-points=${times.length}>${inner > 0 && html`
    <svg width=${width} height=${height} onPointerMove=${onMove} onPointerLeave=${() => point(-1)}>
      ${isStacked && html`<defs>${lines.map((one, at) => html`<pattern key=${one.label} id=${`${name}${at}`} class=${`c-${one.color} fill-${one.color}`} width="6" height="6" patternUnits="userSpaceOnUse" patternTransform="rotate(45)"><rect width="6" height="6" /><path d="M0 3h6" /></pattern>`)}</defs>`}
      ${chart.values.map((one) => html`<g key=${one.at}><path class="grid" d=${`M${EDGE.left} ${Math.round(one.at) + 0.5}H${width - EDGE.right}`} /><text x=${EDGE.left - 8} y=${one.at + 4} text-anchor="end">${one.text}</text></g>`)}
      ${timeMarks(first, last, Math.max(1, inner / TIME_SPACE)).map((one) => html`<text key=${one} x=${left(one)} y=${height - 4} text-anchor="middle">${timeLabel(one)}</text>`)}
      ${chart.drawn.map((one, at) => html`<g key=${lines[at].label} class=${`c-${lines[at].color}`}>${one.area && html`<path d=${one.area} fill=${`url(#${name}${at})`} />`}${!(isStacked && at) && html`<path class="line" d=${one.line} stroke-dasharray=${DASHES[at % DASHES.length]} />`}</g>`)}
      ${deploys.map((one, number) => {
        const [before, at, after] = [number - 1, number, number + 1].map((each) => (deploys[each] ? left(Date.parse(deploys[each].first)) : each < 0 ? 0 : width));
        const side = at - before > FLAG_SPACE ? "end" : after - at > FLAG_SPACE ? "start" : "";
        return html`<g key=${one.version} class="deploy"><title>${`Version ${one.version}, first seen ${instant(one.first)}`}</title><path d=${`M${at} ${EDGE.top - 10}V${bottom}`} />${side ? html`<text x=${at + (side === "end" ? -4 : 4)} y=${EDGE.top - 4} text-anchor=${side}>${one.version.slice(0, 8)}</text>` : html`<path class="flag" d=${`M${at} ${EDGE.top}v-10h8v6h-8`} />`}</g>`;
      })}
      ${over >= 0 && html`<path class="cross" d=${`M${left(times[over])} ${EDGE.top}V${bottom}`} />`}
    </svg>
    ${over >= 0 && html`<div class="tip" style=${left(times[over]) > width / 2 ? { right: `${width - left(times[over]) + 8}px` } : { left: `${left(times[over]) + 8}px` }}><strong>${instant(new Date(times[over]).toISOString())}</strong>
      ${deploys.filter((one) => nearest(Date.parse(one.first)) === over).map((one) => html`<span key=${one.version}><span>version</span><span>${one.version}</span></span>`)}
      ${lines.map((line, at) => { const value = data[at + 1][over]; return html`<span key=${line.label}><span>${line.label}</span><span>${value === null ? "–" : show(value)}</span></span>`; })}</div>`}`}</div>`;
}

/** The sign of a line in the legend. */
const Sign = ({ line, number, isStacked }) => html`<svg class=${`c-${line.color}`} width=${isStacked ? 10 : 22} height="10" aria-hidden="true">${isStacked ? html`<rect class=${`fill-${line.color}`} width="10" height="10" rx="2" />` : html`<path class="line" d="M0 5h22" stroke-dasharray=${DASHES[number % DASHES.length]} />`}</svg>`;

/**
 * @param {{title: string, unit: string, lines: Line[], show?: (value: number) => string, mark?: (value: number) => string,
 *   isLog?: boolean, isStacked?: boolean, isHeat?: boolean, least?: number, deploys?: Deploy[]}} props
 *   mark: text of a mark on the axis; least: smallest distance between two marks; deploys: marked if they are in the time of the lines.
 */
export function Plot({ title, unit, lines, show = (value) => String(Math.round(value * 1000) / 1000), mark = show, isLog = false, isStacked = false, isHeat = false, least = 0.001, deploys = [] }) {
  const [asTable, flip] = useState(false);
  const key = JSON.stringify(lines);
  const data = useMemo(() => rows(lines), [key]);
  const marked = deploys.filter((one) => Date.parse(one.first) >= Number(data[0][0]) && Date.parse(one.first) <= Number(data[0].at(-1)));
  const last = lines.map((line) => line.points.filter((point) => point.value !== null).at(-1)?.value ?? null);
  const words = lines.map((line, at) => `${line.label} ${last[at] === null ? "none" : show(Number(last[at]))}`).join(", ");
  return html`<figure class="plot"><figcaption><strong>${title}</strong> <span class="dim">${unit}</span>
      <button type="button" class="plain" aria-pressed=${asTable} onClick=${() => flip(!asTable)}>Table<span class="sr"> of ${title}</span></button>
      <span class="legend">${isHeat ? html`<${HeatKey} />` : lines.map((line, number) => html`<span key=${line.label}><${Sign} line=${line} number=${number} isStacked=${isStacked} /> ${line.label} <strong>${last[number] === null ? "–" : show(Number(last[number]))}</strong></span>`)}</span></figcaption>
    ${asTable ? html`<${Table} label=${title} columns=${["When", ...lines.map((line) => [line.label, "number"])]}>${data[0].map((time, row) => html`<tr key=${time}><td>${instant(new Date(Number(time)).toISOString())}</td>${lines.map((line, number) => { const value = data[number + 1][row]; return html`<td key=${line.label} class="number">${value === null ? "–" : show(value)}</td>`; })}</tr>`)}<//>`
      : data[0].length > 0 && isHeat ? html`<${Strips} lines=${lines} data=${data} />` : data[0].length > 0 && html`<${Drawing} title=${title} lines=${lines} data=${data} show=${show} mark=${mark} isLog=${isLog} isStacked=${isStacked} least=${least} deploys=${marked} label=${`${title}, ${unit}. Last: ${words || "nothing"}${marked.map((one) => `. Version ${one.version} since ${instant(one.first)}`).join("")}`} />`}
    ${!data[0].length && html`<p class="dim">No data in this period.</p>`}</figure>`;
}
