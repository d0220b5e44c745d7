// @ts-check
/** The steps of the last runs of a workflow: a row for each step, a column for each run, and the durations above. */
import { useData } from "./data.js";
import { instant, quote, ran, span } from "./format.js";
import { html, useLayoutEffect, useRef, useState } from "./html.js";
import { Icon } from "./icons.js";
import { Loading, Section, State } from "./parts.js";
import { to } from "./route.js";

const MOST = 30;
const HEIGHT = 48;
const ARROWS = /** @type {any} */ ({ __proto__: null, ArrowLeft: [0, -1], ArrowRight: [0, 1], ArrowUp: [-1, 0], ArrowDown: [1, 0] });

const word = (/** @type {string} */ state) => state.replace("_", " ");

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

/** @param {{runs: any[]}} props runs: the newest first */
function Cells({ runs }) {
  const place = useRef(/** @type {HTMLElement | null} */ (null));
  const columns = [...runs].reverse();
  // One link is in the tab order; arrow keys reach the others.
  const [at, move] = useState(`0 ${columns.length}`);
  useLayoutEffect(() => { if (place.current) place.current.scrollLeft = place.current.scrollWidth; }, []);
  const steps = [...new Set(runs.flatMap((run) => run.marks.map((/** @type {any} */ mark) => mark.step)))];
  const most = Math.max(1, ...columns.map((run) => ran(run) ?? 0));
  const marks = columns.map((run) => new Map(run.marks.map((/** @type {any} */ mark) => [mark.step, mark])));
  const link = (/** @type {string} */ key, /** @type {any} */ run, /** @type {string} */ step, /** @type {string} */ state, /** @type {string} */ label, /** @type {unknown} */ content) => html`<a class=${`s-${state}`} href=${to(["runs", run.run_id], { step })} title=${label} aria-label=${label} tabIndex=${key === at ? 0 : -1} onFocus=${() => move(key)}>${content}</a>`;
  return html`<div class="scroll grid" ref=${place} role="group" aria-label="Steps of the last runs"><table onKeyDown=${onKey}><thead><tr><th scope="col">Duration, up to ${span(most)}</th>${columns.map((run, column) => {
      const height = Math.max(3, ((ran(run) ?? 0) / most) * HEIGHT);
      return html`<th key=${run.run_id} scope="col">${link(`0 ${column + 1}`, run, "", run.state, `Run of ${instant(run.started)}: ${run.state}, ${span(ran(run))}`, html`<svg width="18" height=${HEIGHT} aria-hidden="true"><rect y=${HEIGHT - height} width="18" height=${height} rx="2" />${run.state === "failed" && html`<path d=${`M0 ${HEIGHT}L18 ${HEIGHT - height}`} />`}</svg>`)}</th>`;
    })}</tr></thead><tbody>${steps.map((step, row) => html`<tr key=${step}><th scope="row" title=${step}>${step}</th>${columns.map((run, column) => {
      const mark = marks[column].get(step);
      return html`<td key=${run.run_id}>${mark && link(`${row + 1} ${column + 1}`, run, step, mark.state, `${step}: ${word(mark.state)}${mark.started ? `, ${span(ran(mark))}` : ""}${mark.generation ? ", after a redrive" : ""}. Run of ${instant(run.started)}`, html`<${Icon} name=${mark.state} />`)}</td>`;
    })}</tr>`)}</tbody></table></div>
    <p class="legend">${[...new Set(runs.flatMap((run) => run.marks.map((/** @type {any} */ mark) => mark.state)))].sort().map((state) => html`<${State} key=${state} state=${state} />`)}</p>`;
}

/** @param {{workflow: string}} props */
export function Grid({ workflow }) {
  const loaded = useData("runs", { filter: `workflow:${quote(workflow)}`, limit: MOST, expand: "steps" }, ["job"], 5000);
  return html`<${Loading} loaded=${loaded}>${(/** @type {any} */ { items }) => {
    const ends = ["succeeded", "failed", "cancelled"].map((state) => [state, items.filter((/** @type {any} */ run) => run.state === state).length]).filter(([, many]) => many);
    return html`<${Section} title=${items.length === 1 ? "Last run" : `Last ${items.length || ""} runs`} actions=${html`<span class="dim">${ends.map(([state, many]) => `${many} ${state}`).join(", ")}</span>`}>
      ${items.length ? html`<${Cells} runs=${items.map((/** @type {any} */ run) => ({ ...run, marks: run.marks ?? [] }))} />` : html`<p class="dim">No runs yet.</p>`}<//>`;
  }}<//>`;
}
