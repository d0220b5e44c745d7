// @ts-check
/** Users and tenants. */
import { call, may, ownTenant, part, send, session } from "../lib/api.js";
import { Sessions, Tokens } from "../lib/credentials.js";
import { useData } from "../lib/data.js";
import { html, useState } from "../lib/html.js";
import { Action, Check, Confirm, Facts, Field, Head, notify, Section, Select, Loading, Table, TextField, When } from "../lib/parts.js";
import { go, to } from "../lib/route.js";

const EVERYWHERE = "* for the instance";
const ROLES = ["viewer", "submitter", "operator", "admin"];

/** @typedef {{tenant: string, role: string, tasks: string, groups: string}} RoleText */

/** @param {string} text */
const words = (text) => text.split(/[\s,]+/).filter(Boolean);

/** Convert a role for the API.
 * @param {RoleText} role */
const bodyOf = ({ role, tasks, groups }) => ({ role, tasks: words(tasks), groups: words(groups) });

/** @param {{set: (role: RoleText) => void, value: RoleText, hint: string}} props */
const RoleFields = ({ value, set, hint }) => html`
  <${TextField} label="Tenant" hint=${hint} value=${value.tenant} required set=${(/** @type {string} */ tenant) => set({ ...value, tenant })} />
  <${Field} label="Role"><${Select} of=${ROLES} value=${value.role} set=${(/** @type {string} */ role) => set({ ...value, role })} /><//>
  <${TextField} label="Tasks" hint="Patterns of the tasks it may call." value=${value.tasks} required set=${(/** @type {string} */ tasks) => set({ ...value, tasks })} />
  <${TextField} label="Groups" hint="A wait whose roles list group:finance takes answers of finance." value=${value.groups} set=${(/** @type {string} */ groups) => set({ ...value, groups })} />`;

/** @param {Record<string, unknown>} props of a text field */
const PasswordField = (props) => html`<${TextField} type="password" autoComplete="new-password" ...${props} />`;

function Add({ close, reload }) {
  const [name, setName] = useState("");
  const [password, setPassword] = useState("");
  const [role, setRole] = useState({ tenant: "*", role: "viewer", tasks: "*", groups: "" });
  const act = async () => { await send("users", { name, password, memberships: [{ tenant: role.tenant, ...bodyOf(role) }] }); notify(`${name} added.`); reload(); };
  return html`<${Confirm} title="Add a user" verb="Add" close=${close} act=${act}>
    <${TextField} label="Name" value=${name} required set=${setName} />
    <${PasswordField} label="Password" hint="At least twelve characters." value=${password} set=${setPassword} required />
    <${RoleFields} value=${role} set=${setRole} hint=${EVERYWHERE} /><//>`;
}

function Edit({ user, close, reload }) {
  const [name, setName] = useState(user.name);
  const [email, setEmail] = useState(user.email);
  const [password, setPassword] = useState("");
  const [keep, setKeep] = useState(false);
  const act = async () => {
    const body = { ...(name === user.name ? {} : { name }), ...(email === user.email ? {} : { email }), ...(password ? { password, keep_tokens: keep } : {}) };
    const done = await call("PATCH", `users/${part(user.id)}`, { body, headers: { "If-Match": `"${user.version}"` } });
    notify(password ? `Changed. Sessions ended: ${done.sessions_ended}. Tokens: ${done.tokens_revoked} revoked, ${done.tokens_left} still valid.` : "Changed.");
    reload();
  };
  return html`<${Confirm} title="Change the user" verb="Change" close=${close} act=${act}>
    <${TextField} label="Name" value=${name} required set=${setName} />
    <${TextField} label="Email" value=${email} set=${setEmail} />
    <${PasswordField} label="New password" hint="At least twelve characters. Ends their sessions and revokes their tokens. Leave empty to keep." value=${password} set=${setPassword} />
    ${password && html`<${Check} value=${keep} set=${setKeep}>Keep their tokens valid<//>`}<//>`;
}

/** @param {{give: (role: RoleText) => Promise<void>, close: () => void, tenant?: string, hint?: string, children?: unknown}} props */
function Give({ give, close, tenant = "", hint = "", children = null }) {
  const [role, setRole] = useState({ tenant, role: "viewer", tasks: "*", groups: "" });
  return html`<${Confirm} title="Give a role" verb="Give" close=${close} act=${() => give(role)}>${children}<${RoleFields} value=${role} set=${setRole} hint=${hint} /><//>`;
}

