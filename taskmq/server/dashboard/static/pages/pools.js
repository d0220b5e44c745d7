// @ts-check
/** Pools of tenants and scheduling policies of queues. */
import { call, may, part } from "../lib/api.js";
import { useData } from "../lib/data.js";
import { amounts, countText, quote, readAmounts } from "../lib/format.js";
import { html, useState } from "../lib/html.js";
import { Action, Code, Confirm, Empty, Field, Head, notify, Section, Select, Loading, Table, TextField } from "../lib/parts.js";
import { to } from "../lib/route.js";

// Each pool takes two requests.
const COUNTED = 40;
const POLICIES = ["fair", "weighted", "round_robin", "priority", "deadline", "fifo"];

/** @typedef {{pool: string, parent: string | null, weight: number, min: Record<string, number>, max: Record<string, number>}} Pool */

/** Return each pool's share of a weighted queue while all pools have jobs.
 * @param {Pool[]} pools @returns {Map<string, number>} */
export function shares(pools) {
  const found = new Map(), byName = new Map(pools.map((one) => [one.pool, one]));
  const weights = new Map();
  for (const one of pools) weights.set(one.parent, (weights.get(one.parent) ?? 0) + one.weight);
  const share = (/** @type {Pool} */ one) => {
    let part = 1;
    // Limited to the number of pools, because parents may be missing or form a cycle.
    for (let at = /** @type {Pool | undefined} */ (one), turn = 0; at && turn < pools.length; turn += 1) {
      part *= at.weight / weights.get(at.parent);
      at = at.parent === null ? undefined : byName.get(at.parent);
    }
    return part;
  };
  for (const one of pools) found.set(one.pool, share(one));
  return found;
}

/** Return the pools with their depth, each below its parent.
 * @param {Pool[]} pools @returns {{pool: Pool, depth: number}[]} */
function tree(pools) {
  const names = new Set(pools.map((one) => one.pool)), seen = new Set();
  const below = (/** @type {string | null} */ parent, /** @type {number} */ depth) => /** @type {{pool: Pool, depth: number}[]} */ (pools
    .filter((one) => (names.has(/** @type {string} */ (one.parent)) ? one.parent : null) === parent && !seen.has(one.pool))
    .flatMap((one) => { seen.add(one.pool); return [{ pool: one, depth }, ...below(one.pool, depth + 1)]; }));
  return below(null, 0);
}

const percent = (/** @type {number | undefined} */ part) => (part === undefined ? "–" : `${(part * 100).toFixed(1)} %`);

function JobCount({ name, states }) {
  const filter = `tenant:${quote(name)} status:${states}`;
  const { data, error } = useData("jobs/count", { filter }, ["job"], 10_000);
  return html`<a href=${to("jobs", { filter })}>${data ? countText(data) : error ? "?" : "…"}</a>`;
}

/** @param {{pool: Pool | null, pools: Pool[], close: () => void, reload: () => void}} props */
function Put({ pool, pools, close, reload }) {
  const [said, say] = useState({ name: pool?.pool ?? "", parent: pool?.parent ?? "", weight: String(pool?.weight ?? 1), min: amounts(pool?.min ?? {}), max: amounts(pool?.max ?? {}) });
  const set = (/** @type {string} */ field) => (/** @type {string} */ text) => say({ ...said, [field]: text });
  const others = pools.filter((one) => one.pool !== said.name);
  const now = shares(pools.filter((one) => one.pool !== "*"));
  const then = shares([...others, { pool: said.name, parent: said.parent || null, weight: Number(said.weight) || 1, min: {}, max: {} }].filter((one) => one.pool && one.pool !== "*"));
  const moved = [...then].filter(([name, part]) => Math.abs(part - (now.get(name) ?? 0)) > 1e-9).slice(0, 12);
  const act = async () => {
    const body = { parent: said.parent || null, weight: Number(said.weight), min: readAmounts(said.min), max: readAmounts(said.max) };
    await call("PUT", `pools/${part(said.name)}`, { body });
    notify("Pool saved. Schedulers apply it within two seconds.");
    reload();
  };
  return html`<${Confirm} title=${pool ? `Pool ${pool.pool}` : "Add a pool"} verb="Save" close=${close} act=${act}>
    <${TextField} label="Name" hint="The tenant whose jobs belong to it; * for each tenant without a pool." value=${said.name} required disabled=${pool !== null} set=${set("name")} />
    <${Field} label="Parent"><${Select} of=${[["", "the queue itself"], ...others.map((one) => one.pool).filter((one) => one !== "*")]} value=${said.parent} set=${set("parent")} /><//>
    <${TextField} label="Weight, relative to its siblings" type="number" step="any" min="0.000001" required value=${said.weight} set=${set("weight")} />
    <${TextField} label="Guaranteed" hint="Such as slots=2 gpu=1. Leave empty for nothing." value=${said.min} set=${set("min")} />
    <${TextField} label="Limit" hint="Such as slots=8; further jobs wait. Leave empty for no limit." value=${said.max} set=${set("max")} />
    ${moved.length > 0 && html`<${Table} label="Shares before and after" columns=${["Pool", ["Share now", "number"], ["Share after", "number"]]}>${moved.map(([name, part]) => html`<tr key=${name}><td>${name}</td><td class="number">${percent(now.get(name))}</td><td class="number">${percent(part)}</td></tr>`)}<//>`}<//>`;
}

