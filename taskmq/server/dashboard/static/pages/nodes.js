// @ts-check
/** Host nodes: capacity, usage and allocations. */
import { call, may, part, send } from "../lib/api.js";
import { amount, amounts, count, size } from "../lib/format.js";
import { useData } from "../lib/data.js";
import { html, useState } from "../lib/html.js";
import { Action, Code, Confirm, Empty, Facts, Head, notify, Section, State, Loading, Table, When, Pager } from "../lib/parts.js";
import { go, to } from "../lib/route.js";

const KINDS = /** @type {any} */ ({ __proto__: null, available: "succeeded", busy: "running", draining: "held", lost: "failed" });
// Allocations have their original paths outside the API prefix.
const RESOURCES = "../../resources";

const Status = ({ status }) => html`<${State} state=${status} kind=${KINDS[status]} />`;

/** The allocated part of each resource. */
const Usage = ({ node }) => html`<dl class="taken">${Object.keys({ ...node.capacity, ...node.used }).map((name) => {
  const all = node.capacity[name] ?? 0, used = node.used[name] ?? 0;
  const words = `${amount(name, used)} of ${amount(name, all)}`;
  return html`<div key=${name}><dt>${name}</dt><dd><progress max=${all || 1} value=${Math.min(used, all || 1)} aria-label=${`${name} used on ${node.name}: ${words}`}></progress> ${words}</dd></div>`;
})}</dl>`;

const MOST = 8;
const cores = (/** @type {number} */ value) => String(Math.round(value * 100) / 100);
const labels = (/** @type {any} */ node) => Object.entries(node.labels).map(([name, value]) => `${name}=${value}`).join(", ");

function Actions({ node, reload, single = false }) {
  const [open, show] = useState("");
  // The scheduler places no jobs on hosts whose workers offer no resources.
  if (!may("nodes.operate") || !node.epoch) return null;
  const where = `nodes/${part(node.name)}`;
  const close = () => show("");
  const drain = async () => { await send(`${where}/drain`); notify(`${node.name} accepts no more jobs.`); reload(); };
  const resume = async () => { await send(`${where}/resume`); notify(`${node.name} accepts jobs again.`); reload(); };
  return html`${node.status === "draining" ? html`<${Action} act=${resume} mark="p" title="p">Resume<//>` : html`<button type="button" data-key="p" title="p" onClick=${() => show("drain")}>Drain</button>`}
    ${single && html`<button type="button" class="danger" onClick=${() => show("remove")}>Remove</button>`}
    ${open === "drain" && html`<${Confirm} title=${`Drain ${node.name}`} verb="Drain" close=${close} act=${drain}><p>No more jobs are placed on it until it is resumed. Running jobs continue.</p><//>`}
    ${open === "remove" && html`<${Confirm} title=${`Remove ${node.name}`} verb="Remove" typed=${node.name} close=${close} act=${async () => { await call("DELETE", where); go("nodes"); }}><p>Its allocations are released. A node with running workers registers again.</p><//>`}`;
}

function Allocations({ name, cursor }) {
  const loaded = useData(`${RESOURCES}/usage`, { node_id: name, is_open: true, limit: 50, ...(cursor ? { cursor } : {}) }, ["job"], 5000);
  const release = async (/** @type {string} */ allocation_id) => { await send(`${RESOURCES}/release`, { allocation_id }); notify("Released."); loaded.reload(); };
  const mayRelease = may("resources.allocate");
  return html`<${Section} title="Allocations"><${Loading} loaded=${loaded}>${(/** @type {any} */ { items, next }) => html`
    <${Table} none=${`No ${cursor ? "more " : ""}allocations.`} label="Allocations" columns=${["Job", "Tenant", "Resources", "Since", "Expires", ""]}>${items.map((/** @type {any} */ one) => html`<tr key=${one.allocation_id} data-row>
        <td>${one.task ? html`<a href=${to(["jobs", one.job_id])}>${one.task}</a>` : one.job_id || "–"}</td><td>${one.tenant || "–"}</td><td>${amounts(one.amounts)}</td>
        <td><${When} at=${one.start_time} /></td><td>${one.expires_at ? html`<${When} at=${one.expires_at} />` : one.task ? "with the job" : "when released"}</td>
        <td>${mayRelease && !one.task && html`<${Action} act=${() => release(one.allocation_id)}>Release<//>`}</td></tr>`)}<//>
    <${Pager} next=${next} />`}<//><//>`;
}