function User({ id }) {
  const where = `users/${part(id)}`;
  const loaded = useData(where, {}, []);
  const tokens = useData(`${where}/tokens`, {}, []);
  const [open, show] = useState("");
  const close = () => show("");
  const give = async (/** @type {RoleText} */ role) => { await call("PUT", `${where}/roles/${part(role.tenant)}`, { body: bodyOf(role) }); loaded.reload(); };
  const take = async (/** @type {any} */ one) => { await call("DELETE", `${where}/roles/${part(one.tenant)}`); loaded.reload(); };
  const erase = async () => { await call("DELETE", where); notify("User erased."); go("users"); };
  return html`<${Loading} loaded=${loaded} title=${id}>${(/** @type {any} */ user) => html`
    <${Head} of=${loaded} title=${user.name} sub=${user.disabled ? "disabled" : ""}><a href=${to("users")}>All users</a>
      ${may("users.change") && html`<button type="button" onClick=${() => show("give")}>Give a role</button><button type="button" onClick=${() => show("edit")}>Change</button>
        <${Action} act=${async () => { await call("PATCH", where, { body: { is_disabled: !user.disabled } }); loaded.reload(); }}>${user.disabled ? "Enable" : "Disable"}<//>
        <button type="button" class="danger" onClick=${() => show("erase")}>Erase</button>`}<//>
    <${Section} title="Details"><${Facts} of=${[["Id", user.id], ["Email", user.email], ["Created", html`<${When} at=${user.created} />`], ["Last sign-in", html`<${When} at=${user.last_login} />`], ["Password", user.has_password ? "yes" : "none"]]} /><//>
    <${Section} title="Roles"><${Table} label="Roles" columns=${["Tenant", "Role", "Tasks", "Groups", ""]}>${(user.memberships ?? []).map((/** @type {any} */ one) => html`<tr key=${one.tenant}><td>${one.tenant}</td><td>${one.role}</td><td>${one.tasks.join(", ")}</td><td>${one.groups.join(", ")}</td>
      <td>${may("users.change") && html`<${Action} act=${() => take(one)}>Remove<//>`}</td></tr>`)}<//><//>
    <${Sessions} where=${`${where}/sessions`} needs="users.change" />
    <${Tokens} where=${`${where}/tokens`} needs="users.change" loaded=${tokens}>${user.id === session.caller?.user_id ? html`No tokens. <a href=${to("account")}>Create one on your account page</a>` : "No tokens. Users create their own on their account page."}<//>
    ${open === "give" && html`<${Give} give=${give} close=${close} hint=${EVERYWHERE} />`}
    ${open === "edit" && html`<${Edit} user=${user} close=${close} reload=${loaded.reload} />`}
    ${open === "erase" && html`<${Confirm} title="Erase the user" verb="Erase permanently" typed=${user.name} close=${close} act=${erase}><p>The user is removed, with their personal data in the audit log.</p><//>`}`}<//>`;
}

function List() {
  const loaded = useData("users", {}, []);
  const [open, show] = useState(false);
  const actions = may("users.change") && html`<button type="button" onClick=${() => show(true)}>Add a user</button>`;
  return html`<${Section} title="Users" actions=${actions}><${Loading} loaded=${loaded}>${(/** @type {any} */ { items }) => html`<${Table} label="Users" columns=${["Name", "State", "Created", "Last sign-in"]}>${items.map((/** @type {any} */ one) => html`<tr key=${one.id} data-row>
      <td><a href=${to(["users", one.id])}>${one.name}</a></td><td>${one.disabled ? "disabled" : "enabled"}</td><td><${When} at=${one.created} /></td><td><${When} at=${one.last_login} /></td></tr>`)}<//>`}<//><//>
    ${open && html`<${Add} close=${() => show(false)} reload=${loaded.reload} />`}`;
}

/** @param {{close: () => void, reload: () => void, tenant: any}} props `tenant`: null to add one. */
function TenantText({ close, reload, tenant }) {
  const [name, setName] = useState("");
  const [description, setDescription] = useState(tenant?.description ?? "");
  const act = async () => {
    if (tenant) await call("PATCH", `tenants/${part(tenant.name)}`, { body: { description } });
    else await send("tenants", { name, description });
    reload();
  };
  return html`<${Confirm} title=${tenant ? `Describe ${tenant.name}` : "Add a tenant"} verb=${tenant ? "Save" : "Add"} close=${close} act=${act}>
    ${!tenant && html`<${TextField} label="Name" value=${name} required set=${setName} />`}
    <${TextField} label="Description" value=${description} maxLength="500" set=${setDescription} /><//>`;
}

function Tenants() {
  const loaded = useData("tenants", {}, []);
  const [open, show] = useState(/** @type {{what: string, tenant: any} | null} */ (null));
  const close = () => show(null);
  const mayChange = may("tenants.change");
  const flip = async (/** @type {any} */ one) => { await call("PATCH", `tenants/${part(one.name)}`, { body: { is_disabled: !one.disabled } }); loaded.reload(); };
  const remove = async (/** @type {any} */ one) => { await call("DELETE", `tenants/${part(one.name)}`); notify(`${one.name} removed.`); loaded.reload(); };
  const actions = mayChange && html`<button type="button" onClick=${() => show({ what: "text", tenant: null })}>Add a tenant</button>`;
  return html`<${Section} title="Tenants" actions=${actions}><${Loading} loaded=${loaded}>${(/** @type {any} */ { items }) => (html`<${Table} none="No tenants: all jobs share one space." label="Tenants" columns=${["Name", "Description", "State", "Created", ...(mayChange ? [""] : [])]}>${items.map((/** @type {any} */ one) => html`<tr key=${one.name} data-row>
        <td><a href=${to("users", { tenant: one.name })}>${one.name}</a></td><td>${one.description || "–"}</td><td>${one.disabled ? "disabled" : "enabled"}</td><td><${When} at=${one.created} /></td>
        ${mayChange && html`<td><div class="actions"><button type="button" onClick=${() => show({ what: "text", tenant: one })}>Describe<span class="sr"> ${one.name}</span></button><${Action} act=${() => flip(one)}>${one.disabled ? "Enable" : "Disable"}<span class="sr"> ${one.name}</span><//>
          <button type="button" class="danger" onClick=${() => show({ what: "remove", tenant: one })}>Remove<span class="sr"> ${one.name}</span></button></div></td>`}</tr>`)}<//>`)}<//><//>
    ${open?.what === "text" && html`<${TenantText} tenant=${open.tenant} close=${close} reload=${loaded.reload} />`}
    ${open?.what === "remove" && html`<${Confirm} title="Remove the tenant" verb="Remove" typed=${open.tenant.name} close=${close} act=${() => remove(open.tenant)}><p>Its roles are removed. Its jobs stay, visible only to instance roles.</p><//>`}`;
}

/** Members and roles, in the selected tenant or everywhere. */
function Members() {
  const loaded = useData("members", {}, []);
  const [open, show] = useState(false);
  const [name, setName] = useState("");
  const own = ownTenant();
  const give = async (/** @type {RoleText} */ role) => { await call("PUT", `members/${part(name)}`, { query: { tenant: role.tenant }, body: bodyOf(role) }); loaded.reload(); };
  const take = async (/** @type {any} */ one) => { await call("DELETE", `members/${part(one.user)}`, { query: { tenant: one.tenant } }); loaded.reload(); };
  const actions = may("members.change") && html`<button type="button" onClick=${() => show(true)}>Give a role in a tenant</button>`;
  return html`<${Section} title=${session.tenant ? `Roles in ${session.tenant}` : "Roles"} actions=${actions}><${Loading} loaded=${loaded}>${(/** @type {any} */ { items }) => html`<${Table} label="Members" columns=${["User", "Tenant", "Role", "Tasks", "Groups", ""]}>${items.map((/** @type {any} */ one) => html`<tr key=${`${one.user_id} ${one.tenant}`} data-row>
      <td>${may("users.read") ? html`<a href=${to(["users", one.user_id])}>${one.user}</a>` : one.user}</td><td>${one.tenant === "*" ? "the instance" : one.tenant}</td><td>${one.role}</td><td>${one.tasks.join(", ")}</td><td>${one.groups.join(", ")}</td>
      <td>${may("members.change") && one.tenant !== "*" && html`<${Action} act=${() => take(one)}>Remove<span class="sr"> the role of ${one.user} in ${one.tenant}</span><//>`}</td></tr>`)}<//>`}<//><//>
    ${open && html`<${Give} give=${give} tenant=${own} close=${() => show(false)}><${TextField} label="User" value=${name} required set=${setName} /><//>`}`;
}

export default function Users({ rest }) {
  if (rest.length) return html`<${User} id=${rest[0]} />`;
  return html`<${Head} of=${{ path: may("users.read") ? "users" : "members", query: {} }} title="Users" />${may("users.read") && html`<${List} />`}<${Members} /><${Tenants} />`;
}