/** @param {{policy: any, close: () => void, reload: () => void}} props */
function Policy({ policy, close, reload }) {
  const [queue, setQueue] = useState(policy?.queue ?? "");
  const [name, setName] = useState(policy?.policy ?? "fair");
  const act = async () => { await call("PUT", `queues/${part(queue)}/policy`, { body: { policy: name, strict: policy?.strict ?? false } }); notify(`Policy of ${queue}: ${name}.`); reload(); };
  return html`<${Confirm} title="Scheduling policy of a queue" verb="Save" close=${close} act=${act}>
    <${TextField} label="Queue" value=${queue} required disabled=${policy !== null} set=${setQueue} />
    <${Field} label="Policy" hint="Weights only apply to weighted queues."><${Select} of=${[...new Set([...POLICIES, name])]} value=${name} set=${setName} /><//><//>`;
}

export default function Pools({ rest }) {
  const loaded = useData("pools", {}, []);
  const [open, show] = useState(/** @type {{what: string, of: any} | null} */ (null));
  const close = () => show(null);
  const mayChange = may("pools.change");
  return html`<${Head} of=${loaded} title="Pools" sub="A tenant's jobs belong to the pool with its name.">
      ${mayChange && html`<button type="button" onClick=${() => show({ what: "pool", of: null })}>Add a pool</button><button type="button" onClick=${() => show({ what: "policy", of: null })}>Set a queue's policy</button>`}<//>
    <${Loading} loaded=${loaded}>${(/** @type {any} */ { items, policies }) => {
      const due = shares(items.filter((/** @type {Pool} */ one) => one.pool !== "*"));
      return html`${items.length
        ? html`<${Table} label="Pools" columns=${["Pool", ["Weight", "number"], ["Share", "number"], "Guaranteed", "Limit", "In flight", "Waiting", ""]}>${tree(items).map(({ pool, depth }) => html`<tr key=${pool.pool} data-row aria-current=${rest[0] === pool.pool ? "true" : undefined}>
            <td class=${`depth-${Math.min(depth, 4)}`}>${depth > 0 && html`<span class="sr">part of ${pool.parent}: </span>`}${pool.pool === "*" ? "* (each other tenant)" : pool.pool}</td><td class="number">${pool.weight}</td><td class="number">${percent(due.get(pool.pool))}</td><td>${amounts(pool.min) || "–"}</td><td>${amounts(pool.max) || "–"}</td>
            ${pool.pool === "*" || !may("jobs.read") || items.length > COUNTED ? html`<td>–</td><td>–</td>` : html`<td class="number"><${JobCount} name=${pool.pool} states="dispatched,running" /></td><td class="number"><${JobCount} name=${pool.pool} states="queued" /></td>`}
            <td>${mayChange && html`<div class="actions"><button type="button" onClick=${() => show({ what: "pool", of: pool })}>Change</button><button type="button" class="danger" onClick=${() => show({ what: "remove", of: pool })}>Remove</button></div>`}</td></tr>`)}<//>
          <p class="dim">Share: of a weighted queue, while all pools have jobs and parent pools have none of their own. Unused shares are lent to other pools.</p>`
        : html`<${Empty} title="No pools"><p>Every tenant has the same share of each queue.</p><${Code} label="Command" text="taskmq pool set acme --weight 5 --max slots=8" /><//>`}
        <${Section} title="Queue policies"><${Table} none="All queues use the policies of their apps, by default fair." label="Policies" columns=${["Queue", "Policy", ""]}>${policies.map((/** @type {any} */ one) => html`<tr key=${one.queue} data-row><td><a href=${to(["queues", one.queue])}>${one.queue}</a></td><td>${one.policy}${one.strict ? ", strict" : ""}</td>
            <td>${mayChange && html`<div class="actions"><button type="button" onClick=${() => show({ what: "policy", of: one })}>Change</button><${Action} act=${async () => { await call("DELETE", `queues/${part(one.queue)}/policy`); notify(`Policy of ${one.queue} removed.`); loaded.reload(); }}>Remove<//></div>`}</td></tr>`)}<//><//>
        ${open?.what === "pool" && html`<${Put} pool=${open.of} pools=${items} close=${close} reload=${loaded.reload} />`}`;
    }}<//>
    ${open?.what === "policy" && html`<${Policy} policy=${open.of} close=${close} reload=${loaded.reload} />`}
    ${open?.what === "remove" && html`<${Confirm} title=${`Remove ${open.of.pool}`} verb="Remove" close=${close} act=${async () => { await call("DELETE", `pools/${part(open.of.pool)}`); loaded.reload(); }}><p>Its jobs then have the default share of a tenant.</p><//>`}`;
}
