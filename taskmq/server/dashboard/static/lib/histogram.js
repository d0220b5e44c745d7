// @ts-check
/** The jobs of a filter by the time of their creation, as bars. A chosen range becomes a term of the filter. */
import { useData } from "./data.js";
import { count, instant } from "./format.js";
import { html, useRef, useState } from "./html.js";
import { Table } from "./parts.js";
import { change } from "./route.js";

const HEIGHT = 56;
/** Groups of states, the lowest first: word, colour and states; the last one has all others. */
const GROUPS = /** @type {[string, string, string[]][]} */ ([["succeeded", "good", ["succeeded"]], ["failed", "bad", ["failed", "expired", "upstream_failed"]], ["cancelled", "odd", ["cancelled", "skipped"]], ["running", "run", ["running"]], ["not started", "cool", []]]);

/** Return the number of jobs in each group.
 * @param {Record<string, number>} counts */
function grouped(counts) {
  const sums = GROUPS.map(() => 0);
  for (const [state, many] of Object.entries(counts)) sums[GROUPS.findIndex(([, , states], at) => states.includes(state) || at === GROUPS.length - 1)] += many;
  return sums;
}

/** @param {{filter: string, data: any}} props */
function Bars({ filter, data: { items, seconds } }) {
  const [over, point] = useState(-1);
  const [from, start] = useState(-1);
  const [asTable, flip] = useState(false);
  const place = useRef(/** @type {SVGElement | null} */ (null));
  const bars = items.map((/** @type {any} */ one) => ({ ...one, sums: grouped(one.counts) }));
  const totals = bars.map((/** @type {any} */ one) => one.sums.reduce((/** @type {number} */ sum, /** @type {number} */ each) => sum + each, 0));
  const most = Math.max(1, ...totals);
  const used = GROUPS.map((group, at) => ({ group, at })).filter(({ at }) => bars.some((/** @type {any} */ one) => one.sums[at]));
  const [first, last] = from < 0 ? [over, over] : [Math.min(from, over), Math.max(from, over)];
  const end = (/** @type {number} */ at) => new Date(Date.parse(items[at].at) + 1000 * seconds).toISOString();
  const words = (/** @type {number[]} */ sums, isExact = true) => used.filter(({ at }) => sums[at]).map(({ group, at }) => `${count(sums[at])}${isExact ? "" : "+"} ${group[0]}`).join(", ") || "none";
  const zoom = () => {
    if (over < 0) return;
    const rest = filter.replace(/(^|\s)(created|submitted):("[^"]*"|\S+)/g, "").trim();
    change({ filter: `${rest} created:>=${items[first].at} created:<${end(last)}`.trim(), cursor: "" });
  };
  const find = (/** @type {any} */ event) => {
    const { left, width } = /** @type {SVGElement} */ (place.current).getBoundingClientRect();
    return Math.max(0, Math.min(items.length - 1, Math.floor(((event.clientX - left) / width) * items.length)));
  };
  const onKey = (/** @type {any} */ event) => {
    const step = { ArrowLeft: -1, ArrowRight: 1 }[/** @type {string} */ (event.key)];
    if (step) {
      const before = over < 0 ? items.length - 1 : over;
      start(event.shiftKey ? (from < 0 ? before : from) : -1);
      point(over < 0 ? before : Math.max(0, Math.min(items.length - 1, over + step)));
    } else if (event.key === "Enter") zoom();
    else if (event.key === "Escape") { start(-1); point(-1); } else return;
    event.preventDefault();
  };
  const x = (/** @type {number} */ at) => `${(at / items.length) * 100}%`;
  const shown = bars.slice(first, last + 1);
  return html`<figure class="card histogram"><figcaption><strong>Created</strong> <span class="dim" role="status">${over < 0 ? `Drag, or press arrow keys with Shift and Enter, to zoom.` : `${instant(items[first].at)} to ${instant(end(last))}: ${words(GROUPS.map((_, at) => shown.reduce((/** @type {number} */ sum, /** @type {any} */ one) => sum + one.sums[at], 0)), shown.every((/** @type {any} */ one) => one.is_exact))}`}</span>
      <button type="button" class="plain" aria-pressed=${asTable} onClick=${() => flip(!asTable)}>Table<span class="sr"> of jobs over time</span></button></figcaption>
    ${asTable ? html`<${Table} label="Jobs over time" columns=${["From", ...used.map(({ group }) => [group[0], "number"])]}>${bars.map((/** @type {any} */ one) => html`<tr key=${one.at}><td>${instant(one.at)}</td>${used.map(({ group, at }) => html`<td key=${group[0]} class="number">${count(one.sums[at])}${one.is_exact ? "" : "+"}</td>`)}</tr>`)}<//>`
      : html`<div tabIndex="0" role="group" aria-label="Jobs over time" onKeyDown=${onKey} onBlur=${() => { start(-1); point(-1); }}><svg ref=${place} width="100%" height=${HEIGHT} role="img" aria-label=${`${count(totals.reduce((/** @type {number} */ sum, /** @type {number} */ one) => sum + one, 0))} jobs, from ${instant(items[0].at)}`}
          onPointerDown=${(/** @type {any} */ event) => start(find(event))} onPointerMove=${(/** @type {any} */ event) => point(find(event))} onPointerLeave=${() => { start(-1); point(-1); }} onPointerUp=${() => { if (from >= 0 && from !== over) zoom(); start(-1); }}>
        <defs><pattern id="bars-bad" class="bar-bad" width="6" height="6" patternUnits="userSpaceOnUse" patternTransform="rotate(45)"><rect width="6" height="6" /><path d="M0 3h6" /></pattern></defs>
        ${over >= 0 && html`<rect class="brush" x=${x(first)} width=${x(last - first + 1)} height=${HEIGHT} />`}
        ${bars.map((/** @type {any} */ one, /** @type {number} */ at) => { let top = HEIGHT; return used.map(({ group: [word, color], at: group }) => {
          const height = one.sums[group] ? Math.max(2, (one.sums[group] / most) * (HEIGHT - 4)) : 0;
          top -= height;
          return height > 0 && html`<rect key=${`${at} ${word}`} class=${`c-${color}`} fill=${color === "bad" ? "url(#bars-bad)" : undefined} x=${x(at + 0.1)} width=${x(0.8)} y=${top} height=${height} />`;
        }); })}</svg></div>
      <p class="legend">${used.map(({ group: [word, color] }) => html`<span key=${word}><svg class=${`c-${color}`} width="10" height="10" aria-hidden="true"><rect fill=${color === "bad" ? "url(#bars-bad)" : undefined} width="10" height="10" rx="2" /></svg> ${word}</span>`)}<span class="dim">${instant(items[0].at)} to ${instant(end(items.length - 1))}</span>${bars.some((/** @type {any} */ one) => !one.is_exact) && html`<span class="dim">Of each bar the newest 1,000 are counted.</span>`}</p>`}</figure>`;
}

/** @param {{filter: string}} props */
export function Histogram({ filter }) {
  const { data } = useData("jobs/histogram", { filter }, ["job"], 15_000);
  return data?.items.some((/** @type {any} */ one) => Object.keys(one.counts).length) ? html`<${Bars} filter=${filter} data=${data} />` : null;
}
