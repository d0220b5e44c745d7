// @ts-check
/** The user's own account: roles, password, sessions, API tokens. */
import { may, send, session } from "../lib/api.js";
import { Sessions, Tokens } from "../lib/credentials.js";
import { useData } from "../lib/data.js";
import { html, useState } from "../lib/html.js";
import { Check, Code, Confirm, copy, Dialog, Facts, Head, notify, Section, TextField } from "../lib/parts.js";

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
    <${TextField} label="Current password" type="password" autoComplete="current-password" value=${before} set=${setBefore} />
    <${TextField} label="New password" hint="At least twelve characters." type="password" autoComplete="new-password" value=${after} set=${setAfter} />
    <${Check} value=${revoke} set=${setRevoke}>Also revoke all my tokens<//><//>`;
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
    <${TextField} label="Name" value=${name} required set=${setName} />
    <${TextField} label="Scopes" hint="Such as jobs.read jobs.submit, or viewer. Leave empty for all your permissions." value=${scopes} set=${setScopes} />
    <${TextField} label="Tenants" hint="Leave empty for all your tenants." value=${tenants} set=${setTenants} />
    <${TextField} label="Tasks" hint="Patterns of the tasks it may call." value=${tasks} set=${setTasks} />
    <${TextField} label="Expires" hint="Leave empty for no expiry." type="datetime-local" value=${until} set=${setUntil} />
    ${asked && html`<${TextField} label="Your password" hint="Required because your last sign-in was more than five minutes ago. You can also sign in again." type="password" autoComplete="current-password" value=${password} set=${setPassword} />`}<//>`;
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
