// @ts-check
/** Workflows by name; one workflow with its versions, and a form that starts a run. */
import { may, part, send } from "../lib/api.js";
import { useData } from "../lib/data.js";
import { useMoreFields, ValueForm } from "../lib/fields.js";
import { pretty, quote } from "../lib/format.js";
import { Grid } from "../lib/grid.js";
import { html, useState } from "../lib/html.js";
import { Code, Confirm, Empty, Hash, Head, Loading, notify, Pager, Section, Table, When } from "../lib/parts.js";
import { go, to } from "../lib/route.js";

/** @param {{name: string, found: any}} props */
function StartForm({ name, found }) {
  const more = useMoreFields("StartRunBody", ["params", "version"]);
  const properties = found.content.params ?? {};
  // Those with a default may be left out.
  const required = Object.keys(properties).filter((each) => properties[each].default === undefined);
  const start = async (/** @type {unknown} */ params) => {
    const { run_id } = await send(`workflows/${part(name)}/start`, { params, version: found.version, ...more.payload() });
    notify("Started.");
    go(["runs", run_id]);
  };
  return html`<${Section} title="Start a run"><${ValueForm} schema=${{ type: "object", properties, required }} verb="Start" act=${start} none="The workflow has no parameters.">${more.form}<//><//>`;
}

function Details({ name, found, versions, reload }) {
  const [chosen, choose] = useState("");
  const activate = async () => { await send(`workflows/${part(name)}/activate`, { version: chosen }); notify("Activated."); reload(); };
  const canActivate = may("definitions.change") && !versions.items.some((/** @type {any} */ one) => one.is_shared);
  return html`<${Head} of=${{ path: `workflows/${part(name)}`, query: { version: found.version } }} title=${name} sub=${html`<span>Version <${Hash} of=${found.version} />${found.is_current ? ", current" : ""}${found.is_shared ? ", shared by all tenants" : ""}</span>`}><a href=${to("runs", { filter: `workflow:${quote(name)}` })}>Runs</a><//>
    ${may("workflows.read") && html`<${Grid} workflow=${name} />`}
    <div class="two"><div>${may("jobs.submit") && html`<${StartForm} key=${found.version} name=${name} found=${found} />`}
      <${Section} title="Versions"><${Table} label="Versions" columns=${["Version", "Stored", "State", ...(canActivate ? [""] : [])]}>${versions.items.map((/** @type {any} */ one) => html`<tr key=${one.version} data-row aria-current=${one.version === found.version ? "true" : undefined}>
        <td><a href=${to(["workflows", name], { version: one.version })}><${Hash} of=${one.version} /></a></td><td><${When} at=${one.at} /></td><td>${one.is_current ? "current" : ""}</td>
        ${canActivate && html`<td><div class="actions">${!one.is_current && html`<button type="button" onClick=${() => choose(one.version)}>Activate<span class="sr"> ${one.version}</span> …</button>`}</div></td>`}</tr>`)}<//><//></div>
    <${Section} title="Content"><${Code} label="Content" text=${pretty(found.content)} /><//></div>
    ${chosen && html`<${Confirm} title="Activate the version" verb="Activate" close=${() => choose("")} act=${activate}><p>Runs without a version get <${Hash} of=${chosen} /> from now on. Runs that have started keep theirs.</p><//>`}`;
}

function Workflow({ name, version }) {
  const loaded = useData(`workflows/${part(name)}`, { version }, []);
  const versions = useData(`workflows/${part(name)}/versions`, {}, []);
  const reload = () => { loaded.reload(); versions.reload(); };
  return html`<${Loading} loaded=${loaded} title=${name}>${(/** @type {any} */ found) => html`<${Loading} loaded=${versions} title=${name}>${(/** @type {any} */ all) => html`<${Details} name=${name} found=${found} versions=${all} reload=${reload} />`}<//>`}<//>`;
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

export default function Workflows({ rest, query: { version = "", cursor = "" } }) {
  return rest.length ? html`<${Workflow} name=${rest[0]} version=${version} />` : html`<${List} cursor=${cursor} />`;
}
