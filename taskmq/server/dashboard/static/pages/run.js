// @ts-check
/** A single run: its steps, forms of those that wait for a signal, and actions. */
import { ApiError, may, part, send } from "../lib/api.js";
import { HoldRun } from "../lib/changes.js";
import { useData, useEvery } from "../lib/data.js";
import { ValueForm } from "../lib/fields.js";
import { LiveLog } from "../lib/follow.js";
import { count, pretty, quote, ran, span } from "../lib/format.js";
import { Graph } from "../lib/graph.js";
import { starterOf } from "../lib/grid.js";
import { html, useEffect, useRef, useState } from "../lib/html.js";
import { LEVELS } from "../lib/log.js";
import { Code, Confirm, Dialog, Empty, Facts, Hash, Head, Id, Loading, markOf, notify, Section, Segments, Select, State, Table, When } from "../lib/parts.js";
import { go, to } from "../lib/route.js";
import { RunState } from "../lib/run_table.js";
import { ENDED, rowsOfSteps, Timeline } from "../lib/timeline.js";

// Larger graphs are unreadable.
const MOST_BOXES = 300;
// No event says that a timer or a signal moved a run.
const EVERY = 5000;
const PARTS = [["succeeded", "good"], ["skipped", "cool"], ["running", "run"], ["failed", "bad"], ["upstream_failed", "warn"], ["cancelled", "odd"], ["waiting", "rest"]];

/** What a step started: its job, or the run of another workflow. */
const Started = ({ step: { kind, job_id } }) => job_id && html`<a href=${to([kind === "workflow" ? "runs" : "jobs", job_id])}><${Id} id=${job_id} /></a>`;

/** The children of a step, loaded when they are opened.
 * @param {{id: string, step: any}} props */
function Children({ id, step }) {
  const [isOpen, show] = useState(false);
  const [cursor, move] = useState("");
  const loaded = useData(isOpen ? `runs/${part(id)}/steps/${part(step.step)}/children` : null, { limit: 50, cursor });
  return html`<details onToggle=${(/** @type {any} */ e) => show(e.target.open)}><summary>${step.step}: ${count(step.done)} of ${count(step.total)} children succeeded</summary>
    ${isOpen && html`<${Loading} loaded=${loaded}>${(/** @type {any} */ { items, next }) => html`
      <${Times} id=${id} step=${step.step} turn=${items} />
      <${Table} label=${`Children of ${step.step}`} columns=${[["Child", "number"], "State", "Job or run", "Started", ["Ran", "number"], "Error"]}>${items.map((/** @type {any} */ one) => html`<tr key=${one.number}><td class="number">${one.number}</td><td><${State} state=${one.state} /></td>
        <td><${Started} step=${{ ...step, job_id: one.job_id }} /></td><td><${When} at=${one.started} /></td><td class="number">${span(ran(one))}</td><td class="wide">${one.error && html`<span class="c-bad">${one.error}</span>`}</td></tr>`)}<//>
      <div class="bar">${cursor && html`<button type="button" onClick=${() => move("")}>First page</button>`}${next && html`<button type="button" onClick=${() => move(next)}>Next page</button>`}</div>`}<//>`}</details>`;
}

/** The steps over time, or the children of a step.
 * @param {{id: string, step?: string, turn: any[]}} props turn: the steps, or the children, whose change loads the timeline again */
function Times({ id, step = "", turn }) {
  const [cursor, move] = useState("");
  const loaded = useData(`runs/${part(id)}/timeline`, { step, limit: 50, cursor });
  const seen = useRef(turn);
  useEffect(() => { if (seen.current !== turn) { seen.current = turn; loaded.refresh(); } }, [turn]);
  const now = Date.now();
  const named = new Map(turn.map((one) => [one.step, one]));
  const ofStep = (/** @type {string} */ name) => ({ href: to(["runs", id], { step: name }), quota: named.get(name)?.quota, needs: named.get(name)?.needs.filter((/** @type {string} */ each) => !ENDED.has(named.get(each)?.state)) });
  return html`<${Loading} loaded=${loaded}>${(/** @type {any} */ { items, next }) => html`<${Timeline} now=${now} rows=${rowsOfSteps(items.map((/** @type {any} */ one) => ({ ...one, ...(step ? {} : ofStep(one.step)) })), now)} />
    ${(cursor || next) && html`<div class="bar">${cursor && html`<button type="button" onClick=${() => move("")}>First page</button>`}${next && html`<button type="button" onClick=${() => move(next)}>Next page</button>`}</div>`}`}<//>`;
}

