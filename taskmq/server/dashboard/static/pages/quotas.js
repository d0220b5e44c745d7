// @ts-check
/** Quotas of tenants and users, with their usage. */
import { call, may, part } from "../lib/api.js";
import { useData, useNow } from "../lib/data.js";
import { ago, count, size } from "../lib/format.js";
import { html, useState } from "../lib/html.js";
import { Code, Confirm, Empty, Head, notify, Loading, Table, TextField } from "../lib/parts.js";

const LIMITS = /** @type {const} */ (["queued", "a_day", "bytes", "rate", "burst"]);
const LABELS = { queued: "Waiting jobs", a_day: "Jobs per day", bytes: "Bytes per day", rate: "Jobs per second", burst: "Burst" };

const Used = ({ of, used, limit, show }) => (limit === null ? html`<span class="dim">no limit</span>`
  : html`<span class="used"><progress max=${limit || 1} value=${Math.min(used, limit || 1)} aria-label=${`${of}: ${show(used)} of ${show(limit)}`}></progress> ${show(used)} of ${show(limit)}</span>${used >= limit ? html` <span class="state s-failed"><span aria-hidden="true">✗</span> used up</span>` : null}`);

/** @param {{quota: any, close: () => void, reload: () => void}} props */
function Put({ quota, close, reload }) {
  const [said, say] = useState(/** @type {Record<string, string>} */ ({
    tenant: quota?.tenant ?? "", user: quota?.user ?? "", ...Object.fromEntries(LIMITS.map((name) => [name, String(quota?.[name] ?? (name === "burst" ? 1 : ""))])),
  }));
  const set = (/** @type {string} */ field) => (/** @type {string} */ text) => say({ ...said, [field]: text });
  const act = async () => {
    const body = Object.fromEntries(LIMITS.filter((name) => said[name] !== "").map((name) => [name, Number(said[name])]));
    await call("PUT", `quotas/${part(said.tenant)}`, { query: { user: said.user }, body });
    notify("Quota saved.");
    reload();
  };
  return html`<${Confirm} title=${quota ? "Change the quota" : "Add a quota"} verb="Save" close=${close} act=${act}>
    <${TextField} label="Tenant" hint="* for each tenant without a quota." value=${said.tenant} required disabled=${quota !== null} set=${set("tenant")} />
    <${TextField} label="User" hint="Leave empty for the whole tenant; * for each of its users." value=${said.user} disabled=${quota !== null} set=${set("user")} />
    ${LIMITS.filter((name) => name !== "queued" || !said.user).map((name) => html`<${TextField} key=${name} label=${LABELS[name]} hint=${name === "burst" ? "Jobs that may arrive at once, with a limit per second." : "Leave empty for no limit."} type="number" min=${name === "burst" ? 1 : 0} step=${name === "rate" ? "any" : 1} required=${name === "burst"} value=${said[name]} set=${set(name)} />`)}<//>`;
}

export default function Quotas() {
  const loaded = useData("quotas", {}, ["job"], 5000);
  const [open, show] = useState(/** @type {{what: string, of: any} | null} */ (null));
  const now = useNow(30_000);
  const midnight = new Date(now); midnight.setUTCHours(24, 0, 0, 0);
  const close = () => show(null);
  const mayChange = may("pools.change");
  const remove = async () => { await call("DELETE", `quotas/${part(open?.of.tenant)}`, { query: { user: open?.of.user } }); notify("Quota removed."); loaded.reload(); };
  return html`<${Head} of=${loaded} title="Quotas" sub=${`Daily quotas reset at midnight UTC, ${ago(midnight.toISOString(), now)}.`}>${mayChange && html`<button type="button" onClick=${() => show({ what: "put", of: null })}>Add a quota</button>`}<//>
    <${Loading} loaded=${loaded}>${(/** @type {any} */ { items }) => items.length
      ? html`<${Table} label="Quotas" columns=${["Tenant", "User", LABELS.a_day, LABELS.bytes, [LABELS.queued, "number"], [LABELS.rate, "number"], ""]}>${items.map((/** @type {any} */ one) => html`<tr key=${`${one.tenant} ${one.user}`} data-row>
          <td>${one.tenant === "*" ? "* (each other tenant)" : one.tenant}</td><td>${one.user ?? html`<span class="dim">all together</span>`}</td>
          <td><${Used} of=${`Jobs today of ${one.tenant} ${one.user ?? ""}`} used=${one.jobs_today} limit=${one.a_day} show=${count} /></td><td><${Used} of=${`Bytes today of ${one.tenant} ${one.user ?? ""}`} used=${one.bytes_today} limit=${one.bytes} show=${(/** @type {number} */ n) => size(n) === "–" ? "0 B" : size(n)} /></td>
          <td class="number">${one.queued === null ? html`<span class="dim">no limit</span>` : count(one.queued)}</td><td class="number">${one.rate === null ? html`<span class="dim">no limit</span>` : `${one.rate}, burst ${count(one.burst)}`}</td>
          <td>${mayChange && html`<div class="actions"><button type="button" onClick=${() => show({ what: "put", of: one })}>Change</button><button type="button" class="danger" onClick=${() => show({ what: "remove", of: one })}>Remove</button></div>`}</td></tr>`)}<//>`
      : html`<${Empty} title="No quotas"><p>Tenants may submit any number of jobs.</p><${Code} label="Command" text="taskmq quota set acme --a-day 10000 --rate 50 --burst 1000" /><//>`}<//>
    ${open?.what === "put" && html`<${Put} quota=${open.of} close=${close} reload=${loaded.reload} />`}
    ${open?.what === "remove" && html`<${Confirm} title=${`Remove the quota of ${open.of.tenant}${open.of.user ? `, user ${open.of.user}` : ""}`} verb="Remove" close=${close} act=${remove}><p>Only the quotas of its tenant and of * apply then.</p><//>`}`;
}
