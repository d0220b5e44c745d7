// @ts-check
/** Workflows by name; one workflow with its last runs, schedules and versions. */
import { may, part, send } from "../lib/api.js";
import { useData, useNow } from "../lib/data.js";
import { compare } from "../lib/diff.js";
import { useMoreFields, ValueForm } from "../lib/fields.js";
import { ago, instant, pretty, quote, validZone } from "../lib/format.js";
import { ChosenRun, Grid, SlowestSteps, withSignal } from "../lib/grid.js";
import { html, useEffect, useState } from "../lib/html.js";
import { Code, Confirm, Dialog, Empty, Hash, Head, Loading, notify, Pager, Section, Table, When } from "../lib/parts.js";
import { go, to } from "../lib/route.js";
import { RunTable } from "../lib/run_table.js";
import { ScheduleChanges } from "../lib/schedule_changes.js";

const RUNS = 30;
const LISTED = 8;
const STARTS = 4;
// Each needs a request.
const SCHEDULES = 5;

/** @param {{name: string, found: any, close: () => void}} props */
function StartRun({ name, found, close }) {
  const more = useMoreFields("StartRunBody", ["params", "version"]);
  const properties = found.content.params ?? {};
  // Those with a default may be left out.
  const required = Object.keys(properties).filter((each) => properties[each].default === undefined);
  const start = async (/** @type {unknown} */ params) => {
    const { run_id } = await send(`workflows/${part(name)}/start`, { params, version: found.version, ...more.payload() });
    notify("Started.");
    go(["runs", run_id]);
  };
  return html`<${Dialog} title="Start a run" close=${close}><${ValueForm} schema=${{ type: "object", properties, required }} verb="Start" act=${start} none="The workflow has no parameters.">${more.form}<//><//>`;
}

/** The next starts of a schedule of the workflow.
 * @param {{schedule: any, reload: () => void, hasChanges: boolean}} props */
function NextStarts({ schedule, reload, hasChanges }) {
  const { name, rule, tz, paused, note, refused, next } = schedule;
  const now = useNow(5000);
  const zone = validZone(tz);
  const loaded = useData(paused ? null : `schedules/${part(name)}/next`, { count: STARTS }, []);
  useEffect(() => { if (!loaded.isLoading) loaded.reload(); }, [next]);
  return html`<${Section} title="Next starts" actions=${hasChanges && html`<div class="actions"><${ScheduleChanges} schedule=${schedule} reload=${reload} noun=${html`<span class="sr"> ${name}</span>`} /></div>`}>
    <p><a href=${to(["schedules", name])}>${name}</a> ${rule}</p>
    ${refused && html`<p class="reason">The schedule cannot fire and tries again: ${refused}</p>`}
    ${paused ? html`<p class="reason">Paused <${When} at=${paused} /> ${note}</p>` : html`<${Loading} loaded=${loaded}>${(/** @type {any} */ { items }) => html`<${Table} label=${`Next starts of ${name}`} columns=${[`Schedule time (${zone})`, ["When", "number"]]}>${items.map((/** @type {string} */ at) => html`<tr key=${at}><td>${instant(at, zone)}</td><td class="number">${ago(at, now)}</td></tr>`)}<//>`}<//>`}<//>`;
}

/** Return the lines of a content. A comma at the end of a line is no difference.
 * @param {unknown} content */
const linesOf = (content) => pretty(content).replace(/,$/gm, "");

/** The content of a version, or its differences from another one.
 * @param {{found: any, other: string, back: string}} props back: the address without the differences */
function Content({ found, other, back }) {
  const differs = other && other !== found.version;
  const loaded = useData(differs ? `workflows/${part(found.name)}` : null, { version: other }, []);
  if (!differs) return html`<${Section} title="Content"><${Code} label="Content" text=${pretty(found.content)} /><//>`;
  return html`<${Section} title=${html`Changes from <${Hash} of=${other} /> to <${Hash} of=${found.version} />`} actions=${html`<a href=${back}>Content</a>`}>
    <${Loading} loaded=${loaded}>${(/** @type {any} */ before) => { const lines = compare(linesOf(before.content), linesOf(found.content)); return lines.length ? html`<pre tabIndex="0" role="group" aria-label="Changes"><code>${lines.map(([mark, line], at) => html`<span key=${at} class=${mark === "+" ? "c-good" : mark === "-" ? "c-bad" : undefined}>${`${mark} ${line}\n`}</span>`)}</code></pre>` : html`<p class="dim">No changes</p>`; }}<//><//>`;
}

