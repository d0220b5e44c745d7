// @ts-check
/** The last runs of a workflow: their steps as a grid, one of them in detail, and the slowest steps. */
import { ownTenant } from "./api.js";
import { dayAndClock, instant, ran, span } from "./format.js";
import { html, useLayoutEffect, useRef, useState } from "./html.js";
import { Icon } from "./icons.js";
import { Facts, Hash, Id, Section, Table, When } from "./parts.js";
import { to } from "./route.js";
import { RunState, StepBar } from "./run_table.js";

const HEIGHT = 48;
const WEEK = 7;
const OPEN = 5;
const SLOWEST = 5;
const ARROWS = /** @type {any} */ ({ __proto__: null, ArrowLeft: [0, -1], ArrowRight: [0, 1], ArrowUp: [-1, 0], ArrowDown: [1, 0] });

const SIGNAL = "waiting_for_a_signal";

/** Give the steps that wait for a signal a state of their own.
 * @param {any} mark */
export const withSignal = (mark) => (mark.state === "running" && mark.kind === "wait" ? { ...mark, state: SIGNAL } : mark);

const word = (/** @type {string} */ state) => state.replaceAll("_", " ");
/** Whether some steps of these runs have no mark. @param {any[]} runs */
const isCut = (runs) => runs.some((run) => run.steps > run.marks.length);
const FIRST = "of the first 100 steps";
const ENDS = new Set(["succeeded", "skipped"]);

/** Move the focus to the next link in the direction of an arrow key; runs of other versions lack some steps.
 * @param {any} event */
function onKey(event) {
  const [down, right] = ARROWS[event.key] ?? [];
  if (down === undefined) return;
  event.preventDefault();
  const cell = event.target.closest("td, th");
  const rows = event.currentTarget.rows;
  let [row, column] = [cell.parentElement.rowIndex + down, cell.cellIndex + right];
  while (rows[row]?.cells[column] && !rows[row].cells[column].querySelector("a")) [row, column] = [row + down, column + right];
  rows[row]?.cells[column]?.querySelector("a").focus();
}

/** The square of a step. The most frequent state has no icon, unless a redrive ran the step again. */
const Cell = ({ state, generation = 0 }) => html`<span class=${`cell f-${state}`}>${state === "succeeded" ? generation > 0 && html`<${Icon} name="retrying" />` : state !== "waiting" && html`<${Icon} name=${state === SIGNAL ? "users" : state} isBare />`}</span>`;

/** @param {{runs: any[], chosen: any, choose: (run: string) => string}} props runs: the newest first; choose: returns the address of the page with this run */
export function Grid({ runs, chosen, choose }) {
  const place = useRef(/** @type {HTMLElement | null} */ (null));
  const columns = [...runs].reverse();
  // One link is in the tab order; arrow keys reach the others.
  const [at, move] = useState(`0 ${columns.length}`);
  useLayoutEffect(() => { if (place.current) place.current.scrollLeft = place.current.scrollWidth; }, []);
  const steps = [...new Set(runs.flatMap((run) => run.marks.map((/** @type {any} */ mark) => mark.step)))];
  const most = Math.max(1, ...columns.map((run) => ran(run) ?? 0));
  const marks = columns.map((run) => new Map(run.marks.map((/** @type {any} */ mark) => [mark.step, mark])));
  const link = (/** @type {string} */ key, /** @type {string} */ href, /** @type {string} */ label, /** @type {unknown} */ content, /** @type {boolean} */ isChosen = false) => html`<a href=${href} title=${label} aria-label=${label} aria-current=${isChosen ? "true" : undefined} tabIndex=${key === at ? 0 : -1} onFocus=${() => move(key)}>${content}</a>`;
  const kind = (/** @type {any} */ run) => (run === chosen ? "is-chosen" : undefined);
  const counts = ["succeeded", "failed", "cancelled"].map((state) => [state, runs.filter((run) => run.state === state).length]).filter(([, many]) => many);
  return html`<${Section} title=${runs.length === 1 ? "Last run" : `Last ${runs.length} runs`} actions=${html`<span class="dim">${counts.map(([state, many]) => `${many} ${state}`).join(", ")}${isCut(runs) && "; the first 100 steps of each"}</span>`}>
    <div class="scroll grid" ref=${place} role="group" aria-label="Steps of the last runs"><table onKeyDown=${onKey}><thead><tr><th scope="col">Duration, up to ${span(most)}</th>${columns.map((run, column) => {
      const height = Math.max(3, ((ran(run) ?? 0) / most) * HEIGHT);
      return html`<th key=${run.run_id} scope="col" class=${kind(run)}>${link(`0 ${column + 1}`, choose(run.run_id), `Run of ${instant(run.started)}: ${run.state}, ${span(ran(run))}`, html`<svg class=${`f-${run.state}`} width="12" height=${HEIGHT} aria-hidden="true"><rect y=${HEIGHT - height} width="12" height=${height} rx="2" />${run.state === "failed" && html`<path d=${`M0 ${HEIGHT}L12 ${HEIGHT - height}`} />`}</svg>`, run === chosen)}</th>`;
    })}</tr></thead><tbody>${steps.map((step, row) => html`<tr key=${step}><th scope="row" title=${step}>${step}</th>${columns.map((run, column) => {
      const mark = marks[column].get(step);
      return html`<td key=${run.run_id} class=${kind(run)}>${mark && link(`${row + 1} ${column + 1}`, to(["runs", run.run_id], { step }), `${step}: ${word(mark.state)}${mark.started ? `, ${span(ran(mark))}` : ""}${mark.generation ? ", after a redrive" : ""}. Run of ${instant(run.started)}`, html`<${Cell} ...${mark} />`)}</td>`;
    })}</tr>`)}</tbody><tfoot aria-hidden="true"><tr><th></th>${columns.map((run, column) => html`<td key=${run.run_id}>${column % WEEK ? "" : dayAndClock(Date.parse(run.started))[0]}</td>`)}</tr></tfoot></table></div>
    <p class="legend">${[...new Set(runs.flatMap((run) => run.marks.map((/** @type {any} */ mark) => mark.state)))].sort().map((state) => html`<span key=${state}><${Cell} state=${state} /> ${word(state)}</span>`)}</p><//>`;
}

