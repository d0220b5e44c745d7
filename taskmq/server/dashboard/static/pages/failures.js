// @ts-check
/** Failures in all lanes, and their groups by task and error. */
import { may, part, send } from "../lib/api.js";
import { useData } from "../lib/data.js";
import { Search } from "../lib/filter.js";
import { ago, count, instant, plural, span } from "../lib/format.js";
import { html, useState } from "../lib/html.js";
import { Action, Confirm, Empty, Field, Head, Id, notify, Loading, Section, Select, Table, When, Pager } from "../lib/parts.js";
import { change, route, to } from "../lib/route.js";

const LANES = { "": "All lanes", store: "Store", broker: "Broker", workflow: "Workflows" };
const SPANS = { "12h": "12 hours", "24h": "24 hours", "7d": "7 days", all: "any time" };
const HOURS = /** @type {Record<string, number>} */ ({ "12h": 12, "24h": 24, "7d": 168, "30d": 720 });

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

const STATES = /** @type {Record<string, {title: string, none: string}>} */ ({
  open: { title: "Groups", none: "" },
  resolved: { title: "Resolved failures", none: "The next failure opens a resolved group again." },
  muted: { title: "Muted failures", none: "A muted group is not counted as open. Alerts still count its failures." },
});
const DURATIONS = { 86400: "1 day", 604800: "7 days", 2592000: "30 days", "": "No end" };
const MOST_GROUPS = 8;

/** A trend as bars. @param {{of: number[], label: string}} props */
const Bars = ({ of, label }) => html`<svg class="trend c-bad" role="img" aria-label=${label} viewBox=${`0 0 ${of.length * 4} 20`}><title>${label}</title>${of.map((one, at) => one > 0 && html`<rect key=${at} x=${at * 4} y=${20 - Math.max(2, (20 * one) / Math.max(...of))} width="3" height=${Math.max(2, (20 * one) / Math.max(...of))} />`)}</svg>`;

/** What distinguishes a group from the usual ones.
 * @param {any} one */
const tagOf = (one) => (one.is_back ? "back" : one.is_new ? "new" : one.before && one.failures > 2 * one.before ? "rising" : "");

/** Dialog that resolves or mutes a group.
 * @param {{group: any, verb: string, close: () => void, reload: () => void}} props */
function Mark({ group, verb, close, reload }) {
  const [seconds, setSeconds] = useState("604800");
  const act = async (/** @type {string} */ note) => {
    await send(`failures/groups/${part(group.id)}/${verb}`, { note, ...(verb === "mute" ? { seconds: Number(seconds) || null } : {}) });
    notify(verb === "mute" ? "Muted." : "Resolved.");
    reload();
  };
  return html`<${Confirm} title=${`${verb === "mute" ? "Mute" : "Resolve"} ${withoutModule(group.error)} in ${group.task}`} verb=${verb === "mute" ? "Mute" : "Resolve"} note close=${close} act=${act}><p>${STATES[verb === "mute" ? "muted" : "resolved"].none}</p>
    ${verb === "mute" && html`<${Field} label="Duration"><${Select} of=${Object.entries(DURATIONS)} value=${seconds} set=${setSeconds} /><//>`}<//>`;
}

