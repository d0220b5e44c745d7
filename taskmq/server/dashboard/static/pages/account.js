// @ts-check
/** The user's own account: roles, password, sessions, API tokens. */
import { may, send, session } from "../lib/api.js";
import { Sessions, Tokens } from "../lib/credentials.js";
import { useData } from "../lib/data.js";
import { html, useState } from "../lib/html.js";
import { Code, Confirm, copy, Dialog, Facts, Field, Head, notify, Section } from "../lib/parts.js";

function Password({ close, changed }) {
  const [before, setBefore] = useState("");
  const [after, setAfter] = useState("");
  const [revoke, setRevoke] = useState(false);
  const act = async () => {
    const done = await send("auth/password", { before, after, revoke_tokens: revoke });
    notify(`Password changed. All other sessions ended. Tokens: ${done.tokens_revoked} revoked, ${done.tokens_left} still valid.`);
    changed();
  };
  return html`<${Confirm} title="Change password" verb="Change" close=${close} act=${act}>
    <${Field} label="Current password"><input type="password" autoComplete="current-password" value=${before} onInput=${(/** @type {any} */ e) => setBefore(e.target.value)} /><//>
    <${Field} label="New password" hint="At least twelve characters."><input type="password" autoComplete="new-password" value=${after} onInput=${(/** @type {any} */ e) => setAfter(e.target.value)} /><//>
    <label class="check"><input type="checkbox" checked=${revoke} onChange=${(/** @type {any} */ e) => setRevoke(e.target.checked)} /> Also revoke all my tokens</label><//>`;
}

function AddToken({ close, made }) {
  const [name, setName] = useState("");
  const [scopes, setScopes] = useState("");
  const [tasks, setTasks] = useState("*");
  const [tenants, setTenants] = useState("");
  const [until, setUntil] = useState("");
  const [password, setPassword] = useState("");
  const words = (/** @type {string} */ text) => text.split(/[\s,]+/).filter(Boolean);
  const [asked, setAsked] = useState(false);
  const act = async () => made(await send("tokens", {
    name, tasks: words(tasks), ...(scopes.trim() ? { scopes: words(scopes) } : {}), ...(tenants.trim() ? { tenants: words(tenants) } : {}), ...(until ? { expires_at: new Date(until).toISOString() } : {}), ...(password ? { password } : {}),
  }).catch((/** @type {any} */ error) => { setAsked(asked || error.problem?.code === "confirmation_needed"); throw error; }));
  return html`<${Confirm} title="Create a token" verb="Create" close=${close} act=${act}>
    <${Field} label="Name"><input value=${name} required onInput=${(/** @type {any} */ e) => setName(e.target.value)} /><//>
    <${Field} label="Scopes" hint="Such as jobs.read jobs.submit, or viewer. Leave empty for all your permissions."><input value=${scopes} onInput=${(/** @type {any} */ e) => setScopes(e.target.value)} /><//>
    <${Field} label="Tenants" hint="Leave empty for all your tenants."><input value=${tenants} onInput=${(/** @type {any} */ e) => setTenants(e.target.value)} /><//>
    <${Field} label="Tasks" hint="Patterns of the tasks it may call."><input value=${tasks} onInput=${(/** @type {any} */ e) => setTasks(e.target.value)} /><//>
    <${Field} label="Expires" hint="Leave empty for no expiry."><input type="datetime-local" value=${until} onInput=${(/** @type {any} */ e) => setUntil(e.target.value)} /><//>
    ${asked && html`<${Field} label="Your password" hint="Required because your last sign-in was more than five minutes ago. You can also sign in again."><input type="password" autoComplete="current-password" value=${password} onInput=${(/** @type {any} */ e) => setPassword(e.target.value)} /><//>`}<//>`;
}

export default function Account() {
  const loaded = useData("tokens", {}, []);
  const [open, show] = useState("");
  const [made, setMade] = useState(/** @type {any} */ (null));
  const { caller, server } = session;
  const close = () => show("");
  const mayChange = may("account.change") && caller?.via === "session";
  return html`<${Head} of=${{ path: "auth/me", query: {} }} title="Account">${mayChange && html`<button type="button" onClick=${() => show("password")}>Change password</button><button type="button" onClick=${() => show("token")}>Create a token</button>`}<//>
    <${Section} title="Details"><${Facts} of=${[["Name", caller?.user], ["Signed in with", caller?.via], ["Server", `${server?.app}, taskmq ${server?.version}`], ["Roles", caller?.memberships.map((one) => `${one.role} on ${one.tenant === "*" ? "the instance" : one.tenant}`).join(", ")]]} /><//>
    <${Sessions} where="sessions" needs="account.change" />
    <${Tokens} where="tokens" needs="account.change" loaded=${loaded}>No tokens. Programs authenticate with one: <code>Authorization: Bearer TOKEN</code><//>
    ${open === "password" && html`<${Password} close=${close} changed=${loaded.reload} />`}
    ${open === "token" && html`<${AddToken} close=${close} made=${(/** @type {any} */ token) => { setMade(token); loaded.reload(); }} />`}
    ${made && html`<${Dialog} title="New token, shown only once" close=${() => setMade(null)}><${Code} label="Token" text=${made.secret} /><button type="button" class="primary" onClick=${() => copy(made.secret)}>Copy</button><//>`}`;
}
