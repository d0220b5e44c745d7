// @ts-check
/** Dead letters, grouped by failure. */
import { may, part, send, session } from "../lib/api.js";
import { useData } from "../lib/data.js";
import { count } from "../lib/format.js";
import { html, useState } from "../lib/html.js";
import { JobLink } from "../lib/job_link.js";
import { Code, Confirm, Empty, Head, notify, Section, Loading, Table, When } from "../lib/parts.js";
import { change, to } from "../lib/route.js";

/** The selected tenant, for texts about letters. */
const tenantNote = () => (session.tenant ? ` of tenant ${session.tenant}` : "");

/** @param {{queue: string, group: any, close: () => void, reload: () => void}} props */
function Replay({ queue, group, close, reload }) {
  const act = async () => {
    const done = await send(`dead-letters/${part(queue)}/replay`, group ? { fingerprint: group.fingerprint } : {});
    notify(`${count(done.replayed)} replayed${done.too_often + done.no_destination ? `, ${count(done.too_often + done.no_destination)} not replayed` : ""}.`);
    reload();
  };
  return html`<${Confirm} title="Replay" verb="Replay" typed=${group ? "" : queue} close=${close} act=${act}>
    <p>${group ? `${count(group.count)} letters${tenantNote()} of ${group.task}: ${group.error_type}` : `Up to 1,000 letters${tenantNote()} in ${queue}, for all failures`}</p><//>`;
}

/** @param {{queue: string, group: any, close: () => void, reload: () => void}} props */
function Purge({ queue, group, close, reload }) {
  const act = async () => {
    const { purged } = await send(`dead-letters/${part(queue)}/purge`, { name: queue, ...(group ? { fingerprint: group.fingerprint } : {}) });
    notify(`${count(purged)} letters deleted.`);
    reload();
  };
  return html`<${Confirm} title="Delete letters" verb="Delete permanently" typed=${queue} close=${close} act=${act}><p>${group ? `${count(group.count)} letters${tenantNote()} of ${group.task}: ${group.error_type}` : `All letters${tenantNote()} in ${queue}`}. This cannot be undone.</p><//>`;
}

function Letters({ queue, fingerprint }) {
  return html`<${Section} title="Letters" actions=${html`<button type="button" onClick=${() => change({ fingerprint: "" })}>Close</button>`}>
    <${Loading} loaded=${useData(`dead-letters/${part(queue)}`, { fingerprint, limit: 50 }, [])}>${({ items }) => items.map((/** @type {any} */ one, /** @type {number} */ at) => html`<div key=${at}>
      <p><${JobLink} name=${one.job_id} queue=${queue} />${one.tenant && ` · tenant ${one.tenant}`} · attempt ${one.attempt} · <${When} at=${one.died} /> at ${one.worker || "a worker"}</p>
      <details><summary>Traceback<span class="sr"> of ${one.job_id}</span></summary><${Code} label=${`Traceback ${at + 1}`} text=${one.traceback || one.error} /></details></div>`)}<//><//>`;
}

function Groups({ queue, fingerprint }) {
  const loaded = useData(`dead-letters/${part(queue)}/groups`, {}, []);
  const [open, show] = useState(/** @type {{what: string, group: any} | null} */ (null));
  const close = () => show(null);
  return html`<${Head} of=${loaded} title=${queue} sub="Dead letters by failure">
      <a href=${to("dead-letters")}>All queues</a>
      ${may("dead_letters.replay") && html`<button type="button" onClick=${() => show({ what: "replay", group: null })}>Replay all</button>`}
      ${may("dead_letters.purge") && html`<button type="button" class="danger" onClick=${() => show({ what: "purge", group: null })}>Delete all</button>`}<//>
    <${Loading} loaded=${loaded}>${(/** @type {any} */ { items }) => items.length
      ? html`<${Table} label="Failures" columns=${["Failure", "Task", "Tenants", ["Letters", "number"], ["Jobs", "number"], "First", "Last", ""]}>${items.map((/** @type {any} */ group) => html`<tr key=${group.fingerprint} data-row>
          <td class="wide"><a href=${to(["dead-letters", queue], { fingerprint: group.fingerprint })}>${group.error_type || group.reason}</a> <span class="dim">${group.error.slice(0, 200)}</span></td>
          <td>${group.task}</td><td>${group.tenants.filter(Boolean).join(", ")}</td><td class="number">${count(group.count)}</td><td class="number">${count(group.jobs)}</td><td><${When} at=${group.first} /></td><td><${When} at=${group.last} /></td>
          <td><div class="actions">${may("dead_letters.replay") && html`<button type="button" data-key="r" onClick=${() => show({ what: "replay", group })}>Replay</button>`}
            ${may("dead_letters.purge") && html`<button type="button" class="danger" onClick=${() => show({ what: "purge", group })}>Delete</button>`}</div></td></tr>`)}<//>`
      : html`<${Empty} title="No dead letters in this queue" />`}<//>
    ${fingerprint && html`<${Letters} key=${fingerprint} queue=${queue} fingerprint=${fingerprint} />`}
    ${open?.what === "replay" && html`<${Replay} queue=${queue} group=${open.group} close=${close} reload=${loaded.reload} />`}
    ${open?.what === "purge" && html`<${Purge} queue=${queue} group=${open.group} close=${close} reload=${loaded.reload} />`}`;
}

export default function DeadLetters({ rest, query }) {
  if (rest.length) return html`<${Groups} queue=${rest[0]} fingerprint=${query.fingerprint ?? ""} />`;
  return html`<${Queues} />`;
}

function Queues() {
  const loaded = useData("dead-letters", {}, ["job"]);
  return html`<${Head} of=${loaded} title="Dead letters" /><${Loading} loaded=${loaded}>${(/** @type {any} */ { items }) => items.length
    ? html`<${Table} label="Queues with dead letters" columns=${["Queue"]}>${items.map((/** @type {string} */ name) => html`<tr key=${name} data-row><td><a href=${to(["dead-letters", name])}>${name}</a></td></tr>`)}<//>`
    : html`<${Empty} title="No queue has dead letters"><p>Failed stored jobs are listed under <a href=${to("jobs", { filter: "status:failed" })}>Jobs</a>.</p><//>`}<//>`;
}
