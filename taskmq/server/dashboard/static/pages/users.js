// @ts-check
/** Users and their roles; tenants. */
import { call, may, part, send } from "../lib/api.js";
import { useData } from "../lib/data.js";
import { html, useState } from "../lib/html.js";
import { Action, Confirm, Facts, Field, Head, notify, Section, Shown, Table, When } from "../lib/parts.js";
import { to } from "../lib/route.js";

const ROLES = ["viewer", "submitter", "operator", "admin"];

/** @param {{set: (role: {tenant: string, role: string}) => void, value: {tenant: string, role: string}}} props */
const RoleFields = ({ value, set }) => html`
  <${Field} label="Tenant" hint="* for the instance"><input value=${value.tenant} required onInput=${(/** @type {any} */ e) => set({ ...value, tenant: e.target.value })} /><//>
  <${Field} label="Role"><select value=${value.role} onChange=${(/** @type {any} */ e) => set({ ...value, role: e.target.value })}>${ROLES.map((role) => html`<option key=${role}>${role}</option>`)}</select><//>`;

function Add({ close, reload }) {
  const [name, setName] = useState("");
  const [password, setPassword] = useState("");
  const [role, setRole] = useState({ tenant: "*", role: "viewer" });
  const act = async () => { await send("users", { name, password, memberships: [role] }); notify(`${name} was added.`); reload(); };
  return html`<${Confirm} title="Add a user" verb="Add" close=${close} act=${act}>
    <${Field} label="Name"><input value=${name} required onInput=${(/** @type {any} */ e) => setName(e.target.value)} /><//>
    <${Field} label="Password" hint="At least twelve characters."><input type="password" autoComplete="new-password" value=${password} required onInput=${(/** @type {any} */ e) => setPassword(e.target.value)} /><//>
    <${RoleFields} value=${role} set=${setRole} /><//>`;
}

function User({ id }) {
  const loaded = useData(`users/${part(id)}`, {}, []);
  const [role, setRole] = useState({ tenant: "", role: "viewer" });
  const [open, show] = useState(false);
  const where = `users/${part(id)}`;
  return html`<${Shown} loaded=${loaded} title=${id}>${(/** @type {any} */ user) => html`
    <${Head} title=${user.name} sub=${user.disabled ? "disabled" : ""}><a href=${to("users")}>All users</a>
      ${may("users.change") && html`<${Action} kind="danger" act=${async () => { await call("PATCH", where, { body: { is_disabled: !user.disabled } }); loaded.reload(); }}>${user.disabled ? "Enable" : "Disable"}<//><button type="button" onClick=${() => show(true)}>Give a role</button>`}<//>
    <${Section} title="Facts"><${Facts} of=${[["Id", user.id], ["E-mail", user.email], ["Made", html`<${When} at=${user.created} />`], ["Last sign-in", html`<${When} at=${user.last_login} />`], ["Password", user.has_password ? "yes" : "none"]]} /><//>
    <${Section} title="Roles"><${Table} label="Roles" columns=${["Tenant", "Role", "Tasks", ""]}>${(user.memberships ?? []).map((/** @type {any} */ one) => html`<tr key=${one.tenant}><td>${one.tenant}</td><td>${one.role}</td><td>${one.tasks.join(", ")}</td>
      <td>${may("users.change") && html`<${Action} act=${async () => { await call("DELETE", `${where}/roles/${part(one.tenant)}`); loaded.reload(); }}>Take away<//>`}</td></tr>`)}<//><//>
    ${open && html`<${Confirm} title="Give a role" verb="Give" close=${() => show(false)} act=${async () => { await call("PUT", `${where}/roles/${part(role.tenant)}`, { body: { role: role.role } }); loaded.reload(); }}><${RoleFields} value=${role} set=${setRole} /><//>`}`}<//>`;
}

function List() {
  const loaded = useData("users", {}, []);
  const [open, show] = useState(false);
  return html`<${Head} title="Users">${may("users.change") && html`<button type="button" onClick=${() => show(true)}>Add a user</button>`}<//>
    <${Shown} loaded=${loaded}>${(/** @type {any} */ { items }) => html`<${Table} label="Users" columns=${["Name", "State", "Made", "Last sign-in"]}>${items.map((/** @type {any} */ one) => html`<tr key=${one.id} data-row>
      <td><a href=${to(["users", one.id])}>${one.name}</a></td><td>${one.disabled ? "disabled" : "enabled"}</td><td><${When} at=${one.created} /></td><td><${When} at=${one.last_login} /></td></tr>`)}<//>`}<//>
    ${open && html`<${Add} close=${() => show(false)} reload=${loaded.reload} />`}`;
}

export default function Users({ rest }) {
  return rest.length ? html`<${User} id=${rest[0]} />` : html`<${List} />`;
}
