// @ts-check
/** Draws the waits, back-offs and runs of a job, or of the steps of a run, as bars over time. */
import { dayAndClock, instant, span, timeLabel } from "./format.js";
import { html, useSize } from "./html.js";
import { timeMarks } from "./scale.js";

/** @typedef {{kind: "off" | "wait" | "run" | "bad", from: number, to: number}} Part */
/** @typedef {{name: string, words: string, parts: Part[], seconds?: number, step?: string, href?: string, note?: string}} Row note: why a step has no bar */

export const ENDED = new Set(["succeeded", "failed", "cancelled", "expired", "skipped", "upstream_failed"]);
// A wait of more than ten times the rest is cut to one and a half times.
const LONG = 10;
const CUT = 1.5;
// Pixels that a time takes on the axis.
const TIME_SPACE = 64;
const SECOND = 1000, MINUTE = 60_000, HOUR = 3_600_000, DAY = 86_400_000;
const SIGNS = /** @type {const} */ ([["off", "not due, or back-off"], ["wait", "waited"], ["run", "ran"], ["bad", "ran, failed"]]);

/** Return the rows of a job: one for each attempt and interruption, and one for the wait of a job that has not ended.
 * @param {any} job @param {any[]} attempts @param {any[]} history @param {number} now @returns {Row[]} */
export function rowsOf(job, attempts, history, now) {
  const runs = [...attempts.map((one) => ({ name: `Attempt ${one.attempt}`, from: Date.parse(one.started), to: Date.parse(one.ended ?? "") || now, isBad: one.state === "failed" })),
    ...history.filter((one) => one.started).map((one) => ({ name: "Interrupted", from: Date.parse(one.started), to: Date.parse(one.at), isBad: false }))]
    .filter((one) => one.from && one.to).sort((a, b) => a.from - b.from);
  const due = Date.parse(job.due_at);
  let before = Math.min(Date.parse(job.submitted_at), ...runs.map((one) => one.from));
  const isOff = (/** @type {number} */ at) => at > 0 && runs[at - 1].isBad;
  const rows = runs.map((one, at) => {
    const waited = before;
    before = one.to;
    // The due time is that of the last attempt; what was before it is unknown, but most of a back-off is back-off.
    const until = Math.min(one.from, at === runs.length - 1 || at === 0 ? Math.max(waited, Date.parse(at === 0 ? job.schedule_time ?? job.due_at : job.due_at) || waited) : isOff(at) ? one.from : waited);
    return { name: one.name, seconds: (one.to - one.from) / 1000, words: `${one.name}: waited ${span((one.from - waited) / 1000)}, ran ${span((one.to - one.from) / 1000)}`,
      parts: [{ kind: "off", from: waited, to: until }, { kind: "wait", from: until, to: one.from }, { kind: one.isBad ? "bad" : "run", from: one.from, to: one.to }] };
  });
  if (!ENDED.has(job.state) && job.state !== "running" && now > before) {
    const until = Math.max(before, Math.min(now, due || before));
    rows.push({ name: "Waiting", seconds: (now - before) / 1000, words: `Waiting: for ${span((now - before) / 1000)}`, parts: [{ kind: "off", from: before, to: until }, { kind: "wait", from: until, to: now }] });
  }
  return /** @type {Row[]} */ (rows.map((row) => ({ ...row, parts: row.parts.filter((part) => part.to > part.from) })));
}

/** Return the rows of the steps of a run, or of children of a step; one that has not started says what it waits for.
 * @param {any[]} items of the API's timeline, with the steps that they wait for as `needs`, and their `quota` @param {number} now @returns {Row[]} */
export function rowsOfSteps(items, now) {
  return items.map((one) => {
    const name = one.child === null ? one.step : `${one.step} [${one.child}]`;
    const state = one.state.replace("_", " ");
    if (!one.started) return { name, step: one.step, href: one.href, words: "", parts: [], note: one.state === "waiting" && one.needs?.length ? `after ${one.needs.join(", ")}` : one.quota || state };
    const [ready, from, to] = [Date.parse(one.ready ?? one.started), Date.parse(one.started), Math.max(Date.parse(one.started), Date.parse(one.ended ?? "") || now)];
    /** @type {Part[]} */
    let parts = one.jobs.flatMap((/** @type {any} */ job) => rowsOf(job, job.attempts, job.interruptions, now).flatMap((row) => row.parts));
    const isWait = one.kind === "wait" || one.kind === "sleep";
    if (!parts.length) parts = [{ kind: isWait ? "wait" : one.state === "failed" ? "bad" : "run", from, to }];
    const first = Math.min(...parts.map((part) => part.from));
    if (first > ready) parts.unshift({ kind: "wait", from: ready, to: first });
    const ran = parts.reduce((sum, part) => sum + (part.kind === "run" || part.kind === "bad" ? part.to - part.from : 0), 0) / 1000;
    const seconds = isWait ? (to - from) / 1000 : ran;
    return { name, seconds, step: one.step, href: one.href, words: `${name}: ${isWait ? "waited" : "ran"} ${span(seconds)}, ${state}`, parts };
  });
}

