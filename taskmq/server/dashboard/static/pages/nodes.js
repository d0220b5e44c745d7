// @ts-check
/** Host nodes: what each has, what of it is taken, and by whom. */
import { call, may, part, send } from "../lib/api.js";
import { amount, amounts } from "../lib/format.js";
import { useData } from "../lib/data.js";
import { html, useState } from "../lib/html.js";
import { Action, Code, Confirm, Empty, Facts, Head, notify, Section, Shown, Table, When } from "../lib/parts.js";
import { go, to } from "../lib/route.js";

const KINDS = /** @type {any} */ ({ __proto__: null, available: ["s-succeeded", "✓"], busy: ["s-running", "▶"], draining: ["s-held", "‖"], lost: ["s-failed", "✗"] });
// Other programs on the nodes have names of their own.
const RESOURCES = "../../resources";

const Status = ({ status }) => html`<span class=${`state ${KINDS[status]?.[0] ?? ""}`}><span aria-hidden="true">${KINDS[status]?.[1] ?? "•"}</span> ${status}</span>`;

/** What is taken of each resource. */
const Taken = ({ node }) => html`<dl class="taken">${Object.keys({ ...node.capacity, ...node.used }).map((name) => {
  const all = node.capacity[name] ?? 0, used = node.used[name] ?? 0;
  const words = `${amount(name, used)} of ${amount(name, all)}`;
  return html`<div key=${name}><dt>${name}</dt><dd><progress max=${all || 1} value=${Math.min(used, all || 1)} aria-label=${`${name} taken at ${node.name}: ${words}`}></progress> ${words}</dd></div>`;
})}</dl>`;

const labels = (/** @type {any} */ node) => Object.entries(node.labels).map(([name, value]) => `${name}=${value}`).join(", ");

function Actions({ node, reload, single = false }) {
  const [open, show] = useState("");
  if (!may("nodes.operate")) return null;
  const where = `nodes/${part(node.name)}`;
  const close = () => show("");
  const drain = async () => { await send(`${where}/drain`); notify(`Nothing more is placed on ${node.name}.`); reload(); };
  const resume = async () => { await send(`${where}/resume`); notify(`${node.name} takes jobs again.`); reload(); };
  return html`${node.status === "draining" ? html`<${Action} act=${resume} mark="p" title="p">Resume<//>` : html`<button type="button" data-key="p" title="p" onClick=${() => show("drain")}>Drain</button>`}
    ${single && html`<button type="button" class="danger" onClick=${() => show("remove")}>Remove</button>`}
    ${open === "drain" && html`<${Confirm} title=${`Drain ${node.name}`} verb="Drain it" close=${close} act=${drain}><p>Nothing more is placed there until it is resumed; what runs goes on.</p><//>`}
    ${open === "remove" && html`<${Confirm} title=${`Remove ${node.name}`} verb="Remove it" typed=${node.name} close=${close} act=${async () => { await call("DELETE", where); go("nodes"); }}><p>It is forgotten, and its allocations end. A node whose workers run comes back.</p><//>`}`;
}

function Allocations({ name, cursor }) {
  const loaded = useData(`${RESOURCES}/usage`, { node_id: name, is_open: true, limit: 50, ...(cursor ? { cursor } : {}) }, ["job"], 5000);
  const release = async (/** @type {string} */ allocation_id) => { await send(`${RESOURCES}/release`, { allocation_id }); notify("Released."); loaded.reload(); };
  const mayRelease = may("resources.allocate");
  return html`<${Section} title="Allocations"><${Shown} loaded=${loaded}>${(/** @type {any} */ { items, next }) => html`
    ${items.length ? html`<${Table} label="Allocations" columns=${["For", "Tenant", "Takes", "Since", "Ends", ""]}>${items.map((/** @type {any} */ one) => html`<tr key=${one.allocation_id} data-row>
        <td>${one.task ? html`<a href=${to(["jobs", one.job_id])}>${one.task}</a>` : one.job_id || "–"}</td><td>${one.tenant || "–"}</td><td>${amounts(one.amounts)}</td>
        <td><${When} at=${one.start_time} /></td><td>${one.expires_at ? html`<${When} at=${one.expires_at} />` : one.task ? "with the job" : "by hand"}</td>
        <td>${mayRelease && !one.task && html`<${Action} act=${() => release(one.allocation_id)}>Release<//>`}</td></tr>`)}<//>` : html`<p class="dim">Nothing is taken${cursor ? " beyond these" : ""}.</p>`}
    <div class="bar">${cursor && html`<a href=${to(["nodes", name])}>First page</a>`}${next && html`<a href=${to(["nodes", name], { cursor: next })}>Next page</a>`}</div>`}<//><//>`;
}

function Node({ name, cursor }) {
  const loaded = useData(`nodes/${part(name)}`, {}, ["worker", "job"], 5000);
  return html`<${Shown} loaded=${loaded} title=${name}>${(/** @type {any} */ node) => html`
    <${Head} title=${node.name} sub=${html`<${Status} status=${node.status} /> ${node.runs_jobs ? "Its workers take jobs that are placed there." : "No worker tells of it: it is kept by calls of the API."}`}><${Actions} node=${node} reload=${loaded.reload} single /><//>
    <div class="two">
      <${Section} title="What is taken"><${Taken} node=${node} /><//>
      <${Section} title="Facts"><${Facts} of=${[["Labels", labels(node)], ["Address", node.ip_address], ["Version", node.version], ["Heartbeat", html`<${When} at=${node.heartbeat_at} />`], ["Known since", html`<${When} at=${node.registered_at} exact />`], ["Id", node.node_id]]} /><//>
    </div>
    ${may("pools.read") && html`<${Allocations} name=${name} cursor=${cursor} />`}`}<//>`;
}

function List() {
  const loaded = useData("nodes", {}, ["worker", "job"], 5000);
  const open = loaded.data?.items.filter((/** @type {any} */ one) => one.status === "available" || one.status === "busy").length;
  return html`<${Head} title="Nodes" sub=${loaded.data?.items.length ? `${open} of ${loaded.data.items.length} take jobs` : ""} />
    <${Shown} loaded=${loaded}>${(/** @type {any} */ { items }) => items.length
      ? html`<${Table} label="Nodes" columns=${["Node", "State", "Taken", "Labels", "Heartbeat", ""]}>${items.map((/** @type {any} */ node) => html`<tr key=${node.name} data-row>
          <td><a href=${to(["nodes", node.name])}>${node.name}</a></td><td><${Status} status=${node.status} /></td><td class="wide"><${Taken} node=${node} /></td><td>${labels(node) || "–"}</td>
          <td><${When} at=${node.heartbeat_at} /></td><td><div class="actions"><${Actions} node=${node} reload=${loaded.reload} /></div></td></tr>`)}<//>`
      : html`<${Empty} title="No node has told of itself"><p>A worker tells of its machine where it is told to:</p><${Code} label="Command" text="taskmq worker MODULE:APP --node gpu-1 --node-labels region=eu" /><//>`}<//>`;
}

export default function Nodes({ rest, query }) {
  return rest.length ? html`<${Node} name=${rest[0]} cursor=${query.cursor ?? ""} />` : html`<${List} />`;
}