/** Return what started a run; "" if only the audit says it.
 * @param {any} run */
export function starterOf({ tenant, scheduled_for, labels: { schedule }, parent, parent_step }) {
  if (!scheduled_for) return parent && html`<a href=${to(["runs", parent])}>${parent_step || parent}</a>`;
  // To a user of several tenants who has chosen none, the schedules of tenants have longer names.
  return schedule && tenant === ownTenant() ? html`<a href=${to(["schedules", schedule])}>${schedule}</a>` : schedule || "a schedule";
}

/** One of the runs, and its steps without success.
 * @param {{run: any}} props */
export function ChosenRun({ run }) {
  const open = run.marks.filter((/** @type {any} */ mark) => !ENDS.has(mark.state));
  const started = open.filter((/** @type {any} */ mark) => mark.started);
  const shown = (started.length ? started : open).slice(0, OPEN);
  return html`<${Section} title=${html`Run <${Id} id=${run.run_id} />`} kind="brief" actions=${html`<${RunState} run=${run} />`}>
    <${Facts} of=${[["Started", html`<${When} at=${run.started} />`], [run.ended ? "Ran" : run.state === "queued" ? "Queued for" : "Running for", span(ran(run))], ["Steps", `${run.steps - run.unfinished} of ${run.steps} ended`], ["Version", html`<${Hash} of=${run.version} />`], ["Started by", starterOf(run)], ["Redrives", run.generation || ""]]} />
    <${StepBar} run=${run} />
    ${(run.cancelled ?? run.held) !== null && html`<p class="reason">${run.cancelled === null ? "Held" : run.ended ? "Cancelled" : "Being cancelled"}: ${run.cancelled ?? run.held}</p>`}${run.error && html`<p class="failure">${run.error}</p>`}
    ${shown.length > 0 && html`${isCut([run]) && html`<p class="dim">Without success, ${FIRST}:</p>`}<ul>${shown.map((/** @type {any} */ mark) => html`<li key=${mark.step}><${Cell} ...${mark} /><a href=${to(["runs", run.run_id], { step: mark.step })}>${mark.step}</a><span class="dim">${word(mark.state)}${mark.started && `, ${span(ran(mark))}`}</span></li>`)}
      ${open.length > shown.length && html`<li><span></span><span>${open.length - shown.length} more</span></li>`}</ul>`}
    <div class="actions"><a href=${to(["runs", run.run_id])}>Open the run</a></div><//>`;
}

/** The steps with the longest median duration in these runs, and in how many runs each one ended.
 * @param {{runs: any[]}} props */
export function SlowestSteps({ runs }) {
  const times = /** @type {Map<string, number[]>} */ (new Map());
  for (const mark of runs.flatMap((run) => run.marks)) {
    if (mark.started && mark.ended) times.set(mark.step, [...(times.get(mark.step) ?? []), ran(mark) ?? 0]);
  }
  const slowest = [...times].map(([step, of]) => ({ step, ended: of.length, middle: of.sort((a, b) => a - b)[(of.length - 1) >> 1] })).sort((a, b) => b.middle - a.middle).slice(0, SLOWEST);
  const most = slowest[0]?.middle || 1;
  return html`<${Section} title="Slowest steps" actions=${isCut(runs) && html`<span class="dim">${FIRST}</span>`}>
    <${Table} label="Slowest steps" none="No step has ended." columns=${["Step", ["Length", "bars p2"], ["Runs", "number"], ["p50", "number"]]}>${slowest.map(({ step, ended, middle }) => html`<tr key=${step}><td>${step}</td><td class="bars p2"><svg class="segments" aria-hidden="true"><rect class="rest" width="100%" height="8" rx="2" /><rect class="f-running" width=${`${(middle / most) * 100}%`} height="8" /></svg></td><td class="number">${ended}</td><td class="number">${span(middle)}</td></tr>`)}<//><//>`;
}
