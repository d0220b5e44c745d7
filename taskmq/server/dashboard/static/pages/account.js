// @ts-check
/** One's own account: roles, password, sessions, API tokens. */
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
    notify(`Changed; all other sessions have ended. Tokens: ${done.tokens_revoked} revoked, ${done.tokens_left} still good.`);
    changed();
  };
  return html`<${Confirm} title="Change the password" verb="Change" close=${close} act=${act}>
    <${Field} label="Present password"><input type="password" autoComplete="current-password" value=${before} onInput=${(/** @type {any} */ e) => setBefore(e.target.value)} /><//>
    <${Field} label="Next one" hint="At least twelve characters."><input type="password" autoComplete="new-password" value=${after} onInput=${(/** @type {any} */ e) => setAfter(e.target.value)} /><//>
    <label class="check"><input type="checkbox" checked=${revoke} onChange=${(/** @type {any} */ e) => setRevoke(e.target.checked)} /> Revoke all my tokens, too</label><//>`;
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
  return html`<${Confirm} title="Make a token" verb="Make" close=${close} act=${act}>
    <${Field} label="Name"><input value=${name} required onInput=${(/** @type {any} */ e) => setName(e.target.value)} /><//>
    <${Field} label="Scopes" hint="Such as jobs.read jobs.submit, or viewer; empty for all that you may do."><input value=${scopes} onInput=${(/** @type {any} */ e) => setScopes(e.target.value)} /><//>
    <${Field} label="Tenants" hint="Empty for all of yours."><input value=${tenants} onInput=${(/** @type {any} */ e) => setTenants(e.target.value)} /><//>
    <${Field} label="Tasks" hint="Patterns of those that it may call."><input value=${tasks} onInput=${(/** @type {any} */ e) => setTasks(e.target.value)} /><//>
    <${Field} label="Ends" hint="Empty: never."><input type="datetime-local" value=${until} onInput=${(/** @type {any} */ e) => setUntil(e.target.value)} /><//>
    ${asked && html`<${Field} label="Your password" hint="Or sign in again: your last sign-in is more than five minutes ago."><input type="password" autoComplete="current-password" value=${password} onInput=${(/** @type {any} */ e) => setPassword(e.target.value)} /><//>`}<//>`;
}

export default function Account() {
  const loaded = useData("tokens", {}, []);
  const [open, show] = useState("");
  const [made, setMade] = useState(/** @type {any} */ (null));
  const { caller, server } = session;
  const close = () => show("");
  const mayChange = may("account.change") && caller?.via === "session";
  return html`<${Head} title="Account">${mayChange && html`<button type="button" onClick=${() => show("password")}>Change the password</button><button type="button" onClick=${() => show("token")}>Make a token</button>`}<//>
    <${Section} title="Who you are"><${Facts} of=${[["Name", caller?.user], ["By", caller?.via], ["Server", `${server?.app}, taskmq ${server?.version}`], ["Roles", caller?.memberships.map((one) => `${one.role} of ${one.tenant === "*" ? "the instance" : one.tenant}`).join(", ")]]} /><//>
    <${Sessions} where="sessions" needs="account.change" />
    <${Tokens} where="tokens" needs="account.change" loaded=${loaded}>You have none. Programs sign in with one: <code>Authorization: Bearer TOKEN</code><//>
    ${open === "password" && html`<${Password} close=${close} changed=${loaded.reload} />`}
    ${open === "token" && html`<${AddToken} close=${close} made=${(/** @type {any} */ token) => { setMade(token); loaded.reload(); }} />`}
    ${made && html`<${Dialog} title="The token, shown this once" close=${() => setMade(null)}><${Code} label="Token" text=${made.secret} /><button type="button" class="primary" onClick=${() => copy(made.secret)}>Copy</button><//>`}`;
}