function Node({ name, cursor }) {
  const loaded = useData(`nodes/${part(name)}`, {}, ["worker", "job"], 5000);
  return html`<${Loading} loaded=${loaded} title=${name}>${(/** @type {any} */ node) => html`
    <${Head} of=${loaded} title=${node.name} sub=${html`<${Status} status=${node.status} /> ${node.runs_jobs ? "Workers run the jobs placed on it." : node.epoch ? "Reported through the API, not by a worker." : "Its workers offer no resources."}`}><${Actions} node=${node} reload=${loaded.reload} single /><//>
    <div class="two">
      <${Section} title="Allocated">${node.epoch ? html`<${Usage} node=${node} />` : html`<p class="dim">No resources.</p>`}<//>
      <${Section} title="Details"><${Facts} of=${[["Workers", node.workers.join(", ")], ["Queues", node.queues.join(", ")], ["Slots", `${node.running} of ${node.slots}`], ["Used cores", cores(node.cpu)], ["Used memory", size(node.memory)], ["Labels", labels(node)], ["Address", node.ip_address], ["App version", node.app_versions.join(", ") || "–"], ["taskmq", node.version], ["Heartbeat", html`<${When} at=${node.heartbeat_at} />`], ["Registered", html`<${When} at=${node.registered_at} exact />`], ["Id", node.node_id]]} /><//>
    </div>
    ${may("pools.read") && html`<${Allocations} name=${name} cursor=${cursor} />`}`}<//>`;
}

/** The nodes that use most of their slots, processors or memory at the moment.
 * @param {{title: string, nodes: any[], used: (node: any) => number, all: (node: any) => number, show: (value: number) => string}} props all: 0 if it is unknown */
function Use({ title, nodes, used, all, show }) {
  const share = (/** @type {any} */ node) => (all(node) ? used(node) / all(node) : 0);
  return html`<${Section} title=${title}><div class="spans">${[...nodes].sort((a, b) => share(b) - share(a) || used(b) - used(a)).slice(0, MOST).map((node) => {
    const words = `${show(used(node))}${all(node) ? ` of ${show(all(node))}` : ""}`;
    return html`<div key=${node.name}><span title=${node.name}><a href=${to(["nodes", node.name])}>${node.name}</a></span><svg class="segments" role="img" aria-label=${`${title} of ${node.name}: ${words}`}>${all(node) > 0 && html`<rect class="rest" width="100%" height="8" rx="2" /><rect class="c-run" width=${`${Math.min(100, 100 * share(node))}%`} height="8" />`}</svg><span class="number">${words}</span></div>`;
  })}</div><//>`;
}

/** The use of each node with workers. @param {{nodes: any[]}} props */
const Uses = ({ nodes }) => nodes.length > 0 && html`<div class="six">
  <${Use} title="Busy slots" nodes=${nodes} used=${(/** @type {any} */ one) => one.running} all=${(/** @type {any} */ one) => one.slots} show=${count} />
  <${Use} title="Used cores" nodes=${nodes} used=${(/** @type {any} */ one) => one.cpu} all=${(/** @type {any} */ one) => one.capacity.cpu ?? 0} show=${cores} />
  <${Use} title="Used memory" nodes=${nodes} used=${(/** @type {any} */ one) => one.memory} all=${(/** @type {any} */ one) => one.capacity.memory ?? 0} show=${size} /></div>`;

function List() {
  const loaded = useData("nodes", { max_age: 2 }, ["worker", "job"], 5000);
  const open = loaded.data?.items.filter((/** @type {any} */ one) => one.status === "available" || one.status === "busy").length;
  return html`<${Head} of=${loaded} title="Nodes" sub=${loaded.data?.items.length ? `${open} of ${loaded.data.items.length} accept jobs` : ""} />
    <${Loading} loaded=${loaded}>${(/** @type {any} */ { items }) => items.length
      ? html`<${Uses} nodes=${items.filter((/** @type {any} */ one) => one.slots)} /><${Table} label="Nodes" columns=${["Node", "State", "Queues", "Slots", "Allocated", "Labels", "Heartbeat", ""]}>${items.map((/** @type {any} */ node) => html`<tr key=${node.name} data-row>
          <td><a href=${to(["nodes", node.name])}>${node.name}</a></td><td><${Status} status=${node.status} /></td><td>${node.queues.join(", ") || "–"}</td><td>${node.running} of ${node.slots}</td><td class="wide"><${Usage} node=${node} /></td><td>${labels(node) || "–"}</td>
          <td><${When} at=${node.heartbeat_at} /></td><td><div class="actions"><${Actions} node=${node} reload=${loaded.reload} /></div></td></tr>`)}<//>`
      : html`<${Empty} title="No nodes"><p>Start a worker that registers its machine as a node:</p><${Code} label="Command" text="taskmq worker MODULE:APP --node gpu-1 --node-labels region=eu" /><//>`}<//>`;
}

export default function Nodes({ rest, query }) {
  return rest.length ? html`<${Node} name=${rest[0]} cursor=${query.cursor ?? ""} />` : html`<${List} />`;
}