/** @param {{name: string, found: any, versions: any, query: Record<string, string>, reload: () => void}} props */
function Details({ name, found, versions, query, reload }) {
  const [open, show] = useState("");
  const filter = `workflow:${quote(name)}`;
  const listed = useData(may("workflows.read") ? "runs" : null, { filter, limit: RUNS, expand: "steps" }, ["job"], 5000);
  const planned = useData(may("schedules.read") ? "schedules" : null, { workflow: found.name }, ["job"], 30_000);
  const runs = (listed.data?.items ?? []).map((/** @type {any} */ run) => ({ ...run, marks: (run.marks ?? []).map(withSignal) }));
  const chosen = query.run ? runs.find((/** @type {any} */ run) => run.run_id === query.run) : runs[0];
  const schedules = planned.data?.items ?? [];
  const single = schedules.length === 1 ? schedules[0] : null;
  const activate = async () => { await send(`workflows/${part(name)}/activate`, { version: open }); notify("Activated."); reload(); };
  const canActivate = may("definitions.change") && !versions.items.some((/** @type {any} */ one) => one.is_shared);
  const canChange = may("schedules.operate");
  const close = () => show("");
  const here = (/** @type {Record<string, string>} */ changes) => to(["workflows", name], { version: query.version, run: query.run, from: query.from, ...changes });
  return html`<${Head} of=${{ path: `workflows/${part(name)}`, query: { version: found.version } }} title=${name} sub=${html`<span>Version <${Hash} of=${found.version} />${found.is_current ? ", current" : ""}${found.is_shared ? ", shared by all tenants" : ""}</span>
      ${single && html`<span>${single.rule}${single.paused ? ", paused" : single.next && html`, next <${When} at=${single.next} />`}</span>`}`}>
      ${may("jobs.submit") && html`<button type="button" class="primary" onClick=${() => show("start")}>Start a run …</button>`}
      ${single && canChange && html`<${ScheduleChanges} schedule=${single} reload=${planned.reload} noun=" schedule" />`}<//>
    ${may("workflows.read") && html`<${Loading} loaded=${listed}>${() => runs.length
      ? html`<div class="last-runs"><${Grid} runs=${runs} chosen=${chosen} choose=${(/** @type {string} */ run) => here({ run })} />${chosen ? html`<${ChosenRun} run=${chosen} />` : html`<p>That run is not among the last ${RUNS}. <a href=${to(["runs", query.run])}>Open the run</a></p>`}</div>
        <${Section} title="Runs" actions=${html`<a href=${to("runs", { filter })}>All runs</a>`}><${RunTable} runs=${runs.slice(0, LISTED)} isOfOne /><//>`
      : html`<${Section} title="Last runs"><p class="dim">No runs yet.</p><//>`}<//>`}
    <div class="two">${runs.length > 0 && html`<${SlowestSteps} runs=${runs} />`}
    <${Loading} loaded=${planned}>${() => schedules.slice(0, SCHEDULES).map((/** @type {any} */ one) => html`<${NextStarts} key=${one.name} schedule=${one} reload=${planned.reload} hasChanges=${!single && canChange} />`)}<//>
    ${schedules.length > SCHEDULES && html`<p><a href=${to("schedules")}>${schedules.length - SCHEDULES} more schedules</a></p>`}
    <${Section} title="Versions"><${Table} label="Versions" columns=${["Version", "Stored", "State", ""]}>${versions.items.map((/** @type {any} */ one) => html`<tr key=${one.version} data-row aria-current=${one.version === found.version ? "true" : undefined}>
      <td><a href=${here({ version: one.version, from: "" })}><${Hash} of=${one.version} /></a></td><td><${When} at=${one.at} /></td><td>${one.is_current ? "current" : ""}</td>
      <td><div class="actions">${one.version !== found.version && html`<a href=${here({ from: one.version })}>Compare<span class="sr"> with ${one.version}</span></a>`}${canActivate && !one.is_current && html`<button type="button" onClick=${() => show(one.version)}>Activate<span class="sr"> ${one.version}</span> …</button>`}</div></td></tr>`)}<//><//>
    <${Content} found=${found} other=${query.from ?? ""} back=${here({ from: "" })} /></div>
    ${open === "start" ? html`<${StartRun} key=${found.version} name=${name} found=${found} close=${close} />` : open && html`<${Confirm} title="Activate the version" verb="Activate" close=${close} act=${activate}><p>Runs without a version get <${Hash} of=${open} /> from now on. Runs that have started keep theirs.</p><//>`}`;
}

function Workflow({ name, query }) {
  const loaded = useData(`workflows/${part(name)}`, { version: query.version ?? "" }, []);
  const versions = useData(`workflows/${part(name)}/versions`, {}, []);
  const reload = () => { loaded.reload(); versions.reload(); };
  return html`<${Loading} loaded=${loaded} title=${name}>${(/** @type {any} */ found) => html`<${Loading} loaded=${versions} title=${name}>${(/** @type {any} */ all) => html`<${Details} name=${name} found=${found} versions=${all} query=${query} reload=${reload} />`}<//>`}<//>`;
}

function List({ cursor }) {
  const loaded = useData("workflows", { cursor, limit: 100 }, []);
  return html`<${Head} of=${loaded} title="Workflows" /><${Loading} loaded=${loaded}>${(/** @type {any} */ { items, next }) => html`
    ${items.length
      ? html`<${Table} label="Workflows" columns=${["Workflow", "Current version", "Stored", ""]}>${items.map((/** @type {any} */ one) => html`<tr key=${one.name} data-row>
          <td><a href=${to(["workflows", one.name])}>${one.name}</a>${one.is_shared && " (shared)"}</td><td><${Hash} of=${one.version} /></td><td><${When} at=${one.at} /></td>
          <td><a href=${to("runs", { filter: `workflow:${quote(one.name)}` })}>Runs<span class="sr"> of ${one.name}</span></a></td></tr>`)}<//>`
      : html`<${Empty} title="No workflows"><p>Store the workflow of a file:</p><${Code} label="Example" text="taskmq workflow apply nightly.yml" /><//>`}
    <${Pager} next=${next} />`}<//>`;
}

export default function Workflows({ rest, query }) {
  return rest.length ? html`<${Workflow} name=${rest[0]} query=${query} />` : html`<${List} cursor=${query.cursor ?? ""} />`;
}