/** The merged log of all jobs, or of those of one step.
 * @param {{run: any, steps: any[]}} props */
function Log({ run, steps }) {
  const [step, choose] = useState("");
  const [level, setLevel] = useState("debug");
  const isOver = run.ended !== null;
  const names = steps.filter((one) => one.task && one.kind !== "workflow").map((one) => one.step);
  return html`<${Section} title="Log" actions=${html`<div class="bar"><label>Step <${Select} of=${[["", "all"], ...names]} value=${step} set=${choose} /></label> <label>Level <${Select} of=${LEVELS} value=${level} set=${setLevel} /></label></div>`}>
    <${LiveLog} key=${`${step} ${level}`} of="runs" id=${run.run_id} step=${step} level=${level} runs=${!isOver} hasStarted isOver=${isOver} /><//>`;
}

/** What a box of the graph says below the name of its step. @param {any} step */
const noteOf = (step) => [step.total === null ? "" : `${count(step.done)} of ${count(step.total)}`, step.started ? span(ran(step)) : step.state.replace("_", " ")].filter(Boolean).join(", ");

/** Mark the step under the pointer or the focus wherever it is shown, by default the chosen one. Only attributes change: rendering a long log again would be slow.
 * @param {string} chosen */
function useMarks(chosen) {
  const place = useRef(/** @type {HTMLElement | null} */ (null));
  useEffect(() => {
    const at = /** @type {HTMLElement} */ (place.current);
    let step = chosen;
    const show = () => at.querySelectorAll("[data-step]").forEach((each) => each.toggleAttribute("data-marked", each.getAttribute("data-step") === step));
    const onMove = (/** @type {any} */ event) => { step = event.target.closest("[data-step]")?.getAttribute("data-step") ?? chosen; show(); };
    // Lines and children arrive later.
    const later = new MutationObserver(show);
    later.observe(at, { childList: true, subtree: true });
    for (const kind of ["mouseover", "mouseleave", "focusin"]) at.addEventListener(kind, onMove);
    show();
    return () => { later.disconnect(); for (const kind of ["mouseover", "mouseleave", "focusin"]) at.removeEventListener(kind, onMove); };
  }, [chosen]);
  return place;
}

/** @param {{steps: any[], redrive: ((step: string) => void) | null}} props */
function Steps({ steps, redrive }) {
  const columns = ["Step", "State", ["Kind", "p2"], ["After", "p4"], "Job or run", ["Children", "number p3"], ["Ran", "number"], "Error", ...(redrive ? [""] : [])];
  return html`<${Table} label="Steps" columns=${columns}>${steps.map((step) => html`<tr key=${step.step} data-row data-step=${step.step}>
    <td>${step.step}</td><td><${State} state=${step.state} /></td><td class="p2">${step.kind} ${step.task || step.signal}</td><td class="p4">${step.needs.join(", ") || "–"}</td><td><${Started} step=${step} /></td>
    <td class="number p3">${step.total === null ? "" : `${count(step.done)} of ${count(step.total)}`}</td>
    <td class="number">${span(ran(step))}</td><td class="wide">${step.error && html`<span class="c-bad">${step.error}</span>`}${step.quota && html`<span class="c-warn">Waits: ${step.quota}</span>`}</td>
    ${redrive && html`<td><div class="actions"><button type="button" onClick=${() => redrive(step.step)}>Redrive<span class="sr"> from ${step.step}</span> …</button></div></td>`}</tr>`)}<//>`;
}

/** The form of a step that waits for a signal.
 * @param {{id: string, step: any, reload: () => void}} props */
function Answer({ id, step, reload }) {
  const act = async (/** @type {unknown} */ value) => {
    const { effect } = await send(`runs/${part(id)}/signal`, { signal: step.signal, step: step.step, value });
    notify(effect === "sent" ? "Sent. No scheduler has read it yet." : "Sent.");
    reload();
  };
  return html`<${Section} title=${`${step.step} waits for ${step.signal}`} kind="answer">
    <p class="dim">Since <${When} at=${step.started} />.${step.roles.length > 0 && ` Roles that may answer: ${step.roles.join(", ")}.`}</p>
    ${may("events.send") && html`<${ValueForm} schema=${step.form} verb=${`Send ${step.signal}`} act=${act} />`}<//>`;
}

