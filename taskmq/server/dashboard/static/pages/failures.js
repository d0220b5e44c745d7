// @ts-check
/** Failures in all lanes. */
import { may, part, send } from "../lib/api.js";
import { useData } from "../lib/data.js";
import { ago, count, instant, plural, span } from "../lib/format.js";
import { html, useEffect, useState } from "../lib/html.js";
import { Action, Empty, Head, Id, notify, Loading, Section, Table, When } from "../lib/parts.js";
import { change, to } from "../lib/route.js";

// The most that the API returns at once.
const MOST = 200;
const LANES = { "": "All lanes", store: "Store", broker: "Broker", workflow: "Workflows" };
const SPANS = { "12h": "12 hours", "24h": "24 hours", "7d": "7 days", all: "any time" };
const HOURS = /** @type {Record<string, number>} */ ({ "12h": 12, "24h": 24, "7d": 168 });

/** Return the start of the period in whole minutes, so that responses can be shared.
 * @param {string} time */
function since(time) {
  if (!HOURS[time]) return "";
  const begin = new Date(Date.now() - HOURS[time] * 3_600_000);
  begin.setSeconds(0, 0);
  return begin.toISOString();
}

/** Return the address of the failed job or run.
 * @param {any} one */
function address(one) {
  if (one.lane === "workflow") return to(["runs", one.job_id]);
  return one.lane === "store" ? to(["jobs", one.job_id]) : to(["failures", one.job_id], { queue: one.letter ?? one.queue });
}

/** The action that runs a failed job again, or its outcome.
 * @param {{one: any, reload: () => void}} props */
function Remedy({ one, reload }) {
  // Dead letters are cached for some seconds; show the user's own action at once.
  const [isDone, setDone] = useState(false);
  const done = (/** @type {string} */ text) => { notify(text); setDone(true); reload(); };
  if (isDone) return html`<span class="dim">retried</span>`;
  if (one.retried_as) return html`<a href=${to(["jobs", one.retried_as])}>Retried<span class="sr"> ${one.job_id}</span></a>`;
  const name = html`<span class="sr"> ${one.job_id}</span>`;
  if (one.remedy === "retry" && may("jobs.change")) return html`<${Action} mark="r" act=${async () => { await send(`jobs/${part(one.job_id)}/retry`); done("Retried."); }}>Retry${name}<//>`;
  if (one.remedy === "replay" && may("dead_letters.replay")) {
    const act = async () => {
      const { replayed } = await send(`dead-letters/${part(one.letter)}/replay`, { job: one.job_id });
      if (replayed) done("Replayed.");
      else notify("Not replayed: it was replayed too often, or its queue no longer exists.", true);
    };
    return html`<${Action} mark="r" act=${act}>Replay${name}<//>`;
  }
  if (one.remedy === "redrive" && may("workflows.operate")) return html`<${Action} mark="r" act=${async () => { await send(`runs/${part(one.job_id)}/redrive`); done("Failed steps run again."); }}>Redrive${name}<//>`;
  return one.is_handled ? html`<span class="dim">replayed or deleted</span>` : null;
}

/** Remove the module from the type of an error.
 * @param {string} text */
const withoutModule = (text) => text.replace(/^(?:\w+\.)+(?=\w)/, "");

const BARS = 24;
const MOST_GROUPS = 8;

/** @typedef {{error: string, task: string, many: number, first: number, last: number, sample: string, bars: number[]}} Group */

/** Group failures by error and task, the largest group first; the bars divide the time from the first to the last one.
 * @param {any[]} items newest first @param {number} begin @param {number} end milliseconds since the epoch @returns {Group[]} */
export function groupsOf(items, begin, end) {
  /** @type {Map<string, Group>} */
  const found = new Map();
  for (const one of items) {
    const at = Date.parse(one.at);
    const key = `${one.error || one.reason} ${one.task}`;
    const group = found.get(key) ?? { error: one.error, task: one.task, many: 0, first: at, last: at, sample: one.message || one.summary || one.reason, bars: Array(BARS).fill(0) };
    found.set(key, group);
    group.many += 1;
    group.first = at;
    group.bars[Math.max(0, Math.min(BARS - 1, Math.floor((BARS * (at - begin)) / Math.max(1, end - begin))))] += 1;
  }
  return [...found.values()].sort((a, b) => b.many - a.many);
}

/** A trend as bars. @param {{of: number[], label: string}} props */
const Bars = ({ of, label }) => html`<svg class="trend c-bad" role="img" aria-label=${label} viewBox=${`0 0 ${BARS * 4} 20`}><title>${label}</title>${of.map((one, at) => one > 0 && html`<rect key=${at} x=${at * 4} y=${20 - Math.max(2, (20 * one) / Math.max(...of))} width="3" height=${Math.max(2, (20 * one) / Math.max(...of))} />`)}</svg>`;

/** Show which errors there are, from the newest failures.
 * @param {{asked: Record<string, unknown>, linked: Record<string, string>}} props */
