// @ts-check
/** The frame around each page: header, navigation, live state. */
import { onSignedOut, session, signOut, may, whoAmI, read } from "./lib/api.js";
import { useNow } from "./lib/data.js";
import { span } from "./lib/format.js";
import { html, render, useEffect, useErrorBoundary, useLayoutEffect, useState } from "./lib/html.js";
import { KEYS, PLACES, startKeys } from "./lib/keys.js";
import { Icon, Logo } from "./lib/icons.js";
import { replicaAge, staleness, startLive, stopLive, useLive } from "./lib/live.js";
import { groups, keyOf, openView, PAGES, tabsOf, viewOf } from "./lib/pages.js";
import { Dialog, Failure, Notices, notify, Select } from "./lib/parts.js";
import { change, to, useRoute } from "./lib/route.js";
import { signInCheck } from "./lib/start.js";
import { badgeOf, useSummary } from "./lib/summary.js";
import { saveSetting, readSetting, setTheme, startTheme, THEMES } from "./lib/theme.js";
import { pageOf, removeView, SaveView, useViews } from "./lib/views.js";

const LIVE = {
  live: ["●", "live", "Changes appear within a second, or a little later under load"],
  polling: ["◔", "every 10 s", "Refreshed every ten seconds"],
  paused: ["‖", "paused", "Paused while the tab is hidden"],
  reconnecting: ["↻", "reconnecting", "The event stream was lost; trying to reconnect"],
};

function Page({ name, rest, query, summary }) {
  const entry = PAGES.find((one) => one.name === name);
  const key = keyOf(name, rest.length > 0);
  const [, again] = useState(0);
  const [error, setError] = useState(/** @type {Error | null} */ (null));
  const View = viewOf(key);
  useLayoutEffect(() => {
    setError(null);
    if (entry && !View) openView(key).then(() => again((/** @type {number} */ n) => n + 1), setError);
  }, [key]);
  if (!entry) return html`<div class="empty"><h1>Page not found</h1><p><a href=${to("")}>Go to the overview</a></p></div>`;
  if (error) return html`<${Failure} error=${error} retry=${() => location.reload()} />`;
  if (!View) return html`<p class="note" role="status" data-loading>Loading …</p>`;
  return html`<${Guarded} key=${key + rest.join("/")}><${View} rest=${rest} query=${query} summary=${summary} /><//>`;
}

function Guarded({ children }) {
  const [error, reset] = useErrorBoundary((/** @type {unknown} */ failure) => console.error(failure));
  return error ? html`<${Failure} error=${error} retry=${reset} />` : children;
}

function LivePill() {
  const [mark, word, title] = LIVE[useLive()];
  const silent = staleness(useNow(5000));
  const age = silent || replicaAge();
  const why = silent ? "The server does not answer, so the page may be outdated" : "Lists come from a replica of the job store that is behind";
  // Screen readers announce that the data is stale, but not each new age.
  if (age) return html`<span class="pill is-stale" title=${why} role="status"><span aria-hidden="true">▲</span> <span class="word">stale</span><span aria-hidden="true"> ${span(Math.round(age / 1000))}</span></span>`;
  return html`<span class=${`pill ${word === "live" ? "is-live" : ""}`} title=${title} role="status"><span aria-hidden="true">${mark}</span> <span class="word">${word}</span></span>`;
}

/** A count beside a page. The page itself and the overview tell it to screen readers. */
const Badge = ({ of }) => of && html`<span class=${`count ${of.isBad ? "is-bad" : ""}`} aria-hidden="true">${of.text}</span>`;

/** Whether a page is a tab of another one, or that page.
 * @param {import("./lib/pages.js").PageEntry} main @param {string} name */
const isTabOf = (main, name) => tabsOf(main.name, may).some((tab) => tab.name === name);

/** A list of saved views. */
const ViewLinks = ({ of }) => of.length > 0 && html`<ul class="saved">${of.map((/** @type {import("./lib/views.js").View} */ one) => html`<li key=${one.name}><a href=${one.at}>${one.name}</a>
  <button type="button" class="plain" aria-label=${`Remove the view ${one.name}`} onClick=${() => removeView(one.name)}>×</button></li>`)}</ul>`;

