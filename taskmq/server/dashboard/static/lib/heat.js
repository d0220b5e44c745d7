// @ts-check
/** Heat strips: durations over time, a strip for each line, as seven shades of one colour. */
import { instant, span } from "./format.js";
import { html } from "./html.js";

/** Seconds at which the next shade begins. */
const BOUNDS = [0.1, 1, 10, 60, 600, 3600];

/** @param {number} value */
const shade = (value) => 0.1 + 0.15 * BOUNDS.filter((one) => value > one).length;

/** The meaning of the shades. */
export const HeatKey = () => html`<span>up to ${span(BOUNDS[0])} <svg width="98" height="10" aria-hidden="true">${[0, ...BOUNDS].map((one, at) => html`<rect key=${one} class="bar-run" fill-opacity=${shade(one + 0.01)} x=${at * 14} width="13" height="10" />`)}</svg> over 1 h</span>`;

/** @param {{lines: import("./plot.js").Line[], data: (number | null)[][]}} props data: the rows of a plot */
export const Strips = ({ lines, data: [times, ...strips] }) => html`<div class="spans">${lines.map((line, row) => {
    const most = span(Math.max(...strips[row].map(Number)));
    return html`<div key=${line.label}><span title=${line.label}>${line.label}</span><svg class="track" role="img" aria-label=${`${line.label}: at most ${most}`}>${strips[row].map((value, at) => value !== null && html`<rect key=${at} class="bar-run" fill-opacity=${shade(value)} x=${`${(100 * at) / times.length}%`} width=${`${100 / times.length}%`} height="16"><title>${instant(new Date(Number(times[at])).toISOString())}: ${span(value)}</title></rect>`)}</svg><span class="number">${most}</span></div>`;
  })}</div>
  <p class="dim">${instant(new Date(Number(times[0])).toISOString())} to ${instant(new Date(Number(times[times.length - 1])).toISOString())}</p>`;
