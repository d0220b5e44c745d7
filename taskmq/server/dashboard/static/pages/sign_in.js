// @ts-check
/** The sign-in page. */
import { API, signIn } from "../lib/api.js";
import { html, useEffect, useState } from "../lib/html.js";
import { Failure, Field } from "../lib/parts.js";

/** Whether the server has a sign-in provider, as marked in the page. */
const hasProvider = document.documentElement.dataset.provider === "yes";

/** Return the provider's sign-in URL, which returns to this view. */
function provider() {
  const url = new URL("auth/oidc/login", API);
  url.searchParams.set("next", location.pathname + location.hash);
  return url.href;
}

export default function SignIn({ done }) {
  const [error, setError] = useState(/** @type {Error | null} */ (null));
  const [busy, setBusy] = useState(false);
  useEffect(() => { document.title = "Sign in · taskmq"; }, []);
  const submit = async (/** @type {any} */ event) => {
    event.preventDefault();
    const form = new FormData(event.target);
    setBusy(true);
    setError(null);
    try {
      await signIn(String(form.get("username")), String(form.get("password")));
      done();
    } catch (failure) {
      setError(/** @type {Error} */ (failure));
      setBusy(false);
    }
  };
  return html`<main class="sign-in"><form class="card" onSubmit=${submit}>
    <h1>taskmq</h1>
    <${Field} label="Name"><input name="username" autoComplete="username" required autofocus /><//>
    <${Field} label="Password"><input name="password" type="password" autoComplete="current-password" required /><//>
    ${error && html`<${Failure} error=${error} />`}
    <button type="submit" class="primary" disabled=${busy}>Sign in</button>
    ${hasProvider && html`<p><a href=${provider()}>Sign in with your organisation</a></p>`}
    <p class="dim">Create the first admin with <code>taskmq admin init NAME</code>.</p>
  </form></main>`;
}