function Groups({ asked, linked }) {
  const { data } = useData("failures", { ...asked, limit: MOST, max_age: 15 }, ["job"], 15_000);
  if (!data?.items.length) return null;
  const begin = Date.parse(/** @type {string} */ (data.next || !asked.since ? data.items[data.items.length - 1].at : asked.since));
  const groups = groupsOf(data.items, begin, Date.now());
  const sub = html`<span class="dim">${data.next ? `the newest ${data.items.length} failures` : plural(data.items.length, "failure")}, since ${instant(new Date(begin).toISOString())}</span>`;
  return html`<${Section} title="By error" actions=${sub}><${Table} label="Failures by error" columns=${["Error", "Task", "Example", "Trend", ["Failures", "number"], ["Last", "number"]]}>${groups.slice(0, MOST_GROUPS).map((one) => html`<tr key=${`${one.error} ${one.task}`} data-row>
    <td>${one.error ? html`<a href=${to("failures", { ...linked, error: one.error, task: one.task })}>${withoutModule(one.error)}</a>` : "No error"}</td><td>${one.task}</td><td class="wide"><span class="dim">${one.sample}</span></td>
    <td><${Bars} of=${one.bars} label=${`${plural(one.many, "failure")}, the first ${ago(new Date(one.first).toISOString())}`} /></td><td class="number">${count(one.many)}</td><td class="number"><${When} at=${new Date(one.last).toISOString()} /></td></tr>`)}<//>
    ${groups.length > MOST_GROUPS && html`<p class="dim">${count(groups.length - MOST_GROUPS)} more.</p>`}<//>`;
}

const Choice = ({ label, name, of, value }) => html`<label>${label} <select value=${value} onChange=${(/** @type {any} */ e) => change({ [name]: e.target.value, cursor: "" })}>
  ${Object.entries(of).map(([key, text]) => html`<option key=${key} value=${key}>${text}</option>`)}</select></label>`;

export default function Failures({ query }) {
  const { task = "", queue = "", error = "", lane = "", time = "24h", cursor = "" } = query;
  const [name, setName] = useState(task);
  useEffect(() => setName(task), [task]);
  const submit = (/** @type {Event} */ event) => { event.preventDefault(); change({ task: name.trim(), cursor: "" }); };
  const asked = { task, queue, error, lane, since: since(time) };
  const loaded = useData("failures", { ...asked, cursor, limit: 50, max_age: 5 });
  return html`<${Head} of=${loaded} title="Failures" sub="Stored jobs, sent jobs and workflows" />
    <div class="bar"><form role="search" onSubmit=${submit}><label class="sr" for="task">Task</label><input id="task" data-filter value=${name} placeholder="task name" autoComplete="off" onInput=${(/** @type {any} */ e) => setName(e.target.value)} /><button type="submit">Show</button></form>
      <${Choice} label="Lane" name="lane" of=${LANES} value=${lane} /><${Choice} label="Last" name="time" of=${SPANS} value=${time} />
      ${(task || queue || error) && html`<a href=${to("failures", { lane, time })}>Clear filters</a>`}</div>
    ${!cursor && html`<${Groups} asked=${asked} linked=${{ lane, time, queue }} />`}
    <${Loading} loaded=${loaded}>${(/** @type {any} */ { items, next, missing }) => html`
      ${missing.map((/** @type {any} */ gap) => html`<p key=${gap.source} role="note">Some failures may be missing (${gap.source}): ${gap.why}</p>`)}
      ${items.length ? html`<${Table} label="Failures" columns=${["When", "Job", "Task", "Error", "Tenant", "Queue", ["Attempt", "number"], ["Run time", "number"], ""]}>${items.map((/** @type {any} */ one) => html`<tr key=${`${one.lane} ${one.job_id} ${one.at}`} data-row>
          <td><${When} at=${one.at} /></td><td><a href=${address(one)}><${Id} id=${one.job_id} /></a> <span class="dim">${one.lane === "workflow" ? "workflow" : one.event}</span></td>
          <td>${one.task ? html`<a href=${to("failures", { task: one.task, error, lane, time })}>${one.task}</a>` : one.name}</td>
          <td class="wide">${one.error ? html`<a href=${to("failures", { task, error: one.error, lane, time })}>${withoutModule(one.summary)}</a>` : one.summary || one.reason}</td>
          <td>${one.tenant}</td><td>${one.queue && html`<a href=${to("failures", { task, error, queue: one.queue, lane, time })}>${one.queue}</a>`}</td><td class="number">${one.attempt || ""}</td><td class="number">${span(one.seconds)}</td>
          <td><div class="actions"><${Remedy} one=${one} reload=${loaded.reload} /></div></td></tr>`)}<//>`
        : html`<${Empty} title="No failures"><p>No ${task || queue || error || lane ? "matching " : ""}failures${HOURS[time] ? ` in the last ${SPANS[/** @type {keyof typeof SPANS} */ (time)]}` : ""}.</p><//>`}
      <div class="bar">${cursor && html`<a href=${to("failures", { task, queue, error, lane, time })}>First page</a>`}${next && html`<a href=${to("failures", { task, queue, error, lane, time, cursor: next })}>Next page</a>`}</div>`}<//>`;
}
