// @ts-check
/** Sessions and tokens of a user. */
import { call, may, part } from "./api.js";
import { useData } from "./data.js";
import { html } from "./html.js";
import { Action, notify, Section, Loading, Table, When } from "./parts.js";

/** @param {{where: string, needs: string}} props `where`: the path of the list; `needs`: the permission to end one. */
export function Sessions({ where, needs }) {
  const loaded = useData(where, {}, []);
  const end = async (/** @type {any} */ one) => { await call("DELETE", `${where}/${part(one.id)}`); notify("Session ended."); loaded.reload(); };
  return html`<${Section} title="Sessions"><${Loading} loaded=${loaded}>${(/** @type {any} */ { items }) => (html`<${Table} none="No active sessions." label="Sessions" columns=${["From", "Browser", "Signed in", "Last used", "Expires", ""]}>${items.map((/** @type {any} */ one) => html`<tr key=${one.id} data-row>
        <td>${one.address || "–"}</td><td>${one.agent || "–"}</td><td><${When} at=${one.created} /></td><td><${When} at=${one.last_used} /></td><td><${When} at=${one.ends} /></td>
        <td>${one.is_own ? html`<span class="state">current</span>` : may(needs) && html`<${Action} kind="danger" act=${() => end(one)}>End<span class="sr"> the session from ${one.address}</span><//>`}</td></tr>`)}<//>`)}<//><//>`;
}

/** @param {{where: string, needs: string, loaded: import("./data.js").Loaded, children: unknown}} props `loaded`: the list,
 * read by the page; `children`: the empty state. */
export function Tokens({ where, needs, loaded, children }) {
  const revoke = async (/** @type {any} */ one) => { await call("DELETE", `${where}/${part(one.id)}`); notify("Revoked."); loaded.reload(); };
  return html`<${Section} title="API tokens"><${Loading} loaded=${loaded}>${(/** @type {any} */ { items }) => (items.length
    ? html`<${Table} label="Tokens" columns=${["Name", "Scopes", "Tenants", "Tasks", "Last used", "Expires", ""]}>${items.map((/** @type {any} */ one) => html`<tr key=${one.id}><td>${one.name}</td><td>${one.scopes?.join(", ") ?? "all"}</td><td>${one.tenants?.join(", ") ?? "all"}</td><td>${one.tasks.join(", ")}</td><td><${When} at=${one.last_used} /></td><td>${one.expires_at ? html`<${When} at=${one.expires_at} />` : "never"}</td>
        <td>${may(needs) && html`<${Action} kind="danger" act=${() => revoke(one)}>Revoke<span class="sr"> ${one.name}</span><//>`}</td></tr>`)}<//>`
    : html`<p class="dim">${children}</p>`)}<//><//>`;
}