/** The actions of a group. @param {{group: any, reload: () => void}} props */
function Actions({ group, reload }) {
  const [verb, show] = useState("");
  if (!may("failures.change")) return null;
  const name = html`<span class="sr"> ${group.error} in ${group.task}</span>`;
  return html`<div class="actions">${group.state === "open" ? ["resolve", "mute"].map((one) => html`<button key=${one} type="button" onClick=${() => show(one)}>${one === "mute" ? "Mute" : "Resolve"}${name}</button>`)
    : html`<${Action} act=${async () => { await send(`failures/groups/${part(group.id)}/reopen`, {}); notify("Open again."); reload(); }}>Reopen${name}<//>`}</div>
    ${verb && html`<${Mark} group=${group} verb=${verb} close=${() => show("")} reload=${reload} />`}`;
}

/** A table of groups. @param {{groups: any[], linked: Record<string, string>, reload: () => void, isMarked?: boolean}} props */
const Groups = ({ groups, linked, reload, isMarked = false }) => html`<${Table} label="Failures by error" columns=${["Error", "Task", ["Tenant", "p3"], ["Example", "p3"], ["Trend", "p2"], ["Failures", "number"], ["Before", "number p4"], ["Last", "number p2"], ...(isMarked ? [["Why", "p3"]] : []), ""]}>${groups.map((one) => html`<tr key=${one.id} data-row>
  <td><a title=${one.error} href=${to("failures", { ...linked, task: one.task, ...(/[A-Z.]/.test(one.error) ? { error: one.error } : {}) })}>${withoutModule(one.error)}</a>${tagOf(one) && html` <span class="badge">${tagOf(one)}</span>`}${one.first_version && html` <span class="dim">since ${one.first_version}</span>`}</td><td title=${one.task}>${one.task}</td><td class="p3">${one.tenant || "–"}</td><td class="wide p3" title=${one.message}><span class="dim">${one.message}</span></td>
  <td class="p2"><${Bars} of=${one.trend} label=${`${plural(one.failures, "failure")}, the first ${one.first ? ago(one.first) : "unknown"}`} /></td><td class="number">${count(one.failures)}</td><td class="number p4">${count(one.before)}</td><td class="number p2"><${When} at=${one.last} /></td>
  ${isMarked && html`<td class="wide p3" title=${one.note}>${[one.state === "muted" && one.until && `until ${instant(one.until)}`, one.marked_by, one.note].filter(Boolean).join(", ")}</td>`}<td><${Actions} group=${one} reload=${reload} /></td></tr>`)}<//>`;

/** The groups with the most failures above the list.
 * @param {{asked: Record<string, any>, linked: Record<string, string>}} props */
function Open({ asked, linked }) {
  const { data, reload } = useData("failures/groups", { state: "open", since: asked.since || since("30d"), max_age: 15 }, ["job"], 15_000);
  const groups = data?.items.filter((/** @type {any} */ one) => (!asked.task || one.task === asked.task) && (!asked.error || one.error === asked.error)) ?? [];
  if (!groups.length) return null;
  const sub = html`<span class="dim">${plural(groups.length, "open group")} since ${instant(data.since)}${data.is_complete ? "" : ", of the newest 10,000 failures"}</span>`;
  return html`<${Section} title="By error" actions=${sub}><${Groups} groups=${groups.slice(0, MOST_GROUPS)} linked=${linked} reload=${reload} />
    ${groups.length > MOST_GROUPS && html`<p class="dim">${count(groups.length - MOST_GROUPS)} more. Select a task to see its groups.</p>`}<//>`;
}

/** The groups in one other state. @param {{state: string}} props */
function Marked({ state }) {
  const loaded = useData("failures/groups", { state, since: since("30d"), max_age: 5 }, ["job"], 15_000);
  const { title, none } = STATES[state];
  return html`<${Head} of=${loaded} title=${title} sub="Failures of 30 days" /><${Loading} loaded=${loaded}>${(/** @type {any} */ { items }) => items.length
    ? html`<${Groups} groups=${items} linked=${{ time: "all" }} reload=${loaded.reload} isMarked />` : html`<${Empty} title=${`No ${title.toLowerCase()}`}><p>${none}</p><//>`}<//>`;
}

const Choice = ({ label, name, of, value }) => html`<label>${label} <${Select} of=${Object.entries(of)} value=${value} set=${(/** @type {string} */ key) => change({ [name]: key, cursor: "" })} /></label>`;

export default function Failures({ query }) {
  const [page] = route().path;
  return page === "failures" ? html`<${List} query=${query} />` : html`<${Marked} key=${page} state=${page} />`;
}

function List({ query }) {
  const { task = "", queue = "", error = "", lane = "", time = "24h", cursor = "" } = query;
  const asked = { task, queue, error, lane, since: since(time) };
  const loaded = useData("failures", { ...asked, cursor, limit: 50, max_age: 5 });
  return html`<${Head} of=${loaded} title="Failures" sub="Stored jobs, sent jobs and workflows" />
    <div class="bar"><${Search} name="task" label="Task" placeholder="task name" />
      <${Choice} label="Lane" name="lane" of=${LANES} value=${lane} /><${Choice} label="Last" name="time" of=${SPANS} value=${time} />
      ${(task || queue || error) && html`<a href=${to("failures", { lane, time })}>Clear filters</a>`}</div>
    ${!cursor && !queue && !lane && html`<${Open} asked=${asked} linked=${{ time }} />`}
    <${Loading} loaded=${loaded}>${(/** @type {any} */ { items, next, missing }) => html`
      ${missing.map((/** @type {any} */ gap) => html`<p key=${gap.source} role="note">Some failures may be missing (${gap.source}): ${gap.why}</p>`)}
      ${items.length ? html`<${Table} label="Failures" columns=${["When", "Job", "Task", "Error", "Tenant", "Queue", ["Attempt", "number"], ["Run time", "number"], ""]}>${items.map((/** @type {any} */ one) => html`<tr key=${`${one.lane} ${one.job_id} ${one.at}`} data-row>
          <td><${When} at=${one.at} /></td><td><a href=${address(one)}><${Id} id=${one.job_id} /></a> <span class="dim">${one.lane === "workflow" ? "workflow" : one.event}</span></td>
          <td>${one.task ? html`<a href=${to("failures", { task: one.task, error, lane, time })}>${one.task}</a>` : one.name}</td>
          <td class="wide">${one.error ? html`<a href=${to("failures", { task, error: one.error, lane, time })}>${withoutModule(one.summary)}</a>` : one.summary || one.reason}</td>
          <td>${one.tenant || "–"}</td><td>${one.queue && html`<a href=${to("failures", { task, error, queue: one.queue, lane, time })}>${one.queue}</a>`}</td><td class="number">${one.attempt || ""}</td><td class="number">${span(one.seconds)}</td>
          <td><div class="actions"><${Remedy} one=${one} reload=${loaded.reload} /></div></td></tr>`)}<//>`
        : html`<${Empty} title="No failures"><p>No ${task || queue || error || lane ? "matching " : ""}failures${HOURS[time] ? ` in the last ${SPANS[/** @type {keyof typeof SPANS} */ (time)]}` : ""}.</p><//>`}
      <${Pager} next=${next} />`}<//>`;
}