/** @param {{run: any, steps: any[], params: Record<string, any>, chosen: string, reload: () => void}} props params: schemas of the parameters; chosen: a step */
function Details({ run, steps, params, chosen, reload }) {
  const [isCloning, setCloning] = useState(false);
  const [isHolding, setHolding] = useState(false);
  const [asked, ask] = useState(/** @type {{title: string, verb: string, note?: boolean, text: string, act: (note: string) => Promise<void>} | null} */ (null));
  const isOver = run.ended !== null;
  const canOperate = may("workflows.operate");
  const path = `runs/${part(run.run_id)}`;
  const redrive = async (/** @type {string} */ step) => {
    let names = [];
    try { names = (await send(`${path}/redrive`, { step, dry_run: true })).steps; } catch (failure) { notify(String(/** @type {Error} */ (failure).message), true); return; }
    ask({
      title: step ? `Redrive from ${step}` : "Redrive the run", verb: `Redrive ${names.length} ${names.length === 1 ? "step" : "steps"}`, text: `Runs again: ${names.slice(0, 20).join(", ")}${names.length > 20 ? " …" : ""}.`,
      act: async () => { await send(`${path}/redrive`, step ? { step } : {}); notify("The steps run again."); reload(); },
    });
  };
  const cancel = () => ask({
    title: "Cancel the run", verb: "Cancel run", note: true, text: "Steps that have not started never will. Running steps are stopped.",
    act: async (reason) => { await send(`${path}/cancel`, reason ? { reason } : {}); notify("Asked to cancel: the run ends when its running steps have stopped."); reload(); },
  });
  const release = () => send(`${path}/release`, {}).then(() => { notify("Released."); reload(); }, (/** @type {Error} */ failure) => notify(failure.message, true));
  const close = () => ask({
    title: "Close the batch", verb: "Close batch", text: "The batch takes no more jobs, and ends when its jobs have ended.",
    act: async () => { await send(`${path}/close`, {}); notify("Closed."); reload(); },
  });
  const clone = async (/** @type {any} */ changed) => {
    const { run_id } = await send(`${path}/clone`, { params: changed });
    notify("Started.");
    go(["runs", run_id]);
  };
  const boxes = steps.map((step) => ({ id: step.step, after: step.needs, label: `${step.step}${step.total === null ? "" : ` ×${step.total}`}`, note: noteOf(step), mark: markOf(step.state), kind: step.state, href: to(["runs", run.run_id], { step: step.step }) }));
  const parts = PARTS.map(([state, color]) => /** @type {[string, number, string]} */ ([state.replace("_", " "), steps.filter((step) => step.state === state).length, color])).filter(([, many]) => many);
  const place = useMarks(chosen);
  const open = steps.filter((step) => step.kind === "wait" && step.state === "running");
  return html`<${Head} of=${{ path, query: {} }} title=${run.workflow || "Run"} id=${run.run_id} sub=${html`<${RunState} run=${run} /><span>Started <${When} at=${run.started} /></span><span>Ran ${span(ran(run))}</span>${run.tenant && html`<span>${run.tenant}</span>`}`}>
      ${canOperate && isOver && run.state !== "succeeded" && html`<button type="button" class="primary" data-key="r" onClick=${() => redrive("")}>Redrive …</button>`}
      ${may("jobs.submit") && html`<button type="button" onClick=${() => setCloning(true)}>Clone …</button>`}
      ${canOperate && steps.some((step) => step.is_open && step.state === "running") && html`<button type="button" onClick=${close}>Close batch …</button>`}
      ${canOperate && !isOver && run.cancelled === null && (run.held === null ? html`<button type="button" data-key="h" onClick=${() => setHolding(true)}>Hold …</button>` : html`<button type="button" class="primary" data-key="h" onClick=${release}>Release</button>`)}
      ${canOperate && !isOver && html`<button type="button" class="danger" data-key="c" onClick=${cancel}>Cancel …</button>`}<//>
    ${run.cancelled !== null && html`<p class="reason">${isOver ? "Cancelled" : "Being cancelled"}: ${run.cancelled}</p>`}
    ${run.place && html`<p class="reason">Queued: <a href=${to("runs", { filter: `workflow:${quote(run.workflow)} status:running${run.tenant && ` tenant:${quote(run.tenant)}`}` })}>${run.place.active} of ${run.place.most} runs are active</a>${run.place.ahead > 0 && `, ${count(run.place.ahead)} wait before it`}.</p>`}
    ${run.held !== null && html`<p class="reason">Held: ${run.held}. Running jobs end, and no step starts.</p>`}
    ${run.error && html`<p class="failure">${run.error}</p>`}
    <${Segments} of=${parts} />${parts.length > 0 && html`<p class="legend" aria-hidden="true">${parts.map(([name, many, color]) => html`<span key=${name}><span class=${`c-${color}`}>■</span> ${many} ${name}</span>`)}</p>`}
    ${open.map((step) => html`<${Answer} key=${step.step} id=${run.run_id} step=${step} reload=${reload} />`)}
    <div ref=${place}><div class="two">${boxes.length > MOST_BOXES ? html`<p class="dim">${count(boxes.length)} steps are too many for a graph.</p>` : boxes.length > 1 && html`<${Section} title="Graph"><${Graph} boxes=${boxes} label="Graph" /><//>`}
    ${isOver || steps.some((step) => step.started) ? html`<${Section} title="Timeline"><${Times} id=${run.run_id} turn=${steps} /><//>` : null}</div>
    <${Steps} steps=${steps} redrive=${canOperate && isOver ? redrive : null} />
    ${steps.filter((step) => step.total !== null).map((step) => html`<${Children} key=${step.step} id=${run.run_id} step=${step} />`)}
    ${may("logs.read") && html`<${Log} run=${run} steps=${steps} />`}</div>
    <div class="two"><${Section} title="Details"><${Facts} of=${[
        ["Workflow", run.workflow && html`<a href=${to(["workflows", run.workflow])}>${run.workflow}</a>`], ["Version", html`<${Hash} of=${run.version} />`], ["Tenant", run.tenant],
        ["Started", html`<${When} at=${run.started} exact />`], ["Got a place", run.begun && html`<${When} at=${run.begun} exact />`], ["Ended", run.ended && html`<${When} at=${run.ended} exact />`], ["Ran", span(ran(run))],
        ["Scheduled for", run.scheduled_for], ["Started by", starterOf(run)], ["Redrives", run.generation || ""],
        ["Labels", Object.entries(run.labels).map(([name, value]) => `${name}: ${value}`).join(", ")], ["Id", run.run_id],
      ]} /><//>
      <div>${run.params !== null && html`<${Section} title="Parameters"><${Code} label="Parameters" text=${pretty(run.params)} /><//>`}
      ${run.value_problem && html`<${Section} title="Value"><p class="reason">The value is unavailable: ${run.value_problem.detail}</p><//>`}
      ${run.value !== null && html`<${Section} title="Value"><${Code} label="Value" text=${pretty(run.value)} /><//>`}</div></div>
    ${isHolding && html`<${HoldRun} run=${run} close=${() => setHolding(false)} reload=${reload} />`}
    ${isCloning && html`<${Dialog} title="Clone the run" close=${() => setCloning(false)}><p>Starts a run of the same content.</p>
      <${ValueForm} schema=${{ type: "object", properties: params }} initial=${run.params ?? {}} verb="Start" act=${clone} none="The run has no parameters." /><//>`}
    ${asked && html`<${Confirm} ...${asked} close=${() => ask(null)}><p>${asked.text}</p><//>`}`;
}

export default function Run({ rest, query: { step: chosen = "" } }) {
  const [id] = rest;
  const run = useData(`runs/${part(id)}`);
  const graph = useData(`runs/${part(id)}/graph`);
  const reload = () => { run.reload(); graph.reload(); };
  const isOpen = run.data?.ended === null;
  useEvery(isOpen ? EVERY : 0, () => { run.refresh(); graph.refresh(); });
  if (run.error instanceof ApiError && run.error.status === 404) {
    return html`<${Head} title=${id} /><${Empty} title="Run not found"><p>It was never started, its retention has expired, or it belongs to another tenant.</p><p><a href=${to("runs")}>All runs</a></p><//>`;
  }
  return html`<${Loading} loaded=${run} title=${id}>${(/** @type {any} */ found) => html`<${Loading} loaded=${graph} title=${id}>${(/** @type {any} */ { steps, params }) => html`<${Details} key=${id} run=${found} steps=${steps} params=${params} chosen=${chosen} reload=${reload} />`}<//>`}<//>`;
}