/** @param {number} time milliseconds */
const exactly = (time) => instant(new Date(time).toISOString());

/** Label a time as exactly as the length of its axis needs. On a long axis, that is the label of an end.
 * @param {number} time @param {number} length milliseconds */
function labelOf(time, length) {
  const [day, clock] = dayAndClock(time);
  return length < MINUTE || (length < HOUR && time % MINUTE) ? clock : length < DAY ? clock.slice(0, 5) : day;
}

/** The times of the bars: the first and the last, and between them round ones, or the ends of a wait that is cut short.
 * @param {{start: number, end: number, now: number, cut: number[] | null, place: (time: number) => number}} props */
function Axis({ start, end, now, cut, place }) {
  const [at, { width }] = useSize();
  const hasRoom = (/** @type {number} */ time) => (place(time) / 100) * width > 1.3 * TIME_SPACE && (1 - place(time) / 100) * width > (end === now ? 0.75 : 1.3) * TIME_SPACE;
  const marks = (cut ?? timeMarks(start, end, width / TIME_SPACE, SECOND)).filter(hasRoom);
  const last = end === now ? "now" : end - start < 10 * SECOND ? `+${span((end - start) / 1000)}` : labelOf(end, end - start);
  return html`<div class="axis"><span></span><div ref=${at}><svg class="track" role="img" aria-label=${`From ${exactly(start)} to ${end === now ? "now" : exactly(end)}`}>
    <text y="12">${labelOf(start, end - start)}</text>${marks.map((one) => html`<text key=${one} x=${`${place(one)}%`} y="12" text-anchor="middle">${end - start < DAY ? labelOf(one, end - start) : timeLabel(one)}</text>`)}<text x="100%" y="12" text-anchor="end">${last}</text></svg></div></div>`;
}

/** @param {{rows: Row[], now: number}} props now: the end of bars that have not ended */
export function Timeline({ rows, now }) {
  const parts = rows.flatMap((row) => row.parts);
  if (!rows.length) return null;
  const [start, end] = [Math.min(...parts.map((one) => one.from)), Math.max(...parts.map((one) => one.to))];
  const longest = parts.reduce((best, one) => (one.to - one.from > best.to - best.from ? one : best), /** @type {Part} */ ({ kind: "off", from: now, to: now }));
  const [length, rest] = [longest.to - longest.from, end - start - (longest.to - longest.from)];
  const cut = longest.kind !== "run" && longest.kind !== "bad" && rest > 0 && length > LONG * rest ? length - CUT * rest : 0;
  const whole = Math.max(1, end - start - cut);
  const place = (/** @type {number} */ at) => {
    const within = Math.max(0, Math.min(1, (at - longest.from) / Math.max(1, length)));
    return ((at - start - cut * within) / whole) * 100;
  };
  const middle = place(longest.from + length / 2);
  const kinds = new Set(parts.map((one) => one.kind));
  return html`<div class="spans"><svg width="0" height="0" aria-hidden="true"><defs>${["wait", "bad"].map((kind) => html`<pattern key=${kind} id=${`hatch-${kind}`} class=${`bar-${kind}`} width="6" height="6" patternUnits="userSpaceOnUse" patternTransform="rotate(45)"><rect width="6" height="6" /><path d="M0 3h6" /></pattern>`)}</defs></svg>
    ${parts.length > 0 && html`<${Axis} start=${start} end=${end} now=${now} cut=${cut > 0 ? [longest.from, longest.to] : null} place=${place} />`}
    ${rows.map((row, at) => html`<div key=${at} data-step=${row.step}><span title=${row.name}>${row.href ? html`<a href=${row.href}>${row.name}</a>` : row.name}</span>${row.note ? html`<span class="dim" title=${row.note}>${row.note}</span>` : html`<svg class="track" role="img" aria-label=${row.words}><title>${row.words}</title>
        ${row.parts.map((one) => html`<rect key=${`${one.kind} ${one.from}`} class=${`bar-${one.kind}`} x=${`${place(one.from)}%`} width=${`${Math.max(0.6, place(one.to) - place(one.from))}%`} y="2" height="12" rx="2" fill=${one.kind === "wait" || one.kind === "bad" ? `url(#hatch-${one.kind})` : undefined}><title>${`${exactly(one.from)}, ${span((one.to - one.from) / 1000)}`}</title></rect>`)}
        ${cut > 0 && row.parts.includes(longest) && [-2, 2].map((by) => html`<line key=${by} class="break" x1=${`${middle}%`} x2=${`${middle}%`} y2="16" transform=${`translate(${by})`} />`)}
      </svg>`}<span class="number">${span(row.seconds)}</span></div>`)}</div>
    <p class="legend dim">${SIGNS.filter(([kind]) => kinds.has(kind)).map(([kind, words]) => html`<span key=${kind}><svg width="22" height="12" aria-hidden="true"><rect class=${`bar-${kind}`} x="1" y="1" width="20" height="10" rx="2" fill=${kind === "wait" || kind === "bad" ? `url(#hatch-${kind})` : undefined} /></svg> ${words}</span>`)}${cut > 0 && html`<span>‖ time cut short</span>`}</p>`;
}
