// @ts-check
/** The audit log of administrators and operators. */
import { useData } from "../lib/data.js";
import { pretty } from "../lib/format.js";
import { Search } from "../lib/filter.js";
import { html } from "../lib/html.js";
import { Code, Empty, Head, Loading, Table, When, Pager } from "../lib/parts.js";

export default function Audit({ query }) {
  const { action = "", after = "" } = query;
  const loaded = useData("audit", { action, after, limit: 50 }, []);
  return html`<${Head} of=${loaded} title="Audit log" />
    <div class="bar"><${Search} name="action" label="Action prefix" placeholder="queue." place="after" /></div>
    <${Loading} loaded=${loaded}>${(/** @type {any} */ { items, next }) => html`
      ${items.length ? html`<${Table} label="Entries" columns=${["When", "Action", "Subject", "Tenant", "By", "From", "Details"]}>${items.map((/** @type {any} */ one) => html`<tr key=${one.number}>
        <td><${When} at=${one.at} /></td><td>${one.action}</td><td>${one.subject}</td><td>${one.tenant || "–"}</td><td>${one.user ?? "erased"} <span class="dim">${one.via}</span></td><td>${one.address || "–"}</td>
        <td><details><summary>Entry ${one.number}</summary>${one.note && html`<p>${one.note}</p>`}<p class="dim">Request ${one.request_id || "–"}</p>
          ${one.before && html`<${Code} label=${`Before ${one.number}`} text=${pretty(one.before)} />`}${one.after && html`<${Code} label=${`After ${one.number}`} text=${pretty(one.after)} />`}</details></td></tr>`)}<//>`
        : html`<${Empty} title=${action ? "No matching entries" : "No entries yet"} />`}
      <${Pager} next=${next} name="after" />`}<//>`;
}