/** The pages in their groups with their saved views. A page with tabs stays marked while one of its tabs is open. */
function Navigation({ name, summary }) {
  const saved = useViews();
  return html`<nav aria-label="Pages">${groups(may).map(([group, pages]) => {
    const list = html`<ul>${pages.map((one) => html`<li key=${one.name}><a href=${to(one.name)} aria-current=${one.name === name ? "page" : isTabOf(one, name) ? "true" : undefined}><${Icon} name=${one.name || "overview"} />${one.nav ?? one.title}<${Badge} of=${badgeOf(summary, one.name)} /></a><${ViewLinks} of=${saved.filter((view) => isTabOf(one, pageOf(view)))} /></li>`)}</ul>`;
    if (!pages.length) return null;
    return group ? html`<details key=${group} open><summary>${group}<${Icon} name="down" /></summary>${list}</details>` : list;
  })}</nav>`;
}

function Sheet({ close }) {
  const [keys, set] = useState(readSetting("keys", "on"));
  const flip = () => { const next = keys === "on" ? "off" : "on"; saveSetting("keys", next); set(next); };
  return html`<${Dialog} title="Keyboard shortcuts" close=${close}>
    <dl class="keys">${KEYS.map(([key, what]) => html`<div key=${key}><dt><kbd>${key}</kbd></dt><dd>${what}</dd></div>`)}
      ${Object.entries(PLACES).map(([key, [, title]]) => html`<div key=${`g${key}`}><dt><kbd>g ${key}</kbd></dt><dd>${title}</dd></div>`)}</dl>
    <label class="check"><input type="checkbox" checked=${keys === "on"} onChange=${flip} /> Enable single-letter shortcuts</label>
  <//>`;
}

/** Choice of a tenant. For a user of all tenants, their names are read when the pointer or the focus comes. */
function Tenants({ chosen }) {
  const own = session.caller?.memberships.map((one) => one.tenant) ?? [];
  const everywhere = own.includes("*");
  const [names, set] = useState(own.filter((name) => name && name !== "*"));
  const load = () => { if (everywhere) read("tenants").then((found) => set(found.items.map((/** @type {any} */ one) => one.name)), () => undefined); };
  if (!everywhere && names.length < 2 && !chosen) return null;
  return html`<label class="inline"><span class="sr">Tenant</span><${Select} of=${[["", everywhere ? "All tenants" : "Choose a tenant"], ...new Set([...names, ...(chosen ? [chosen] : [])])]} value=${chosen} onFocus=${load} onPointerEnter=${load} set=${(/** @type {string} */ tenant) => change({ tenant, cursor: "" })} /></label>`;
}

/** The saved views of pages that are not in the navigation. */
function Views({ save }) {
  const pages = groups(may).flatMap(([, found]) => found);
  const others = useViews().filter((view) => !pages.some((one) => isTabOf(one, pageOf(view))));
  return html`<section class="views" aria-label="Saved views"><${ViewLinks} of=${others} /><button type="button" class="plain" onClick=${save}>Save this view</button></section>`;
}

const closeDrawer = () => { document.getElementById("nav")?.togglePopover?.(false); };
/** @param {any} event */
const onLeave = ({ relatedTarget: next, currentTarget: drawer }) => { if (next && !drawer.contains(next)) closeDrawer(); };

function Frame() {
  const { hash, path, query } = useRoute();
  const [sheet, showSheet] = useState(false);
  const [saving, save] = useState(false);
  const [Palette, setPalette] = useState(/** @type {any} */ (null));
  const [theme, choose] = useState(readSetting("theme", "system"));
  const [name = "", ...rest] = path;
  session.tenant = query.tenant ?? "";
  const summary = useSummary(name === "", session.tenant);
  const { server, caller } = session;
  // Loaded on first use.
  const openPalette = () => void import("./lib/palette.js").then((module) => setPalette(() => module.Palette), (error) => notify(error.message, true));
  useEffect(() => {
    const stopKeys = startKeys(() => showSheet(true), openPalette);
    matchMedia("(width > 1000px)").onchange = closeDrawer;
    startLive();
    return () => { stopKeys(); stopLive(); };
  }, []);
  useEffect(closeDrawer, [hash]);
  useEffect(() => scrollTo(0, 0), [path.join("/")]);
  const skip = (/** @type {Event} */ event) => { event.preventDefault(); document.querySelector("main")?.focus(); };
  const paint = (/** @type {string} */ next) => { setTheme(next); choose(next); };
  const actions = [{ kind: "Action", name: "Save this view", act: () => save(true) }, { kind: "Action", name: "Show keyboard shortcuts", act: () => showSheet(true) }];
  return html`
    <a class="skip" href="#main" onClick=${skip}>Skip to content</a>
    <header class="top">
      <button type="button" class="menu plain" popovertarget="nav"><span aria-hidden="true">☰</span><span class="sr">Pages</span></button>
      <a class="brand" href=${to("")}><${Logo} /><span>taskmq <strong>${server?.app}</strong></span></a>
      ${server?.environment && html`<span class=${`badge ${server.environment === "production" ? "is-production" : ""}`}>${server.environment}</span>`}
      ${server?.is_read_only && html`<span class="badge">read-only</span>`}
      <span class="grow"></span>
      <button type="button" class="jump" title="Go to (Ctrl K)" aria-label="Go to" onClick=${openPalette}><${Icon} name="search" /><span>Search or go to</span><kbd>Ctrl K</kbd></button>
      <${Tenants} chosen=${session.tenant} />
      <${LivePill} />
      <label class="inline"><span class="sr">Theme</span><${Select} of=${THEMES.map((one) => [one, one[0].toUpperCase() + one.slice(1)])} value=${theme} set=${paint} /></label>
      <button type="button" class="plain" title="Keyboard shortcuts (?)" aria-label="Keyboard shortcuts" onClick=${() => showSheet(true)}>?</button>
    </header>
    ${server?.is_development && html`<aside class="banner" aria-label="Mode">Development server: no sign-in, only reachable from this machine.</aside>`}
    <div class="body">
      <div id="nav" class="side" popover="auto" role="none" onClick=${(/** @type {any} */ event) => { if (event.target.closest("a")) closeDrawer(); }} onFocusOut=${onLeave}><${Navigation} name=${name} summary=${summary} /><${Views} save=${() => save(true)} />
        <section class="foot" aria-label="Your account"><a class="who" href=${to("account")} title="Account">${caller?.user}</a>
          ${caller?.via === "session" && html`<button type="button" class="plain" onClick=${() => signOut().catch((error) => notify(error.message, true))}>Sign out</button>`}</section></div>
      <main id="main" tabIndex="-1" data-route=${hash}><${Page} name=${name} rest=${rest} query=${query} summary=${summary} /></main>
    </div>
    <${Notices} />
    ${sheet && html`<${Sheet} close=${() => showSheet(false)} />`}
    ${saving && html`<${SaveView} close=${() => save(false)} />`}
    ${Palette && html`<${Palette} close=${() => setPalette(null)} actions=${actions} setTheme=${paint} />`}`;
}

function Root() {
  const [state, set] = useState(/** @type {"asking" | "in" | "out"} */ ("asking"));
  const [error, setError] = useState(/** @type {any} */ (null));
  const [SignIn, setSignIn] = useState(/** @type {any} */ (null));
  const onAnswer = (/** @type {any} */ failure) => {
    if (failure === null || failure.status === 401) { setError(null); set(failure === null ? "in" : "out"); } else setError(failure);
  };
  const ask = () => whoAmI().then(() => onAnswer(null), onAnswer);
  useLayoutEffect(() => { onSignedOut(() => set("out")); signInCheck.then(onAnswer); }, []);
  useEffect(() => { if (state === "out") import("./pages/sign_in.js").then((module) => setSignIn(() => module.default)); }, [state]);
  if (error) return html`<main><${Failure} error=${error} retry=${ask} /></main>`;
  if (state === "in") return html`<${Frame} />`;
  if (state === "out" && SignIn) return html`<${SignIn} done=${() => set("in")} />`;
  return html`<p class="note" role="status" data-loading>Loading …</p>`;
}

startTheme();
const root = document.getElementById("root");
if (root) {
  root.textContent = "";
  render(html`<${Root} />`, root);
}
